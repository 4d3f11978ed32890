"""onnxruntime's GroupQueryAttention: rotation, cache and attention in one kernel, for rows padded at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from seqspec.graph.dims import BATCH, dim
from seqspec.ops.attention import Attention
from seqspec.ops.base import Array, OnnxWriter, Op, Type, primitive
from seqspec.ops.fused import FusedOp
from seqspec.ops.rope import Rope, RopeTables
from seqspec.ops.rope_scaling import Fixed
from seqspec.ops.shape import MergeHeads, SplitHeads

Found = TypeVar("Found", bound=Op)
_LONG = 1 << 13


@primitive
class GroupQueryAttention(FusedOp):
    """qkv[B, T, (H + 2G)·d], mask[B, S], cos?, sin? -> y[B, T, H·d], and with a past key, value [B, G, S, d].

    The kernel takes lengths, not a mask: token j of a row is at position j, and real tokens come first. So padding
    must come last, and only while there is no past, and a chunk of several tokens after a past must be alone in its
    batch. The rotary `tables` are stored for `rows` positions. In every other case the body runs.
    """

    tables: RopeTables | None = None

    @property
    def formals(self) -> tuple[str, ...]:
        rotary = ("cos_cache", "sin_cache") if self.tables else ()
        past = ("past_key", "past_value")
        return ("query", "key", "value", *past, "seqlens_k", "total_sequence_length", *rotary)

    @property
    def rows(self) -> int | None:
        """How many positions the stored tables have."""
        if self.tables is None:
            return None
        scaling = self.tables.scaling
        longest = getattr(scaling, "factor", 1) * getattr(scaling, "original_max_length", _LONG)
        return int(min(max(longest, _LONG), 16 * _LONG))

    def feeds(self, o: OnnxWriter, args: Sequence[Any], pasts: Sequence[Any]) -> tuple[Any, ...]:
        _, last, total = self._lengths(o, args)
        rotary = () if self.tables is None else (self._stored(o, 0), self._stored(o, 1))
        return (args[0], None, None, *(pasts or (None, None)), last, total, *rotary)

    def condition(self, o: OnnxWriter, args: Sequence[Any]) -> Any:
        return self._lengths(o, args)[0]

    def otherwise(self, o: OnnxWriter, args: Sequence[Any], pasts: Sequence[Any]) -> Sequence[Any]:
        """The body. A past longer than the mask covers is a buffer, and its unused rest is kept."""
        if not pasts:
            return o.region(self.body, args, ())
        # read here, off values of this branch: each value from outside costs every call, this way taken or not
        held, total = o.Shape(pasts[0], start=2, end=3), o.size(args[1], 1)
        past = o.Sub(total, o.Shape(args[0], start=1, end=2))

        def in_buffer() -> list[Any]:
            axis = o.ints(2)
            y, *grown = o.region(self.body, args, [o.Slice(buffer, o.ints(0), past, axis) for buffer in pasts])
            rest = [o.Slice(buffer, total, held, axis) for buffer in pasts]
            return [y, *(o.Concat(new, old, axis=2) for new, old in zip(grown, rest, strict=True))]

        alone = o.Squeeze(o.Equal(held, past))
        return o.either(alone, (args[0], *pasts), lambda: o.region(self.body, args, pasts), in_buffer)

    def function(self, o: OnnxWriter, *inputs: Any) -> Sequence[Any]:
        query, _, _, past_key, past_value, last, total, *rotary = inputs
        heads, groups, width = self._sizes
        q, k, v = o.many("Split", 3, query, o.ints(heads * width, groups * width, groups * width), axis=-1)
        (q,), (k,), (v,) = (SplitHeads(count, width).onnx(o, x) for count, x in ((heads, q), (groups, k), (groups, v)))
        columns = o.Range(o.scalar(0, "int64"), o.cast(total, "int64"), o.scalar(1, "int64"))
        if rotary:
            places = o.Slice(columns, o.Sub(o.size(columns, 0), o.size(query, 1)), o.size(columns, 0))
            rotary.append(o.Expand(o.Unsqueeze(places, o.ints(0)), o.Concat(o.size(query, 0), o.ints(1), axis=0)))
            turning = self._only(Rope)
            named = {"interleaved": int(turning.layout == "interleaved"), "rotary_embedding_dim": turning.width}
            q, k = (o.RotaryEmbedding(x, *rotary, **named) for x in (q, k))
        if self.body.states:
            k, v = o.Concat(past_key, k, axis=2), o.Concat(past_value, v, axis=2)
        mask = o.LessOrEqual(columns, o.Unsqueeze(o.cast(last, "int64"), o.ints(1)))
        y, *_ = self._only(Attention).onnx(o, q, k, v, mask)
        return [*MergeHeads().onnx(o, y), *([k, v] if self.body.states else [])]

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """The number of query heads, of key heads, and the width of a head."""
        q, k, _ = (node.op for node in self._nodes() if isinstance(node.op, SplitHeads))
        return q.heads, k.heads, q.width

    def _only(self, kind: type[Found]) -> Found:
        return next(node.op for node in self._nodes() if isinstance(node.op, kind))

    def _lengths(self, o: OnnxWriter, args: Sequence[Any]) -> list[Any]:
        """Whether the kernel can be used [], the last real position of each row [B] int32, and S [] int32."""
        rows, stateful = self.rows, bool(self.body.states)

        def written(o: OnnxWriter, mask: Any, time: Any) -> list[Any]:
            return _lengths(o, mask, time, rows, stateful)

        types = (Type((), "bool"), Type((dim(BATCH),), "int32"), Type((), "int32"))
        return o.function("KernelLengths", types, (rows, stateful), written, args[1], o.size(args[0], 1))

    def _stored(self, o: OnnxWriter, which: int) -> Any:
        tables, rows = self.tables, self.rows
        assert tables is not None
        assert rows is not None

        def made(np: Any) -> Array:
            return tables.table((np.cos, np.sin)[which], tables.angles(np, np.arange(rows)[None]))[0]

        scaling = f", {tables.scaling}" if isinstance(tables.scaling, Fixed) else ""
        name = f"rope_{('cos', 'sin')[which]}({tables.width}, {tables.theta!r}{scaling})"
        return o.derived(name, (rows, tables.width // 2), made)


def _lengths(o: OnnxWriter, mask: Any, time: Any, rows: int | None, stateful: bool) -> list[Any]:
    """mask[B, S], T as [1] -> see `GroupQueryAttention._lengths`.

    A row's last real token may stand where the count of its real tokens says and no further; after a past, which has
    to be whole, in the last column.
    """
    size = o.Shape(mask, start=1)
    total = o.cast(o.Squeeze(size), "int32")
    real = o.cast(mask, "int32")
    last = o.Sub(o.ReduceSum(real, o.ints(1), keepdims=0), o.scalar(1, "int32"))
    columns = o.Range(o.scalar(0, "int32"), total, o.scalar(1, "int32"))
    bound = o.ReduceMax(o.Mul(real, columns), o.ints(1), keepdims=0)
    if stateful:
        # the last column, S - 1, or one that no row has, if it is a chunk of several tokens in several rows
        column = o.Add(size, o.Sub(o.Min(time, o.Shape(mask, end=1)), o.ints(2)))
        bound = o.Where(o.Equal(time, size), bound, o.cast(column, "int32"))
    fits = o.LessOrEqual(o.ReduceMax(o.Sub(bound, last), keepdims=0), o.scalar(0, "int32"))
    if rows is not None:
        fits = o.And(fits, o.LessOrEqual(total, o.scalar(rows, "int32")))
    return [fits, last, total]
