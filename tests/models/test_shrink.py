"""Every example shrinks to a model of the same kinds, small enough to run."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest
from shrink import shrink

import seqspec

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))


def kinds(value: Any) -> Counter[str]:
    """How often each kind is written."""
    found: Counter[str] = Counter()
    if isinstance(value, dict):
        found[str(value.get("kind"))] += 1
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += kinds(inner)
    return found


def groups(model: seqspec.Model) -> list[float]:
    """Query heads to a key/value head, of every self-attention."""
    stacks = model.resolved().stacks.values()
    return [a.heads / (getattr(a, "kv_heads", None) or a.heads) for stack in stacks for a in stack.attentions()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_the_same_model_smaller(path: Path) -> None:
    model = seqspec.load(path)
    small = shrink(model)
    before, after = (
        m.model_dump(by_alias=True, exclude_none=True) for m in (model.model_copy(update={"tokenizer": None}), small)
    )
    assert kinds(after) == kinds(before)
    assert groups(small) == groups(model)
    assert sum(prod(p.shape) for p in seqspec.build(small).root.params) < 80_000
    assert shrink(small) == shrink(shrink(small))
