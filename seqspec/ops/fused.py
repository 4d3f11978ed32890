"""Several nodes that one kernel of onnxruntime computes; shapes, cost, numbers and the portable form are the nodes'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Node, Param, Region, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, TorchWriter, Type, Weights, primitive

Attribute = int | float | str


@primitive
class FusedOp(Op):
    """inputs of `body` -> outputs of `body`, by the kernel `domain`.`op_type`.

    The node that is written takes the inputs and then `parameters`, by leaf name; output k of the body is number
    `slots[k]` of its `count` outputs. Beside it goes a function of the same name made from the body in plain opset 23:
    onnxruntime takes the kernel, any other runtime the function. `body` is flat and its names are relative to the
    node, so that equal fusions are one region and one function. It is never printed as PyTorch text: `passes.expand`
    puts the nodes back.
    """

    op_type: str
    body: Region
    attributes: tuple[tuple[str, Attribute], ...]
    parameters: tuple[str, ...]
    slots: tuple[int, ...]
    count: int
    domain: str = "com.microsoft"

    def infer(self, *inputs: Value) -> tuple[Type, ...]:
        known = self._typed(inputs)
        return tuple(Type(v.shape, v.dtype, v.optional) for v in map(known.__getitem__, self._outputs()))

    def params(self) -> tuple[Param, ...]:
        return self.body.params

    def bodies(self) -> Iterator[Region]:
        yield self.body

    def flops(self, *inputs: Value) -> Size:
        known = self._typed(inputs)
        total: Size = 0
        for node in self._nodes():
            total = total + node.op.flops(*(v and known[v.name] for v in node.inputs))
        return total

    def reference(self, np: Any, weights: Weights, *inputs: Array) -> tuple[Array, ...]:
        outputs, _ = interpret(self.body, np, weights, inputs)
        return outputs

    def torch(self, t: TorchWriter, *inputs: Expr) -> Expr:
        raise AssertionError("PyTorch text is made from the graph as it was built, which has no fused op")

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        return tuple(o.contributed(self, inputs))

    def _typed(self, inputs: Sequence[Value]) -> dict[str, Value]:
        """Every value of the body, with the types that follow from these inputs."""
        known = dict(zip((v.name for v in self.body.inputs), inputs, strict=True))
        for node in self._nodes():
            types = node.op.infer(*(v and known[v.name] for v in node.inputs))
            for value, type_ in zip(node.outputs, types, strict=True):
                known[value.name] = replace(value, shape=type_.shape, dtype=type_.dtype, optional=type_.optional)
        return known

    def _nodes(self) -> Iterator[Node]:
        return (item for item in self.body.items if isinstance(item, Node))

    def _outputs(self) -> Iterator[str]:
        return (v.name for v in self.body.outputs)
