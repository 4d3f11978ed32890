"""Scalings of rotary frequencies for texts longer than those of training, as in transformers' rope utilities.

Pair i of width/2 rotates by theta^(−2i/width) per position; a scaling changes these frequencies. `Dynamic` and
`LongRope` depend on the length of a row: its largest position + 1, the past included.
"""

from __future__ import annotations

from math import ceil, floor, log, pi
from typing import Any

from seqspec.ops.base import Array, Data, Expr, Helper, OnnxWriter, TorchWriter, primitive

_LLAMA3 = Helper(
    "llama3_scaled",
    '''
def llama3_scaled(frequencies, factor, low_freq_factor, high_freq_factor, original_max_length):
    """Frequencies of over `high` turns in the original length are kept, of under `low` turns divided by factor."""
    turns = original_max_length * frequencies / (2 * torch.pi)
    kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)
''',
)

_YARN = Helper(
    "yarn_scaled",
    '''
def yarn_scaled(frequencies, factor, low, high):
    """Frequencies of pairs up to `low` are kept, from `high` on divided by factor, linear between."""
    pair = torch.arange(len(frequencies), dtype=torch.float64, device=frequencies.device)
    kept = 1 - ((pair - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)
''',
)

_LENGTHS = Helper(
    "row_lengths",
    '''
def row_lengths(positions):
    """positions[B, T] -> [B, 1, 1]: how long each row is up to here, the past included."""
    return F.pad(positions + 1, (1, 0)).amax(1)[:, None, None]
''',
)

_DYNAMIC = Helper(
    "dynamic_ntk",
    '''
def dynamic_ntk(frequencies, positions, factor, original_max_length):
    """[B, 1, width/2]: theta grows with a row's length beyond the original one, so that slow pairs turn slower."""
    lengths = row_lengths(positions).clamp(min=original_max_length).double()
    grown = factor * lengths / original_max_length - (factor - 1)
    pair = torch.arange(len(frequencies), dtype=torch.float64, device=frequencies.device)
    return frequencies * grown ** (-pair / max(len(frequencies) - 1, 1))
''',
    (_LENGTHS,),
)

_LONGROPE = Helper(
    "longrope_scaled",
    '''
def longrope_scaled(frequencies, positions, short_factor, long_factor, original_max_length):
    """[B, 1, width/2]: each pair divided by its own factor, the long ones in rows beyond the original length."""
    short, long = frequencies.new_tensor(short_factor), frequencies.new_tensor(long_factor)
    return frequencies / torch.where(row_lengths(positions) > original_max_length, long, short)
''',
    (_LENGTHS,),
)


@primitive
class Fixed(Data):
    """A scaling that is the same for every row: one frequency per pair."""

    def scaled(self, frequencies: list[float], theta: float) -> list[float]:
        """The changed frequencies."""
        raise NotImplementedError

    @property
    def attention_factor(self) -> float:
        """The factor on cosines and sines."""
        return 1.0

    def torch(self, t: TorchWriter, frequencies: str, width: int, theta: float) -> str:
        """The changed frequencies as PyTorch text."""
        raise NotImplementedError


@primitive
class Linear(Fixed):
    """Every frequency divided by `factor`."""

    factor: float

    def scaled(self, frequencies: list[float], theta: float) -> list[float]:
        return [f / self.factor for f in frequencies]

    def torch(self, t: TorchWriter, frequencies: str, width: int, theta: float) -> str:
        return f"{frequencies} / {self.factor!r}"


@primitive
class Llama3(Fixed):
    """Frequencies of long waves divided by `factor`, of short waves kept, linear in 1/wavelength between.

    Long is above original_max_length / low_freq_factor, short below original_max_length / high_freq_factor.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_length: int

    def scaled(self, frequencies: list[float], theta: float) -> list[float]:
        return [self._scaled(f) for f in frequencies]

    def _scaled(self, frequency: float) -> float:
        turns = self.original_max_length * frequency / (2 * pi)
        if turns < self.low_freq_factor:
            return frequency / self.factor
        if turns > self.high_freq_factor:
            return frequency
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return kept * frequency + (1 - kept) * frequency / self.factor

    def torch(self, t: TorchWriter, frequencies: str, width: int, theta: float) -> str:
        bounds = f"{self.low_freq_factor!r}, {self.high_freq_factor!r}, {self.original_max_length}"
        return f"{t.use(_LLAMA3)}({frequencies}, {self.factor!r}, {bounds})"


@primitive
class Yarn(Fixed):
    """NTK by parts (Peng et al. 2023): fast pairs are kept, slow ones divided by `factor`, linear in the index between.

    Fast pairs make more than `beta_fast` turns in the original length, slow ones fewer than `beta_slow`; `truncate`
    rounds these bounds outwards. Cosines and sines are multiplied by `attention`; the paper's is 0.1 ln(factor) + 1.
    """

    factor: float
    original_max_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention: float = 1.0

    @property
    def attention_factor(self) -> float:
        return self.attention

    def bounds(self, width: int, theta: float) -> tuple[float, float]:
        """The pairs at which the blend begins and ends."""

        def pair(turns: float) -> float:
            return width * log(self.original_max_length / (turns * 2 * pi)) / (2 * log(theta))

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        return low, high + 0.001 if low == high else high

    def scaled(self, frequencies: list[float], theta: float) -> list[float]:
        low, high = self.bounds(2 * len(frequencies), theta)
        kept = [1 - min(max((i - low) / (high - low), 0), 1) for i in range(len(frequencies))]
        return [f * k + f / self.factor * (1 - k) for f, k in zip(frequencies, kept, strict=True)]

    def torch(self, t: TorchWriter, frequencies: str, width: int, theta: float) -> str:
        low, high = self.bounds(width, theta)
        return f"{t.use(_YARN)}({frequencies}, {self.factor!r}, {low!r}, {high!r})"


@primitive
class ByLength(Data):
    """A scaling that changes with the length of a row beyond `original_max_length`.

    Cached keys stay rotated by the frequencies of their time: beyond that length, running in steps differs from running
    at once.
    """

    original_max_length: int

    @property
    def attention_factor(self) -> float:
        return 1.0

    def reference(self, np: Any, frequencies: Array, lengths: Array) -> Array:
        """frequencies[width/2], lengths[B] -> [B, width/2]"""
        raise NotImplementedError

    def torch(self, t: TorchWriter, frequencies: str, positions: Expr) -> str:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, frequencies: list[float], lengths: Any) -> Any:
        """lengths[B, 1, 1] int64 -> frequencies [B, 1, width/2] float64."""
        raise NotImplementedError


@primitive
class Dynamic(ByLength):
    """Theta grows with the row: theta · (factor · L / original − factor + 1)^(width / (width − 2)), L ≥ original.

    Pair i then rotates by theta^(−2i/width) · (…)^(−2i/(width − 2)).
    """

    factor: float

    def reference(self, np: Any, frequencies: Array, lengths: Array) -> Array:
        width, original = 2 * len(frequencies), self.original_max_length
        grown = self.factor * np.maximum(lengths, original) / original - (self.factor - 1)
        exponents = [-2 * i / (width - 2) if i else 0.0 for i in range(len(frequencies))]
        return frequencies * grown[:, None] ** np.array(exponents)

    def torch(self, t: TorchWriter, frequencies: str, positions: Expr) -> str:
        return f"{t.use(_DYNAMIC)}({frequencies}, {positions}, {self.factor!r}, {self.original_max_length})"

    def onnx(self, o: OnnxWriter, frequencies: list[float], lengths: Any) -> Any:
        longer = o.cast(o.Max(lengths, o.ints(self.original_max_length)), "float64")
        slope = o.scalar(self.factor / self.original_max_length, "float64")
        grown = o.Sub(o.Mul(longer, slope), o.scalar(self.factor - 1, "float64"))
        last = max(len(frequencies) - 1, 1)
        exponents = o.const([-i / last for i in range(len(frequencies))], "float64")
        return o.Mul(o.const(frequencies, "float64"), o.Pow(grown, exponents))


@primitive
class LongRope(ByLength):
    """Each frequency divided by its own factor: `short` up to the original length, `long` in longer rows (Phi-3).

    Cosines and sines are multiplied by `attention`, at every length.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    attention: float = 1.0

    @property
    def attention_factor(self) -> float:
        return self.attention

    def reference(self, np: Any, frequencies: Array, lengths: Array) -> Array:
        factors = [self.long if length > self.original_max_length else self.short for length in lengths]
        return frequencies / np.array(factors).reshape(len(lengths), len(frequencies))

    def torch(self, t: TorchWriter, frequencies: str, positions: Expr) -> str:
        factors = f"{list(self.short)!r}, {list(self.long)!r}"
        return f"{t.use(_LONGROPE)}({frequencies}, {positions}, {factors}, {self.original_max_length})"

    def onnx(self, o: OnnxWriter, frequencies: list[float], lengths: Any) -> Any:
        short, long = (
            o.const([f / by for f, by in zip(frequencies, factors, strict=True)], "float64")
            for factors in (self.short, self.long)
        )
        return o.Where(o.Greater(lengths, o.ints(self.original_max_length)), long, short)


Scaling = Fixed | ByLength
