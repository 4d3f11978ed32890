"""The JSON Schema: up to date, documented, and never stricter than the validator."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from specs import INVALID, SOUND

import seqspec
from seqspec.document import load
from seqspec.spec.schema import schema, text

STORED = Path(__file__).parents[2] / "schemas/seqspec-1.schema.json"
VALIDATOR = Draft7Validator(schema())
# Codes of faults that a schema can see: fields, kinds, types, ranges; not what fields mean together.
SEEN = {f"SEQ{number}" for number in (101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115)}


def test_the_stored_schema_is_up_to_date() -> None:
    assert STORED.read_text() == text(), "run `seqspec schema > schemas/seqspec-1.schema.json`"


def test_it_is_a_schema() -> None:
    Draft7Validator.check_schema(schema())


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_it_accepts_what_is_sound(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(load(path).data)] == []


def test_it_accepts_what_is_laid_over_another() -> None:
    assert VALIDATOR.is_valid({"extends": "base.yaml", "decoder": {"d_model": 8}})
    assert not VALIDATOR.is_valid({"extends": "base.yaml", "decodr": {}})


TOGETHER = {
    "audio-kernel-even",  # that a number is odd no schema of ours says
    "conv-even",
    "llama3-factors",
    "lm-of-features",
    "name-underscore",  # nor what PyTorch means by a name
    "outputs-and-head",
    "share-target",
    "window-both",
    "window-neither",
}


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_it_refuses_only_what_is_wrong(path: Path) -> None:
    """And everything that is wrong with one field, but for what JSON itself does not tell apart."""
    codes = {d.code for d in seqspec.check(path)}
    if "SEQ004" in codes:  # not a document
        return
    data = load(path).data
    refused = not VALIDATOR.is_valid(data)
    if path.stem in ("heads-float", "int-1e5", "eps-nan", "theta-inf"):
        return  # in JSON Schema 8.0 is an integer, and JSON has no nan
    if path.stem in TOGETHER:
        assert not refused  # fields that are wrong together
        return
    if path.stem == "name-number" or codes & SEEN:
        assert refused, codes
    else:
        assert not refused, codes


def test_every_field_and_kind_is_documented() -> None:
    document = schema()
    lacking = []
    for name, definition in {"root": document["else"], **document["definitions"]}.items():
        if "properties" in definition and not name.startswith("any_"):
            lacking += [name] if not definition["description"] else []
            fields = definition["properties"].items()
            lacking += [f"{name}.{field}" for field, inner in fields if field != "kind" and "description" not in inner]
    known = {f"Biases.{part}" for part in ("query", "key", "value", "output")}
    known |= {f"DropoutRates.{part}" for part in ("input", "residual", "attention", "inner")}
    assert set(lacking) <= known | {"AllOf.all", "AnyOf.any"}


# ---- mutants ---------------------------------------------------------------------------------------------------------


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from spots(inner, (*path, key))


def mutant(spec: Any, chance: random.Random) -> Any:
    """The spec with one thing changed: a value, a key, one key less or one more."""
    spec = copy.deepcopy(spec)
    path = chance.choice(list(spots(spec)))
    parent = spec
    for part in path[:-1]:
        parent = parent[part]
    values = [0, 1, -1, 7, 2.5, True, False, "", "word", "none", "causal", "relu", [], {}, [1], {"kind": "none"}, "9_0"]
    move, old = chance.randrange(6), parent[path[-1]]
    if move > 3 and isinstance(old, int) and not isinstance(old, bool):
        parent[path[-1]] = 2 * old
    elif move == 0 or isinstance(parent, list):
        parent[path[-1]] = chance.choice(values)
    elif move == 1:
        del parent[path[-1]]
    elif move == 2:
        parent[f"{path[-1]}s"] = parent.pop(path[-1])
    else:
        names = ["heads", "dropout", "bias", "kind", "norm", "repeat", "block", "mask", "name", "from", "extends"]
        parent[chance.choice(names)] = chance.choice(values)
    return spec


@pytest.mark.parametrize("seed", range(12))
def test_mutants_that_are_accepted_pass_the_schema(seed: int) -> None:
    chance = random.Random(seed)
    specs = [load(path).data for path in SOUND]
    refused = accepted = 0
    for _ in range(60):
        spec = mutant(chance.choice(specs), chance)
        codes = {d.code for d in seqspec.check(spec)}
        if VALIDATOR.is_valid(spec):
            accepted += 1
            assert not codes & {"SEQ101", "SEQ103", "SEQ105", "SEQ108", "SEQ113"}, (spec, codes)
        else:
            refused += 1
            assert codes, spec
    assert refused > 10
    assert accepted
