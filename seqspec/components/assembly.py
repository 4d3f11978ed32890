"""Builds the region of a resolved stack: input, positions, layers, final norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from seqspec.components.base import Context, Inlet, Path, camel, width_of
from seqspec.components.blocks import build_block
from seqspec.components.inputs import Around, Tables
from seqspec.components.layers import BareLayer, Beside, Layer
from seqspec.components.positions import AddedPosition
from seqspec.components.relations import Relations
from seqspec.components.stack import Stack
from seqspec.components.states import Memory, Place
from seqspec.components.tokens import Tokens
from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, Size, dim
from seqspec.graph.ir import Region, Value
from seqspec.ops.cache import Hold
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add
from seqspec.ops.padding import Padding


class Plan(NamedTuple):
    """How a stack is to be built: its name, its relation to other stacks, and which of its results are read."""

    name: str  # encoder, decoder
    alone: bool  # the only stack, so that its inputs have plain names
    stateful: bool
    owner: Stack | None  # whose tables it shares
    mask_wanted: bool
    finals_wanted: frozenset[int]  # flat indices of recurrent layers whose final states are read

    @property
    def late(self) -> bool:
        """Whether this is a decoder that follows an encoder."""
        return self.name == "decoder" and not self.alone

    @property
    def time(self) -> Size:
        """The length of its input."""
        return dim(ENCODER_TIME if self.name == "encoder" and not self.alone else TIME)

    def port(self, name: str) -> str:
        """The public name of an input; that of a decoder after an encoder begins with `decoder_`."""
        return f"decoder_{name}" if self.late else name


class Built(NamedTuple):
    """The outputs of a stack, in the region that calls it."""

    x: Value
    mask: Value | None
    finals: Mapping[int, tuple[Value, ...]]  # by flat index
    weights: Mapping[str, Value]  # attention's, by flat index, and name where a layer has several


def build_stack(
    root: Builder, stack: Stack, plan: Plan, memories: Mapping[str, Memory], tables: Tables | None
) -> Built:
    """Declares the stack's inputs on `root`, builds its region and calls it."""
    b = root.child(camel(plan.name), plan.name)
    inlet = Inlet(b)
    writer = _Writer(b, inlet, stack, plan, tables)
    x = writer.embed(root)
    x, finals, weights = writer.run(root, x, memories)
    if stack.final_norm and not isinstance(stack.final_norm, bool):
        x = b.add(stack.final_norm.op(width_of(x)), x, name="final_norm")
    flat_finals = [v for index in sorted(finals) for v in finals[index]]
    masks = [writer.mask] if plan.mask_wanted and writer.mask is not None else []
    region = b.done(x, *masks, *flat_finals, *weights.values())
    hints = ["memory" if plan.name == "encoder" and not plan.alone else "x", *_names(bool(masks), finals)]
    hint = " ".join([*hints, *(f"weights_{name}".replace(".", "_") for name in weights)])
    out, *rest = root.call_many(region, plan.name, *inlet.arguments, hint=hint)
    mask = rest.pop(0) if masks else None
    taken = iter(rest)
    last = {index: tuple(next(taken) for _ in finals[index]) for index in sorted(finals)}
    return Built(out, mask, last, {name: next(taken) for name in weights})


def _names(mask: bool, finals: Mapping[int, Sequence[Value]]) -> list[str]:
    names = [f"{letter}_{index}" for index in sorted(finals) for letter, _ in zip("hc", finals[index], strict=False)]
    return (["mask"] if mask else []) + names


class _Writer:
    """Writes one stack's region."""

    mask: Value | None  # of an image, where nothing is padding, there is none

    def __init__(self, b: Builder, inlet: Inlet, stack: Stack, plan: Plan, tables: Tables | None) -> None:
        self.b, self.inlet, self.stack, self.plan = b, inlet, stack, plan
        self.outer_tables = tables
        self.positions: Value | None = None
        attends = any(layer.block for layer in stack.flat()) and bool(list(stack.attentions()))
        placed = isinstance(stack.position, AddedPosition)
        self.keep_first = plan.name == "decoder" and stack.input.padding_id is not None
        self.looks_back = plan.stateful and (attends or placed or self.keep_first)
        # without cached keys and values, only the mask tells how long the past is
        self.always = self.looks_back and not attends
        self.reads_positions = any(sublayer.reads_positions for sublayer in stack.sublayers())
        turned = any(sublayer.tables_key for sublayer in stack.attentions())
        self.placed = placed or turned or self.reads_positions

    def embed(self, root: Builder) -> Value:
        """The vectors that enter the first layer, [B, T, D]: input, positions, norm and dropout."""
        stack, b, source = self.stack, self.b, self.stack.input
        port = root.input(self.plan.port(source.port), source.shape((dim(BATCH), self.plan.time)), source.dtype)
        width, declare = int(stack.d_model or 0), partial(self._optional, root)
        data, self.mask = source.signal(b, self.inlet.take(port, source.port), width, partial(self._padding, root))
        self.relations = Relations(b, data, self.mask, self.looks_back, declare, list(stack.attentions()))
        if self.placed:
            self.positions = self.relations.positions()
        owner = self.plan.owner.input if self.plan.owner else None
        shared = owner if isinstance(owner, Tokens) else None
        x = source.vectors(b, data, Around(self.mask, width, declare, self.inlet, shared, self.outer_tables))
        if isinstance(stack.position, AddedPosition):
            assert self.positions is not None
            x = b.add(Add(), x, stack.position.build(b, self.positions, x))
        if source.norm:
            x = b.add(source.norm.op(width_of(x)), x, name="embed_norm")
        if stack.rates.input:
            x = b.add(Dropout(stack.rates.input), x)
        # only the last step gets a hint, so that the steps before it become one expression
        return self._hinted(x)

    def _padding(self, root: Builder, data: Value) -> Value:
        """The padding mask of the input, from the mask that the caller gives."""
        total = self.plan.time + (dim(PAST) if self.looks_back else 0)
        given = self._optional(root, "attention_mask", (dim(BATCH), total))
        padding = Padding(self.stack.input.padding_id, self.keep_first, self.looks_back, self.always)
        return self.b.add(padding, data, given, hint="mask")

    def _hinted(self, x: Value) -> Value:
        last = self.b.items[-1]
        if last.outputs == (x,):
            self.b.items[-1] = replace(last, outputs=(replace(x, hint="x"),))
        return replace(x, hint="x")

    def _optional(self, root: Builder, name: str, shape: tuple[Size, ...], *, optional: bool = True) -> Value:
        return self.inlet.take(root.input(self.plan.port(name), shape, "int64", optional=optional), name)

    def run(
        self, root: Builder, x: Value, memories: Mapping[str, Memory]
    ) -> tuple[Value, dict[int, tuple[Value, ...]], dict[str, Value]]:
        """All layers in order: their output, the final states that are read, and the attention weights put out."""
        inner = {name: self._memory(name, memory) for name, memory in memories.items()}
        context = self._context(x, inner)
        finals: dict[int, tuple[Value, ...]] = {}
        weights: dict[str, Value] = {}
        layers = list(self.stack.flat())
        total, first = sum(layer.bare.layers.layers for layer in layers if layer.bare), 0
        blocks: dict[Path, Region] = {}
        for index, layer in enumerate(layers):
            scope = f"layers.{index}"
            self.b.origin = _origin(self.plan.name, layer)
            if layer.bare is None:
                if layer.path not in blocks:
                    blocks[layer.path] = self._block(layer, x, context)
                names = layer.weights(index)
                hint = " ".join(["x", *(f"weights_{name}".replace(".", "_") for name in names)])
                x, *seen = self.b.call_many(blocks[layer.path], scope, x, *context.arguments(), hint=hint)
                weights |= dict(zip(names, seen, strict=True))
                continue
            place = Place(layer.bare.layers, first, total)
            first += layer.bare.layers.layers
            wanted, given = index in self.plan.finals_wanted, self._given(root, index, layer.bare)
            beside = Beside(self.mask, inner, place, given, self.plan.stateful, wanted)
            x, states, attended = layer.bare.build(self.b, scope, x, beside)
            if wanted:
                finals[index] = states
            if attended is not None:
                weights[str(index)] = attended
        self.b.origin = self.plan.name
        return x, finals, weights

    def _given(self, root: Builder, index: int, layer: BareLayer) -> list[Value]:
        """The inputs for the initial state of a layer: `initial_state.3.h` [B, L·D, H]."""
        ports = []
        for name, shape in layer.given.items():
            port = root.input(self.plan.port(f"initial_state.{index}.{name}"), (dim(BATCH), *shape), optional=True)
            ports.append(self.inlet.take(port, f"initial_{name}_{index}"))
        return ports

    def _memory(self, name: str, memory: Memory) -> Memory:
        """Another stack as this region sees it. Its mask is held, since later calls do not pass it."""
        x, mask, mean = memory.x, memory.mask, None
        attended, averaged = self.stack.attends_to(name), self.stack.averages(name)
        if attended or averaged:
            x = self.inlet.take(memory.x, "memory")
            mask = self.inlet.take_optional(memory.mask, "memory_mask")
        if averaged:
            from seqspec.ops.pool import Pool  # not at the top: few models need it

            mean = self.b.add(Pool("mean"), x, mask)
        if attended and mask is not None and self.plan.stateful:
            mask = self.b.add(Hold(f"{name}_attention_mask"), mask, hint="memory_mask")
        finals = [
            tuple(self.inlet.take(v, f"{'hc'[part]}_{n}") for part, v in enumerate(entry))
            for n, entry in enumerate(memory.source.finals)
        ]
        return Memory(x, mask, memory.source._replace(finals=finals, mean=mean))

    def _context(self, x: Value, memories: Mapping[str, Memory]) -> Context:
        values: dict[str, Value] = {} if self.mask is None else {"mask": self.mask}
        if self.positions is not None and self.reads_positions:
            values["positions"] = self.positions
        shared, made = self.relations.shared(list(self.stack.attentions()), x, self.positions)
        values |= made
        crossed = {sublayer.attends for sublayer in self.stack.sublayers() if sublayer.attends}
        for name in sorted(crossed):
            memory = memories[name]
            values["memory"] = memory.x
            if memory.mask is not None:
                values["memory_mask"] = memory.mask
        prefix = "" if self.plan.alone else camel(self.plan.name)
        return Context(values, self.plan.stateful, prefix, shared)

    def _block(self, layer: Layer, x: Value, context: Context) -> Region:
        norm, placement = self.stack.norm, self.stack.norm_placement
        assert placement is not None
        own = context if layer.name == "block" else context._replace(prefix=context.prefix + camel(layer.name))
        name = camel(layer.name) if self.plan.alone or layer.name != "block" else camel(self.plan.name) + "Block"
        scale, dropout = float(self.stack.residual_scale or 1), self.stack.rates.residual
        return build_block(self.b, name, layer.block, x, own, norm, placement, dropout, scale)


def _origin(stack: str, layer: Layer) -> str:
    """The YAML path of a layer: `decoder.layers[0]`."""
    text = stack
    for part in layer.path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text
