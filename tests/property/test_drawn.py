"""The strategies draw the whole language: every class that a spec may name, and every field of it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import chain
from typing import Any

from hypothesis import strategies as st

import seqspec
from seqspec.components.base import Component
from seqspec.components.stack import Stack
from seqspec.spec.fields import components, fields, keys_instead, kinds, leaves, reachable

from . import parts, strategy
from .rounds import SHORT, examples, values

Kind = type[Component]
NOT_DRAWN = {
    ("Model", "tokenizer"): "names a file that makes ids of text, and changes no number of a model",
    ("Tokenizer", "file"): "the same",
    ("Tokenizer", "start"): "the same",
    ("Tokenizer", "eos"): "the same",
}
"""Fields that no strategy writes, each with a reason."""


READ = {"input": {"kind": "features", "size": 3}, "layers": [{"kind": "lstm", "hidden_size": 2, "bidirectional": True}]}
SAYING = {"d_model": 4, "position": "rope", "norm": "layernorm", "norm_placement": "pre", "final_norm": True,
          "bias": True, "dropout": 0.1, "residual_scale": 2.0, "init_scale": 2.0}  # fmt: skip


def test_every_field_is_drawn() -> None:
    missing = {(cls.__name__, key) for cls in reachable(seqspec.Model) for key in fields(cls)} - NOT_DRAWN.keys()
    for pair in _drawn():
        missing.discard(pair)
        if not missing:
            return
    raise AssertionError(sorted(missing))


def _drawn() -> Iterator[tuple[str, str]]:
    """(class, key) of what is drawn; whole stacks, in which anything may be, come last."""
    for case in examples(SHORT[0]):
        yield from _fields(seqspec.Model, case.spec.data)
    for defaults in values(_changed(strategy.hoisted, {"encoder": SAYING}), 2):
        yield from _fields(seqspec.Model, defaults)
    both = {name: {"input": {"kind": "tokens", "vocab_size": 5, "d_model": 4}} for name in ("encoder", "decoder")}
    yield from (pair for shared in values(_changed(strategy.share, both), 1) for pair in _fields(seqspec.Model, shared))
    for heads in values(st.dictionaries(st.just("x"), parts.heads(True, True, True, True)), 10):
        yield from _fields(seqspec.Model, {"outputs": {k: v for k, v in heads.items() if v}})
    for block in values(_cheap(), 5):
        yield from _fields(Stack, {"layers": [{"block": block}]})
    source = strategy.Spec({"encoder": READ, "seqspec": 1, "name": "x"})
    for stack in chain.from_iterable(zip(*(values(s, 30) for s in _stacks(source)), strict=False)):
        yield from _fields(Stack, stack)


def _stacks(source: strategy.Spec) -> tuple[st.SearchStrategy[parts.Plain], ...]:
    return strategy.stacks("encoder"), strategy.stacks("decoder"), strategy.readers(source)


@st.composite
def _cheap(draw: st.DrawFn) -> list[parts.Plain]:
    """A block of what is rare in stacks."""
    return parts.joined_up(draw, [draw(parts.cheap_attentions(4, False))])


@st.composite
def _changed(draw: st.DrawFn, change: Any, data: dict[str, Any]) -> dict[str, Any]:
    """What a function of strategy.py makes of a spec that it may change."""
    found = deepcopy(data)
    return (change(draw, found) or {}) | found


def _fields(cls: Kind, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(class, key) of all that a mapping of this class says."""
    known = fields(cls)
    for key, inner in value.items():
        yield cls.__name__, key
        yield from _inside(leaves(known[key].annotation), inner)


def _inside(alternatives: list[Any], value: Any) -> Iterator[tuple[str, str]]:
    """The same of a value under a key; a word stands for the kind that it names."""
    found = [arg for leaf in alternatives for arg in getattr(leaf, "__args__", ())]
    if isinstance(value, list):
        for item in value:
            yield from _inside([leaf for arg in found for leaf in leaves(arg)], item)
        return
    named = kinds(alternatives)
    if isinstance(value, str):
        if value in named:
            yield named[value].__name__, "kind"
        return
    if not isinstance(value, dict):
        return
    if found and not components(alternatives):  # a mapping of names
        for item in value.values():
            yield from _inside([leaf for arg in found for leaf in leaves(arg)], item)
        return
    instead = [cls for key, cls in keys_instead(alternatives).items() if key in value]
    plain = [cls for cls in components(alternatives) if not kinds([cls])]
    chosen = [named[value["kind"]]] if "kind" in value else instead or plain
    for cls in chosen[:1]:
        yield from _fields(cls, value)
