"""Positions of tokens, and the vectors for them: learned tables and sinusoids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal

from seqspec.graph.dims import PAST, Size, dim, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.padding import last_columns

_TOKEN_POSITIONS = Helper(
    "token_positions",
    '''
def token_positions(x, mask, past_length=0):
    """Positions of the T tokens of x, counting real ones from 0; one row [1, T] where nothing is padded."""
    length = x.size(1)
    if mask is None:
        return torch.arange(past_length, past_length + length, device=x.device)[None]
    return (mask.cumsum(1) - 1).clamp(min=0)[:, mask.size(1) - length :]
''',
)


WITHIN_TABLE = Helper(
    "within_table",
    '''
def within_table(positions, max_length):
    """The positions, checked: the error of a table names neither the position nor the limit."""
    if positions.numel() and not torch.compiler.is_compiling():
        first, last = (int(bound) for bound in positions.aminmax())
        if first < 0:
            raise IndexError(f"position {first} is negative")
        if last >= max_length:
            raise IndexError(f"position {last} is in a sequence of at least {last + 1}, but max_length is {max_length}")
    return positions
''',
)

_INTERLEAVED = Helper(
    "interleaved_sinusoids",
    '''
def interleaved_sinusoids(positions, width, base, dtype):
    """Channel i is the sine (even) or cosine (odd) of position · base^(-2⌊i/2⌋/width); float64 angles, rounded once."""
    channel = torch.arange(width, device=positions.device)
    angles = positions[..., None] * base ** (-2.0 * (channel // 2).double() / width)
    return torch.where(channel % 2 == 0, angles.sin(), angles.cos()).to(dtype)
''',
)

_HALF_SPLIT = Helper(
    "half_split_sinusoids",
    '''
def half_split_sinusoids(positions, width, base, dtype):
    """n = ⌊width/2⌋ sines of position · base^(-j/(n-1)), then n cosines; float64 angles, rounded once."""
    half = width // 2
    channel = torch.arange(half, dtype=torch.float64, device=positions.device)
    angles = positions[..., None] * base ** (-channel / max(half - 1, 1))
    return F.pad(torch.cat([angles.sin(), angles.cos()], -1), (0, width % 2)).to(dtype)
''',
)


@primitive
class Positions(Op):
    """x[B, T, …], mask[B, S]?, position_ids[B, T]? -> positions[B, T] int64.

    Positions count real tokens from 0, the past included, so padding anywhere changes nothing; padding before the first
    real token is at 0. Given position_ids win. In PyTorch the result is one row [1, T] if nothing is padded.
    """

    by_order = True

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
        batch, length = x.shape[:2]
        if position_ids is not None:
            return (position_ids,)
        if mask is None:
            return (np.tile(np.arange(length), (batch, 1)),)
        counted = np.maximum(np.cumsum(mask, 1) - 1, 0)
        return (counted[:, mask.shape[1] - length :],)

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None, position_ids: Expr | None) -> Expr:
        past = f", {t.size(dim(PAST))}" if self.looks_back else ""
        counted = Expr(f"{t.use(_TOKEN_POSITIONS)}({x}, {mask}{past})")
        if position_ids is None:
            return counted
        return Expr.infix(f"{counted} if {position_ids} is None else {position_ids}")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None, position_ids: Any | None) -> tuple[Any, ...]:
        if position_ids is not None:
            return (position_ids,)
        if mask is None:
            row = o.Range(o.scalar(0, "int64"), o.Squeeze(o.size(x, 1)), o.scalar(1, "int64"))
            return (o.Expand(o.Unsqueeze(row, o.ints(0)), o.Concat(o.size(x, 0), o.size(x, 1), axis=0)),)
        counted = o.Sub(count_real(o, mask), o.ints(1))
        return (last_columns(o, o.Max(counted, o.ints(0)), x),)


@primitive
class LearnedPositions(Op):
    """positions[B, T] -> weight[position] [B, T, D]; weight[max_length, D] starts normal, standard deviation 0.02.

    A position beyond the table or below 0 is an error.
    """

    by_order = True

    max_length: int
    width: int

    def infer(self, positions: Value) -> tuple[Type, ...]:
        return (Type((*positions.shape, self.width)),)

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (self.max_length, self.width), init=Init("normal", (0.02,))),)

    def flops(self, positions: Value) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield inputs[0]

    def reference(self, np: Any, weights: Weights, positions: Array) -> tuple[Array, ...]:
        if positions.size and not (positions.min() >= 0 and positions.max() < self.max_length):
            raise IndexError(f"positions {positions.min()} to {positions.max()}, but max_length is {self.max_length}")
        return (weights["weight"][positions],)

    def declare(self) -> str:
        return f"nn.Embedding({self.max_length}, {self.width})"

    def torch(self, t: TorchWriter, positions: Expr) -> Expr:
        return Expr(f"{t.module}({t.use(WITHIN_TABLE)}({positions}, {self.max_length}))")

    def onnx(self, o: OnnxWriter, positions: Any) -> tuple[Any, ...]:
        # Gather would count a negative index from the end, so it is replaced by one that is out of range
        refused = o.Where(o.Less(positions, o.ints(0)), o.ints(self.max_length), positions)
        return (o.Gather(o.param("weight"), refused, axis=0),)


@primitive
class SinusoidalPositions(Op):
    """positions[B, T], x[B, T, D] -> sines and cosines [B, T, D] in the dtype of x, which is not read otherwise.

    `interleaved`: channel i is the sine (i even) or cosine (i odd) of position · base^(−2⌊i/2⌋/D), for any D.
    `half_split`: n = ⌊D/2⌋ sines, then n cosines, of position · base^(−j/(n − 1)), and a 0 if D is odd. With n − 1 the
    last frequency is exactly 1/base (tensor2tensor, fairseq, Whisper).
    """

    likes = (1,)
    by_order = True

    width: int
    layout: Literal["interleaved", "half_split"] = "interleaved"
    base: float = 10000.0

    def infer(self, positions: Value, x: Value) -> tuple[Type, ...]:
        return (Type((*positions.shape, self.width), x.dtype),)

    def flops(self, positions: Value, x: Value) -> Size:
        return 2 * prod(positions.shape) * self.width  # a product and a sine

    def reference(self, np: Any, weights: Weights, positions: Array, x: Array) -> tuple[Array, ...]:
        table = np.zeros((*positions.shape, self.width))
        half = self.width // 2
        for i in range(self.width):
            if self.layout == "interleaved":
                wave, exponent = (np.cos if i % 2 else np.sin), 2 * (i // 2) / self.width
            elif i < 2 * half:
                wave, exponent = (np.sin if i < half else np.cos), (i % half) / max(half - 1, 1)
            else:
                continue
            table[..., i] = wave(positions * self.base**-exponent)
        return (table.astype(x.dtype),)

    def torch(self, t: TorchWriter, positions: Expr, x: Expr) -> Expr:
        helper = _INTERLEAVED if self.layout == "interleaved" else _HALF_SPLIT
        return Expr(f"{t.use(helper)}({positions}, {self.width}, {self.base!r}, {x.tight}.dtype)")

    def onnx(self, o: OnnxWriter, positions: Any, x: Any) -> tuple[Any, ...]:
        place = o.cast(o.Unsqueeze(positions, o.ints(-1)), "float64")
        if self.layout == "interleaved":
            exponents = [2 * (i // 2) / self.width for i in range(self.width)]
            angles = o.Mul(place, self._frequencies(o, exponents))
            even = o.const([i % 2 == 0 for i in range(self.width)], "bool")
            return (o.cast(o.Where(even, o.Sin(angles), o.Cos(angles)), "float"),)
        half = self.width // 2
        angles = o.Mul(place, self._frequencies(o, [j / max(half - 1, 1) for j in range(half)]))
        waves = o.Concat(o.Sin(angles), o.Cos(angles), axis=-1)
        if self.width % 2:
            waves = o.Pad(waves, o.ints(0, 0, 0, 0, 0, 1))
        return (o.cast(waves, "float"),)

    def _frequencies(self, o: OnnxWriter, exponents: list[float]) -> Any:
        return o.const([self.base**-e for e in exponents], "float64")


def count_real(o: OnnxWriter, mask: Any) -> Any:
    """mask[B, S] -> the number of real tokens up to and including each [B, S] int64."""
    return o.CumSum(o.cast(mask, "int64"), o.scalar(1, "int64"))
