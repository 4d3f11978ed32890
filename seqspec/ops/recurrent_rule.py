"""The equation of one recurrent step and its parameters, which layers and cells of one kind share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from math import prod, sqrt
from typing import Any, ClassVar, Literal, NamedTuple

from seqspec.graph.dims import Shape
from seqspec.graph.ir import Init
from seqspec.ops.base import Array, Helper, OnnxWriter, Weights

Bias = Literal["double", "single", "none"]
"""double: torch's bias_ih and bias_hh; single: bias_ih alone."""

BIASES: dict[Bias, int] = {"double": 2, "single": 1, "none": 0}
BIAS_NAMES = ("bias_ih", "bias_hh")


class Gates(NamedTuple):
    """W[G·H,I], U[G·H,H], b[G·H], c[G·H] of one direction or cell, for references; absent biases are zeros.

    `peephole` and `projection` are an LSTM's `weight_ch` and `weight_hr`, if it has them.
    """

    W: Array
    U: Array
    b: Array
    c: Array
    peephole: Array | None = None
    projection: Array | None = None

    @classmethod
    def read(cls, np: Any, weights: Weights, suffix: str = "") -> Gates:
        W, U = weights["weight_ih" + suffix], weights["weight_hh" + suffix]
        b, c = (weights.get(name + suffix, np.zeros(len(W), W.dtype)) for name in BIAS_NAMES)
        return cls(W, U, b, c, *(weights.get(name + suffix) for name in ("weight_ch", "weight_hr")))


class Rule(ABC):
    """The equation of one step, in every face."""

    kind: ClassVar[str]  # the name in torch and in ONNX
    gates: ClassVar[int]  # the number of blocks of rows in each weight
    carried: ClassVar[tuple[str, ...]] = ("h",)
    onnx_blocks: ClassVar[tuple[int, ...]]  # for each of ONNX's blocks, the index of torch's

    @property
    @abstractmethod
    def native(self) -> bool:
        """Whether torch has this layer, given two biases or none."""

    @property
    def native_cell(self) -> bool:
        """Whether torch has this cell."""
        return self.native

    @property
    def options(self) -> str:
        """Further constructor arguments of torch's module."""
        return ""

    @property
    def stepwise_options(self) -> str:
        """Further constructor arguments of the emitted file's own module."""
        return ""

    @property
    def in_onnx(self) -> bool:
        """Whether ONNX's op can compute it; otherwise a file steps through time."""
        return True

    @property
    def fast_in_onnx(self) -> bool:
        """Whether onnxruntime's op on a CPU is faster than a Scan if nothing is padded."""
        return self.in_onnx

    @property
    def in_cudnn(self) -> bool:
        """Whether onnxruntime computes ONNX's op by cuDNN."""
        return self.in_onnx

    def widths(self, hidden_size: int) -> tuple[int, ...]:
        """Channels of each carried value; the first is the output."""
        return (hidden_size,) * len(self.carried)

    def more_parameters(self, hidden_size: int) -> dict[str, tuple[int, ...]]:
        """Parameters besides the matrices of the gates and their biases."""
        return {}

    @property
    def gates_of_state(self) -> int:
        """How many blocks of U multiply the state itself; the others multiply what is computed in the step."""
        return self.gates

    @property
    def onnx_attributes(self) -> dict[str, Any]:
        """Attributes of ONNX's op, for one direction."""
        return {}

    @property
    def sums_biases(self) -> bool:
        """Whether the second bias is only ever added to the first."""
        return True

    @property
    def onnx_signs(self) -> tuple[int, ...]:
        """The sign of each of ONNX's blocks; −1 negates it."""
        return (1,) * self.gates

    @abstractmethod
    def step(self) -> Helper:
        """`def …_step(x, state, weight, bias)` of the emitted file: x is W x + b [B,G·H], weight U, bias c."""

    @abstractmethod
    def reference(self, np: Any, w: Gates, x: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        """The next state from x[..., I] and state[..., H] each."""

    def input_biases(self, bias: Bias) -> tuple[str, ...]:
        """The biases that W x can have: b, and c if the equation only adds it to that."""
        return BIAS_NAMES[: min(BIASES[bias], 2 if self.sums_biases else 1)]

    def onnx_gates(self, o: OnnxWriter, bias: Bias, x: Any) -> Any:
        """W x with its biases [N, G·H] of x[N, I]."""
        biases = [o.param(name) for name in self.input_biases(bias)]
        return o.Gemm(x, o.param("weight_ih"), summed(o, biases), transB=1)

    @abstractmethod
    def onnx(self, o: OnnxWriter, bias: Bias, hidden_size: int, gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The next state from `onnx_gates` and state[B, H] each, as nodes of a cell."""


def parameter_shapes(rule: Rule, input_size: int, hidden_size: int, bias: Bias) -> dict[str, Shape]:
    """weight_ih[G·H,I], weight_hh[G·H,O], bias_ih[G·H], bias_hh[G·H], as many as there are, and what else there is.

    O are the channels put out: H, unless they are projected.
    """
    rows = rule.gates * hidden_size
    shapes: dict[str, Shape] = {"weight_ih": (rows, input_size), "weight_hh": (rows, rule.widths(hidden_size)[0])}
    shapes |= dict.fromkeys(BIAS_NAMES[: BIASES[bias]], (rows,))
    shapes.update(rule.more_parameters(hidden_size))
    return shapes


def step_flops(rule: Rule, input_size: int, hidden_size: int) -> int:
    """FLOPs of one row and step: the matrix products; gates, biases and peepholes are not counted."""
    return sum(step_products(rule, input_size, hidden_size))


def step_products(rule: Rule, input_size: int, hidden_size: int) -> tuple[int, int, int]:
    """FLOPs of W x, of U h, and of the products that take something computed in the step."""
    block, width = 2 * hidden_size, rule.widths(hidden_size)[0]
    more = sum(2 * prod(s) for s in rule.more_parameters(hidden_size).values() if len(s) == 2)
    more += (rule.gates - rule.gates_of_state) * block * width
    return rule.gates * block * input_size, rule.gates_of_state * block * width, more


def uniform(hidden_size: int) -> Init:
    """torch's initialisation of all recurrent parameters: uniform in ±1/√H."""
    return Init("uniform", (1 / sqrt(hidden_size),))


def sigmoid(np: Any, x: Array) -> Array:
    """1 / (1 + e⁻ˣ), by tanh, which never overflows."""
    return (1 + np.tanh(x / 2)) / 2


def summed(o: OnnxWriter, biases: Sequence[Any]) -> Any:
    """The sum of biases, which onnxruntime folds when it loads a file; None of none."""
    return reduce(o.Add, biases) if biases else None


def state_gates(o: OnnxWriter, h: Any, bias: Bias) -> Any:
    """U h + c of a cell."""
    return o.Gemm(h, matrix(o, "weight_hh"), o.param("bias_hh") if bias == "double" else None)


def matrix(o: OnnxWriter, leaf: str) -> Any:
    """A weight, transposed outside of the loop."""
    return o.Transpose(o.param(leaf), perm=[1, 0])
