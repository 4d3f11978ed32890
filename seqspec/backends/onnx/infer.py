"""Infers shapes of values inside ops with ONNX's shape inference. Shapes that the graph knows are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from seqspec.backends.onnx.attributes import OPSET


def infer_shapes(model: ir.Model, weights: Sequence[ir.Value]) -> None:
    """`weights` are the future initializers; those with lazy data take part as inputs, by their types alone."""
    graph, count = model.graph, len(model.graph.inputs)
    for value in weights:
        if isinstance(value.const_value, ir.Tensor):
            graph.register_initializer(value)
        else:
            graph.inputs.append(value)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, data_prop=True)
    del graph.inputs[count:]
    inferred = dict(_types(proto.graph))
    for node in graph.all_nodes():
        if any(v.name and v.shape is None for v in node.outputs):
            _take(node, inferred)
        if any(v.name and v.shape is None for v in node.outputs):
            _take(node, _outputs(node))


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto]]:
    """Every type that inference noted, those in the bodies of loops included: names are unique in the whole file."""
    for info in graph.value_info:
        yield info.name, info.type
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _types(attribute.g)


def _take(node: ir.Node, types: dict[str, onnx.TypeProto]) -> None:
    for value in node.outputs:
        found = types.get(str(value.name))
        if found is None or value.shape is not None:
            continue
        value.shape = ir.serde.deserialize_type_proto_for_shape(found)
        if value.type is None:
            value.type = ir.serde.deserialize_type_proto_for_type(found)


def _outputs(node: ir.Node) -> dict[str, onnx.TypeProto]:
    """The types of a node's outputs, where inference of a loop's body does not see the constants outside it."""
    inputs = {str(v.name): v for v in node.inputs if v is not None and v.shape is not None and v.type is not None}
    types = {name: ir.to_proto(v).type for name, v in inputs.items()}
    data = {name: ir.to_proto(v.const_value) for name, v in inputs.items() if isinstance(v.const_value, ir.Tensor)}
    schema = onnx.defs.get_schema(node.op_type, OPSET, node.domain)
    return onnx.shape_inference.infer_node_outputs(schema, ir.to_proto(node), types, data)
