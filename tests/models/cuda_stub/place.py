"""Paths of ONNX files on stdin -> for each, what onnxruntime leaves to the CPU of it, and the copies between, as JSON.

A node is [op, the element types and ranks of its tensors, or nothing where they are not known].
"""

import json
import sys
import tempfile

import onnx
import onnxruntime as ort

PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]
ort.set_default_logger_severity(4)


def placed(path: str, optimized: str) -> dict[str, object]:
    """One file."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = optimized
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(path, options, providers=PROVIDERS)
    # what onnxruntime inlined has no types in the file
    graph = onnx.shape_inference.infer_shapes(onnx.load(optimized, load_external_data=False)).graph
    kinds: dict[str, tuple[int, int]] = {}
    nodes: dict[str, onnx.NodeProto] = {}
    read(graph, kinds, nodes)
    left, kept = [], 0
    for part in session.get_provider_graph_assignment_info():
        for node in part.get_nodes():
            if part.ep_name == PROVIDERS[0]:
                kept += 1
                continue
            found = nodes.get(node.name)
            names = [] if found is None else [name for name in (*found.input, *found.output) if name]
            known = [kinds.get(name) for name in names]
            left.append([node.op_type, known if known and all(known) else []])
    return {"providers": session.get_providers(), "cuda": kept, "cpu": left}


def read(graph: onnx.GraphProto, kinds: dict[str, tuple[int, int]], nodes: dict[str, onnx.NodeProto]) -> None:
    """Types of tensors and nodes, by name, of a graph and of those inside it."""
    for value in (*graph.value_info, *graph.input, *graph.output):
        kinds[value.name] = (value.type.tensor_type.elem_type, len(value.type.tensor_type.shape.dim))
    for tensor in graph.initializer:
        kinds[tensor.name] = (tensor.data_type, len(tensor.dims))
    for node in graph.node:
        nodes[node.name] = node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                read(attribute.g, kinds, nodes)


with tempfile.TemporaryDirectory() as folder:
    print(json.dumps([placed(path, f"{folder}/optimized.onnx") for path in json.load(sys.stdin)]))
