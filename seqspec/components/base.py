"""The base of all components: a closed, strict pydantic model that resolves its defaults, checks itself, builds ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.graph.reserved import usable, usable_argument


class Letter(NamedTuple):
    """What a size is called where it is said how costs grow: all sizes of one letter grow together. It shrinks with
    those called `over`."""

    name: str
    over: str = ""


Count = Annotated[int, Field(ge=1)]
Width = Annotated[Count, Letter("d")]
HeadWidth = Annotated[Count, Letter("d", over="h")]
HeadCount = Annotated[Count, Letter("h")]
VocabularySize = Annotated[Count, Letter("V")]
ImageSide = Annotated[Count, Letter("s")]
ProjectedLength = Annotated[Count, Letter("k")]
Rate = Annotated[float, Field(ge=0, lt=1)]
TokenId = Annotated[int, Field(ge=0)]
Residual = Literal["add", "none"]
Positive = Annotated[float, Field(gt=0)]


def _not_reserved(usable: Callable[[str], bool]) -> AfterValidator:
    def checked(name: str) -> str:
        if not usable(name):
            raise PydanticCustomError("reserved_name", "{name} is reserved", {"name": name})
        return name

    return AfterValidator(checked)


Word = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Name = Annotated[Word, _not_reserved(usable)]
"""A word that becomes an attribute of a PyTorch module and a part of parameter names."""
ArgumentName = Annotated[Word, _not_reserved(usable_argument)]
"""A word that becomes an argument of the PyTorch model."""


class Component(BaseModel):
    """A part of a spec. Unknown keys, values of another type, NaN, infinity and mutation are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def plain(cls) -> Self:
        """The kind with its defaults. Skips validation, so that pydantic need not build a schema for it."""
        (kind,) = get_args(cls.model_fields["kind"].annotation)
        return cls.model_construct(kind=kind)


class Finding(NamedTuple):
    """Something wrong, at a path relative to the component that found it."""

    code: str
    path: tuple[str | int, ...]
    message: str
    hint: str | None = None

    def under(self, *parts: str | int) -> Finding:
        """The same finding, with its path relative to a component that holds this one at `parts`."""
        return self._replace(path=(*parts, *self.path))


Findings = Iterator[Finding]
Path = tuple[str | int, ...]
"""From a component to a part of it."""


class Context(NamedTuple):
    """What a stack passes to every block. It is the same for all, so that equal blocks become one region.

    `values` are named tensors of the region being built: `mask`, rotary tables, the memory of another stack. `shared`
    maps what a layer asks for, by its key, to the names of these values.
    """

    values: Mapping[str, Value]
    stateful: bool
    prefix: str = ""
    shared: Mapping[object, tuple[str, ...]] = MappingProxyType({})

    def within(self, builder: Builder, *names: str) -> Context:
        """The context inside a child region, whose inputs are all of the values, or those named."""
        wanted = names or tuple(self.values)
        inner = {n: builder.like(self.values[n], n) for n in wanted if n in self.values}
        return Context(inner, self.stateful, self.prefix, self.shared)

    def arguments(self, *names: str) -> tuple[Value, ...]:
        """The arguments for calling such a region, in the order of `within`."""
        return tuple(self.values[n] for n in (names or tuple(self.values)) if n in self.values)


class Inlet:
    """Collects what a region takes from outside: each value becomes an input, and an argument of the call."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.arguments: list[Value] = []

    def take(self, value: Value, name: str) -> Value:
        """The new input that stands for `value` inside the region."""
        self.arguments.append(value)
        return self.builder.like(value, name)

    def take_optional(self, value: Value | None, name: str) -> Value | None:
        """The same, or None for None."""
        return None if value is None else self.take(value, name)


def camel(name: str) -> str:
    """`local_block` -> `LocalBlock`: the class name of a region."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Block"


def width_of(value: Value) -> int:
    """The size of the last axis, which is always a plain number."""
    width = value.shape[-1]
    assert isinstance(width, int)
    return width
