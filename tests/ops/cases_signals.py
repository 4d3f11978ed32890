"""Rows of the ops that read sound and images, and of what is read off them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from harness import Array, Input, Row, single

from seqspec.graph.dims import BATCH, PAST, TIME, dim
from seqspec.ops.bias import Bias
from seqspec.ops.conv import Conv1d, PatchEmbedding
from seqspec.ops.ctc import CtcLoss
from seqspec.ops.frames import ChannelsLast, ClassToken, RealFirst, Subsample
from seqspec.ops.time_conv import TimeConv

B, T = dim(BATCH), dim(TIME)
SIZES = {BATCH: 3, TIME: 5, PAST: 0}
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)


def random(*shape: int) -> Array:
    return single(np.random.default_rng(shape).normal(size=shape))


def frames(channels: int, time: int = 5) -> Input:
    return Input((B, T, channels), random(3, time, channels))


def convolutions() -> Iterator[Row]:
    shapes = [(3, 1), (3, 2), (1, 1), (1, 3), (5, 3), (7, 2), (11, 4)]
    for (kernel, stride), time in ((shape, time) for shape in shapes for time in (1, 4, 5)):
        sizes = {**SIZES, TIME: time}
        yield Row(f"{kernel}-{stride}-{time}", Conv1d(6, 4, kernel, stride), (frames(6, time),), sizes)
    for op in (Conv1d(6, 6, 3, groups=6), Conv1d(6, 4, 3, 2, 2, False), Conv1d(6, 9, 5, groups=3)):
        yield Row(repr(op), op, (frames(6),), SIZES)
    for channels, height, width, patch in ((3, 4, 6, 2), (1, 3, 3, 3), (2, 5, 1, 1)):
        shape = (B, channels, height, width)
        pixels = Input(shape, random(3, channels, height, width))
        yield Row(f"{height}x{width}-{patch}", PatchEmbedding(channels, 7, patch), (pixels,), SIZES)


def convolutions_over_real_steps() -> Iterator[Row]:
    for kernel, dilation, causal in (
        (3, 1, True),
        (2, 3, True),
        (4, 2, True),
        (1, 1, True),
        (3, 1, False),
        (5, 2, False),
    ):
        op = TimeConv(6, 4, kernel, dilation, causal, bias=kernel != 3)
        name = f"{kernel}-{dilation}-{causal}"
        for padding, mask in (("mask", MASK), ("mask-none", None)):
            yield Row(f"{name}-{padding}", op, (frames(6), Input((B, T), mask, "bool")), SIZES, onnx=mask is not None)
        yield Row(f"{name}-absent", op, (frames(6), None), SIZES)
        yield Row(f"{name}-one", op, (frames(6, 1), Input((B, T), MASK[:, :1], "bool")), {**SIZES, TIME: 1})
    for dilation, time in product((1, 2), (0, 1, 5)):
        op = TimeConv(6, 4, 3, dilation, stateful=True)
        before, known = random(3, 2 * dilation, 6), Input((B, dim(PAST) + T), MASK[:, :time], "bool")
        for name, past, mask in (("past", before, known), ("no-past", None, known), ("unpadded", before, None)):
            sizes = {**SIZES, TIME: time}
            yield Row(f"{dilation}-{time}-{name}", op, (frames(6, time), mask), sizes, (past,), onnx=past is not None)


def masks() -> Iterator[Row]:
    x, spoilt = frames(2), np.where(MASK[..., None], random(3, 5, 2), np.nan)
    for name, mask in (("mask", MASK), ("nothing-padded", np.ones((3, 5), bool)), ("mask-none", None)):
        yield Row(name, RealFirst(), (x, Input((B, T), mask, "bool")), SIZES, onnx=mask is not None)
    yield Row("nan", RealFirst(), (Input((B, T, 2), spoilt), Input((B, T), MASK, "bool")), SIZES)
    for step in (1, 2, 3, 7):
        yield Row(f"{step}", Subsample(step), (Input((B, T), MASK, "bool"),), SIZES)
    yield Row("mask-none", Subsample(2), (Input((B, T), None, "bool"),), SIZES, onnx=False)
    yield Row("three", ChannelsLast(), (Input((B, 4, T), random(3, 4, 5)),), SIZES)
    yield Row("before", ClassToken(2), (x,), SIZES)


def heads() -> Iterator[Row]:
    yield Row("seven", Bias(7), (frames(7),), SIZES)
    logits, ignored = frames(4), -100
    labels = np.array([[1, 1, ignored, ignored], [2, ignored, 3, ignored], [ignored] * 4])
    long = np.array([[1, 2, 3, 1], [3, 3, 3, 3], [0, 1, 0, 1]])  # too long for some rows, and one with the blank
    for blank, name, given in product((0, 3), ("few", "many"), (None, MASK)):
        ids = np.where(long == blank, 2, long) if name == "many" else np.where(labels == blank, 2, labels)
        told = Input((B, dim("label_length")), ids, "int64")
        sizes = {**SIZES, "label_length": 4}
        mask = Input((B, T), given, "bool")
        yield Row(f"{name}-{blank}-{given is None}", CtcLoss(blank), (logits, told, mask), sizes, onnx=False)
        yield Row(f"{name}-{blank}-absent", CtcLoss(blank), (logits, told, None), sizes, onnx=False)
    left_out = Input((B, dim("label_length")), None, "int64")
    yield Row("left-out", CtcLoss(), (logits, left_out, None), {**SIZES, "label_length": 1}, onnx=False)
    past = Input((B, dim(PAST) + T), np.hstack([MASK[:, ::-1][:, :2], MASK]), "bool")  # a chunk of what goes on
    labels_of = Input((B, dim("label_length")), np.array([[1, 2], [2, ignored], [3, 1]]), "int64")
    yield Row(
        "past",
        CtcLoss(),
        (logits, labels_of, past),
        {**SIZES, "past_sequence_length": 2, "label_length": 2},
        onnx=False,
    )


ROWS: list[Row] = [*convolutions(), *convolutions_over_real_steps(), *masks(), *heads()]
