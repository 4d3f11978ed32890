"""The builder, with which components add ops to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqspec.graph.dims import Shape, show
from seqspec.graph.ir import Call, Node, Region, Value
from seqspec.graph.types import DType, ShapeError

if TYPE_CHECKING:
    from seqspec.ops.base import Op


class Builder:
    """Appends ops and calls to one region; `child` starts a region for a part of it.

    `hint` gives the outputs' variable names in the emitted source, separated by spaces. A value without a hint that
    is read once is inlined there.
    """

    def __init__(self, name: str, parent: Builder | None = None, origin: str = "") -> None:
        self.name, self.origin = name, origin
        self.inputs: list[Value] = []
        self.items: list[Node | Call] = []
        self._interned: dict[tuple[object, ...], list[Region]] = parent._interned if parent else {}
        self._count = 0

    def child(self, name: str, origin: str = "") -> Builder:
        """A builder for a new region. Equal regions of a builder and its children are stored once."""
        return Builder(name, self, origin or self.origin)

    def input(self, name: str, shape: Shape, dtype: DType = "float", *, optional: bool = False) -> Value:
        """A new input of the region. `optional`: it may be None at run time."""
        value = Value(name, shape, dtype, name, optional)
        self.inputs.append(value)
        return value

    def like(self, value: Value, name: str) -> Value:
        """A new input with the type of `value`, which the call will pass."""
        return self.input(name, value.shape, value.dtype, optional=value.optional)

    def add(self, op: Op, *inputs: Value | None, name: str = "", hint: str = "") -> Value:
        """Appends `op`, which has a single output, and returns that output."""
        (output,) = self.add_many(op, *inputs, name=name, hint=hint)
        return output

    def add_many(self, op: Op, *inputs: Value | None, name: str = "", hint: str = "") -> tuple[Value, ...]:
        """Appends `op` and returns all its outputs. ShapeError where it does not take the inputs."""
        try:
            types = op.infer(*inputs)
        except ShapeError as error:
            raise ShapeError(str(error), error.origin or self.origin) from None
        hints = _hints(hint, len(types))
        outputs = tuple(self._value(t.shape, t.dtype, h, t.optional) for t, h in zip(types, hints, strict=True))
        self.items.append(Node(op, inputs, outputs, name, self.origin))
        return outputs

    def call(self, region: Region, scope: str, *inputs: Value | None, hint: str = "") -> Value:
        """Appends a call of a region that has a single output, and returns that output."""
        (output,) = self.call_many(region, scope, *inputs, hint=hint)
        return output

    def call_many(self, region: Region, scope: str, *inputs: Value | None, hint: str = "") -> tuple[Value, ...]:
        """Appends a call and returns all its outputs. ShapeError where the inputs do not have the region's types."""
        _check_arguments(region, inputs, self.origin)
        hints = _hints(hint, len(region.outputs))
        outputs = tuple(
            self._value(o.shape, o.dtype, h, o.optional) for o, h in zip(region.outputs, hints, strict=True)
        )
        self.items.append(Call(region, scope, inputs, outputs, self.origin))
        return outputs

    def done(self, *outputs: Value) -> Region:
        """The finished region, or the stored one if an equal region was built before."""
        region = Region(self.name, tuple(self.inputs), tuple(self.items), outputs)
        # ops and called regions make a good enough hash, at a fifth of the cost of hashing every value
        made = tuple(item.op if isinstance(item, Node) else id(item.region) for item in self.items)
        alike = self._interned.setdefault((self.name, made), [])
        for other in alike:
            if (other.inputs, other.items, other.outputs) == (region.inputs, region.items, outputs):
                return other
        alike.append(region)
        return region

    def _value(self, shape: Shape, dtype: DType, hint: str, optional: bool) -> Value:
        self._count += 1
        return Value(f"v{self._count}", shape, dtype, hint, optional)


def _hints(hint: str, count: int) -> Sequence[str]:
    return hint.split() if hint else [""] * count


def _check_arguments(region: Region, inputs: Sequence[Value | None], origin: str) -> None:
    if len(inputs) != len(region.inputs):
        raise ShapeError(f"{region.name} takes {len(region.inputs)} inputs, not {len(inputs)}", origin)
    for want, got in zip(region.inputs, inputs, strict=True):
        if got is None:
            if not want.optional:
                raise ShapeError(f"{region.name} needs {want.name}", origin)
        elif (got.shape, got.dtype) != (want.shape, want.dtype):
            raise ShapeError(
                f"{region.name} takes {want.name} {want.dtype}{show(want.shape)}, not {got.dtype}{show(got.shape)}",
                origin,
            )
