"""x[B, T, D] -> one vector a sequence [B, D]"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights
from seqspec.ops.padding import last_columns


@dataclass(frozen=True)
class Pool(Op):
    """x[B, T, D], mask[B, S]? -> [B, D]: the first or last real token, or the mean or maximum over the real ones.

    The last T columns of the mask count. A row without any real token gives zeros.
    """

    kind: Literal["first", "last", "mean", "max"]

    def infer(self, x: Value, mask: Value | None) -> tuple[Type, ...]:
        if len(x.shape) != 3:
            raise ShapeError(f"a sequence [B, T, D] is pooled, not {show(x.shape)}")
        return (Type((x.shape[0], x.shape[2]), x.dtype),)

    def flops(self, x: Value, mask: Value | None) -> Size:
        return prod(x.shape) if self.kind == "mean" else 0

    def reference(self, np: Any, weights: Weights, x: Array, mask: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None) -> tuple[Any, ...]:
        raise NotImplementedError
