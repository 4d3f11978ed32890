"""What `seqspec.json` says of an ONNX output, besides its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from seqspec.graph.dims import PAST, names
from seqspec.graph.ir import Graph, Node
from seqspec.graph.signature import Signature, signature, starting
from seqspec.ops.fused import FusedOp
from seqspec.ops.grouped_query import GroupQueryAttention
from seqspec.ops.scanned import Scanned
from seqspec.passes.fuse_attention import declined
from seqspec.passes.options import Options
from seqspec.passes.support import FORMS

_PACKAGES = ("seqspec-compiler", "onnx", "onnx-ir", "numpy")


def manifest(
    graph: Graph,
    flat: Graph,
    roles: Mapping[str, Graph],
    written: Mapping[str, Graph],
    asked: Options,
    *,
    places: Mapping[str, str],
    inputs: Mapping[str, Any],
) -> dict[str, Any]:
    """`flat` is the graph in one piece as the files compute it; `graph` still knows what callers may leave out.

    `roles` are the graphs of the files, which tell the kernels, and `written` are these with the caches they keep.
    """
    files = of_files(flat, written)
    given = starting(signature(graph), files)
    described = replace(files, inputs=(*files.inputs, *given)).to_json()
    optional = {v.name for v in graph.root.inputs if v.optional}
    for port in described["inputs"]:
        if port["name"] in optional:
            port["optional"] = True
    return {
        "backend": "onnx",
        "versions": {name: package_version(name) for name in _PACKAGES},
        **asked.to_json(),
        "graphs": dict(places),
        "signature": described,
        "inputs": dict(inputs),
        "in_place": _in_place(list(written.values())[-1]),
        "forms": [form for role, part in roles.items() for form in _forms(role, part, asked)],
    }


def of_files(flat: Graph, written: Mapping[str, Graph]) -> Signature:
    """The signature of the whole model, with the states as the graphs of its files keep them."""
    whole = signature(flat)
    shapes = {state.name: state.shape for graph in written.values() for state in graph.root.states}
    return replace(whole, states=tuple(replace(s, shape=shapes.get(s.path, s.shape)) for s in whole.states))


def package_version(name: str) -> str:
    """The installed version, or nothing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _in_place(graph: Graph) -> bool:
    """Whether kernels can write every cache that grows where its past is."""
    nodes = [n for n in graph.root.items if isinstance(n, Node)]
    growing = [n.op for n in nodes if any(PAST in names(size) for state in n.states for size in state.shape)]
    return bool(growing) and all(isinstance(op, GroupQueryAttention) for op in growing)


def _forms(role: str, graph: Graph, asked: Options) -> Iterator[dict[str, Any]]:
    """The kernels of one file and what each stands for; its Scans; then the attention that has no kernel, and why."""
    fused = [n.op for n in graph.root.items if isinstance(n, Node) and isinstance(n.op, FusedOp)]
    counts = Counter((f"{op.domain}.{op.op_type}", len(op.body.items)) for op in fused)
    conditions = {f"com.microsoft.{kernel}": form.condition for form in FORMS for kernel in form.kernels}
    for (name, size), count in counts.items():
        reason = f"one kernel for {size} nodes; elsewhere its function"
        condition = {"condition": conditions[name]} if conditions.get(name) else {}
        yield {"graph": role, "form": name, "count": count, "reason": reason} | condition
    scanned = [n.op for n in graph.root.items if isinstance(n, Node) and isinstance(n.op, Scanned)]
    for reason, count in Counter(op.reason for op in scanned).items():
        yield {"graph": role, "form": "Scan", "count": count, "reason": reason}
    for reason, count in Counter(declined(graph, asked.target, asked.dtype)).items():
        yield {"graph": role, "form": "Attention", "count": count, "reason": reason}
