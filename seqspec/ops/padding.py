"""The mask of real tokens, and zeros at padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import PAST, Size, dim, show
from seqspec.graph.ir import State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_REAL_IDS = Helper(
    "real_ids",
    '''
def real_ids(ids, pad_id, past_length):
    """True where an id is not padding; the very first of a sequence is real whatever it is."""
    real = ids != pad_id
    if past_length == 0:
        real[:, :1] = True
    return real
''',
)

_PADDING_MASK = Helper(
    "padding_mask",
    '''
def padding_mask(x, given, own, past=None, past_length=0):
    """mask[B, P + T], True = real, or None where nothing says that anything is padding.

    `given` covers past and chunk, or the chunk alone; where it is None, `own`, what the chunk says of itself, counts.
    A side of which nothing is known is real.
    """
    batch, length = x.shape[:2]
    if given is not None:
        if given.is_floating_point():
            raise TypeError("attention_mask is 1 for real tokens and 0 for padding: booleans or integers, not floats")
        if given.shape not in ((batch, length), (batch, past_length + length)):
            shape = [batch, length]
            raise ValueError(f"attention_mask is {list(given.shape)}, the input {shape} after a past of {past_length}")
    mask = own if given is None else given.bool()
    if mask is None and past is None:
        return None
    if mask is None:
        mask = past.new_ones(batch, length)
    if mask.size(1) == past_length + length:
        return mask
    return torch.cat([mask.new_ones(batch, past_length) if past is None else past, mask], 1)
''',
)

_ZERO_PADDING = Helper(
    "zero_padding",
    '''
def zero_padding(x, mask):
    """x[B, T, I] with zeros where the last T columns of the mask are False."""
    return x if mask is None else x.masked_fill(~mask[:, mask.size(1) - x.size(1) :, None], 0)
''',
)


@primitive
class Padding(Op):
    """x[B, T, …], attention_mask[B, S]? -> mask[B, S]?, True = real; S = P + T where it looks back, else T.

    A given mask wins; it covers all of S, or only the T new tokens. Otherwise, if there is a `pad_id`, x are ids and
    that id is padding, except at the first position of a sequence with `keep_first` (a decoder may start with pad_id).
    The result is None if nothing is known to be padding, unless `always`. With `looks_back` it is the state
    `attention_mask`.
    """

    pad_id: int | None = None
    keep_first: bool = False
    looks_back: bool = False
    always: bool = False

    def infer(self, x: Value, attention_mask: Value | None) -> tuple[Type, ...]:
        if self.pad_id is not None and x.dtype != "int64":
            raise ShapeError(f"pad_id {self.pad_id} is looked for in ids, not in {x.dtype}{show(x.shape)}")
        shape = (x.shape[0], self._past() + x.shape[1])
        if attention_mask is not None and attention_mask.shape != shape:
            raise ShapeError(f"the mask of {show(x.shape)} is {show(shape)}, not {show(attention_mask.shape)}")
        given = attention_mask is not None and not attention_mask.optional
        known = self.always or given or self.pad_id is not None
        return (Type(shape, "bool", not known),)

    def states(self, x: Value, attention_mask: Value | None) -> tuple[State, ...]:
        return (State("attention_mask", (x.shape[0], dim(PAST)), 0, "bool"),) if self.looks_back else ()

    def flops(self, x: Value, attention_mask: Value | None) -> Size:
        return 0

    def reference(
        self, np: Any, weights: Weights, x: Array, attention_mask: Array | None, past: Array | None = None
    ) -> tuple[Array | None, ...]:
        chunk = attention_mask.astype(bool) if attention_mask is not None else self._own(np, x, past)
        if chunk is None and past is None:
            return (None,)
        if chunk is not None and past is not None and chunk.shape[1] > x.shape[1]:
            return (chunk,)
        chunk = np.ones(x.shape[:2], bool) if chunk is None else chunk
        return (chunk if past is None else np.concatenate([past, chunk], 1),)

    def torch(self, t: TorchWriter, x: Expr, attention_mask: Expr | None, past: Expr | None = None) -> Expr:
        length = t.size(dim(PAST)) if self.looks_back else "0"
        own = "None"
        if self.pad_id is not None and self.keep_first:
            own = f"{t.use(_REAL_IDS)}({x}, {self.pad_id}, {length})"
        elif self.pad_id is not None:
            own = f"{x.tight} != {self.pad_id}"
        elif self.always:
            own = f"torch.ones({x.tight}.shape[:2], dtype=torch.bool, device={x.tight}.device)"
        arguments = f"{x}, {attention_mask}, {own}" + (f", {past}, {length}" if self.looks_back else "")
        return Expr(f"{t.use(_PADDING_MASK)}({arguments})")

    def onnx(self, o: OnnxWriter, x: Any, attention_mask: Any, past: Any | None = None) -> tuple[Any, ...]:
        return (o.cast(attention_mask, "bool"),)  # ONNX files always take the whole mask

    def _own(self, np: Any, x: Array, past: Array | None) -> Array | None:
        """The mask of the chunk by its own ids."""
        if self.pad_id is None:
            return np.ones(x.shape[:2], bool) if self.always else None
        real = x != self.pad_id
        if self.keep_first and past is None:
            real[:, :1] = True
        return real

    def _past(self) -> Size:
        return dim(PAST) if self.looks_back else 0


@primitive
class ZeroPadding(Op):
    """x[B, T, I], mask[B, S]? -> x with zeros at padding, by the last T columns of the mask.

    Values at padding, NaN included, cannot spread from there, and get no gradient.
    """

    by_order = True

    def infer(self, x: Value, mask: Value | None) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value, mask: Value | None) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield inputs[1]

    def reference(self, np: Any, weights: Weights, x: Array, mask: Array | None) -> tuple[Array, ...]:
        if mask is None:
            return (x,)
        return (np.where(mask[:, mask.shape[1] - x.shape[1] :, None], x, 0),)

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None) -> Expr:
        return x if mask is None else Expr(f"{t.use(_ZERO_PADDING)}({x}, {mask})")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None) -> tuple[Any, ...]:
        if mask is None:
            return (x,)
        real = o.Unsqueeze(last_columns(o, mask, x), o.ints(2))
        return (o.Where(real, x, o.scalar(0.0)),)


def last_columns(o: OnnxWriter, mask: Any, x: Any) -> Any:
    """mask[B, S] -> its last T columns, T being the length of x[B, T, …]."""
    length = o.size(mask, 1)
    return o.Slice(mask, o.Sub(length, o.size(x, 1)), length, o.ints(1))
