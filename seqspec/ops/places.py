"""Positions of tokens in their row and in their document, from which masks and biases of attention are made."""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import PAST, Size, dim, show
from seqspec.graph.ir import State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.padding import last_columns
from seqspec.ops.positions import count_real

_PLACES = Helper(
    "token_places",
    '''
def token_places(x, mask, past_length=0):
    """Places [B or 1, S] of all tokens, the past's included, counting real ones from 0."""
    if mask is None:
        return torch.arange(past_length + x.size(1), device=x.device)[None]
    return mask.cumsum(1) - 1
''',
)

_DOCUMENTS = Helper(
    "joined_documents",
    '''
def joined_documents(x, document_ids, past=None):
    """Which document each token is of, [B, S], the past's included; all of document 0 where none are given."""
    if document_ids is None:
        if past is not None and past.any():
            raise ValueError("document_ids were given for the past, and are missing for what follows it")
        document_ids = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
    return document_ids if past is None else torch.cat([past, document_ids], 1)
''',
)

_DOCUMENT_PLACES = Helper(
    "document_places",
    '''
def document_places(x, documents, mask, past=None):
    """Places [B, S] of tokens in their own documents, counting real ones from 0; the past's are known."""
    total, length = documents.size(1), x.size(1)
    index = torch.arange(total, device=x.device)
    before = index <= index[total - length :, None]
    if mask is not None:
        before = before & mask[:, None]
    same = documents[:, None] == documents[:, total - length :, None]
    places = ((same & before).sum(2) - 1).clamp(min=0)
    return places if past is None else torch.cat([past, places], 1)
''',
)

_PREFIX = Helper(
    "known_prefix",
    '''
def known_prefix(x, prefix_length, past=None):
    """prefix_length[B]: as given on the first call; 0 where it was not. A prefix lies in the first call as a whole."""
    if prefix_length is None:
        return x.new_zeros(x.size(0), dtype=torch.long) if past is None else past
    if not torch.compiler.is_compiling():
        longest = x.size(1) if past is None else past
        if (prefix_length > longest).any():
            raise ValueError(f"prefix_length {prefix_length.tolist()} reaches beyond the first call")
    return prefix_length if past is None else torch.maximum(past, prefix_length)
''',
)

_PAIRS = Helper(
    "query_and_key",
    '''
def query_and_key(row, x):
    """row[B, S] -> its last T entries [B, 1, T, 1] for queries, all [B, 1, 1, S] for keys; T is the length of x."""
    return row[:, None, row.size(1) - x.size(1) :, None], row[:, None, None]
''',
)


@primitive
class Places(Op):
    """x[B, T, …], mask[B, S]? -> place[B, S] int64, counting real tokens from 0, the past's included.

    Order on the whole row; the T tokens of x are the last. Padding has the place of the token before it, −1 in front of
    all. In PyTorch one row [1, S] stands for all where nothing is padded.
    """

    looks_back: bool = False

    def infer(self, x: Value, mask: Value | None) -> tuple[Type, ...]:
        if self.looks_back and mask is None:
            raise ShapeError("places after a past are counted in a mask, and none is there")
        return (Type((x.shape[0], _total(x, self.looks_back)), "int64"),)

    def flops(self, x: Value, mask: Value | None) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array, mask: Array | None) -> tuple[Array, ...]:
        real = np.ones(x.shape[:2], bool) if mask is None else mask
        return (np.cumsum(real, 1) - 1,)

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None) -> Expr:
        past = f", {t.size(dim(PAST))}" if self.looks_back else ""
        return Expr(f"{t.use(_PLACES)}({x}, {mask}{past})")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None) -> tuple[Any, ...]:
        if mask is None:
            row = o.Range(o.scalar(0, "int64"), o.Squeeze(o.size(x, 1)), o.scalar(1, "int64"))
            return (o.Expand(o.Unsqueeze(row, o.ints(0)), o.Concat(o.size(x, 0), o.size(x, 1), axis=0)),)
        return (o.Sub(count_real(o, mask), o.ints(1)),)


@primitive
class DocumentIds(Op):
    """x[B, T, …], document_ids[B, T]? -> documents[B, S]: those of the past, then these; 0 if none are given.

    The result is the state `document_ids`.
    """

    looks_back: bool = False

    def infer(self, x: Value, document_ids: Value | None) -> tuple[Type, ...]:
        if document_ids is not None and document_ids.shape != x.shape[:2]:
            raise ShapeError(f"document_ids are {show(x.shape[:2])}, not {show(document_ids.shape)}")
        return (Type((x.shape[0], _total(x, self.looks_back)), "int64"),)

    def states(self, x: Value, document_ids: Value | None) -> tuple[State, ...]:
        return (State("document_ids", (x.shape[0], dim(PAST)), 0, "int64"),) if self.looks_back else ()

    def flops(self, x: Value, document_ids: Value | None) -> Size:
        return 0

    def reference(
        self, np: Any, weights: Weights, x: Array, document_ids: Array | None, past: Array | None = None
    ) -> tuple[Array, ...]:
        own = np.zeros(x.shape[:2], np.int64) if document_ids is None else document_ids
        return (own if past is None else np.concatenate([past, own], 1),)

    def torch(self, t: TorchWriter, x: Expr, document_ids: Expr | None, past: Expr | None = None) -> Expr:
        given = f"{x}, {document_ids}" + (f", {past}" if past else "")
        return Expr(f"{t.use(_DOCUMENTS)}({given})")

    def onnx(self, o: OnnxWriter, x: Any, document_ids: Any, past: Any | None = None) -> tuple[Any, ...]:
        return (document_ids if past is None else o.Concat(past, document_ids, axis=1),)


@primitive
class DocumentPlaces(Op):
    """x[B, T, …], documents[B, S], mask[B, S]? -> place[B, S] int64 in the token's own document, counting real tokens.

    Each document starts at 0. The result is the state `document_places`, so that a step need not recount the past.
    """

    looks_back: bool = False

    def infer(self, x: Value, documents: Value, mask: Value | None) -> tuple[Type, ...]:
        return (Type(documents.shape, "int64"),)

    def states(self, x: Value, documents: Value, mask: Value | None) -> tuple[State, ...]:
        return (State("document_places", (x.shape[0], dim(PAST)), 0, "int64"),) if self.looks_back else ()

    def flops(self, x: Value, documents: Value, mask: Value | None) -> Size:
        return 0

    def reference(
        self, np: Any, weights: Weights, x: Array, documents: Array, mask: Array | None, past: Array | None = None
    ) -> tuple[Array, ...]:
        real = np.ones(documents.shape, bool) if mask is None else mask
        places = np.zeros(documents.shape, np.int64)
        for row, i in np.ndindex(*documents.shape):
            before = documents[row, : i + 1] == documents[row, i]
            places[row, i] = max((before & real[row, : i + 1]).sum() - 1, 0)
        return (places,)

    def torch(self, t: TorchWriter, x: Expr, documents: Expr, mask: Expr | None, past: Expr | None = None) -> Expr:
        given = f"{x}, {documents}, {mask}" + (f", {past}" if past else "")
        return Expr(f"{t.use(_DOCUMENT_PLACES)}({given})")

    def onnx(self, o: OnnxWriter, x: Any, documents: Any, mask: Any | None, past: Any | None = None) -> tuple[Any, ...]:
        total = o.size(documents, 1)
        index = o.Range(o.scalar(0, "int64"), o.Squeeze(total), o.scalar(1, "int64"))
        own = o.Unsqueeze(o.Slice(index, o.Sub(total, o.size(x, 1)), total, o.ints(0)), o.ints(1))
        counted = o.LessOrEqual(index, own)
        if mask is not None:
            counted = o.And(counted, o.Unsqueeze(mask, o.ints(1)))
        same = o.Equal(o.Unsqueeze(documents, o.ints(1)), o.Unsqueeze(last_columns(o, documents, x), o.ints(2)))
        count = o.ReduceSum(o.cast(o.And(same, counted), "int32"), o.ints(2), keepdims=0)
        places = o.Max(o.Sub(o.cast(count, "int64"), o.ints(1)), o.ints(0))
        return (places if past is None else o.Concat(past, places, axis=1),)


@primitive
class PrefixLength(Op):
    """x[B, T, …], prefix_length[B]? -> prefix[B]: as given now or in an earlier call, else 0.

    The result is the state `prefix_length`. The whole prefix must be in the first call, since attention within it is
    bidirectional.
    """

    looks_back: bool = False

    def infer(self, x: Value, prefix_length: Value | None) -> tuple[Type, ...]:
        return (Type(x.shape[:1], "int64"),)

    def states(self, x: Value, prefix_length: Value | None) -> tuple[State, ...]:
        return (State("prefix_length", x.shape[:1], 0, "int64"),) if self.looks_back else ()

    def flops(self, x: Value, prefix_length: Value | None) -> Size:
        return 0

    def reference(
        self, np: Any, weights: Weights, x: Array, prefix_length: Array | None, past: Array | None = None
    ) -> tuple[Array, ...]:
        own = np.zeros(len(x), np.int64) if prefix_length is None else prefix_length
        return (own if past is None else np.maximum(past, own),)

    def torch(self, t: TorchWriter, x: Expr, prefix_length: Expr | None, past: Expr | None = None) -> Expr:
        given = f"{x}, {prefix_length}" + (f", {past}" if past else "")
        return Expr(f"{t.use(_PREFIX)}({given})")

    def onnx(self, o: OnnxWriter, x: Any, prefix_length: Any, past: Any | None = None) -> tuple[Any, ...]:
        return (prefix_length if past is None else o.Max(past, prefix_length),)


@primitive
class QueryAndKey(Op):
    """row[B, S], x[B, T, …] -> query [B, 1, T, 1], the last T entries, and key [B, 1, 1, S], all of them."""

    def infer(self, row: Value, x: Value) -> tuple[Type, ...]:
        batch, time = x.shape[:2]
        return Type((batch, 1, time, 1), row.dtype), Type((batch, 1, 1, row.shape[1]), row.dtype)

    def flops(self, row: Value, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, row: Array, x: Array) -> tuple[Array, ...]:
        return row[:, None, row.shape[1] - x.shape[1] :, None], row[:, None, None]

    def torch(self, t: TorchWriter, row: Expr, x: Expr) -> Expr:
        return Expr(f"{t.use(_PAIRS)}({row}, {x})")

    def onnx(self, o: OnnxWriter, row: Any, x: Any) -> tuple[Any, ...]:
        return o.Unsqueeze(last_columns(o, row, x), o.ints(1, 3)), o.Unsqueeze(row, o.ints(1, 2))


def _total(x: Value, looks_back: bool) -> Size:
    return dim(PAST) + x.shape[1] if looks_back else x.shape[1]
