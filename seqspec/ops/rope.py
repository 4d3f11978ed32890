"""Rotary positions: pairs of channels are rotated by position · frequency, so that scores depend on distances only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Literal

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.rope_scaling import ByLength, Fixed, Scaling

_FREQUENCIES = Helper(
    "rope_frequencies",
    '''
def rope_frequencies(width, theta, device):
    """theta^(-2i/width) for each of width/2 pairs, in float64."""
    return theta ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
''',
)

_TABLES = Helper(
    "rope_tables",
    '''
def rope_tables(positions, frequencies, dtype):
    """cos, sin [B, T, width/2] of position · frequency: float64 angles, rounded once."""
    angles = positions[..., None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)
''',
)

_SCALED_TABLES = Helper(
    "scaled_rope_tables",
    '''
def scaled_rope_tables(positions, frequencies, attention_factor, dtype):
    """The same, times a factor: scores grow by its square."""
    angles = positions[..., None] * frequencies
    return (attention_factor * angles.cos()).to(dtype), (attention_factor * angles.sin()).to(dtype)
''',
)

_HALF_SPLIT = Helper(
    "rotate_half_split",
    '''
def rotate_half_split(x, cos, sin):
    """Turns the channel pairs (i, i + width/2) of x[B, H, T, d] by the angles of cos, sin [B, T, width/2]."""
    cos, sin = cos[:, None], sin[:, None]
    half = cos.size(-1)
    a, b, rest = x.tensor_split((half, 2 * half), -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
''',
)

_INTERLEAVED = Helper(
    "rotate_interleaved",
    '''
def rotate_interleaved(x, cos, sin):
    """Turns the channel pairs (2i, 2i + 1) of x[B, H, T, d] by the angles of cos, sin [B, T, width/2]."""
    cos, sin = cos[:, None], sin[:, None]
    turned, rest = x.tensor_split((2 * cos.size(-1),), -1)
    a, b = turned[..., ::2], turned[..., 1::2]
    return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), rest], -1)
''',
)


@primitive
class RopeTables(Op):
    """positions[B, T], x -> cos, sin [B, T, width / 2] of position · theta^(−2i/width), in the dtype of x.

    `width` is the number of rotated channels of a head; `scaling` changes their frequencies. Angles are computed in
    float64 and rounded once, at the end: with float16 angles the cosine is off by 0.8 at position 2000, and bfloat16
    cannot tell 256 from 257.
    """

    likes = (1,)
    by_order = True

    width: int
    theta: float
    scaling: Scaling | None = None

    def infer(self, positions: Value, x: Value) -> tuple[Type, ...]:
        if self.width % 2:
            raise ShapeError(f"rotary positions turn pairs of channels: {self.width} is odd")
        table = Type((*positions.shape, self.width // 2), x.dtype)
        return (table, table)

    def flops(self, positions: Value, x: Value) -> Size:
        return 3 * prod(positions.shape) * (self.width // 2)  # a product, a cosine, a sine

    def frequencies(self) -> list[float]:
        """Radians per position for each pair, before any scaling by length."""
        plain = [self.theta ** (-2 * i / self.width) for i in range(self.width // 2)]
        return self.scaling.scaled(plain, self.theta) if isinstance(self.scaling, Fixed) else plain

    @property
    def _factor(self) -> float:
        return self.scaling.attention_factor if self.scaling else 1.0

    def reference(self, np: Any, weights: Weights, positions: Array, x: Array) -> tuple[Array, ...]:
        angles = self.angles(np, positions)
        return self.table(np.cos, angles).astype(x.dtype), self.table(np.sin, angles).astype(x.dtype)

    def angles(self, np: Any, positions: Array) -> Array:
        """positions[B, T] -> radians [B, T, width / 2] in float64."""
        frequencies = np.array(self.frequencies())
        if isinstance(self.scaling, ByLength):
            lengths = positions.max(1, initial=-1) + 1
            frequencies = self.scaling.reference(np, frequencies, lengths)[:, None]
        return positions[..., None] * frequencies

    def table(self, turn: Callable[[Array], Array], angles: Array) -> Array:
        """One of the two tables in float64; `turn` is `np.cos` or `np.sin`."""
        return self._factor * turn(angles)

    def torch(self, t: TorchWriter, positions: Expr, x: Expr) -> Expr:
        frequencies = f"{t.use(_FREQUENCIES)}({self.width}, {self.theta!r}, {x.tight}.device)"
        if isinstance(self.scaling, Fixed):
            frequencies = self.scaling.torch(t, frequencies, self.width, self.theta)
        elif isinstance(self.scaling, ByLength):
            frequencies = self.scaling.torch(t, frequencies, positions)
        if self._factor != 1:
            scaled = f"{positions}, {frequencies}, {self._factor!r}, {x.tight}.dtype"
            return Expr(f"{t.use(_SCALED_TABLES)}({scaled})")
        return Expr(f"{t.use(_TABLES)}({positions}, {frequencies}, {x.tight}.dtype)")

    def onnx(self, o: OnnxWriter, positions: Any, x: Any) -> tuple[Any, ...]:
        place = o.cast(o.Unsqueeze(positions, o.ints(-1)), "float64")
        if isinstance(self.scaling, ByLength):
            # with a 0 added, since an empty row has no maximum
            ends = o.Pad(o.Add(positions, o.ints(1)), o.ints(0, 1, 0, 0))
            lengths = o.Unsqueeze(o.ReduceMax(ends, o.ints(1), keepdims=1), o.ints(-1))
            frequencies = self.scaling.onnx(o, self.frequencies(), lengths)
        else:
            frequencies = o.const(self.frequencies(), "float64")
        angles = o.Mul(place, frequencies)
        tables = [o.Cos(angles), o.Sin(angles)]
        if self._factor != 1:
            tables = [o.Mul(table, o.scalar(self._factor, "float64")) for table in tables]
        return tuple(o.cast(table, "float") for table in tables)


@primitive
class Rope(Op):
    """x[B, H, T, d], cos, sin [B or 1, T, width / 2] -> x with its first `width` channels rotated, the rest unchanged.

    Pair (a, b) -> (a cos − b sin, b cos + a sin). `half_split` pairs channels (i, i + width/2), as Hugging Face stores
    LLaMA's weights; `interleaved` pairs (2i, 2i + 1), as GPT-J and the original paper do.
    """

    by_order = True

    layout: Literal["half_split", "interleaved"]
    width: int

    def infer(self, x: Value, cos: Value, sin: Value) -> tuple[Type, ...]:
        if len(x.shape) != 4:
            raise ShapeError(f"rotary positions turn [B, H, T, d], not {show(x.shape)}")
        half = cos.shape[-1]
        if self.width % 2 or half != self.width // 2:
            raise ShapeError(f"{self.width} channels cannot be turned by {half} angles")
        if isinstance(x.shape[3], int) and x.shape[3] < self.width:
            raise ShapeError(f"{self.width} channels cannot be turned in heads of width {x.shape[3]}")
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value, cos: Value, sin: Value) -> Size:
        return 3 * prod(x.shape[:3]) * self.width

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs[1:]

    def reference(self, np: Any, weights: Weights, x: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
        y = x.copy()
        for i in range(self.width // 2):
            m, n = (i, i + self.width // 2) if self.layout == "half_split" else (2 * i, 2 * i + 1)
            c, s = cos[:, None, :, i], sin[:, None, :, i]
            y[..., m] = x[..., m] * c - x[..., n] * s
            y[..., n] = x[..., n] * c + x[..., m] * s
        return (y,)

    def torch(self, t: TorchWriter, x: Expr, cos: Expr, sin: Expr) -> Expr:
        helper = _HALF_SPLIT if self.layout == "half_split" else _INTERLEAVED
        return Expr(f"{t.use(helper)}({x}, {cos}, {sin})")

    def onnx(self, o: OnnxWriter, x: Any, cos: Any, sin: Any) -> tuple[Any, ...]:
        interleaved = int(self.layout == "interleaved")
        return (o.RotaryEmbedding(x, cos, sin, interleaved=interleaved, rotary_embedding_dim=self.width),)
