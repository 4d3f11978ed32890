"""The table: every op, with the inputs that real use brings. A new op is a new row here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from harness import Array, Input, Row, single

from seqspec.graph.dims import BATCH, PAST, TIME, Shape, dim
from seqspec.ops.attention import Attention
from seqspec.ops.cache import Append, Hold
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add, Multiply, Scale, Unary
from seqspec.ops.embedding import Embedding, Lookup
from seqspec.ops.linear import Linear, PartLinear, TiedLinear, TiedPartLinear
from seqspec.ops.loss import CrossEntropy, MeanSquaredError
from seqspec.ops.masks import CAUSAL, EVERYTHING, AllOf, AnyOf, Band
from seqspec.ops.norm import LayerNorm, OffsetRMSNorm, RMSNorm
from seqspec.ops.normalize import Normalize
from seqspec.ops.optional import OrZeros
from seqspec.ops.packed import PackedLinear, Part, Split
from seqspec.ops.padding import Padding, ZeroPadding
from seqspec.ops.pool import Pool
from seqspec.ops.positions import LearnedPositions, Positions, SinusoidalPositions
from seqspec.ops.rope import Rope, RopeTables
from seqspec.ops.rope_scaling import Dynamic, Llama3, LongRope, Yarn
from seqspec.ops.rope_scaling import Linear as LinearScaling
from seqspec.ops.shape import Concat, MergeHeads, SplitHeads, Squeeze, Unsqueeze
from seqspec.ops.to_bool import ToBool
from seqspec.ops.trim import Trim
from seqspec.ops.window import AppendWindow, OfKept

B, T, P = dim(BATCH), dim(TIME), dim(PAST)
S = P + T
SIZES = {BATCH: 3, TIME: 5, PAST: 4}
NO_PAST = {BATCH: 3, TIME: 5, PAST: 0}
ONE = {BATCH: 1, TIME: 1, PAST: 4}
NO_TIME = {BATCH: 3, TIME: 0, PAST: 4}

# right padding, left padding, holes, and a row without any real token
MASKS = {
    5: np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool),
    9: np.array([[1, 1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0]], bool),
}


# padding that all rows have in common
OUTSIDE = {
    "both": np.array([[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]], bool),
    "behind": np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 0, 0]], bool),
    "none": np.ones((3, 5), bool),
    "all": np.zeros((3, 5), bool),
}


def random(*shape: int, seed: int = 0) -> Array:
    return single(np.random.default_rng([seed, *shape]).normal(size=shape))


def real(shape: Shape, *sizes: int, seed: int = 0) -> Input:
    return Input(shape, random(*sizes, seed=seed))


def mask(shape: Shape, array: Array | None) -> Input:
    return Input(shape, array, "bool")


def ints(shape: Shape, values: Any) -> Input:
    return Input(shape, np.array(values), "int64")


X = real((B, T, 6), 3, 5, 6)
IDS = ints((B, T), [[2, 9, 0, 4, 1], [0, 0, 3, 0, 7], [0, 0, 0, 0, 0]])
HEADS = real((B, 4, T, 6), 3, 4, 5, 6)


def simple() -> Iterator[Row]:
    for op in (Linear(6, 5), Linear(6, 1, bias=False), LayerNorm(6), LayerNorm(6, 1e-12, bias=False), RMSNorm(6)):
        yield Row(repr(op), op, (X,), SIZES)
    for op in (OffsetRMSNorm(6), OffsetRMSNorm(6, 1e-2, -0.5)):
        yield Row(f"{op.offset}", op, (X,), SIZES)
    yield Row("random", Normalize(), (X,), SIZES)
    yield Row("tiny-and-large", Normalize(), (Input((B, T, 6), single(X.array * [[[1e-3]], [[1]], [[1e4]]])),), SIZES)
    yield Row("zero", Normalize(), (Input((B, T, 6), X.array * [[[1]], [[0]], [[1]]]),), SIZES)
    yield Row("table", TiedLinear(), (X, real((7, 6), 7, 6)), SIZES)
    yield Row("first", PartLinear(6, 3, 5), (X,), SIZES)
    yield Row("three", PackedLinear(6, (Part("a", 4, True), Part("b", 1, False), Part("c", 3, True))), (X,), SIZES)
    yield Row("without-bias", PackedLinear(6, (Part("a", 4, False), Part("b", 4, False))), (X,), SIZES)
    yield Row("uneven", Split((3, 1, 2)), (X,), SIZES)
    for padded, length in (("both", 3), ("behind", 2), ("none", 5), ("all", 5)):
        outside, sizes = mask((B, T), OUTSIDE[padded]), SIZES | {"trimmed_sequence_length": length}
        yield Row(padded, Trim(), (X, outside), sizes)
    yield Row("behind", TiedPartLinear(3), (X, real((7, 9), 7, 9)), SIZES)
    for kind in ("relu", "relu2", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"):
        yield Row(kind, Unary(kind), (X,), SIZES)
    yield Row("same", Add(), (X, real((B, T, 6), 3, 5, 6, seed=1)), SIZES)
    yield Row("broadcast", Add(), (X, real((B, 1, 6), 3, 1, 6)), SIZES)
    yield Row("lower-rank", Multiply(), (X, real((6,), 6)), SIZES)
    yield Row("stretched", Multiply(), (real((B, T, 1), 3, 5, 1), X), SIZES)
    yield Row("irrational", Scale(2**0.5), (X,), SIZES)
    yield Row("inference", Dropout(0.5), (X,), SIZES)
    yield Row("ids", Embedding(10, 5), (IDS,), SIZES)
    yield Row("ids", Lookup(), (IDS, real((10, 5), 10, 5)), SIZES)
    yield Row("ids", ToBool(), (IDS,), SIZES)
    yield Row("given", OrZeros(), (ints((B, T), IDS.array + 1), IDS), SIZES)
    yield Row("left-out", OrZeros(), (Input((B, T), None, "int64"), IDS), SIZES, onnx=False)
    yield Row("absent", OrZeros(), (None, IDS), SIZES)


def shape() -> Iterator[Row]:
    yield Row("two", Concat(), (X, real((B, T, 1), 3, 5, 1)), SIZES)
    yield Row("one", Concat(), (X,), SIZES)
    yield Row("last", Squeeze(-1), (real((B, T, 1), 3, 5, 1),), SIZES)
    yield Row("middle", Squeeze(1), (real((B, 1, 6), 3, 1, 6),), SIZES)
    for axis in (0, 1, -1):
        yield Row(f"at{axis}", Unsqueeze(axis), (X,), SIZES)
    yield Row("two", SplitHeads(2, 3), (X,), SIZES)
    yield Row("one", SplitHeads(1, 6), (X,), SIZES)
    yield Row("four", MergeHeads(), (HEADS,), SIZES)


def caches() -> Iterator[Row]:
    for name in ("key", "value"):
        yield Row(f"{name}-no-past", Append(name), (HEADS,), NO_PAST, (None,))
    yield Row("past", Append("key"), (HEADS,), SIZES, (random(3, 4, 4, 6),))
    yield Row("first-call", Hold("memory"), (X,), SIZES, (None,))
    yield from windows()
    yield Row("held", Hold("key", cache=True), (HEADS,), SIZES, (random(3, 4, 5, 6, seed=1),), onnx=False)


def windows() -> Iterator[Row]:
    """Of four columns of past, or of the last of these: how many a window needs, as counted by hand."""
    v, inputs = real((B, 4, T, 2), 3, 4, 5, 2), mask((B, S), MASKS[9])
    one = mask((B, S), np.array([[1, 1, 0, 1, 1, 1, 1, 1, 1]] * 3, bool))
    for left, real_, past, kept in ((2, inputs, 4, 3), (3, inputs, 4, 4), (2, inputs, 3, 3), (0, inputs, 4, 0),
                                    (1, inputs, 0, 0), (1, one, 4, 1), (2, one, 4, 3), (16, one, 4, 4)):  # fmt: skip
        sizes = SIZES | {f"past_window_{left + 1}_length": past, f"total_window_{left + 1}_length": kept + 5}
        pasts = (random(3, 4, past, 6), random(3, 4, past, 2, seed=1))
        name = f"{left}-of-{past}-{'one' if real_ is one else 'padded'}"
        yield Row(name, AppendWindow(("key", "value"), left), (HEADS, v, real_), sizes, pasts)
    sizes = SIZES | {"past_window_3_length": 0, "total_window_3_length": 5}
    yield Row("no-past", AppendWindow(("key", "value"), 2), (HEADS, v, inputs), sizes, (None, None))
    kept_mask = mask((B, dim("total_window_3_length")), MASKS[9][:, 2:])
    sizes = SIZES | {"total_window_3_length": 7}
    yield Row("mask", OfKept(), (mask((B, 1, T, S), random(3, 1, 5, 9) > 0), kept_mask), sizes)
    yield Row("bias", OfKept(), (real((B, 4, T, S), 3, 4, 5, 9), kept_mask), sizes)


def padding() -> Iterator[Row]:
    chunk, whole = ints((B, T), MASKS[5].astype(int)), ints((B, S), MASKS[9].astype(int))
    none, none_past = Input((B, T), None, "int64"), Input((B, S), None, "int64")
    past = MASKS[9][:, :4]
    for given, op in product((None, none), (Padding(), Padding(0), Padding(0, keep_first=True), Padding(always=True))):
        x = X if op.pad_id is None else IDS
        yield Row(f"{op}-{given and 'left-out'}", op, (x, given), SIZES, onnx=False)
    yield Row("given", Padding(0), (IDS, chunk), SIZES)
    yield Row("given-features", Padding(), (X, chunk), SIZES)
    for before, sizes in ((None, NO_PAST), (past, SIZES)):
        for op in (Padding(0, looks_back=True), Padding(0, True, True), Padding(None, False, True, True)):
            yield Row(f"{op}-past-{sizes[PAST]}", op, (IDS, none_past), sizes, (before,), onnx=False)
    yield Row("nothing-known", Padding(looks_back=True), (X, none_past), NO_PAST, (None,), onnx=False)
    yield Row("past-alone-known", Padding(looks_back=True), (X, none_past), SIZES, (past,), onnx=False)
    yield Row("whole-given", Padding(0, looks_back=True), (IDS, whole), SIZES, (past,))
    short = Input((B, S), MASKS[5].astype(int), "int64")
    yield Row("chunk-given", Padding(0, looks_back=True), (IDS, short), SIZES, (past,), onnx=False)
    for name, given in (("none", None), ("same", MASKS[5])):
        yield Row(name, ZeroPadding(), (X, mask((B, T), given)), SIZES)
    yield Row("longer", ZeroPadding(), (X, mask((B, S), MASKS[9])), SIZES)
    yield Row("absent", ZeroPadding(), (X, None), SIZES)
    spoilt = np.where(MASKS[5][..., None], X.array, np.nan)
    yield Row("nan", ZeroPadding(), (Input((B, T, 6), spoilt), mask((B, T), MASKS[5])), SIZES)


def positions() -> Iterator[Row]:
    places = ints((B, T), [[0, 1, 2, 2, 2], [0, 0, 6, 6, 7], [5, 4, 3, 2, 1]])
    far = ints((B, T), [[0, 1, 2, 1857, 131071], [5, 6, 7, 8, 9], [999_999, 3, 3, 3, 0]])
    left_out = Input((B, T), None, "int64")
    yield Row("mask", Positions(), (X, mask((B, T), MASKS[5]), None), SIZES)
    yield Row("no-mask", Positions(), (IDS, None, None), SIZES, one_row=True)
    yield Row("mask-none", Positions(), (IDS, mask((B, T), None), None), SIZES, one_row=True)
    yield Row("left-out", Positions(), (IDS, mask((B, T), MASKS[5]), left_out), SIZES, onnx=False)
    yield Row("past", Positions(looks_back=True), (IDS, mask((B, S), MASKS[9]), None), SIZES)
    yield Row("given", Positions(looks_back=True), (IDS, mask((B, S), MASKS[9]), places), SIZES, onnx=False)
    yield Row("rows", LearnedPositions(8, 3), (places,), SIZES)
    for layout, width in product(("interleaved", "half_split"), (1, 2, 3, 5, 8)):
        x = Input((B, T, width), random(3, 5, width))
        yield Row(f"{layout}-{width}", SinusoidalPositions(width, layout), (far, x), SIZES)
    yield Row("base", SinusoidalPositions(7, base=100.0), (places, real((B, T, 7), 3, 5, 7)), SIZES)
    for scaling in (None, LinearScaling(4.0), Llama3(32.0, 1.0, 4.0, 8192)):
        yield Row(f"{scaling}", RopeTables(64, 500000.0, scaling), (far, X), SIZES)
    yield Row("one-pair", RopeTables(2, 10000.0), (places, X), SIZES)
    short, long = tuple(1 + n / 9 for n in range(16)), tuple(2.0 + n for n in range(16))
    for scaling in (
        Yarn(4.0, 1024, attention=1.14),
        Yarn(8.0, 32, 4.0, 1.0, truncate=False),
        Dynamic(6, 4.0),
        Dynamic(600_000, 2.0),
        LongRope(7, short, long),
        LongRope(600_000, short, long, 1.2),
    ):
        yield Row(f"{scaling}", RopeTables(32, 10000.0, scaling), (places, X), SIZES)
        yield Row(f"{scaling}-far", RopeTables(32, 10000.0, scaling), (far, X), SIZES)
    yield Row("dynamic-one-pair", RopeTables(2, 10000.0, Dynamic(3, 2.0)), (places, X), SIZES)
    for layout, width in product(("half_split", "interleaved"), (2, 4, 6)):
        angles = [Input((B, T, width // 2), single(f(random(3, 5, width // 2)))) for f in (np.cos, np.sin)]
        yield Row(f"{layout}-{width}-of-6", Rope(layout, width), (HEADS, *angles), SIZES)


def attention() -> Iterator[Row]:
    bands = (EVERYTHING, CAUSAL, Band(2, 2), Band(2, 0), Band(0, 1), Band(None, 1), Band(1, None), Band(0, 0))
    settings = [("past", SIZES), ("no-past", NO_PAST), ("step", ONE)]
    for band, (name, sizes) in product(bands, settings):
        batch, queries, keys = sizes[BATCH], sizes[TIME], sizes[TIME] + sizes[PAST]
        qkv = _qkv(batch, queries, keys)
        padded = MASKS[keys][:batch] if keys in MASKS else np.array([[0, 1, 0, 1, 1]], bool)
        for told, given in (("padded", padded), ("mask-none", None)):
            yield Row(f"{band}-{name}-{told}", Attention(band), (*qkv, mask((B, S), given)), sizes)
        yield Row(f"{band}-{name}-absent", Attention(band), (*qkv, None), sizes)
        capped = Attention(band, softcap=1.5)
        yield Row(f"{band}-{name}-capped", capped, (*qkv, mask((B, S), padded)), sizes)
    both = AnyOf((AllOf((CAUSAL, Band(2, 2))), Band(0, 0)))
    padded = mask((B, S), MASKS[9])
    yield Row("expression", Attention(both, dropout=0.5), (*_qkv(3, 5, 9), padded), SIZES)
    yield Row("scale", Attention(CAUSAL, scale=0.3), (*_qkv(3, 5, 9), padded), SIZES)
    yield Row("scale-capped", Attention(CAUSAL, 0.3, 0.5, 2.0), (*_qkv(3, 5, 9), None), SIZES)
    for groups in (1, 2, 4):
        yield Row(f"groups-{groups}", Attention(CAUSAL), (*_qkv(3, 5, 9, groups=groups), padded), SIZES)
        capped = Attention(CAUSAL, softcap=2.0)
        yield Row(f"groups-{groups}-capped", capped, (*_qkv(3, 5, 9, groups=groups), padded), SIZES)
    yield Row("wide-values", Attention(), (*_qkv(3, 5, 9, values=7), padded), SIZES)
    yield Row("wide-values-causal", Attention(CAUSAL), (*_qkv(3, 5, 9, values=1), None), SIZES)


def _qkv(batch: int, queries: int, keys: int, groups: int = 2, values: int = 6) -> tuple[Input, Input, Input]:
    return (
        Input((B, 4, T, 6), random(batch, 4, queries, 6)),
        Input((B, groups, S, 6), random(batch, groups, keys, 6, seed=1)),
        Input((B, groups, S, values), random(batch, groups, keys, values, seed=2)),
    )


def pools() -> Iterator[Row]:
    spoilt = np.where(MASKS[5][..., None], X.array, np.nan)
    for kind in ("first", "last", "mean", "max"):
        yield Row(f"{kind}-mask", Pool(kind), (X, mask((B, T), MASKS[5])), SIZES)
        yield Row(f"{kind}-mask-none", Pool(kind), (X, mask((B, T), None)), SIZES)
        yield Row(f"{kind}-absent", Pool(kind), (X, None), SIZES)
        yield Row(f"{kind}-longer", Pool(kind), (X, mask((B, S), MASKS[9])), SIZES)
        yield Row(f"{kind}-nan", Pool(kind), (Input((B, T, 6), spoilt), mask((B, T), MASKS[5])), SIZES)
    nothing, no_time = real((B, T, 6), 3, 0, 6), {BATCH: 3, TIME: 0, PAST: 4}
    for name, before in (("past", random(3, 6, seed=7)), ("no-past", None)):
        so_far = Pool("last", stateful=True)
        yield Row(f"so-far-{name}", so_far, (X, mask((B, T), MASKS[5])), SIZES, (before,))
        yield Row(f"so-far-{name}-absent", so_far, (X, None), SIZES, (before,))
        yield Row(f"so-far-{name}-empty", so_far, (nothing, mask((B, T), np.zeros((3, 0), bool))), no_time, (before,))


def losses() -> Iterator[Row]:
    some = ints((B, T), [[2, 5, 0, 4, 1], [0, -100, 3, -100, 5], [0, 1, 2, 3, 4]])
    masks = {"mask": MASKS[5], "mask-none": None, "nothing": np.zeros((3, 5), bool)}
    none, spoilt = Input((B, T), None, "int64"), np.where(MASKS[5][..., None], X.array, np.nan)
    for op in (CrossEntropy(), CrossEntropy(shift=True)):
        for name, real_tokens in masks.items():
            yield Row(f"{op}-{name}", op, (X, some, mask((B, T), real_tokens)), SIZES)
        yield Row(f"{op}-absent", op, (X, some, None), SIZES)
        yield Row(f"{op}-longer", op, (X, some, mask((B, S), MASKS[9])), SIZES)
        yield Row(f"{op}-left-out", op, (X, none, None), SIZES, onnx=False)
        yield Row(f"{op}-ignored", op, (X, ints((B, T), some.array * 0 - 100), None), SIZES)
        yield Row(f"{op}-large", op, (Input((B, T, 6), X.array * 1e4), some, None), SIZES)
        yield Row(f"{op}-one", op, (real((B, T, 6), 1, 1, 6), ints((B, T), [[3]]), None), ONE)
        yield Row(f"{op}-empty", op, (real((B, T, 6), 3, 0, 6), ints((B, T), np.zeros((3, 0), int)), None), NO_TIME)
    yield Row("a-row", CrossEntropy(), (real((B, 6), 3, 6), ints((B,), [4, -100, 0]), None), SIZES)
    squared = MeanSquaredError()
    labels = Input((B, T, 6), np.where(MASKS[5][..., None], random(3, 5, 6, seed=9), np.nan))
    for name, y in (("mask", X.array), ("nan", spoilt)):
        yield Row(f"squared-{name}", squared, (Input((B, T, 6), y), labels, mask((B, T), MASKS[5])), SIZES)
    whole = real((B, T, 6), 3, 5, 6, seed=9)
    for name in ("mask-none", "nothing"):
        yield Row(f"squared-{name}", squared, (X, whole, mask((B, T), masks[name])), SIZES)
    yield Row("squared-longer", squared, (X, whole, mask((B, S), MASKS[9])), SIZES)
    yield Row("squared-absent", squared, (X, whole, None), SIZES)
    yield Row("squared-left-out", squared, (X, Input((B, T, 6), None), None), SIZES, onnx=False)
    yield Row("squared-a-row", squared, (real((B, 6), 3, 6), real((B, 6), 3, 6, seed=9), None), SIZES)
    yield Row("squared-empty", squared, (real((B, T, 6), 3, 0, 6), real((B, T, 6), 3, 0, 6), None), NO_TIME)


ROWS: list[Row] = [
    *simple(),
    *shape(),
    *caches(),
    *padding(),
    *positions(),
    *attention(),
    *pools(),
    *losses(),
]

if importlib.util.find_spec("cases_attention"):
    from cases_attention import ROWS as ATTENTION

    ROWS += ATTENTION

if importlib.util.find_spec("cases_recurrent"):
    from cases_recurrent import ROWS as RECURRENT

    ROWS += RECURRENT

if importlib.util.find_spec("cases_signals"):
    from cases_signals import ROWS as SIGNALS

    ROWS += SIGNALS
