"""softmax(q kᵀ · scale) v over the keys that a query may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights
from seqspec.ops.masks import EVERYTHING, Band, Mask, normalise


@dataclass(frozen=True)
class Attention(Op):
    """q[B, H, T, d], k[B, G, S, d], v[B, G, S, e], mask[B, S]? -> softmax(q kᵀ · scale) v [B, H, T, e].

    Query i sits at key S − T + i (aligned to the end), and sees the keys that `mask` allows among those whose mask[B, S]
    is True (real). Distances count real tokens, so that padding anywhere changes nothing. A query that sees no key gives
    zeros. Query head h reads key head h // (H / G). `scale` None is 1/√d. `softcap` c makes a score c · tanh(score / c),
    before masking. `dropout` acts on the weights while training.
    """

    mask: Mask = EVERYTHING
    scale: float | None = None
    dropout: float = 0.0
    softcap: float | None = None

    def infer(self, q: Value, k: Value, v: Value, mask: Value | None) -> tuple[Type, ...]:
        _check(q, k, v, mask)
        return (Type((*q.shape[:3], v.shape[3]), q.dtype),)

    def flops(self, q: Value, k: Value, v: Value, mask: Value | None) -> Size:
        batch, heads, queries, width = q.shape
        pairs = normalise(self.mask).pairs(_number(queries), _number(k.shape[2]))
        return 2 * batch * heads * pairs * (width + v.shape[3])

    def reference(
        self, np: Any, weights: Weights, q: Array, k: Array, v: Array, mask: Array | None
    ) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, q: Expr, k: Expr, v: Expr, mask: Expr | None) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, q: Any, k: Any, v: Any, mask: Any | None) -> tuple[Any, ...]:
        raise NotImplementedError


def _check(q: Value, k: Value, v: Value, mask: Value | None) -> None:
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise ShapeError(f"attention takes [B, H, T, d], not {show(q.shape)}, {show(k.shape)}, {show(v.shape)}")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
        raise ShapeError(f"queries {show(q.shape)}, keys {show(k.shape)} and values {show(v.shape)} do not go together")
    if q.shape[3] != k.shape[3]:
        raise ShapeError(f"queries of width {q.shape[3]} meet keys of width {k.shape[3]}")
    heads, groups = _number(q.shape[1]), _number(k.shape[1])
    if groups < 1 or heads % groups:
        raise ShapeError(f"{heads} query heads cannot share {groups} key heads evenly")
    if mask is not None and mask.shape != (k.shape[0], k.shape[2]):
        raise ShapeError(f"the mask of keys {show(k.shape)} is [B, S], not {show(mask.shape)}")


def _number(size: Size) -> int:
    if not isinstance(size, int):
        raise ShapeError(f"{size} must be a plain number here")
    return size
