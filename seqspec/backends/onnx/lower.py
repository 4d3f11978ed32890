"""A flat graph -> onnx_ir.Model: opset 23, every value typed, weights lazy, names the signature's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

from seqspec.backends.onnx.attributes import OPSET, optional_outputs
from seqspec.backends.onnx.main import MainWriter
from seqspec.backends.onnx.tensors import Tensors
from seqspec.graph.dims import PAST, TIME, Size, dim, substitute
from seqspec.graph.ir import Graph, Value
from seqspec.graph.signature import Carried, signature

IR_VERSION = 10
PRODUCER = "seqspec"
_TOTAL: dict[str, Size] = {PAST: dim(PAST) + dim(TIME)}


def lower(graph: Graph, tensors: Tensors, version: str) -> ir.Model:
    """The model of one flat graph. States go in under their past names and come out under their present names."""
    described = signature(graph)
    states = [s for s in described.states if not s.held]
    outputs = [p.name for p in described.outputs] + [s.present for s in states]
    writer = MainWriter(tensors, [*(p.name for p in described.inputs), *(s.past for s in states), *outputs])
    inputs = [writer.input(v.name, v) for v in graph.root.inputs]
    past = {s.path: writer.input(s.past, Value(s.past, s.shape, s.dtype)) for s in states}
    made = [v for v in writer.lower(graph.root, "", inputs, past) if v is not None]
    made += [writer.presents[s.path] for s in states]
    taken: set[ir.Value] = set()
    named = [writer.own(v, name, taken) for v, name in zip(made, outputs, strict=True)]
    for value, state in zip(named[len(described.outputs) :], states, strict=True):
        writer.type(value, _present(state))
    return _assemble(graph.root.name, [*inputs, *past.values()], named, writer, version)


def _present(state: Carried) -> Value:
    return Value(state.present, tuple(substitute(size, _TOTAL) for size in state.shape), state.dtype)


def _assemble(
    name: str, inputs: list[ir.Value], outputs: list[ir.Value], writer: MainWriter, version: str
) -> ir.Model:
    nodes = list(_read(writer.blocks[0].nodes, outputs))
    _leave_out(nodes, set(outputs))
    weights = [v for v in writer.initializers.values() if v.uses()]
    graph = ir.Graph(inputs, outputs, nodes=nodes, name=name, opset_imports={"": OPSET})
    functions = writer.functions.all()
    for function in functions:
        graph.opset_imports[function.domain] = 1
    model = ir.Model(
        graph, ir_version=IR_VERSION, producer_name=PRODUCER, producer_version=version, functions=functions
    )
    _infer(model, weights)
    for value in weights:
        graph.register_initializer(value)
    return model


def _read(nodes: list[ir.Node], outputs: Iterable[ir.Value]) -> Iterator[ir.Node]:
    """The nodes whose values somebody reads; the others let go of their inputs."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(v in wanted or v.uses() for v in node.outputs):
            kept.append(node)
        else:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
    return reversed(kept)


def _leave_out(nodes: Iterable[ir.Node], outputs: set[ir.Value]) -> None:
    """Unnames the optional outputs that nobody reads, so that no kernel computes them."""
    for node in nodes:
        for index in optional_outputs(node.op_type, node.domain, len(node.outputs)):
            if not node.outputs[index].uses() and node.outputs[index] not in outputs:
                node.outputs[index].name = ""


def _infer(model: ir.Model, weights: list[ir.Value]) -> None:
    """Shapes for the values inside faces, by ONNX's own inference; weights take part as inputs, without their data."""
    graph, count = model.graph, len(model.graph.inputs)
    small = [v for v in weights if isinstance(v.const_value, ir.Tensor)]
    for value in small:
        graph.register_initializer(value)
    graph.inputs.extend(v for v in weights if v not in small)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, data_prop=True)
    del graph.inputs[count:]
    inferred = ir.from_proto(proto)
    for ours, theirs in zip(model.graphs(), inferred.graphs(), strict=True):
        found = ir.convenience.create_value_mapping(theirs)
        for name, value in ir.convenience.create_value_mapping(ours).items():
            if value.shape is None and name in found:
                value.shape = found[name].shape
            if value.type is None and name in found:
                value.type = found[name].type
