"""x[B, T, D] -> one vector per sequence [B, D]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod
from typing import Any, Literal

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.padding import last_columns

Kind = Literal["first", "last", "mean", "max"]

_REAL_TOKENS = Helper(
    "real_tokens",
    '''
def real_tokens(x, mask):
    """The mask of x[B, T, D]: real[B, T], all where it is None, else the last T columns."""
    if mask is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return mask[:, mask.size(1) - x.size(1) :]
''',
)

_FIRST_TOKEN = Helper(
    "first_token",
    '''
def first_token(x, mask):
    """x[B, T, D] at the first real token; zeros where there is none."""
    real = real_tokens(x, mask)
    place = torch.arange(x.size(1), device=x.device)
    first = place.where(real, x.size(1) - 1).amin(1)
    return x[torch.arange(x.size(0), device=x.device), first].masked_fill(~real.any(1, keepdim=True), 0)
''',
    (_REAL_TOKENS,),
)

_LAST_TOKEN = Helper(
    "last_token",
    '''
def last_token(x, mask):
    """x[B, T, D] at the last real token; zeros where there is none."""
    real = real_tokens(x, mask)
    place = torch.arange(x.size(1), device=x.device)
    last = place.where(real, 0).amax(1)
    return x[torch.arange(x.size(0), device=x.device), last].masked_fill(~real.any(1, keepdim=True), 0)
''',
    (_REAL_TOKENS,),
)

_LAST_SO_FAR = Helper(
    "last_token_so_far",
    '''
def last_token_so_far(x, mask, past):
    """x[B, T, D] at the last real token; past[B, D], or zeros, where this chunk has none."""
    before = x.new_zeros(x.size(0), x.size(2)) if past is None else past
    real = F.pad(real_tokens(x, mask), (1, 0), value=True)
    last = torch.arange(real.size(1), device=x.device).where(real, 0).amax(1)
    return torch.cat([before[:, None], x], 1)[torch.arange(x.size(0), device=x.device), last]
''',
    (_REAL_TOKENS,),
)

_MEAN_TOKEN = Helper(
    "mean_token",
    '''
def mean_token(x, mask):
    """The mean of x[B, T, D] over the real tokens; zeros where there is none."""
    real = real_tokens(x, mask)
    count = real.sum(1, keepdim=True).clamp(min=1)
    # a mean over all positions, made larger: the sum alone is past what half precision holds
    return x.masked_fill(~real[..., None], 0).mean(1) * (x.size(1) / count.double()).to(x.dtype)
''',
    (_REAL_TOKENS,),
)

_MAX_TOKEN = Helper(
    "max_token",
    '''
def max_token(x, mask):
    """The maximum of x[B, T, D] over the real tokens; zeros where there is none."""
    real = real_tokens(x, mask)
    highest = x.masked_fill(~real[..., None], float("-inf")).amax(1)
    return highest.masked_fill(~real.any(1, keepdim=True), 0)
''',
    (_REAL_TOKENS,),
)

_POOLS: dict[Kind, Helper] = {"first": _FIRST_TOKEN, "last": _LAST_TOKEN, "mean": _MEAN_TOKEN, "max": _MAX_TOKEN}

_WHOLE: dict[Kind, str] = {"first": "{}[:, 0]", "last": "{}[:, -1]", "mean": "{}.mean(1)", "max": "{}.amax(1)"}


@primitive
class Pool(Op):
    """x[B, T, D], mask[B, S]? -> [B, D]: the first or last real token, or the mean or maximum over the real ones.

    Only the last T columns of the mask matter. A row without real tokens gives zeros. `last` may be stateful and then
    covers all chunks so far: a chunk without real tokens, or of length 0, changes nothing.
    """

    by_order = True

    kind: Kind
    stateful: bool = False

    def infer(self, x: Value, mask: Value | None) -> tuple[Type, ...]:
        if len(x.shape) != 3:
            raise ShapeError(f"a sequence [B, T, D] is pooled, not {show(x.shape)}")
        return (Type((x.shape[0], x.shape[2]), x.dtype),)

    def states(self, x: Value, mask: Value | None) -> tuple[State, ...]:
        return (State("last", (x.shape[0], x.shape[2]), 0, x.dtype),) if self.stateful else ()

    def flops(self, x: Value, mask: Value | None) -> Size:
        return prod(x.shape) if self.kind == "mean" else 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        if inputs[1] is not None:
            yield inputs[1]
        if self.kind == "max":
            yield from (inputs[0], outputs[0])

    def reference(
        self, np: Any, weights: Weights, x: Array, mask: Array | None, past: Array | None = None
    ) -> tuple[Array, ...]:
        real = np.ones(x.shape[:2], bool) if mask is None else mask[:, mask.shape[1] - x.shape[1] :]
        y = np.zeros((x.shape[0], x.shape[2]), x.dtype) if past is None else past.copy()
        for b, row in enumerate(real):
            tokens = x[b][row]
            if len(tokens):
                pooled = {"first": tokens[0], "last": tokens[-1], "mean": tokens.mean(0), "max": tokens.max(0)}
                y[b] = pooled[self.kind]
        return (y,)

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None, past: Expr | None = None) -> Expr:
        if self.stateful:
            return Expr(f"{t.use(_LAST_SO_FAR)}({x}, {mask}, {past})")
        if mask is None:
            return Expr(_WHOLE[self.kind].format(x.tight))
        return Expr(f"{t.use(_POOLS[self.kind])}({x}, {mask})")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None, past: Any | None = None) -> tuple[Any, ...]:
        if past is not None:
            real = last_columns(o, mask, x) if mask is not None else None
            mask = None if real is None else o.Pad(real, o.ints(0, 1, 0, 0), o.scalar(1, "bool"))
            x = o.Concat(o.Unsqueeze(past, o.ints(1)), x, axis=1)
        if self.kind in ("first", "last"):
            return (self._one(o, x, mask),)
        real = None if mask is None else o.Unsqueeze(last_columns(o, mask, x), o.ints(2))
        return (_mean(o, x, real) if self.kind == "mean" else _maximum(o, x, real),)

    def _one(self, o: OnnxWriter, x: Any, mask: Any | None) -> Any:
        if mask is None:
            return o.Gather(x, o.scalar(0 if self.kind == "first" else -1, "int64"), axis=1)
        real = o.cast(last_columns(o, mask, x), "int64")
        place = o.ArgMax(real, axis=1, keepdims=1, select_last_index=int(self.kind == "last"))
        some = o.cast(o.ReduceMax(real, o.ints(1), keepdims=1), "bool")
        return o.Where(some, o.GatherND(x, place, batch_dims=1), o.scalar(0.0))


def _mean(o: OnnxWriter, x: Any, real: Any | None) -> Any:
    x = o.cast(x, "float32")  # a sum over many positions may overflow in half precision
    if real is None:
        return o.cast(o.ReduceMean(x, o.ints(1), keepdims=0), "float")
    count = o.ReduceSum(o.cast(real, "float32"), o.ints(1), keepdims=0)
    total = o.ReduceSum(o.Where(real, x, o.scalar(0.0, "float32")), o.ints(1), keepdims=0)
    return o.cast(o.Div(total, o.Max(count, o.scalar(1.0, "float32"))), "float")


def _maximum(o: OnnxWriter, x: Any, real: Any | None) -> Any:
    if real is None:
        return o.ReduceMax(x, o.ints(1), keepdims=0)
    highest = o.ReduceMax(o.Where(real, x, o.scalar(-inf)), o.ints(1), keepdims=0)
    some = o.cast(o.ReduceMax(o.cast(real, "int64"), o.ints(1), keepdims=0), "bool")
    return o.Where(some, highest, o.scalar(0.0))
