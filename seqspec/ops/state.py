"""What is read off a recurrent layer: one layer's final state, and the sum of two directions."""

from __future__ import annotations

from typing import Any, Literal

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

Take = Literal["all", "forward", "backward", "sum"]


@primitive
class SelectState(Op):
    """h[B,L·D,H] -> [B,H], or [B,2H] where all of two directions are taken: forward, then backward."""

    view = True

    layer: int
    directions: int = 1
    take: Take = "all"

    def __post_init__(self) -> None:
        if self.directions == 1 and self.take in ("backward", "sum"):
            raise ValueError(f"a layer of one direction has no {self.take} state")

    def infer(self, h: Value) -> tuple[Type, ...]:
        batch, count, width = h.shape
        if isinstance(count, int) and (self.layer + 1) * self.directions > count:
            raise ShapeError(f"there is no layer {self.layer} of {self.directions} directions in {show(h.shape)}")
        return (Type((batch, width * len(self._indices) if self.take == "all" else width)),)

    def flops(self, h: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, h: Array) -> tuple[Array, ...]:
        parts = [h[:, k] for k in self._indices]
        return (sum(parts[1:], parts[0]) if self.take == "sum" else np.concatenate(parts, -1),)

    def torch(self, t: TorchWriter, h: Expr) -> Expr:
        first, *more = self._indices
        if not more:
            return Expr(f"{h.tight}[:, {first}]")
        return Expr(f"{h.tight}[:, {first}:{first + 2}].{'sum' if self.take == 'sum' else 'flatten'}(1)")

    def onnx(self, o: OnnxWriter, h: Any) -> tuple[Any, ...]:
        parts = [o.Gather(h, o.scalar(k, "int64"), axis=1) for k in self._indices]
        if len(parts) == 1:
            return (parts[0],)
        return (o.Add(*parts) if self.take == "sum" else o.Concat(*parts, axis=-1),)

    @property
    def _indices(self) -> tuple[int, ...]:
        first = self.layer * self.directions
        both = tuple(range(first, first + self.directions))
        return {"forward": (first,), "backward": (first + 1,)}.get(self.take, both)


@primitive
class MergeDirections(Op):
    """y[B,T,2H] -> forward + backward [B,T,H]"""

    positionwise = True

    def infer(self, y: Value) -> tuple[Type, ...]:
        width = y.shape[-1]
        if not isinstance(width, int) or width % 2:
            raise ShapeError(f"two directions of one width cannot be {show(y.shape)}")
        return (Type((*y.shape[:-1], width // 2)),)

    def flops(self, y: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, y: Array) -> tuple[Array, ...]:
        half = y.shape[-1] // 2
        return (y[..., :half] + y[..., half:],)

    def torch(self, t: TorchWriter, y: Expr) -> Expr:
        return Expr(f"{y.tight}.unflatten(-1, (2, -1)).sum(-2)")

    def onnx(self, o: OnnxWriter, y: Any) -> tuple[Any, ...]:
        return (o.Add(*o.many("Split", 2, y, axis=-1, num_outputs=2)),)


@primitive
class StackStates(Op):
    """h[B, H] of each layer -> [B, L, H]"""

    def infer(self, *layers: Value) -> tuple[Type, ...]:
        first = layers[0]
        if any(h.shape != first.shape for h in layers):
            raise ShapeError(f"{' and '.join(show(h.shape) for h in layers)} are not states of one width")
        return (Type((first.shape[0], len(layers), *first.shape[1:]), first.dtype),)

    def flops(self, *layers: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, *layers: Array) -> tuple[Array, ...]:
        return (np.stack(layers, 1),)

    def torch(self, t: TorchWriter, *layers: Expr) -> Expr:
        return Expr(f"{layers[0].tight}.unsqueeze(1)" if len(layers) == 1 else f"torch.stack([{', '.join(layers)}], 1)")

    def onnx(self, o: OnnxWriter, *layers: Any) -> tuple[Any, ...]:
        rows = [o.Unsqueeze(h, o.ints(1)) for h in layers]
        return (rows[0] if len(rows) == 1 else o.Concat(*rows, axis=1),)
