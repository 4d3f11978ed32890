"""`inputs(spec)` draws a batch for a spec: sizes, padding of every sort, values, and where to cut it into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from seqspec.components.audio import Audio
from seqspec.components.image import Image
from seqspec.components.inputs import Input
from seqspec.components.rope import Rope
from seqspec.components.tokens import Tokens
from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, Shape, evaluate, names
from seqspec.graph.signature import Port
from seqspec.spec.model import Model

from .parts import MAX_TIME
from .strategy import Spec

Array = Any
Kind = Literal["none", "right", "left", "holes", "empty row"]
KINDS: tuple[Kind, ...] = ("none", "right", "left", "holes", "empty row")


@dataclass(frozen=True)
class Side:
    """The input of one stack. Padding is told by pad_id if `by_ids`, else by a mask, or by nothing if there is none."""

    prefix: str  # of its inputs' names
    length: int
    padding: Kind
    by_ids: bool
    placed: bool  # whether position_ids are given
    typed: bool  # whether token_type_ids are given, where there are any
    started: bool = False  # whether initial states are given, where they may be
    told: bool = True  # whether documents and the length of a prefix are given, where they may be


@dataclass(frozen=True, eq=False)
class Batch:
    """`inputs` by public name; `real` by the stack's prefix, True at real tokens.

    `strides` has the prefixes of stacks that read sound, and how many frames become one position. What is told of
    positions has a value for each of these, which stand in front, and not for each frame.
    """

    size: int
    sides: tuple[Side, ...]
    chunks: tuple[int, ...]
    seed: int
    inputs: Mapping[str, Array]
    real: Mapping[str, Array]
    strides: Mapping[str, int]

    def __repr__(self) -> str:
        sides = "; ".join(str(side) for side in self.sides)
        return f"Batch(size={self.size}, chunks={self.chunks}, seed={self.seed}, {sides})"

    @property
    def last(self) -> Side:
        """The side of the stack that the head reads."""
        return self.sides[-1]

    def seen(self, side: Side) -> Array:
        """True at the positions that the stack puts out for real tokens; those of sound are in front."""
        return shrunk(self.real[side.prefix], self.strides.get(side.prefix))

    def with_inputs(self, **inputs: Array) -> Batch:
        return replace(self, inputs={**self.inputs, **inputs})

    def rows(self, index: slice) -> Batch:
        """The batch with some rows only."""
        return replace(
            self,
            size=len(range(self.size)[index]),
            inputs={name: array[index] for name, array in self.inputs.items()},
            real={prefix: array[index] for prefix, array in self.real.items()},
        )

    def masked(self) -> Batch:
        """The same, with padding given by masks instead of ids."""
        padded = [side.prefix for side in self.sides if f"{side.prefix}pixel_values" not in self.inputs]
        return self.with_inputs(**{f"{prefix}attention_mask": self.real[prefix].astype(np.int64) for prefix in padded})

    def unplaced(self) -> Batch:
        """The same without position_ids, which ONNX files do not take."""
        return replace(self, inputs={k: v for k, v in self.inputs.items() if not k.endswith("position_ids")})

    def columns(self, picked: Mapping[str, Array]) -> Batch:
        """The batch with these positions of each stack, by prefix; stacks that are not named keep all."""
        inputs = dict(self.inputs)
        for name, array in inputs.items():
            prefix = side_of(name, self.sides).prefix
            at = picked.get(prefix)
            if at is not None and prefix in self.strides and not name.endswith(("input_features", "attention_mask")):
                at = slice(-(-self.real[prefix][0, at].size // self.strides[prefix]))  # of frames that are all real
            inputs[name] = array if at is None else _columns(name, array, at, at)
        real = {prefix: array[:, picked[prefix]] if prefix in picked else array for prefix, array in self.real.items()}
        return replace(self, inputs=inputs, real=real)

    def compact(self, row: int) -> Batch:
        """One row without its padding; a mask that was given is all ones."""
        alone = self.rows(slice(row, row + 1))
        return alone.columns({prefix: real[0] for prefix, real in alone.real.items()})

    def without(self, name: str) -> Batch:
        """The same without an optional input."""
        return replace(self, inputs={k: v for k, v in self.inputs.items() if k != name})

    def pairs(self, side: Side) -> Iterator[str]:
        """The masks given for a stack, which have a value for each pair of positions."""
        for name, array in self.inputs.items():
            if array.ndim == 3 and array.dtype == np.int64 and side_of(name, self.sides) is side:
                yield name

    def noise(self, *, wild: bool = False) -> Batch:
        """Other contents at padding, NaN and infinities in vectors if `wild`. Ids stay if pad_id tells the padding."""
        random = np.random.default_rng(self.seed + 1)
        inputs = dict(self.inputs)
        for side in self.sides:
            padding, ids, unseen = ~self.real[side.prefix], f"{side.prefix}input_ids", ~self.seen(side)
            for name, at in (("features", padding[..., None]), ("input_features", padding[:, None])):
                if (vectors := f"{side.prefix}{name}") in inputs:
                    values = np.where(random.random(inputs[vectors].shape) < 0.5, np.nan, np.inf) if wild else 7.0
                    inputs[vectors] = np.where(at, values, inputs[vectors])
            if ids in inputs and not side.by_ids:
                inputs[ids] = np.where(padding, inputs[ids][::-1, ::-1], inputs[ids])
            if (documents := f"{side.prefix}document_ids") in inputs:
                inputs[documents] = np.where(unseen, inputs[documents][:, ::-1], inputs[documents])
            for name in self.pairs(side):
                inputs[name] = np.where(unseen[:, None] | unseen[..., None], 1 - inputs[name], inputs[name])
        return replace(self, inputs=inputs)


def _columns(name: str, array: Array, tokens: Any, keys: Any) -> Array:
    """Of an input that has a value for each token, those of `tokens`; of one for each pair, also of `keys`."""
    if "initial_state" in name or array.ndim == 1 or name.endswith("pixel_values"):
        return array
    if name.endswith("input_features"):
        return array[:, :, tokens]
    picked = array[:, tokens]
    return picked[:, :, keys] if array.ndim == 3 and array.dtype == np.int64 else picked


def side_of(name: str, sides: tuple[Side, ...]) -> Side:
    """The stack that an input belongs to."""
    return next(side for side in reversed(sides) if name.startswith(side.prefix))


@st.composite
def inputs(draw: st.DrawFn, spec: Spec) -> Batch:
    """Batches of 1 to 4 rows of length 1 to 17, with every sort of padding, with and without position_ids and types."""
    resolved = spec.model.resolved()
    size, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**16))
    sides = []
    for name, stack in resolved.stacks.items():
        pads = isinstance(stack.input, Tokens) and stack.input.pad_id is not None
        side = Side(
            prefix="decoder_" if name == "decoder" and len(resolved.stacks) > 1 else "",
            length=draw(st.one_of(st.integers(1, 4), st.integers(1, MAX_TIME))),
            padding=draw(st.sampled_from(KINDS)),
            by_ids=pads and draw(st.booleans()),
            placed=draw(st.integers(0, 3)) == 0,
            typed=draw(st.booleans()),
            started=draw(st.booleans()),
            told=draw(st.integers(0, 3)) > 0,
        )
        sides.append(side)
    chunks = draw(_chunks(sides[-1].length))
    return fill(spec, size, tuple(sides), chunks, seed)


@st.composite
def _chunks(draw: st.DrawFn, length: int) -> tuple[int, ...]:
    """Lengths that add up to `length`, zeros among them."""
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=4)))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True))


def fill(spec: Spec, size: int, sides: tuple[Side, ...], chunks: tuple[int, ...], seed: int) -> Batch:
    """The batch with these sizes and values from `seed`."""
    random = np.random.default_rng(seed)
    resolved = spec.model.resolved()
    arrays: dict[str, Array] = {}
    real: dict[str, Array] = {}
    ports = {port.name: port for port in spec.signature.inputs}
    sides, chunks = _of_images(sides, chunks, resolved)
    for side, (name, stack) in zip(sides, resolved.stacks.items(), strict=True):
        kept = _real(random, size, replace(side, padding="none") if isinstance(stack.input, Image) else side)
        pad_id = stack.input.pad_id if isinstance(stack.input, Tokens) else None
        if side.by_ids and name == "decoder":
            kept[:, 0] = True  # a decoder may start with pad_id
        real[side.prefix] = kept
        table = resolved.table(name)
        if table is None:
            data = ports[f"{side.prefix}{stack.input.port}"]
            known = {BATCH: size, TIME: side.length, ENCODER_TIME: side.length}
            arrays[data.name] = random.standard_normal([evaluate(axis, known) for axis in data.shape])
        else:
            arrays[f"{side.prefix}input_ids"] = _ids(random, size, side, kept, int(table.vocab_size or 0), pad_id)
        optional = f"{side.prefix}position_ids"
        # the angles of some scalings follow the largest position
        by_length = any(isinstance(a.position, Rope) and a.position.switch for a in stack.attentions())
        shown = shrunk(kept, _stride(stack.input))
        if optional in ports and side.placed and not by_length:
            arrays[optional] = random.integers(0, MAX_TIME, shown.shape)
        if (types := f"{side.prefix}token_type_ids") in ports and side.typed:
            arrays[types] = random.integers(0, int((table and table.token_types) or 1), (size, side.length))
        for port in spec.signature.inputs:
            if side.started and port.name.startswith(f"{side.prefix}initial_state."):
                arrays[port.name] = random.standard_normal((size, *(int(str(axis)) for axis in port.shape[1:])))
        _tell(random, arrays, ports, side, shown, chunks if name == list(resolved.stacks)[-1] else ())
        if not side.by_ids and not isinstance(stack.input, Image) and (side.padding != "none" or (pad_id is not None)):
            arrays[f"{side.prefix}attention_mask"] = kept.astype(np.int64)
    return Batch(size, sides, chunks, seed, arrays, real, _strides(sides, resolved))


def _of_images(
    sides: tuple[Side, ...], chunks: tuple[int, ...], model: Model
) -> tuple[tuple[Side, ...], tuple[int, ...]]:
    """The same, with the length that an image has."""
    sources = [stack.input for stack in model.stacks.values()]
    found = [replace(a, length=s.count) if isinstance(s, Image) else a for a, s in zip(sides, sources, strict=True)]
    return tuple(found), (found[-1].length,) if isinstance(sources[-1], Image) else chunks


def _strides(sides: tuple[Side, ...], model: Model) -> dict[str, int]:
    sources = zip(sides, (stack.input for stack in model.stacks.values()), strict=True)
    return {side.prefix: stride for side, source in sources if (stride := _stride(source)) is not None}


def _stride(source: Input) -> int | None:
    """The number of frames of a sound that become one position."""
    return prod(c.stride for c in source.convolutions) if isinstance(source, Audio) else None


def shrunk(real: Array, stride: int | None) -> Array:
    """True at the positions that come from real tokens; those of sound stand before the padding."""
    if stride is None:
        return real
    return np.arange(-(-real.shape[1] // stride)) < -(-real.sum(1, keepdims=True) // stride)


def _tell(
    random: np.random.Generator,
    arrays: dict[str, Array],
    ports: Mapping[str, Port],
    side: Side,
    kept: Array,
    chunks: tuple[int, ...],
) -> None:
    """What masks are told: documents, a prefix that lies in the first chunk, pairs under names of their own.

    `kept`[B, T]: True at the stack's real positions.
    """
    size, length = kept.shape
    prefix, documents = f"{side.prefix}prefix_length", f"{side.prefix}document_ids"
    if prefix in ports and side.told:
        most = kept[:, : chunks[0] if chunks else None].sum(1)
        arrays[prefix] = random.integers(0, most + 1)
    if documents in ports and side.told:
        numbers = random.permutation(4) - 1
        arrays[documents] = numbers[np.sort(random.integers(0, 4, kept.shape), 1)]
    for port in ports.values():
        if port.dtype == "int64" and len(port.shape) == 3 and port.name.startswith(side.prefix):
            arrays[port.name] = (random.random((size, length, length)) < 0.7).astype(np.int64)


def _real(random: np.random.Generator, size: int, side: Side) -> Array:
    """True at real tokens. Every row has at least one, except an empty row."""
    kept = np.ones((size, side.length), bool)
    lengths = random.integers(1, side.length + 1, size)
    place = np.arange(side.length)
    match side.padding:
        case "right":
            kept = place < lengths[:, None]
        case "left":
            kept = place >= side.length - lengths[:, None]
        case "holes":
            kept = random.random((size, side.length)) < 0.6
            kept[np.arange(size), random.integers(0, side.length, size)] = True
        case "empty row":
            kept = place < lengths[:, None]
            kept[random.integers(0, size)] = False
    return kept


def _ids(random: np.random.Generator, size: int, side: Side, kept: Array, vocabulary: int, pad_id: int | None) -> Array:
    ids = random.integers(0, vocabulary, (size, side.length))
    if not side.by_ids:
        return ids
    assert pad_id is not None
    others = (pad_id + random.integers(1, vocabulary, ids.shape)) % vocabulary
    first = ids[:, :1]
    ids = np.where(kept, others, pad_id)
    if side.prefix == "decoder_":
        ids[:, :1] = first
    return ids


def chunk(batch: Batch, shapes: Mapping[str, Shape], start: int, stop: int, first: bool) -> dict[str, Array]:
    """The inputs of a call that continues at `start`: the last stack's, cut, and on the first call those of the others.

    A mask covers past and chunk, or only the chunk, depending on its shape.
    """
    given: dict[str, Array] = {}
    last = batch.last
    for name, array in batch.inputs.items():
        if side_of(name, batch.sides) is last and "initial_state" not in name:
            looks_back = any(PAST in names(size) for size in shapes[name][:2])
            if len(shapes[name]) > 1:
                given[name] = _columns(name, array, slice(0 if looks_back else start, stop), slice(stop))
            elif first:
                given[name] = array
        elif first:
            given[name] = array
    return given


def sizes(batch: Batch, past: int = 0) -> dict[str, int]:
    """The named sizes of a call."""
    known = {"batch_size": batch.size, TIME: batch.last.length, PAST: past}
    return known | ({ENCODER_TIME: batch.sides[0].length} if len(batch.sides) > 1 else {})
