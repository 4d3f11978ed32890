"""The builder: what a component receives to say which ops it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqspec.graph.dims import Shape, show
from seqspec.graph.ir import Call, Node, Region, Value
from seqspec.graph.types import DType, ShapeError

if TYPE_CHECKING:
    from seqspec.ops.base import Op


class Builder:
    """Appends ops and calls to one region; `child` starts the region of a part.

    `add` and `call` return one Value, or a tuple where there are several outputs. `hint` names the variables a reader
    of the emitted source would choose, separated by spaces; a value without one, read once, is inlined there.
    """

    def __init__(self, name: str, parent: Builder | None = None, origin: str = "") -> None:
        self.name, self.origin = name, origin
        self.inputs: list[Value] = []
        self.items: list[Node | Call] = []
        self._interned: dict[tuple[object, ...], list[Region]] = parent._interned if parent else {}
        self._count = 0

    def child(self, name: str, origin: str = "") -> Builder:
        """A builder for a new region, equal regions of both being stored once."""
        return Builder(name, self, origin or self.origin)

    def input(self, name: str, shape: Shape, dtype: DType = "float", *, optional: bool = False) -> Value:
        value = Value(name, shape, dtype, name, optional)
        self.inputs.append(value)
        return value

    def like(self, value: Value, name: str) -> Value:
        """An input with the type of `value`, which a call will hand in."""
        return self.input(name, value.shape, value.dtype, optional=value.optional)

    def add(self, op: Op, *inputs: Value | None, name: str = "", hint: str = "") -> Value:
        """The single output of `op`."""
        (output,) = self.add_many(op, *inputs, name=name, hint=hint)
        return output

    def add_many(self, op: Op, *inputs: Value | None, name: str = "", hint: str = "") -> tuple[Value, ...]:
        """All outputs of `op`."""
        try:
            types = op.infer(*inputs)
        except ShapeError as error:
            raise ShapeError(str(error), error.origin or self.origin) from None
        hints = _hints(hint, len(types))
        outputs = tuple(self._value(t.shape, t.dtype, h, t.optional) for t, h in zip(types, hints, strict=True))
        self.items.append(Node(op, inputs, outputs, name, self.origin))
        return outputs

    def call(self, region: Region, scope: str, *inputs: Value | None, hint: str = "") -> Value:
        """The single output of a call."""
        (output,) = self.call_many(region, scope, *inputs, hint=hint)
        return output

    def call_many(self, region: Region, scope: str, *inputs: Value | None, hint: str = "") -> tuple[Value, ...]:
        """All outputs of a call. The inputs must have the region's types."""
        _check_arguments(region, inputs, self.origin)
        hints = _hints(hint, len(region.outputs))
        outputs = tuple(
            self._value(o.shape, o.dtype, h, o.optional) for o, h in zip(region.outputs, hints, strict=True)
        )
        self.items.append(Call(region, scope, inputs, outputs, self.origin))
        return outputs

    def done(self, *outputs: Value) -> Region:
        """The finished region; the stored one when an equal region was built before."""
        region = Region(self.name, tuple(self.inputs), tuple(self.items), outputs)
        # what it is made of tells regions apart well enough for a hash, at a fifth of the cost of hashing every value
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
