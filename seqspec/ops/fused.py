"""Several nodes that one kernel of onnxruntime computes. Shapes, cost and results are those of the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Node, Param, Region, State, Value, join
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, TorchWriter, Type, Weights, primitive

Attribute = int | float | str


@primitive
class FusedOp(Op):
    """inputs of `body` -> outputs of `body`, computed by the kernel `domain`.`op_type`; the body's states are its own.

    The node written to ONNX takes the inputs and then `parameters`, by leaf name; output k of the body is number
    `slots[k]` of its `count` outputs. A function of the same name in plain opset 23, made from the body, goes with it:
    onnxruntime uses the kernel, any other runtime the function. `body` is flat and its names are relative to the
    node, so that equal fusions share one region and one function. There is no PyTorch text: `passes.expand` restores
    the nodes.

    A kernel with other inputs overrides `formals`, `feeds` and `function`. One that cannot run on all values overrides
    `condition`, and the body runs where that is false.
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

    def states(self, *inputs: Value) -> tuple[State, ...]:
        if not self.body.states:
            return ()
        known, outputs = self._typed(inputs), list(self._outputs())
        found = []
        for node in self._nodes():
            for state in node.op.states(*(v and known[v.name] for v in node.inputs)):
                present = outputs.index(node.outputs[state.output].name)
                found.append(replace(state, name=join(node.name, state.name), output=present))
        return tuple(found)

    def bodies(self) -> Iterator[Region]:
        yield self.body

    def flops(self, *inputs: Value) -> Size:
        known = self._typed(inputs)
        total: Size = 0
        for node in self._nodes():
            total = total + node.op.flops(*(v and known[v.name] for v in node.inputs))
        return total

    def reference(self, np: Any, weights: Weights, *inputs: Array) -> tuple[Array, ...]:
        count = len(self.body.inputs)
        past = dict(zip((s.name for s in self.body.states), inputs[count:], strict=True))
        outputs, _ = interpret(self.body, np, weights, inputs[:count], past)
        return outputs

    def torch(self, t: TorchWriter, *inputs: Expr) -> Expr:
        raise AssertionError("PyTorch text is made from the graph as it was built, which has no fused op")

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        count = len(self.body.inputs)
        return tuple(o.contributed(self, inputs[:count], inputs[count:]))

    # How the kernel is called, and what stands in for it elsewhere.

    @property
    def formals(self) -> tuple[str, ...]:
        """The names of the function's inputs, in the kernel's order."""
        return (*(v.name for v in self.body.inputs), *self.parameters)

    def feeds(self, o: OnnxWriter, args: Sequence[Any], pasts: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs of the kernel's node; None is an absent one."""
        return (*args, *map(o.param, self.parameters))

    def function(self, o: OnnxWriter, *inputs: Any) -> Sequence[Any]:
        """The body's outputs from the kernel's inputs, in plain opset 23."""
        return o.region(self.body, inputs[: len(self.body.inputs)], ())

    def condition(self, o: OnnxWriter, args: Sequence[Any]) -> Any | None:
        """A bool [] that says at run time whether the kernel can be used; None if it always can."""
        return None

    def otherwise(self, o: OnnxWriter, args: Sequence[Any], pasts: Sequence[Any]) -> Sequence[Any]:
        """The outputs where `condition` is false."""
        return o.region(self.body, args, pasts)

    def _typed(self, inputs: Sequence[Value]) -> dict[str, Value]:
        """Every value of the body by name, typed for these inputs."""
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
