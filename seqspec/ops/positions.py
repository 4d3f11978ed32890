"""Where a token stands, and tables of vectors for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod
from typing import Any, Literal

from seqspec.graph.dims import PAST, Size, dim, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights
from seqspec.ops.padding import last_columns

_TOKEN_POSITIONS = Helper(
    "token_positions",
    '''
def token_positions(x, mask, past_length):
    """Positions of the T tokens of x, counting real ones from 0; one row [1, T] where nothing is padded."""
    length = x.size(1)
    if mask is None:
        return torch.arange(past_length, past_length + length, device=x.device)[None]
    return (mask.cumsum(1) - 1).clamp(min=0)[:, mask.size(1) - length :]
''',
)


@dataclass(frozen=True)
class Positions(Op):
    """x[B, T, …], mask[B, S]?, position_ids[B, T]? -> positions[B, T] int64.

    They count real tokens from 0, the past included, so that padding anywhere changes nothing; padding before the first
    real token is at 0. Given position_ids win. In PyTorch one row [1, T] stands for all where nothing is padded.
    """

    looks_back: bool = False

    def infer(self, x: Value, mask: Value | None, position_ids: Value | None) -> tuple[Type, ...]:
        if self.looks_back and mask is None:
            raise ShapeError("positions after a past are counted in a mask, and none is there")
        shape = (x.shape[0], x.shape[1])
        if position_ids is not None and position_ids.shape != shape:
            raise ShapeError(f"position_ids are {show(shape)}, not {show(position_ids.shape)}")
        return (Type(shape, "int64"),)

    def flops(self, x: Value, mask: Value | None, position_ids: Value | None) -> Size:
        return 0

    def reference(
        self, np: Any, weights: Weights, x: Array, mask: Array | None, position_ids: Array | None
    ) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None, position_ids: Expr | None) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None, position_ids: Any | None) -> tuple[Any, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class LearnedPositions(Op):
    """positions[B, T] -> weight[position] [B, T, D]; weight[max_length, D] starts normal with deviation 0.02.

    A position past the table, or below 0, is an error.
    """

    max_length: int
    width: int

    def infer(self, positions: Value) -> tuple[Type, ...]:
        return (Type((*positions.shape, self.width)),)

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (self.max_length, self.width), init=Init("normal", (0.02,))),)

    def flops(self, positions: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, positions: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def declare(self) -> str:
        return f"nn.Embedding({self.max_length}, {self.width})"

    def torch(self, t: TorchWriter, positions: Expr) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, positions: Any) -> tuple[Any, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class SinusoidalPositions(Op):
    """positions[B, T], x[B, T, D] -> sines and cosines [B, T, D] in the dtype of x, which says nothing else.

    `interleaved`: channel i is the sine (i even) or cosine (i odd) of position · base^(−2⌊i/2⌋/D), any D.
    `half_split`: n = ⌊D/2⌋ sines, then as many cosines, of position · base^(−j/(n − 1)), and a 0 where D is odd: note
    the n − 1, by which the last frequency is 1/base exactly (tensor2tensor, fairseq, Whisper).
    """

    width: int
    layout: Literal["interleaved", "half_split"] = "interleaved"
    base: float = 10000.0

    def infer(self, positions: Value, x: Value) -> tuple[Type, ...]:
        return (Type((*positions.shape, self.width), x.dtype),)

    def flops(self, positions: Value, x: Value) -> Size:
        return 2 * prod(positions.shape) * self.width  # a product and a sine

    def reference(self, np: Any, weights: Weights, positions: Array, x: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, positions: Expr, x: Expr) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, positions: Any, x: Any) -> tuple[Any, ...]:
        raise NotImplementedError
