"""Python values as ONNX attributes, typed by the op's schema, so that `epsilon=1` becomes a float."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

OPSET = 23


def attribute(op_type: str, domain: str, name: str, value: Any) -> ir.Attr:
    """One attribute. For contributed ops, which have no schema in onnx, the value determines its type."""
    if isinstance(value, ir.Attr):
        return value
    kind = _types(op_type).get(name) if domain == "" else None
    if kind is None:
        return ir.convenience.convert_attribute(name, value)
    return ir.convenience.convert_attribute(name, value, kind)


def frozen(attributes: Mapping[str, Any]) -> tuple[object, ...]:
    """The attributes as a hashable key. Subgraphs and tensors are equal only to themselves."""
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(attributes.items()))


@cache
def optional_outputs(op_type: str, domain: str, count: int) -> frozenset[int]:
    """Which of a node's `count` outputs it may leave out."""
    if domain:
        return frozenset(range(1, count - 1))  # onnx's inference refuses a function's node without the last
    outputs = onnx.defs.get_schema(op_type, OPSET).outputs
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return frozenset(k for k, output in enumerate(outputs[:count]) if output.option == optional)


@cache
def _types(op_type: str) -> dict[str, ir.AttributeType]:
    schema = onnx.defs.get_schema(op_type, OPSET)
    # onnx's stubs know nothing of this enum
    return {name: ir.AttributeType(a.type.value) for name, a in schema.attributes.items()}  # type: ignore[attr-defined]
