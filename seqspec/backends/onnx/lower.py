"""Lowers a flat graph to an onnx_ir.Model: opset 23, every value typed, lazy weights, names of the signature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from seqspec.backends.onnx.attributes import OPSET, optional_outputs
from seqspec.backends.onnx.heads import flatten_heads
from seqspec.backends.onnx.infer import infer_shapes
from seqspec.backends.onnx.main import MainWriter
from seqspec.backends.onnx.sink import sink
from seqspec.backends.onnx.tensors import Tensors
from seqspec.graph.dims import grown
from seqspec.graph.ir import Graph, Value
from seqspec.graph.signature import Carried, signature

IR_VERSION = 10
PRODUCER = "seqspec"


def lower(graph: Graph, named: Mapping[str, Carried], tensors: Tensors, version: str) -> ir.Model:
    """The model of one flat graph. `named` gives the public names of states by path: pasts go in, presents come out."""
    described = signature(graph)
    states = [named[s.path] for s in described.states if not s.held]
    outputs = [p.name for p in described.outputs] + [s.present for s in states]
    writer = MainWriter(tensors, [*(p.name for p in described.inputs), *(s.past for s in states), *outputs])
    inputs = [writer.input(v.name, v) for v in graph.root.inputs]
    past = {s.path: writer.input(s.past, Value(s.past, s.shape, s.dtype)) for s in states}
    made = [v for v in writer.lower(graph.root, "", inputs, past) if v is not None]
    made += [writer.presents[s.path] for s in states]
    taken: set[ir.Value] = set()
    owned = [writer.own(v, name, taken) for v, name in zip(made, outputs, strict=True)]
    for value, state in zip(owned[len(described.outputs) :], states, strict=True):
        writer.type(value, _present(state))
    return _assemble(graph.root.name, [*inputs, *past.values()], owned, writer, version)


def _present(state: Carried) -> Value:
    return Value(state.present, grown(state.shape), state.dtype)


def _assemble(name: str, inputs: list[ir.Value], outputs: list[ir.Value], writer: MainWriter, version: str) -> ir.Model:
    nodes = list(_read(writer.blocks[0].nodes, outputs))
    weights = [v for v in writer.initializers.values() if v.uses()]
    graph = ir.Graph(inputs, outputs, nodes=nodes, name=name, opset_imports={"": OPSET})
    flatten_heads(graph)
    _leave_out(graph.all_nodes())
    functions = writer.functions.all()
    for function in functions:
        graph.opset_imports[function.domain] = 1
    model = ir.Model(
        graph, ir_version=IR_VERSION, producer_name=PRODUCER, producer_version=version, functions=functions
    )
    infer_shapes(model, weights)
    sink(graph)
    for value in weights:
        graph.register_initializer(value)
    return model


def _read(nodes: list[ir.Node], outputs: Iterable[ir.Value]) -> Iterator[ir.Node]:
    """The nodes whose values are read; the others are detached from their inputs."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(v in wanted or v.uses() for v in node.outputs):
            kept.append(node)
        else:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
    return reversed(kept)


def _leave_out(nodes: Iterable[ir.Node]) -> None:
    """Removes the names of optional outputs that nothing reads, so that no kernel computes them."""
    for node in nodes:
        for index in optional_outputs(node.op_type, node.domain, len(node.outputs)):
            value = node.outputs[index]
            if not value.uses() and not value.is_graph_output():
                value.name, value.type, value.shape = "", None, None
