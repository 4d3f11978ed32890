"""ids[...] -> table[id] [..., D]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class Embedding(Op):
    """ids[...] -> weight[id] [..., D]; weight[count, D] starts normal with standard deviation 0.02.

    0.02 is that of GPT-2 and BERT. nn.Embedding's 1.0 would make the logits of a tied head √D times too large at first.
    """

    by_order = True

    count: int
    width: int

    def infer(self, ids: Value) -> tuple[Type, ...]:
        _check_ids(ids)
        return (Type((*ids.shape, self.width)),)

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (self.count, self.width), init=Init("normal", (0.02,))),)

    def flops(self, ids: Value) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield inputs[0]

    def reference(self, np: Any, weights: Weights, ids: Array) -> tuple[Array, ...]:
        return (weights["weight"][ids],)

    def declare(self) -> str:
        return f"nn.Embedding({self.count}, {self.width})"

    def torch(self, t: TorchWriter, ids: Expr) -> Expr:
        return Expr(f"{t.module}({ids})")

    def onnx(self, o: OnnxWriter, ids: Any) -> tuple[Any, ...]:
        return (o.Gather(o.param("weight"), ids, axis=0),)


@primitive
class Lookup(Op):
    """ids[...], table[count, D] -> table[id] [..., D], where another part owns the table."""

    by_order = True

    def infer(self, ids: Value, table: Value) -> tuple[Type, ...]:
        _check_ids(ids)
        return (Type((*ids.shape, table.shape[1]), table.dtype),)

    def flops(self, ids: Value, table: Value) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield inputs[0]

    def reference(self, np: Any, weights: Weights, ids: Array, table: Array) -> tuple[Array, ...]:
        return (table[ids],)

    def torch(self, t: TorchWriter, ids: Expr, table: Expr) -> Expr:
        return Expr(f"F.embedding({ids}, {table})")

    def onnx(self, o: OnnxWriter, ids: Any, table: Any) -> tuple[Any, ...]:
        return (o.Gather(table, ids, axis=0),)


def _check_ids(ids: Value) -> None:
    if ids.dtype != "int64":
        raise ShapeError(f"an embedding reads int64 ids, not {ids.dtype}{show(ids.shape)}")
