"""Rows of the op table for masks of every sort, biases of scores, and attention that is not quadratic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
from harness import Array, Input, Row, single

from seqspec.graph.dims import BATCH, PAST, TIME, Shape, dim
from seqspec.ops.attention import Attention
from seqspec.ops.biases import AlibiBias, RelativeBias
from seqspec.ops.linear_attention import LinearAttention
from seqspec.ops.masks import (
    CAUSAL,
    EVERYTHING,
    AllOf,
    AnyOf,
    Band,
    BlockSparse,
    Documents,
    Given,
    Global,
    Mask,
    Prefix,
)
from seqspec.ops.places import DocumentIds, DocumentPlaces, Places, PrefixLength, QueryAndKey
from seqspec.ops.time_projection import TimeProjection
from seqspec.ops.visible import Visible

B, T, P = dim(BATCH), dim(TIME), dim(PAST)
S = P + T
SIZES = {BATCH: 3, TIME: 5, PAST: 4}
NO_PAST = {BATCH: 3, TIME: 5, PAST: 0}
ONE = {BATCH: 1, TIME: 1, PAST: 4}


def random(*shape: int, seed: int = 0) -> Array:
    return single(np.random.default_rng([seed, *shape]).normal(size=shape))


def real(shape: Shape, *sizes: int, seed: int = 0) -> Input:
    return Input(shape, random(*sizes, seed=seed))


def mask(shape: Shape, array: Array | None) -> Input:
    return Input(shape, array, "bool")


def ints(shape: Shape, values: object) -> Input:
    return Input(shape, np.array(values), "int64")


# right padding, left padding, holes, and a row without any real token
MASKS = {
    5: np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool),
    9: np.array([[1, 1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0]], bool),
}
X, HEADS = real((B, T, 6), 3, 5, 6), real((B, 4, T, 6), 3, 4, 5, 6)


def places() -> Iterator[Row]:
    """What masks and biases are made of."""
    documents = np.array([[1, 1, 4, 4, 4, 4, 4, 4, 9], [2, 2, 2, 2, 2, 2, 2, 2, 2], [0, 0, 0, 0, 5, 5, 5, 5, 5]])
    for name, sizes, before in (("past", SIZES, 4), ("no-past", NO_PAST, 0), ("step", ONE, 4)):
        batch, time = sizes[BATCH], sizes[TIME]
        total, x = time + before, real((B, T, 6), batch, time, 6)
        rows = documents[:batch, :total]
        for told, given in (("padded", _padded(batch, total)), ("mask-none", None)):
            known = mask((B, S), given)
            if given is not None or not before:  # after a past there is a mask
                yield Row(f"{name}-{told}", Places(True), (x, known), sizes, one_row=given is None)
            own = DocumentPlaces(True)
            (counted,) = own.reference(np, {}, x.array, rows, given)
            past = (counted[:, :before] if before else None,)
            yield Row(f"{name}-{told}", own, (x, ints((B, S), rows), known), sizes, past)
        past = (rows[:, :before] if before else None,)
        yield Row(f"{name}-given", DocumentIds(True), (x, ints((B, T), rows[:, before:])), sizes, past)
        yield Row(f"{name}", QueryAndKey(), (ints((B, S), rows), x), sizes)
        lengths = np.array([2, 0, 7])[:batch]
        first = (np.array([3, 4, 7])[:batch] if before else None,)
        fits = np.minimum(lengths, time if not before else first[0])
        yield Row(f"{name}", PrefixLength(True), (x, ints((B,), fits)), sizes, first)
        left_out = Input((B,), None, "int64")
        yield Row(f"{name}-left-out", PrefixLength(True), (x, left_out), sizes, first, onnx=False)
    left_out = Input((B, T), None, "int64")
    yield Row("left-out", DocumentIds(), (X, left_out), SIZES, onnx=False)
    yield Row("left-out-past", DocumentIds(True), (X, left_out), SIZES, (np.zeros((3, 4), int),), onnx=False)
    yield Row("no-state", DocumentIds(), (X, ints((B, T), documents[:, 4:])), SIZES)
    yield Row("no-state", DocumentPlaces(), (X, ints((B, T), documents[:, 4:]), mask((B, T), MASKS[5])), SIZES)
    yield Row("no-state", Places(), (X, mask((B, T), MASKS[5])), SIZES)
    yield Row("absent", Places(), (X, None), SIZES, one_row=True)
    yield Row("no-state", PrefixLength(), (X, ints((B,), [5, 0, 2])), SIZES)


GLOBAL, BLOCKS = Global((0, 2)), BlockSparse(2, 0, 1, 1, seed=3)
EXPRESSIONS: list[Mask] = [
    GLOBAL,
    Prefix(),
    Documents(),
    Given("g"),
    BLOCKS,
    BlockSparse(1, 1, 0, 2, seed=0),
    BlockSparse(2, 0, 0, 0, seed=0),
    AnyOf((Band(1, 1), GLOBAL)),
    AnyOf((CAUSAL, Prefix())),
    AllOf((CAUSAL, AnyOf((Band(2, 2), GLOBAL, BLOCKS)))),
    AllOf((Documents(), AnyOf((Band(1, None), Global((1,)), BLOCKS, AllOf((Given("g"), Prefix())))))),
    AnyOf((AllOf((Given("g"), Given("h"))), AllOf((Documents(), CAUSAL)))),
]


def visible() -> Iterator[Row]:
    for expression, (name, sizes) in product(EXPRESSIONS, [("past", SIZES), ("no-past", NO_PAST), ("step", ONE)]):
        batch, time = sizes[BATCH], sizes[TIME]
        total = time + sizes[PAST]
        for told, given in (("padded", _padded(batch, total)), ("mask-none", None)):
            yield Row(f"{expression}-{name}-{told}", Visible(expression), _told(expression, sizes, given), sizes)


def _told(expression: Mask, sizes: Mapping[str, int], given: Array | None) -> tuple[Input | None, ...]:
    """The inputs of `Visible`, made by the ops that make them in a model."""
    batch, time = sizes[BATCH], sizes[TIME]
    total, op = time + sizes[PAST], Visible(expression)
    rng = np.random.default_rng([total, batch])
    x = np.zeros((batch, time, 1))

    def pair(row: Array) -> list[Input]:
        query, key = QueryAndKey().reference(np, {}, row, x)
        return [Input((B, 1, T, 1), query, "int64"), Input((B, 1, 1, S), key, "int64")]

    real = np.ones((batch, total), bool) if given is None else given
    inputs: list[Input | None] = [*pair(np.cumsum(real, 1) - 1), mask((B, S), given)]
    if op.has_documents:
        documents = np.sort(rng.integers(0, 3, (batch, total)), 1)
        (own,) = DocumentPlaces().reference(np, {}, x, documents, given)
        inputs += [Input((B, S), documents, "int64"), *pair(own)]
    if op.has_prefix:
        inputs.append(ints((B,), rng.integers(0, total + 1, batch)))
    inputs += [mask((B, T, S), rng.random((batch, time, total)) < 0.6) for _ in op.given]
    return tuple(inputs)


def biases() -> Iterator[Row]:
    ops = [AlibiBias(1), AlibiBias(6), RelativeBias(3, 8, 4, True), RelativeBias(2, 7, 5, False)]
    for op, (name, sizes) in product(ops, [("past", SIZES), ("no-past", NO_PAST), ("step", ONE)]):
        query, key, _ = _told(GLOBAL, sizes, _padded(sizes[BATCH], sizes[TIME] + sizes[PAST]))
        x = (X,) if isinstance(op, AlibiBias) else ()
        yield Row(name, op, (query, key, *x), sizes)
    rows = qkv(3, 5, 9)
    bias = real((B, 4, T, S), 3, 4, 5, 9, seed=4)
    padded = mask((B, S), MASKS[9])
    for band, softcap in product((EVERYTHING, CAUSAL, Band(1, 1)), (None, 1.5)):
        yield Row(f"{band}-{softcap}-bias", Attention(band, softcap=softcap), (*rows, padded, bias), SIZES)
        yield Row(f"{band}-{softcap}-bias-no-mask", Attention(band, softcap=softcap), (*rows, None, bias), SIZES)
    for weights, softcap, added in product((False, True), (None, 1.5), (None, bias)):
        op = Attention(CAUSAL, softcap=softcap, weights=weights)
        yield Row(f"{op}-{added and 'bias'}", op, (*rows, padded, added), SIZES)
        for expression in (GLOBAL, AnyOf((Band(1, 1), Prefix()))):
            (pairs,) = Visible(expression).reference(np, {}, *_arrays(_told(expression, SIZES, MASKS[9])))
            op = Attention(expression, softcap=softcap, weights=weights)
            yield Row(f"{op}-{added and 'bias'}", op, (*rows, mask((B, 1, T, S), pairs), added), SIZES)


def _arrays(inputs: tuple[Input | None, ...]) -> list[Array | None]:
    return [None if x is None else x.array for x in inputs]


def linear_attention() -> Iterator[Row]:
    for groups, values in ((4, 6), (2, 3), (1, 1)):
        k = real((B, groups, T, 6), 3, groups, 5, 6, seed=1)
        q, v = HEADS, real((B, groups, T, values), 3, groups, 5, values)
        for causal, (name, given) in product((False, True), (("padded", MASKS[5]), ("mask-none", None))):
            op = LinearAttention(causal)
            yield Row(f"{groups}-{name}", op, (q, k, v, mask((B, T), given)), SIZES)
        yield Row(f"{groups}-absent", LinearAttention(True), (q, k, v, None), SIZES)
        past = (random(3, groups, 6, values, seed=2), np.abs(random(3, groups, 6, seed=3)))
        for name, before, sizes in (("past", past, SIZES), ("no-past", (None, None), NO_PAST)):
            known = mask((B, S), MASKS[5 + sizes[PAST]])
            yield Row(f"{groups}-{name}", LinearAttention(True, True), (q, k, v, known), sizes, before)
    for time in (1, 64, 65, 200):
        x = [real((B, 1, T, 3), 1, 1, time, 3, seed=seed) for seed in range(3)]
        known = mask((B, T), np.arange(time)[None] % 7 != 3)
        yield Row(f"long-{time}", LinearAttention(True), (*x, known), {BATCH: 1, TIME: time})
    places = ints((B, T), [[0, 1, 2, 2, 2], [0, 0, 0, 1, 2], [6, 5, 4, 3, 2]])
    for name, given in (("padded", MASKS[5]), ("mask-none", None)):
        yield Row(name, TimeProjection(7, 3), (HEADS, places, mask((B, T), given)), SIZES)
    yield Row("absent", TimeProjection(8, 1), (HEADS, places, None), SIZES)


def _padded(batch: int, total: int) -> Array:
    return MASKS[total][:batch] if total in MASKS else np.array([[0, 1, 0, 1, 1]], bool)


def qkv(batch: int, queries: int, keys: int, groups: int = 2, values: int = 6) -> tuple[Input, Input, Input]:
    return (
        Input((B, 4, T, 6), random(batch, 4, queries, 6)),
        Input((B, groups, S, 6), random(batch, groups, keys, 6, seed=1)),
        Input((B, groups, S, values), random(batch, groups, keys, values, seed=2)),
    )


ROWS: list[Row] = [*places(), *visible(), *biases(), *linear_attention()]
