"""A linear map whose weights are stored in 4 or 8 bits: onnxruntime's MatMulNBits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.ops.base import Array, OnnxWriter, Op, Weights, primitive
from seqspec.ops.fused import FusedOp
from seqspec.ops.linear import Linear
from seqspec.ops.packed import PackedLinear

BLOCK = 32
_STRIP = 1 << 20  # how many numbers are rounded at once, to keep temporary arrays small


@primitive
class MatMulNBits(FusedOp):
    """x[..., I] -> x Wᵀ + b [..., O], W[O, I] rounded to (q − 2^(bits−1)) · scale, one scale per block of 32 inputs.

    The scale maps the number of largest magnitude in a block to −2^(bits−1). The body is the original map; the
    reference rounds its weights. The kernel also rounds x to 8 bits, block by block (`accuracy_level` 4). `tie` is the
    path of a tied table, which is stored unrounded for its other readers.
    """

    bits: int = 4
    tie: str = ""

    @property
    def formals(self) -> tuple[str, ...]:
        return ("A", "B", "scales")

    @property
    def map(self) -> Op:
        """The original map."""
        return next(self._nodes()).op

    def reference(self, np: Any, weights: Weights, *inputs: Array) -> tuple[Array, ...]:
        held = {name: rounded(np, w, self.bits) if w.ndim == 2 else w for name, w in weights.items()}
        x, *table = inputs
        return FusedOp.reference(self, np, held, x, *(rounded(np, w, self.bits) for w in table))

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        (y,) = o.contributed(self, inputs, ())
        bias = self.map.bias_of(o) if isinstance(self.map, Linear | PackedLinear) else None
        return (y if bias is None else o.Add(y, bias),)

    def feeds(self, o: OnnxWriter, args: Sequence[Any], pasts: Sequence[Any]) -> tuple[Any, ...]:
        bits, leaves = self.bits, [self.tie] if self.tie else [p.name for p in self.params() if len(p.shape) == 2]
        together = "_".join(leaf.removesuffix(".weight") for leaf in leaves)
        tag = f"int{bits}" if len(leaves) == 1 else f"{together}.int{bits}"
        rows, columns = self._shape
        shape = (rows, -(-columns // BLOCK), BLOCK * bits // 8)
        stored = o.derived(tag, shape, lambda np, *w: _stored(np, w, bits), *leaves, dtype="uint8")
        scales = o.derived(f"{tag}.scales", shape[:2], lambda np, *w: _scales(np, w, bits), *leaves)
        return args[0], stored, scales

    def function(self, o: OnnxWriter, *inputs: Any) -> Sequence[Any]:
        x, numbers, scales = inputs
        rows, columns = self._shape
        if self.bits == 4:
            low = o.BitwiseAnd(numbers, o.const(15, "uint8"))
            high = o.BitShift(numbers, o.const(4, "uint8"), direction="RIGHT")
            pairs = o.Concat(o.Unsqueeze(low, o.ints(3)), o.Unsqueeze(high, o.ints(3)), axis=3)
            numbers = o.Reshape(pairs, o.ints(0, 0, BLOCK))
        centred = o.Sub(o.cast(numbers, "float"), o.scalar(float(1 << (self.bits - 1))))
        weight = o.Reshape(o.Mul(centred, o.Unsqueeze(scales, o.ints(2))), o.ints(rows, -1))
        weight = o.Slice(weight, o.ints(0), o.ints(columns), o.ints(1))
        return [o.MatMul(x, o.Transpose(weight, perm=[1, 0]))]

    @property
    def _shape(self) -> tuple[int, int]:
        """The shape of the whole weight, [O, I]."""
        named = dict(self.attributes)
        return int(named["N"]), int(named["K"])


def numbers(np: Any, weight: Array, bits: int) -> tuple[Array, Array]:
    """weight[O, I] -> q[O, ⌈I / 32⌉, 32] uint8 and scale[O, ⌈I / 32⌉]; the last block is padded with zeros."""
    blocks = np.pad(weight, ((0, 0), (0, -weight.shape[1] % BLOCK))).reshape(len(weight), -1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)
    half = 1 << (bits - 1)
    scale = -largest / half
    q = np.rint(blocks / np.where(scale == 0, 1, scale)) + half
    return q.clip(0, 2 * half - 1).astype(np.uint8), scale[..., 0]


def restored(np: Any, q: Array, scale: Array, bits: int, inputs: int) -> Array:
    """q[O, I / 32, 32] and scale[O, I / 32] -> weight[O, I]"""
    centred = q.astype(scale.dtype) - (1 << (bits - 1))
    return (centred * scale[..., None]).reshape(len(q), -1)[:, :inputs]


def unpacked(np: Any, stored: Array, bits: int) -> Array:
    """The bytes of a file -> q[O, I / 32, 32]"""
    return np.stack([stored & 15, stored >> 4], -1).reshape(*stored.shape[:2], BLOCK) if bits == 4 else stored


def rounded(np: Any, weight: Array, bits: int) -> Array:
    """weight[O, I], rounded to `bits` and back."""
    return restored(np, *numbers(np, weight, bits), bits, weight.shape[1])


def _stored(np: Any, weights: Sequence[Array], bits: int) -> Array:
    """Weights [O, I] -> bytes [ΣO, I / 32, 32 · bits / 8]; in 4 bits the first of two numbers is the low half."""
    found = []
    for strip in _strips(weights):
        q, _ = numbers(np, strip, bits)
        found.append(q[..., ::2] | q[..., 1::2] << 4 if bits == 4 else q)
    return np.concatenate(found)


def _scales(np: Any, weights: Sequence[Array], bits: int) -> Array:
    return np.concatenate([numbers(np, strip, bits)[1] for strip in _strips(weights)])


def _strips(weights: Sequence[Array]) -> Iterator[Array]:
    """The rows of all weights, a few at a time."""
    for weight in weights:
        rows = max(1, _STRIP // weight.shape[1])
        yield from (weight[start : start + rows] for start in range(0, len(weight), rows))
