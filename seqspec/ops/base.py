"""What an op is, and the writers its faces are handed.

An op is a frozen dataclass with every face in its own file:

    infer      types of its outputs from its inputs' (or ShapeError)     params, states     what it owns and carries
    flops      forward FLOPs, 2 a multiply-add                           reference          NumPy, float64, obvious
    backward   FLOPs of its gradients                                    keeps              what these read again
    torch      an expression of PyTorch text, through TorchWriter        onnx               nodes, through OnnxWriter

No face imports torch, onnx or numpy: the writers and `np` come as arguments. In every face the past of each state
follows the inputs, in the order of `states`, and may be None; the presents are outputs (`State.output`).
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

Array = Any  # a NumPy array; NumPy is handed in, never imported here
Weights = Mapping[str, Array]  # an op's own parameters by leaf name


class Expr(str):
    """A piece of PyTorch text. `loose` binds weaker than a call: it needs brackets before `.`, `*` and the like."""

    loose: bool = False

    @classmethod
    def infix(cls, text: str) -> Expr:
        expr = cls(text)
        expr.loose = True
        return expr

    @property
    def tight(self) -> Expr:
        """The same, safe to put before `.` or beside an operator."""
        return Expr(f"({self})") if self.loose else self


@primitive
class Helper(Data):
    """A function or class of the emitted file, written once however often it is used."""

    name: str
    text: str
    needs: tuple[Helper, ...] = ()


class TorchWriter(Protocol):
    """Hands a torch face what surrounds it."""

    module: str  # `self.q_proj`: the module that the op declares
    node_scope: str

    def use(self, helper: Helper) -> str:
        """The helper's name; its text joins the file."""

    def param(self, leaf: str) -> str:
        """The op's own parameter, where it declares no module."""

    def size(self, size: Size) -> str:
        """An expression for a size, read off any tensor at hand (0 for a past that is not there)."""

    def loop(self, body: Region, carried: int, scanned: int, args: tuple[Expr | None, ...]) -> Expr:
        """Writes `for t in …` over a region's calls; see `ops.loop`."""


class OnnxWriter(Protocol):
    """Writes ONNX nodes: `o.MatMul(a, b)` adds one and returns its output, or the earlier output of the same node.

    Attributes are Python values; `None` is an absent optional input. Values are opaque to the faces.
    """

    half: bool
    """Whether the model computes in 16 bits, so that sums and exponentials ask for float32."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]: ...

    def many(self, op_type: str, count: int, *inputs: Any, domain: str = "", **attributes: Any) -> list[Any]:
        """A node with `count` outputs."""

    def param(self, leaf: str) -> Any:
        """The op's own parameter, as it is."""

    def derived(self, tag: str, shape: Shape, make: Callable[..., Array], *leaves: str, dtype: str = "float") -> Any:
        """A weight made from others when it is written: `make(np, *arrays)`. Equal tag and leaves are one tensor.

        Without leaves it is a table that the whole file shares, under the name `tag`.
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
        """The length of an axis, an int64 vector of one."""

    def scan(self, body: Region, carried: int, scanned: int, args: tuple[Any, ...]) -> list[Any]:
        """A Scan over a region; see `ops.loop`."""

    def contributed(self, op: FusedOp, args: Sequence[Any], pasts: Sequence[Any]) -> list[Any]:
        """The kernel's node, and a function of its name that says what it means; see `ops.fused`."""

    def region(self, body: Region, args: Sequence[Any], pasts: Sequence[Any]) -> list[Any]:
        """The nodes of a flat region, and its outputs; `pasts` in the order of its states."""

    def either(self, condition: Any, local: Sequence[Any], *branches: Callable[[], Sequence[Any]]) -> list[Any]:
        """An If: what the first branch gives where `condition` holds, else what the second gives.

        What a branch makes of `local` values is made inside it; all else once, for all branches that want it.
        """

    def function(
        self, name: str, types: Sequence[Type], variant: Hashable, write: Callable[..., Sequence[Any]], *inputs: Any
    ) -> list[Any]:
        """A node with outputs of these types that means `write(o, *inputs)`: a function, one for each variant."""


class Op(Data, ABC):
    """A primitive."""

    likes: ClassVar[tuple[int, ...]] = ()
    """Inputs of which it reads the size or the dtype alone, so that no gradient goes back to them."""

    view: ClassVar[bool] = False
    """Whether its output is the memory of its first input."""

    @abstractmethod
    def infer(self, *inputs: Any, **_: Any) -> tuple[Type, ...]:
        """Types of the outputs from the input Values; ShapeError where they do not fit."""

    def params(self) -> tuple[Param, ...]:
        """The weights it owns, under torch's names and layouts."""
        return ()

    def states(self, *inputs: Any, **_: Any) -> tuple[State, ...]:
        """What it carries from call to call."""
        return ()

    def bodies(self) -> Iterator[Region]:
        """Regions it runs inside."""
        return iter(())

    @abstractmethod
    def flops(self, *inputs: Any, **_: Any) -> Size:
        """Forward FLOPs for Values whose shapes are plain integers: 2 a multiply-add, comparisons and copies none."""

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
        """The outputs, in NumPy, at whatever precision the arrays have."""

    def declare(self) -> str | None:
        """The torch module that holds its weights, as constructor text."""
        return None

    def helpers(self) -> tuple[Helper, ...]:
        """What its declaration refers to."""
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
