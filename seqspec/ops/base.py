"""The base class of ops, and the writers that their methods receive.

An op is a frozen dataclass whose methods, its faces, say everything about it:

    infer      types of the outputs from those of the inputs             params, states     weights, and what it carries
    flops      forward FLOPs, 2 per multiply-add                         reference          the equation in NumPy
    backward   FLOPs of the gradients                                    keeps              what these read again
    torch      an expression of PyTorch text, through TorchWriter        onnx               nodes, through OnnxWriter

No face imports torch, onnx or numpy: the writers and `np` are arguments. In every face the past of each state follows
the inputs, in the order of `states`, and may be None. The presents are among the outputs (`State.output`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from seqspec.graph.data import Data, primitive
from seqspec.graph.dims import Shape, Size
from seqspec.graph.ir import Param, Region, State, Value
from seqspec.graph.types import ShapeError, Type

if TYPE_CHECKING:
    from seqspec.ops.fused import FusedOp

Array = Any  # a NumPy array; NumPy is an argument, never imported here
Weights = Mapping[str, Array]  # an op's own parameters by leaf name


class Expr(str):
    """A piece of PyTorch text. A `loose` one binds weaker than a call and needs brackets before `.` or an operator."""

    loose: bool = False

    @classmethod
    def infix(cls, text: str) -> Expr:
        """An expression with an operator outermost, which is loose."""
        expr = cls(text)
        expr.loose = True
        return expr

    @property
    def tight(self) -> Expr:
        """The expression in brackets if need be, safe before `.` or beside an operator."""
        return Expr(f"({self})") if self.loose else self


@primitive
class Helper(Data):
    """A function or class of the emitted file, written once however often it is used. `needs` are those it calls."""

    name: str
    text: str
    needs: tuple[Helper, ...] = ()


class TorchWriter(Protocol):
    """What a torch face can ask of the file around it."""

    module: str  # `self.q_proj`: the module that the op declares
    node_scope: str  # the node's name

    def use(self, helper: Helper) -> str:
        """Adds the helper to the file and returns its name."""

    def param(self, leaf: str) -> str:
        """The op's own parameter, if it declares no module."""

    def size(self, size: Size) -> str:
        """An expression for a size, read off any tensor at hand. The length of a past that is None is 0."""

    def loop(self, body: Region, carried: int, scanned: int, args: tuple[Expr | None, ...]) -> Expr:
        """Writes `for t in …` over a region's calls; see `ops.loop`."""


class OnnxWriter(Protocol):
    """Writes ONNX nodes: `o.MatMul(a, b)` adds one and returns its output, or that of an equal node added before.

    Attributes are Python values, and `None` is an absent optional input. Faces treat values as opaque.
    """

    half: bool
    """Whether the model computes in 16 bits, so that sums and exponentials should use float32."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]: ...

    def many(self, op_type: str, count: int, *inputs: Any, domain: str = "", **attributes: Any) -> list[Any]:
        """A node with `count` outputs."""

    def param(self, leaf: str) -> Any:
        """The op's own parameter, as stored."""

    def derived(self, tag: str, shape: Shape, make: Callable[..., Array], *leaves: str, dtype: str = "float") -> Any:
        """A weight computed from others when the file is written: `make(np, *arrays)` of the parameters `leaves`.

        The same tag and leaves give one tensor. Without leaves it is a table named `tag`, shared by the whole file.
        """

    def ints(self, *values: int) -> Any:
        """An int64 vector."""

    def scalar(self, value: float, dtype: str = "float") -> Any:
        """A constant of rank 0. `float` is the model's dtype."""

    def const(self, values: Any, dtype: str = "float") -> Any:
        """A constant tensor from nested lists."""

    def cast(self, x: Any, dtype: str) -> Any:
        """x as `float` (the model's dtype), float32, float64, int64, int32 or bool."""

    def size(self, x: Any, axis: int) -> Any:
        """The length of an axis, as an int64 vector of one element."""

    def scan(self, body: Region, carried: int, scanned: int, args: tuple[Any, ...]) -> list[Any]:
        """A Scan over a region; see `ops.loop`."""

    def steps(
        self,
        write: Callable[..., Sequence[Any]],
        states: Sequence[Any],
        moving: Sequence[Any],
        inputs: Sequence[Value],
        backward: bool = False,
    ) -> list[Any]:
        """A Scan over the first axis of `moving` -> the last states, ys. `inputs` describe those of a step.

        `write` is given the states and a step of each of `moving`, and returns the new states and a step of each y.
        """

    def contributed(self, op: FusedOp, args: Sequence[Any], pasts: Sequence[Any]) -> list[Any]:
        """A node of the fused kernel, and a function of the same name in plain ONNX; see `ops.fused`."""

    def region(self, body: Region, args: Sequence[Any], pasts: Sequence[Any]) -> list[Any]:
        """Writes the nodes of a flat region and returns its outputs. `pasts` are in the order of its states."""

    def either(self, condition: Any, local: Sequence[Any], *branches: Callable[[], Sequence[Any]]) -> list[Any]:
        """An If node: the outputs of the first branch if `condition` holds, else those of the second.

        Nodes that depend on `local` values are written inside the branch, all others once, outside.
        """

    def function(
        self, name: str, types: Sequence[Type], variant: Hashable, write: Callable[..., Sequence[Any]], *inputs: Any
    ) -> list[Any]:
        """A call of a model-local function whose body is `write(o, *inputs)`, one function for each variant."""


class Op(Data, ABC):
    """A primitive operation."""

    likes: ClassVar[tuple[int, ...]] = ()
    """Inputs of which it reads the size or the dtype alone, so that no gradient goes back to them."""

    view: ClassVar[bool] = False
    """Whether its output is the memory of its first input."""

    positionwise: ClassVar[bool] = False
    """Whether it computes y[..., D] from x[..., I] at the same place on the leading axes alone."""

    by_order: ClassVar[bool] = False
    """Whether results at tokens depend on the order of tokens alone, not on where in the row, between padding, they
    stand. This also holds for all that is positionwise."""

    @abstractmethod
    def infer(self, *inputs: Any, **_: Any) -> tuple[Type, ...]:
        """The types of the outputs, from the input Values. ShapeError if these do not fit."""

    def params(self) -> tuple[Param, ...]:
        """The weights it owns, with torch's names and layouts."""
        return ()

    def states(self, *inputs: Any, **_: Any) -> tuple[State, ...]:
        """What it carries from one call of the model to the next."""
        return ()

    def bodies(self) -> Iterator[Region]:
        """The regions that it runs inside itself."""
        return iter(())

    @abstractmethod
    def flops(self, *inputs: Any, **_: Any) -> Size:
        """Forward FLOPs for Values of integer shapes: 2 per multiply-add, none for comparisons and copies."""

    def backward(self, takes: Sequence[bool], *inputs: Any) -> Size:
        """FLOPs of its gradients: for each input that `takes` one, and for its weights, those of the forward pass.

        That is exact where factors are multiplied, as in every product of matrices, and the convention elsewhere.
        """
        return (sum(takes) + bool(self.params())) * self.flops(*inputs)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        """What its gradients read: Values among `inputs` and `outputs`, others where it is stored for them alone."""
        return iter(())

    @abstractmethod
    def reference(self, np: Any, weights: Weights, *inputs: Any, **_: Any) -> tuple[Array, ...]:
        """The outputs, computed in NumPy at the precision of the arrays."""

    def declare(self) -> str | None:
        """The constructor, as text, of the torch module that holds its weights; None if it needs none."""
        return None

    def helpers(self) -> tuple[Helper, ...]:
        """The helpers that `declare` refers to."""
        return ()

    @abstractmethod
    def torch(self, t: TorchWriter, *inputs: Any, **_: Any) -> Expr:
        """An expression that evaluates to the output, or to the tuple of outputs."""

    @abstractmethod
    def onnx(self, o: OnnxWriter, *inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Nodes that compute the outputs in opset 23."""


__all__ = [
    "Array",
    "Data",
    "Expr",
    "Helper",
    "OnnxWriter",
    "Op",
    "ShapeError",
    "TorchWriter",
    "Type",
    "Weights",
    "primitive",
]
