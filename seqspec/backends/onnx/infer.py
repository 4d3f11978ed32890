"""Shapes of the values inside faces, by ONNX's own inference; those the graph knows stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from seqspec.backends.onnx.attributes import OPSET


def infer_shapes(model: ir.Model, weights: Sequence[ir.Value]) -> None:
    """`weights` are the initializers to be; those with lazy data take part as inputs, by their types alone."""
    graph, count = model.graph, len(model.graph.inputs)
    for value in weights:
        if isinstance(value.const_value, ir.Tensor):
            graph.register_initializer(value)
        else:
            graph.inputs.append(value)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, data_prop=True)
    del graph.inputs[count:]
    inferred = ir.from_proto(proto)
    for ours, theirs in zip(model.graphs(), inferred.graphs(), strict=True):
        _merge(ours, theirs)
        if ours is not graph:
            _infer_inside(ours)


def _merge(ours: ir.Graph, theirs: ir.Graph) -> None:
    found = ir.convenience.create_value_mapping(theirs)
    for name, value in ir.convenience.create_value_mapping(ours).items():
        if name in found and value.shape is None:
            value.shape = found[name].shape
        if name in found and value.type is None:
            value.type = found[name].type


def _infer_inside(graph: ir.Graph) -> None:
    """The rest in the body of a loop, where ONNX's inference does not see the constants of the graph around it."""
    for node in graph:
        if any(v.shape is None for v in node.outputs):
            inferred = _outputs(node)
            for value in node.outputs:
                if value.shape is None and value.name in inferred:
                    value.shape = ir.serde.deserialize_type_proto_for_shape(inferred[value.name])


def _outputs(node: ir.Node) -> dict[str, onnx.TypeProto]:
    """The types of one node's outputs by name, from those of its inputs and the data of constants."""
    inputs = {str(v.name): v for v in node.inputs if v is not None and v.shape is not None and v.type is not None}
    types = {name: ir.to_proto(v).type for name, v in inputs.items()}
    data = {name: ir.to_proto(v.const_value) for name, v in inputs.items() if isinstance(v.const_value, ir.Tensor)}
    schema = onnx.defs.get_schema(node.op_type, OPSET, node.domain)
    return onnx.shape_inference.infer_node_outputs(schema, ir.to_proto(node), types, data)
