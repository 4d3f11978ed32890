"""Several linear maps of one input packed into one, as attention kernels read it, and the split of its output."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Param, Value
from seqspec.ops.base import Array, Data, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.linear import Linear


@primitive
class Part(Data):
    """A linear map under its own name."""

    name: str
    outputs: int
    bias: bool


@primitive
class PackedLinear(Op):
    """x[..., I] -> [x W₁ᵀ + b₁, x W₂ᵀ + b₂, …] [..., ΣO]; each part owns weight[O, I] and bias[O] as `Linear` does."""

    positionwise = True

    inputs: int
    parts: tuple[Part, ...]

    @property
    def outputs(self) -> int:
        """The total width of all parts."""
        return sum(part.outputs for part in self.parts)

    def infer(self, x: Value) -> tuple[Type, ...]:
        if x.shape[-1] != self.inputs:
            raise ShapeError(f"linear maps of width {self.inputs} are given {show(x.shape)}")
        return (Type((*x.shape[:-1], self.outputs)),)

    def params(self) -> tuple[Param, ...]:
        owned = ((part, Linear(self.inputs, part.outputs, part.bias).params()) for part in self.parts)
        return tuple(Param(f"{part.name}.{p.name}", p.shape, init=p.init) for part, params in owned for p in params)

    def flops(self, x: Value) -> Size:
        return 2 * prod(x.shape) * self.outputs

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        maps = []
        for part in self.parts:
            y = x @ weights[f"{part.name}.weight"].T
            maps.append(y + weights[f"{part.name}.bias"] if part.bias else y)
        return (np.concatenate(maps, -1),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        maps = []
        for part in self.parts:
            bias = f", {t.param(f'{part.name}.bias')}" if part.bias else ""
            maps.append(f"F.linear({x}, {t.param(f'{part.name}.weight')}{bias})")
        return Expr(f"torch.cat([{', '.join(maps)}], -1)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        together = "_".join(part.name for part in self.parts)
        leaves = [f"{part.name}.weight" for part in self.parts]
        shape = (self.inputs, self.outputs)
        y = o.MatMul(x, o.derived(f"{together}.transposed", shape, lambda np, *w: np.concatenate(w).T, *leaves))
        bias = self.bias_of(o)
        return (y if bias is None else o.Add(y, bias),)

    def bias_of(self, o: OnnxWriter) -> Any | None:
        """The concatenated biases in ONNX, or None if no part has one."""
        biased = [f"{part.name}.bias" for part in self.parts if part.bias]
        tag = f"{'_'.join(part.name for part in self.parts)}.bias"
        return o.derived(tag, (self.outputs,), self._joined, *biased) if biased else None

    def _joined(self, np: Any, *biases: Array) -> Array:
        """The concatenated biases, with zeros for parts without one."""
        given = iter(biases)
        return np.concatenate([next(given) if p.bias else np.zeros(p.outputs, biases[0].dtype) for p in self.parts])


@primitive
class Split(Op):
    """x[..., ΣO] -> parts [..., O] of these sizes."""

    positionwise = True

    sizes: tuple[int, ...]

    def infer(self, x: Value) -> tuple[Type, ...]:
        if x.shape[-1] != sum(self.sizes):
            raise ShapeError(f"{show(x.shape)} has no parts of widths {list(self.sizes)}")
        return tuple(Type((*x.shape[:-1], size), x.dtype) for size in self.sizes)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return tuple(x[..., start:end] for start, end in pairwise(accumulate(self.sizes, initial=0)))

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.split({list(self.sizes)}, -1)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return tuple(o.many("Split", len(self.sizes), x, o.ints(*self.sizes), axis=-1))
