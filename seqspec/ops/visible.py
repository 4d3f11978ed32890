"""A mask that is more than a band, as a tensor of pairs, computed once for all attentions with this mask."""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.masks import (
    AllOf,
    AnyOf,
    Band,
    BlockSparse,
    Documents,
    Given,
    Global,
    Mask,
    Prefix,
    atoms,
    normalise,
)
from seqspec.ops.told import Told
from seqspec.ops.visible_onnx import nodes
from seqspec.ops.visible_text import REAL, text


@primitive
class Visible(Op):
    """Which keys each query sees, [B, 1, T, S]: those that `mask` allows, without padding.

    Inputs are query [B, 1, T, 1] and key [B, 1, 1, S], places on the row; real[B, S]?; then as the mask needs them
    documents[B, S] and places in documents as another two, prefix[B], and a bool[B, T, S] for each name in `given`. In
    PyTorch the first axis may be 1, for all rows.
    """

    mask: Mask

    @property
    def given(self) -> tuple[str, ...]:
        """Names of masks given at run time, in the order of their inputs."""
        return tuple(dict.fromkeys(atom.name for atom in atoms(self.mask) if isinstance(atom, Given)))

    @property
    def has_documents(self) -> bool:
        return any(isinstance(atom, Documents) for atom in atoms(self.mask))

    @property
    def has_prefix(self) -> bool:
        return any(isinstance(atom, Prefix) for atom in atoms(self.mask))

    def _told(self, query: Any, key: Any, data: tuple[Any, ...]) -> Told:
        left = iter(data)
        documents, own_query, own_key = (next(left) for _ in range(3)) if self.has_documents else (None, query, key)
        prefix = next(left) if self.has_prefix else None
        return Told(query, key, own_query, own_key, documents, prefix, dict(zip(self.given, left, strict=True)))

    def infer(self, query: Value, key: Value, real: Value | None, *data: Value) -> tuple[Type, ...]:
        told = self._told(query, key, data)
        batch, _, time, _ = query.shape
        total = key.shape[3]
        for name, value in told.given.items():
            if value.shape != (batch, time, total):
                raise ShapeError(f"the mask `{name}` is {show((batch, time, total))}, not {show(value.shape)}")
        return (Type((batch, 1, time, total), "bool"),)

    def flops(self, query: Value, key: Value, real: Value | None, *data: Value) -> Size:
        return 0

    # NumPy: pair by pair

    def reference(
        self, np: Any, weights: Weights, query: Array, key: Array, real: Array | None, *data: Array
    ) -> tuple[Array, ...]:
        told = self._told(query, key, data)
        batch, _, time, total = np.broadcast_shapes(query.shape, key.shape)
        visible = np.zeros((batch, 1, time, total), bool)
        for b, i, j in np.ndindex(batch, time, total):
            if real is None or real[b, j]:
                visible[b, 0, i, j] = _allows(self.mask, told, b, i, j)
        return (visible,)

    # PyTorch

    def torch(self, t: TorchWriter, query: Expr, key: Expr, real: Expr | None, *data: Expr) -> Expr:
        return Expr(f"{t.use(REAL)}({text(t, normalise(self.mask), self._told(query, key, data))}, {real})")

    # ONNX

    def onnx(self, o: OnnxWriter, query: Any, key: Any, real: Any | None, *data: Any) -> tuple[Any, ...]:
        allowed = nodes(o, normalise(self.mask), self._told(query, key, data))
        if real is not None:
            allowed = o.And(allowed, o.Unsqueeze(real, o.ints(1, 2)))
        shape = o.Concat(o.size(query, 0), o.ints(1), o.size(query, 2), o.size(key, 3), axis=0)
        return (o.Expand(allowed, shape),)  # onnxruntime's kernel broadcasts no axis but that of the heads


def _allows(mask: Mask, told: Told, b: int, i: int, j: int) -> bool:
    """Whether query i of row b may see key j."""
    q, k = told.own_query[b, 0, i, 0], told.own_key[b, 0, 0, j]
    match mask:
        case Band(left, right):
            way = told.key[b, 0, 0, j] - told.query[b, 0, i, 0]
            return bool((left is None or way >= -left) and (right is None or way <= right))
        case Global(tokens):
            return q in tokens or k in tokens
        case Prefix():
            return bool(told.key[b, 0, 0, j] < told.prefix[b])
        case Documents():
            return bool(told.documents[b, -told.query.shape[2] :][i] == told.documents[b, j])
        case Given(name):
            return bool(told.given[name][b, i, j])
        case BlockSparse():
            return _blocks_meet(mask, max(int(q), 0) // mask.block, max(int(k), 0) // mask.block)
        case AllOf(items):
            return all(_allows(item, told, b, i, j) for item in items)
        case AnyOf(items):
            return any(_allows(item, told, b, i, j) for item in items)


def _blocks_meet(mask: BlockSparse, query: int, key: int) -> bool:
    early, late = sorted((query, key))
    if early < mask.first or late - early <= mask.reach:
        return True
    return any(mask.drawn(late, draw) == early for draw in range(mask.random))
