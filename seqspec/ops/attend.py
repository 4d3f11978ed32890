"""The parts of the attention of one recurrent step over a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

MASKED_SOFTMAX = Helper(
    "masked_softmax",
    '''
def masked_softmax(scores, mask):
    """scores[B, S], mask[B, S] or None -> softmax over what is True; an empty row gives zeros, and finite gradients"""
    if mask is None:
        return scores.softmax(-1)
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return scores.softmax(-1).masked_fill(~mask, 0.0)
''',
)


@primitive
class MaskedSoftmax(Op):
    """scores[B,S], mask[B,S]? -> softmax over the True columns [B,S]. A row without any gives zeros."""

    def infer(self, scores: Value, mask: Value | None = None) -> tuple[Type, ...]:
        if mask is not None and mask.shape != scores.shape:
            raise ShapeError(f"a mask {show(mask.shape)} does not fit scores {show(scores.shape)}")
        return (Type(scores.shape),)

    def flops(self, scores: Value, mask: Value | None = None) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield outputs[0]

    def reference(self, np: Any, weights: Weights, scores: Array, mask: Array | None = None) -> tuple[Array, ...]:
        y = np.zeros_like(scores)
        for row, out, real in zip(scores, y, np.ones(scores.shape, bool) if mask is None else mask, strict=True):
            if real.any():
                e = np.exp(row[real] - row[real].max())
                out[real] = e / e.sum()
        return (y,)

    def torch(self, t: TorchWriter, scores: Expr, mask: Expr | None = None) -> Expr:
        if mask is None:
            return Expr(f"{scores.tight}.softmax(-1)")
        return Expr(f"{t.use(MASKED_SOFTMAX)}({scores}, {mask})")

    def onnx(self, o: OnnxWriter, scores: Any, mask: Any = None) -> tuple[Any, ...]:
        scores = o.cast(scores, "float32")
        if mask is None:
            return (o.cast(o.Softmax(scores, axis=-1), "float"),)
        weights = o.cast(o.Softmax(o.Where(mask, scores, o.scalar(float("-inf"), "float32")), axis=-1), "float")
        return (o.Where(mask, weights, o.scalar(0.0)),)  # the softmax of an empty row is NaN


@primitive
class WeightedSum(Op):
    """weights[B,S], memory[B,S,M] -> Σₛ weights · memory [B,M]"""

    def infer(self, weights: Value, memory: Value) -> tuple[Type, ...]:
        if weights.shape != memory.shape[:-1]:
            raise ShapeError(f"weights {show(weights.shape)} do not fit a memory {show(memory.shape)}")
        return (Type((memory.shape[0], memory.shape[-1])),)

    def flops(self, weights: Value, memory: Value) -> Size:
        return 2 * prod(memory.shape)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, each: Array, memory: Array) -> tuple[Array, ...]:
        return ((each[:, :, None] * memory).sum(1),)

    def torch(self, t: TorchWriter, weights: Expr, memory: Expr) -> Expr:
        return Expr(f"({weights.tight}.unsqueeze(1) @ {memory.tight}).squeeze(1)")

    def onnx(self, o: OnnxWriter, weights: Any, memory: Any) -> tuple[Any, ...]:
        return (o.Squeeze(o.MatMul(o.Unsqueeze(weights, o.ints(1)), memory), o.ints(1)),)


@primitive
class DotScores(Op):
    """query[B,A], keys[B,S,A] -> query · key [B,S]"""

    def infer(self, query: Value, keys: Value) -> tuple[Type, ...]:
        if query.shape != (keys.shape[0], keys.shape[-1]):
            raise ShapeError(f"a query {show(query.shape)} does not fit keys {show(keys.shape)}")
        return (Type(keys.shape[:-1]),)

    def flops(self, query: Value, keys: Value) -> Size:
        return 2 * prod(keys.shape)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, query: Array, keys: Array) -> tuple[Array, ...]:
        return ((query[:, None] * keys).sum(-1),)

    def torch(self, t: TorchWriter, query: Expr, keys: Expr) -> Expr:
        return Expr(f"({keys.tight} @ {query.tight}.unsqueeze(-1)).squeeze(-1)")

    def onnx(self, o: OnnxWriter, query: Any, keys: Any) -> tuple[Any, ...]:
        return (o.Squeeze(o.MatMul(keys, o.Unsqueeze(query, o.ints(2))), o.ints(2)),)
