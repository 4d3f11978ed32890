"""The examples, shrunk: the same numbers at once and in chunks, padded and alone, in a batch and single, in ONNX."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import seqspec

from . import batches, of_onnx, of_torch
from .batches import Kind, Side
from .case import Case
from .strategy import Spec

ROOT = Path(__file__).parents[2]
SHRINK = runpy.run_path(str(ROOT / "tests" / "models" / "shrink.py"))["shrink"]
CHECKS = (
    *of_torch.OF_EVERY_SPEC,
    of_torch.the_future_is_not_seen,
    *(prop.check for prop in of_onnx.PROPERTIES),
)


def small(path: Path) -> Spec:
    return Spec(SHRINK(seqspec.load(path)).model_dump(by_alias=True, exclude_none=True))


EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_holds_for_an_example(path: Path) -> None:
    spec, paddings = small(path), ("left", "right", "holes")
    for padding in paddings:
        case = Case(spec, _batch(spec, padding))
        for check in CHECKS:
            check(case)


def _batch(spec: Spec, padding: Kind) -> batches.Batch:
    stacks = list(spec.model.stacks)
    sides = tuple(
        Side("decoder_" if name == "decoder" and len(stacks) > 1 else "", 9 if name == stacks[-1] else 7, padding,
             by_ids=False, placed=False, typed=True)
        for name in stacks
    )  # fmt: skip
    return batches.fill(spec, 3, sides, (4, 0, 1, 4), seed=5)
