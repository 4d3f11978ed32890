"""Inputs that do not fit are refused when the graph is built, with the numbers that do not agree."""

from __future__ import annotations

import pytest
from cases import B, S, T

from seqspec.graph.dims import ENCODER_TIME, Shape, dim
from seqspec.graph.ir import Value
from seqspec.graph.types import DType, ShapeError
from seqspec.ops.alignment import LocalAlignment, RealPlaces
from seqspec.ops.attend import DotScores
from seqspec.ops.attention import Attention
from seqspec.ops.base import Op
from seqspec.ops.cache import Append
from seqspec.ops.cells import GruCell
from seqspec.ops.conv import Conv1d, PatchEmbedding
from seqspec.ops.elementwise import Add
from seqspec.ops.embedding import Embedding
from seqspec.ops.frames import ChannelsLast, ClassToken, RealFirst
from seqspec.ops.initial_state import GivenState
from seqspec.ops.linear import Linear, PartLinear, TiedPartLinear
from seqspec.ops.norm import LayerNorm, RMSNorm
from seqspec.ops.open_cell import InputGates, OpenCell
from seqspec.ops.padding import Padding
from seqspec.ops.pool import Pool
from seqspec.ops.positions import Positions
from seqspec.ops.rope import Rope, RopeTables
from seqspec.ops.shape import Concat, MergeHeads, SplitHeads, Squeeze, Unsqueeze
from seqspec.ops.window import AppendWindow

FEATURES: Shape = (B, T, 6)


def value(shape: Shape, dtype: DType = "float") -> Value:
    return Value("x", shape, dtype)


def heads(count: int, time: object = T, width: int = 6) -> Value:
    return value((B, count, time, width))  # type: ignore[arg-type]


REFUSED: list[tuple[Op, list[Value | None], str]] = [
    (Linear(5, 2), [value(FEATURES)], r"width 5 is given \[batch_size, sequence_length, 6\]"),
    (LayerNorm(5), [value(FEATURES)], "norm of width 5"),
    (RMSNorm(7), [value(FEATURES)], "norm of width 7"),
    (Embedding(9, 3), [value((B, T))], "int64 ids, not float"),
    (Add(), [value(FEATURES), value((B, T, 5))], r"6\] and .*5\] do not go together"),
    (Add(), [value(FEATURES), value((B, dim(ENCODER_TIME), 6))], "do not go together"),
    (Concat(), [value(FEATURES), value((B, S, 6))], "cannot be joined"),
    (Squeeze(-1), [value(FEATURES)], "axis -1 .* is not of size 1"),
    (Unsqueeze(4), [value(FEATURES)], "cannot get an axis at 4"),
    (SplitHeads(4, 2), [value(FEATURES)], "4 heads of width 2"),
    (MergeHeads(), [value(FEATURES)], "heads are merged from"),
    (Append("key"), [value(FEATURES)], "a cache holds"),
    (AppendWindow(("key", "value"), 3), [heads(4), heads(2), value((B, S), "bool")], "do not go together"),
    (AppendWindow(("key", "value"), 3), [heads(4), heads(4), value((S,), "bool")], "does not say which"),
    (Padding(0), [value(FEATURES), None], "pad_id 0 is looked for in ids"),
    (Padding(0), [value((B, T), "int64"), value((B, S), "int64")], "the mask of .* is"),
    (Positions(True), [value((B, T), "int64"), None, None], "counted in a mask"),
    (Positions(), [value((B, T), "int64"), None, value((B, S), "int64")], "position_ids are"),
    (RopeTables(65, 1e4), [value((B, T), "int64"), value(FEATURES)], "65 is odd"),
    (Rope("half_split", 8), [heads(4), value((B, T, 4)), value((B, T, 4))], "8 channels .* heads of width 6"),
    (Rope("half_split", 4), [heads(4), value((B, T, 3)), value((B, T, 3))], "4 channels cannot be turned by 3"),
    (Rope("half_split", 4), [value(FEATURES), value((B, T, 2)), value((B, T, 2))], r"turn \[B, H, T, d\]"),
    (Attention(), [heads(7), heads(2), heads(2), None], "7 query heads cannot share 2 key heads"),
    (Attention(), [heads(4), heads(8), heads(8), None], "4 query heads cannot share 8"),
    (Attention(), [heads(8), heads(0), heads(0), None], "8 query heads cannot share 0"),
    (Attention(), [heads(8), heads(4, width=5), heads(4), None], "width 6 meet keys of width 5"),
    (Attention(), [heads(8), heads(4), heads(2), None], "do not go together"),
    (Attention(), [heads(8), heads(4, S), heads(4, S), value((B, T), "bool")], "the mask of keys"),
    (Attention(), [value(FEATURES), heads(4), heads(4), None], "attention takes"),
    (Pool("mean"), [heads(4), None], "is pooled"),
    (PartLinear(5, 2, 3), [value(FEATURES)], "width 5 is given"),
    (TiedPartLinear(3), [value(FEATURES), value((7, 8))], "behind column 3"),
    (DotScores(), [value((B, 5)), value(FEATURES)], "a query .* does not fit keys"),
    (RealPlaces(), [value(FEATURES), value((B, S), "bool")], "does not fit a memory"),
    (LocalAlignment(2), [value((B, T)), *map(value, [(B, 2), (B, T), (B, 1)])], "do not fit scores"),
    (Conv1d(5, 2, 3), [value(FEATURES)], "a convolution of 5 channels"),
    (PatchEmbedding(3, 8, 4), [value((B, 1, 8, 8))], "3 channels are cut from"),
    (PatchEmbedding(1, 8, 4), [value((B, 1, 8, 9))], "9 pixels are not cut into patches of 4"),
    (RealFirst(), [value(FEATURES), value((B, S), "bool")], "the mask of"),
    (ClassToken(5), [value(FEATURES)], "a token of width 5"),
    (ChannelsLast(), [heads(2)], "are put last"),
    (InputGates(), [value(FEATURES), value((8, 5))], r"weights \[8, 5\] cannot read"),
    (OpenCell(GruCell(3, 4), 2), [value((B, 12)), None, value((B, 4))], "12 gates and 1 more inputs"),
    (GivenState(2, 5), [value((B, 1, 5)), value(FEATURES)], "an initial state is"),
]


@pytest.mark.parametrize(("op", "inputs", "message"), REFUSED, ids=lambda x: repr(x) if isinstance(x, Op) else "")
def test_what_does_not_fit_is_refused(op: Op, inputs: list[Value | None], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        op.infer(*inputs)
