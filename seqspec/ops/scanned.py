"""A recurrent layer that a file computes as a Scan over time, whether or not ONNX has an op for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Param, State, Value
from seqspec.ops import recurrent_scan
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, TorchWriter, Type, Weights, primitive
from seqspec.ops.recurrent import Recurrent


@primitive
class Scanned(Op):
    """The inputs and outputs of `layer`. If `packed`, steps of padding are not computed."""

    layer: Recurrent
    packed: bool

    @property
    def reason(self) -> str:
        """Why a file has it in place of ONNX's op."""
        if not self.packed:
            return "the CUDA provider has no kernel for this layer"
        rule = self.layer.rule
        return f"over real steps alone{f'; {rule.kind} where nothing is padded' if rule.fast_in_onnx else ''}"

    def infer(self, *inputs: Any) -> tuple[Type, ...]:
        return self.layer.infer(*inputs)

    def params(self) -> tuple[Param, ...]:
        return self.layer.params()

    def states(self, *inputs: Any) -> tuple[State, ...]:
        return self.layer.states(*inputs)

    def flops(self, *inputs: Any) -> Size:
        return self.layer.flops(*inputs)

    def backward(self, takes: Sequence[bool], *inputs: Any) -> Size:
        return self.layer.backward(takes, *inputs)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        return self.layer.keeps(takes, inputs, outputs)

    def reference(self, np: Any, weights: Weights, *inputs: Array | None) -> tuple[Array, ...]:
        return self.layer.reference(np, weights, *inputs)

    def declare(self) -> str:
        return self.layer.declare()

    def helpers(self) -> tuple[Helper, ...]:
        return self.layer.helpers()

    def torch(self, t: TorchWriter, *inputs: Expr | None) -> Expr:
        return self.layer.torch(t, *inputs)

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        write = recurrent_scan.packed if self.packed else recurrent_scan.padded
        return write(o, self.layer, *self.layer.onnx_arguments(inputs))
