"""The rules of the language: defaults resolve once, what is printed reads back, and no key is without effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from specs import SOUND, saved
from unseen import UNSEEN

import seqspec
from seqspec import Model
from seqspec.document import load_text
from seqspec.graph.text import text
from seqspec.reports.count import Count
from seqspec.spec.dump import plain, resolved, written
from seqspec.spec.fields import Kind, choose, components, fields, kind_of, kinds, leaves, reachable

Way = tuple[Any, ...]
GONE = object()
"""A value for which the field is left out."""
SIZES = {"batch_size": 1, "sequence_length": 1, "past_sequence_length": 0, "encoder_sequence_length": 1}


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_resolving_twice_changes_nothing(path: Path) -> None:
    model = seqspec.load(path)
    assert model.resolved().resolved() == model.resolved()


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_the_resolved_spec_is_a_fixed_point(path: Path, tmp_path: Path) -> None:
    model = seqspec.load(path)
    printed = resolved(model)
    again = seqspec.load(saved(printed, path, tmp_path))
    assert again.resolved().model_dump() == model.resolved().model_dump()
    assert resolved(again) == printed
    assert text(seqspec.build(again)) == text(seqspec.build(model))


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_the_written_spec_reads_back(path: Path, tmp_path: Path) -> None:
    model = seqspec.load(path)
    printed = written(model)
    again = seqspec.load(saved(printed, path, tmp_path))
    assert again.model_dump() == model.model_dump()
    assert again.model_fields_set == model.model_fields_set
    assert written(again) == printed


@pytest.mark.parametrize("number", [0.1, 1e-5, 1e-12, 1 / 3, 2.5e-308, 1e22, 123456789.123, 5e-324, 1.0000000000000002])
def test_numbers_read_back_exactly(number: float) -> None:
    spec = {"kind": "rmsnorm", "eps": number}
    source = {"kind": "features", "size": 2, "norm": spec}
    encoder = {"input": source, "layers": [{"kind": "gru", "hidden_size": 2}]}
    model = seqspec.load({"seqspec": 1, "name": "x", "encoder": encoder})
    assert plain(seqspec.load(resolved(model)))["encoder"]["input"]["norm"]["eps"] == number


def test_no_class_has_a_field_called_like_its_kind() -> None:
    """Places of findings rest on this, see `document._is_tag`."""
    classes = list(reachable(Model))
    assert len(classes) > 25
    for cls in classes:
        assert kind_of(cls) not in fields(cls)


def test_no_two_kinds_of_a_union_have_one_name() -> None:
    for cls in reachable(Model):
        for field in fields(cls).values():
            chosen = [kind_of(c) for c in components(leaves(field.annotation)) if kind_of(c)]
            assert len(chosen) == len(set(chosen))


# ---- no key is a no-op -----------------------------------------------------------------------------------------------


def fingerprint(model: Model) -> str:
    """All that the graph says, its loss included, and how its parameters start."""
    graph = seqspec.build(model)
    return text(graph.trainable) + "".join(f"{p.name} {p.shape} {p.init}\n" for p in graph.root.params)


def changed(annotation: Any, value: Any) -> Iterator[Any]:
    """Other values that a field could have."""
    for leaf in leaves(annotation):
        words = get_args(leaf)
        if leaf is bool:
            yield not value if isinstance(value, bool) else True
            yield False
        elif leaf is int and not isinstance(value, bool):
            base = value if isinstance(value, int) else 1
            yield from (base + 1, base * 2, base * 4, 1, 2, 3)
        elif leaf is float and not isinstance(value, bool):
            base = value if isinstance(value, int | float) else 0.5
            yield from (base / 2, base * 2, 0.25, 0.5, 3.0)
        elif words and all(isinstance(word, str) for word in words):
            yield from (word for word in words if word != value)
        elif leaf is str:
            yield "another"
        elif isinstance(value, list):
            yield from (value[:-1], [*value, value[-1]])
            if all(isinstance(item, int | float) for item in value):
                yield [2 * item for item in value]
            if value and isinstance(value[0], int | float):
                yield [2 * value[0], *value[1:]]
    for kind, cls in kinds(leaves(annotation)).items():
        others = [name for name, field in fields(cls).items() if field.is_required() and name != "kind"]
        if not others and value != kind:
            yield kind
    yield GONE


def nodes(value: Any, alternatives: list[Any], path: Way = ()) -> Iterator[tuple[Way, Kind, Any]]:
    """Every component of a plain spec: path, class, value."""
    cls = choose(alternatives, value)
    if cls is not None:
        given = {"kind": value} if isinstance(value, str) else value
        yield path, cls, given
        for name, inner in given.items():
            yield from nodes(inner, leaves(fields(cls)[name].annotation), (*path, name))
        return
    for leaf in alternatives:
        arguments = get_args(leaf)
        if isinstance(value, list) and arguments:
            for n, item in enumerate(value):
                yield from nodes(item, leaves(arguments[0]), (*path, n))
        if isinstance(value, dict) and len(arguments) == 2:
            for key, item in value.items():
                yield from nodes(item, leaves(arguments[1]), (*path, key))


def replaced(spec: Any, path: tuple[Any, ...], name: str, value: Any) -> Any:
    """A copy with one field changed; a bare word on the way is opened."""
    if not path:
        given = {"kind": spec} if isinstance(spec, str) else spec
        rest = {key: inner for key, inner in given.items() if key != name}
        return rest if value is GONE else {**rest, name: value}
    copy = dict(spec) if isinstance(spec, dict) else list(spec)
    copy[path[0]] = replaced(spec[path[0]], path[1:], name, value)
    return copy


def effects() -> dict[tuple[str, str], bool]:
    """(class, field) -> whether some change of it, in some sound spec, changed the graph."""
    found: dict[tuple[str, str], bool] = {}
    for path in SOUND:
        model = seqspec.load(path)
        spec, before = plain(model, given=True), fingerprint(model)
        for where, cls, value in nodes(spec, [Model]):
            for name, field in fields(cls).items():
                key = (cls.__name__, name)
                if found.get(key) or name in ("kind", "seqspec"):
                    continue
                found.setdefault(key, False)
                for other in changed(field.annotation, value.get(name)):
                    mutant = replaced(spec, where, name, other)
                    if len(seqspec.check(mutant)):
                        continue  # refused, which is an effect as well, but not the one looked for
                    found[key] = fingerprint(seqspec.load(mutant)) != before
                    if found[key]:
                        break
    return found


def test_no_key_is_a_no_op() -> None:
    """Every plain field of every component changes the graph in some spec, or `unseen.py` says why not."""
    found = effects()
    every = {(cls.__name__, name) for cls in reachable(Model) for name in fields(cls)}
    assert {key for key in every if key[1] != "kind" and not found.get(key)} == set(UNSEEN)


def test_parameters_of_a_report_are_those_of_the_graph() -> None:
    for path in SOUND:
        graph = seqspec.build(seqspec.load(path))
        total = 0
        for param in graph.root.params:
            size = 1
            for axis in param.shape:
                assert isinstance(axis, int)
                size *= axis
            total += size
        assert Count(SIZES, "float32").params(graph.root)[0] == total


def test_a_key_is_text_whatever_it_looks_like() -> None:
    assert load_text("no: 1\n1: 2\n").data == {"no": 1, "1": 2}
