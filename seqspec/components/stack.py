"""A stack: an input, layers over it, and what they inherit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import Field

from seqspec.components.attention import CrossAttention, Heads, SelfAttention
from seqspec.components.audio import Audio
from seqspec.components.base import Component, Count, Finding, Findings, Positive, Rate, Word
from seqspec.components.blocks import (
    Block,
    Entry,
    Parallel,
    Pattern,
    Placement,
    Single,
    Sublayer,
    check_names,
    name_of,
    opened,
)
from seqspec.components.bridge import Place, Source
from seqspec.components.efficient import LinearAttention, LowRankAttention
from seqspec.components.image import Image
from seqspec.components.inputs import Features, Input, Tokens
from seqspec.components.linear import LinearLayer
from seqspec.components.masks import Causal, Mask, NoMask
from seqspec.components.norms import LayerNorm, Norm
from seqspec.components.positions import Alibi, Learned, NoPosition, Position, RelativeBias
from seqspec.components.recurrent import GRU, LSTM, RNN, Recurrent
from seqspec.components.rope import Rope

MIXING = (SelfAttention, LinearAttention, LowRankAttention)
"""Sublayers in which a position reads others of its own stack."""
Path = tuple[str | int, ...]
MAX_LAYERS = 10_000
"""Of one stack. Models that were trained have a few hundred."""


class DropoutRates(Component):
    """Where a stack drops: behind the embedding, on each sublayer's output, on attention weights, inside the ffn."""

    input: Rate = 0.0
    residual: Rate = 0.0
    attention: Rate = 0.0
    inner: Rate = 0.0


class Inherited(Component):
    """What `defaults` says for every stack, and a stack for its layers."""

    d_model: Count | None = None
    """The residual width."""
    position: Position | None = None
    """How positions are told; none by default."""
    norm: Norm | None = None
    """The norm of every sublayer; layernorm by default."""
    norm_placement: Placement | None = None
    """`pre`: x + f(norm(x)), the default; `post`: norm(x + f(x)), the original; `sandwich`: both sides of f."""
    final_norm: bool | Norm | None = None
    """A norm behind the last layer: true for pre and sandwich, false for post, or a norm."""
    residual_scale: Positive | None = None
    """What x is multiplied with in x + f(x), 1 by default: the alpha of DeepNorm, with `norm_placement: post`."""
    init_scale: Positive | None = None
    """What values, attention outputs and feed-forwards start multiplied with, 1 by default: the beta of DeepNorm."""
    bias: bool | None = None
    """Whether linear maps have a bias; true by default, as in PyTorch."""
    dropout: Rate | DropoutRates | None = None
    """A rate p means {input: p, residual: p}."""


class Defaults(Inherited):
    """For every stack that does not say otherwise."""


class Layer(NamedTuple):
    """One layer of the flat list: a bare recurrent or linear one, or a block under its name."""

    path: Path
    recurrent: Recurrent | None = None
    block: tuple[Sublayer, ...] = ()
    name: str = "block"
    linear: LinearLayer | None = None

    @classmethod
    def bare(cls, path: Path, entry: Recurrent | LinearLayer) -> Layer:
        return cls(path, linear=entry) if isinstance(entry, LinearLayer) else cls(path, entry)

    @property
    def parts(self) -> list[Single]:
        """Its sublayers, those that run in parallel one by one."""
        return [sublayer for _, sublayer in opened(self.block)]

    def weights(self, index: int) -> list[str]:
        """What the attention weights that it puts out are called: its flat index, and names where there are several."""
        names = [name_of(s) for s in self.parts if isinstance(s, Heads) and s.return_weights]
        return [str(index)] if len(names) == 1 else [f"{index}.{name}" for name in names]


class Facts(NamedTuple):
    """What others may know of a resolved stack. `source` is what a bridge sees of it."""

    width: int
    source: Source
    causal: bool  # nothing in it reads the future, so that it can be run in chunks
    last_recurrent: bool


class Stack(Inherited):
    """Reads an input, runs its layers in order, and puts out a vector for every position."""

    input: Input
    """What it reads."""
    causal: bool | None = None
    """Whether every layer must not see the future: true in a decoder by default, false in an encoder."""
    mask: Mask | None = None
    """Who may attend to whom, for layers that do not say; causal where the stack is, by default."""
    blocks: dict[Word, list[Sublayer]] | None = None
    """Blocks that patterns name."""
    layers: list[Entry] = Field(min_length=1)
    """Layers, blocks and patterns, in the order they run."""

    # ---- resolution --------------------------------------------------------------------------------------------

    def resolved(self, defaults: Defaults, role: str, owner: Stack | None) -> Stack:
        """Every default filled in. `owner` is the resolved stack whose tables `input.share` names."""
        merged = {k: v if (own := getattr(self, k)) is None else own for k, v in defaults}
        blocks = self._has_blocks
        causal = (role == "decoder") if self.causal is None else self.causal
        norm = merged["norm"] or (LayerNorm.plain() if blocks else None)
        placement = merged["norm_placement"] or ("pre" if blocks else None)
        final = merged["final_norm"]
        if final is None:
            final = blocks and placement != "post"
        source, width = self._widths(merged["d_model"], owner)
        update = {
            "d_model": width,
            "input": source,
            "position": merged["position"] or NoPosition.plain(),
            "norm": norm if blocks else self.norm,
            "norm_placement": placement if blocks else self.norm_placement,
            "residual_scale": (merged["residual_scale"] or 1.0) if blocks else self.residual_scale,
            "init_scale": (merged["init_scale"] or 1.0) if blocks else self.init_scale,
            "final_norm": (norm or LayerNorm.plain()) if final is True else final,
            "bias": True if merged["bias"] is None else merged["bias"],
            "dropout": _rates(merged["dropout"]),
            "causal": causal,
            "mask": self.mask or (Causal.plain() if causal else NoMask.plain()),
        }
        stack = self.model_copy(update=update)
        named = {name: stack._fill(block) for name, block in self.blocks.items()} if self.blocks else self.blocks
        entries = [stack._fill_entry(entry) for entry in self.layers]
        return stack.model_copy(update={"blocks": named, "layers": entries})

    @property
    def _has_blocks(self) -> bool:
        return any(isinstance(entry, Block | Pattern) for entry in self.layers)

    def _widths(self, d_model: int | None, owner: Stack | None) -> tuple[Input, int | None]:
        """The input with its width, and the stack's."""
        given = self.input
        if isinstance(given, Features):
            width = given.d_model or d_model
            return given.model_copy(update={"d_model": width}), d_model or width
        if isinstance(given, Audio | Image):
            return given, d_model or (given.width if isinstance(given, Audio) else None)
        shared = owner.input if owner and isinstance(owner.input, Tokens) else None
        source = given.resolved(d_model, shared)
        return source, d_model or (shared.d_model if shared else source.d_model)

    def _fill(self, block: list[Sublayer]) -> list[Sublayer]:
        rates, bias = self.rates, bool(self.bias)
        assert self.mask is not None
        assert self.position is not None
        filled: list[Sublayer] = []
        for sublayer in block:
            name = name_of(sublayer)
            if isinstance(sublayer, Parallel):
                update = {"name": name, "block": self._fill(list(sublayer.block))}
                filled.append(sublayer.model_copy(update=update))
                continue
            sublayer = sublayer.model_copy(update={"init_scale": sublayer.init_scale or self.init_scale})
            if isinstance(sublayer, SelfAttention):
                own = sublayer.resolved(name, self.d_model, bias, rates.attention, self.mask, self.position)
                filled.append(own)
            elif isinstance(sublayer, CrossAttention | LowRankAttention):
                filled.append(sublayer.resolved(name, self.d_model, bias, rates.attention))
            elif isinstance(sublayer, LinearAttention):
                filled.append(sublayer.resolved(name, self.d_model, bias, bool(self.causal)))
            else:
                filled.append(sublayer.resolved(name, bias, rates.inner))
        return filled

    def _fill_entry(self, entry: Entry) -> Entry:
        if isinstance(entry, Block):
            return entry.model_copy(update={"block": self._fill(entry.block)})
        if isinstance(entry, Pattern):
            return entry
        if isinstance(entry, LinearLayer):
            return entry.resolved(bool(self.bias))
        filled = entry.resolved()
        assert isinstance(filled, LSTM | GRU | RNN)
        return filled

    # ---- what a resolved stack is ------------------------------------------------------------------------------

    @property
    def rates(self) -> DropoutRates:
        return _rates(self.dropout)

    def flat(self) -> Iterator[Layer]:
        """Every layer in order, repeats and patterns spelled out; patterns of unknown blocks left out."""
        for n, entry in enumerate(self.layers):
            for _ in range(entry.repeat):
                if isinstance(entry, Block):
                    yield Layer(("layers", n), None, tuple(entry.block))
                elif isinstance(entry, Pattern):
                    for name in entry.pattern:
                        if self.blocks and name in self.blocks:
                            yield Layer(("blocks", name), None, tuple(self.blocks[name]), name)
                else:
                    yield Layer.bare(("layers", n), entry)

    def distinct(self) -> Iterator[Layer]:
        """Every layer as written, once, in the order of first use: the order of keys in `blocks` says nothing."""
        blocks = dict(self.blocks or {})
        for n, entry in enumerate(self.layers):
            if isinstance(entry, Block):
                yield Layer(("layers", n, "block"), None, tuple(entry.block))
            elif isinstance(entry, Pattern):
                used = {name: blocks.pop(name) for name in dict.fromkeys(entry.pattern) if name in blocks}
                yield from (Layer(("blocks", name), None, tuple(block), name) for name, block in used.items())
            else:
                yield Layer.bare(("layers", n), entry)
        for name, block in blocks.items():
            yield Layer(("blocks", name), None, tuple(block), name)

    def attentions(self) -> Iterator[SelfAttention]:
        for layer in self.distinct():
            yield from (s for s in layer.parts if isinstance(s, SelfAttention))

    def low_ranks(self) -> Iterator[LowRankAttention]:
        for layer in self.distinct():
            yield from (s for s in layer.parts if isinstance(s, LowRankAttention))

    def reads(self) -> set[str]:
        """The stacks that its layers read."""
        found: set[str] = set()
        for layer in self.distinct():
            found |= {s.from_ for s in layer.parts if isinstance(s, CrossAttention)}
            if layer.recurrent:
                found |= {part.from_ for part in (layer.recurrent.bridge, layer.recurrent.attend) if part}
        return found

    def attends_to(self, name: str) -> bool:
        """Whether a layer attends to another stack."""
        crossing = [s for layer in self.distinct() for s in layer.parts if isinstance(s, CrossAttention)]
        attending = [layer.recurrent.attend for layer in self.distinct() if layer.recurrent and layer.recurrent.attend]
        return name in {part.from_ for part in crossing} | {part.from_ for part in attending}

    def averages(self, name: str) -> bool:
        """Whether a layer starts from the mean of what another stack puts out."""
        bridges = [layer.recurrent.bridge for layer in self.distinct() if layer.recurrent]
        return any(bridge and bridge.from_ == name and bridge.state == "mean" for bridge in bridges)

    def check_outputs(self) -> Findings:
        """What only the outputs would show, where nobody reads them: the stack ends with its last recurrent layer."""
        text = "nobody reads what this puts out: only final states are read"
        layers = list(self.flat())
        last = max((n for n, layer in enumerate(layers) if layer.recurrent), default=None)
        if last is None:
            return  # and the bridge says that there are none
        if self.final_norm:
            yield Finding("SEQ232", ("final_norm",), text)
        for path in dict.fromkeys(layer.path for layer in layers[last + 1 :]):
            yield Finding("SEQ232", path, text)

    def facts(self, others: Mapping[str, Facts]) -> Facts:
        """Its output width and what a bridge, a head or a state asks about it."""
        width, entries, last = self.entry_width(), [], False
        for layer in self.flat():
            last = layer.recurrent is not None
            if layer.linear:
                width = layer.linear.size
            if layer.recurrent:
                width = layer.recurrent.width(_attended(layer.recurrent, others))
                entries.append(layer.recurrent.layers)
        mixing = [s for layer in self.distinct() for s in layer.parts if isinstance(s, MIXING)]
        looks = [bool(s.causal) for s in mixing] + [e.directions == 1 for e in entries]
        looks.append(not isinstance(self.input, Audio | Image))
        return Facts(width or 0, Source(tuple(entries), width or 0), all(looks), last)

    def entry_width(self) -> int | None:
        """Channels that enter the first layer."""
        if isinstance(self.input, Features) and self.input.d_model is None:
            return self.input.size
        return self.input.width if isinstance(self.input, Audio) else self.d_model

    # ---- checks ------------------------------------------------------------------------------------------------

    def check_size(self) -> Findings:
        """Before anything counts its layers one by one."""
        counts = [(_layers(entry), n) for n, entry in enumerate(self.layers)]
        total, (most, where) = sum(count for count, _ in counts), max(counts)
        if total > MAX_LAYERS:
            key = "repeat" if self.layers[where].repeat > 1 else "num_layers"
            text = f"the stack has {total:,} layers, {most:,} of them here"
            yield Finding("SEQ306", ("layers", where, key), text, f"at most {MAX_LAYERS:,} can be built")

    def check(self, name: str, others: Mapping[str, Facts], owner: Stack | None) -> Findings:
        """`others` are the stacks complete before this one; `owner` the one whose tables are shared."""
        shared = owner.input if owner and isinstance(owner.input, Tokens) else None
        source = self.input
        found = source.check(shared) if isinstance(source, Tokens) else source.check()
        yield from (f.under("input") for f in found)
        if owner and shared and shared.token_types and owner.d_model != self.d_model:
            text = f"shared token types are {owner.d_model} wide, but this stack has d_model {self.d_model}"
            yield Finding("SEQ204", ("input", "share"), text, "make the widths equal")
        yield from self._check_uses(name)
        yield from self._check_blocks()
        yield from self._check_widths(others)
        yield from self._check_reads(name, others)
        if self.causal:
            yield from self._check_causal(name)

    def _check_uses(self, name: str) -> Findings:
        """Keys that would change nothing."""
        if not self._has_blocks:
            if self.norm is not None and not self.final_norm:
                yield Finding("SEQ232", ("norm",), "`norm` belongs to blocks, and the stack has none")
            for key in ("norm_placement", "residual_scale", "init_scale"):
                if getattr(self, key) is not None:
                    yield Finding("SEQ232", (key,), f"`{key}` belongs to blocks, and the stack has none")
        if self.mask is not None and not list(self.attentions()) and not isinstance(self.mask, Causal | NoMask):
            yield Finding("SEQ232", ("mask",), "`mask` belongs to self-attention, and the stack has none")
        acting = isinstance(self.position, Rope | Alibi | RelativeBias)
        if self.position and acting and not any(type(a.position) is type(self.position) for a in self.attentions()):
            text = f"`{self.position.kind}` acts in self-attention, and no layer here takes it"
            yield Finding("SEQ234", ("position",), text)
        if isinstance(self.input, Image) and isinstance(self.position, Learned):
            count, rows = self.input.count, self.position.max_length
            if count != rows:
                text = f"the image is {count} vectors, and max_length ({rows}) must be as many"
                yield Finding("SEQ234", ("position", "max_length"), text)
        patterns = {n for entry in self.layers if isinstance(entry, Pattern) for n in entry.pattern}
        for block in self.blocks or {}:
            if block not in patterns:
                yield Finding("SEQ219", ("blocks", block), f"no pattern uses the block `{block}`")

    def _check_blocks(self) -> Findings:
        for n, entry in enumerate(self.layers):
            if isinstance(entry, Pattern):
                for m, block in enumerate(entry.pattern):
                    if block not in (self.blocks or {}):
                        known = ", ".join(f"`{k}`" for k in self.blocks or {}) or "none"
                        text = f"`{block}` is no block of this stack"
                        yield Finding("SEQ218", ("layers", n, "pattern", m), text, f"known blocks: {known}")
        for layer in self.distinct():
            yield from (f.under(*layer.path) for f in check_names(layer.block))
            if layer.recurrent:
                yield from (f.under(*layer.path) for f in layer.recurrent.check())
            for n, sublayer in enumerate(layer.block):
                if self.d_model is not None:
                    yield from (f.under(*layer.path, n) for f in sublayer.check(self.d_model))

    def _check_widths(self, others: Mapping[str, Facts]) -> Findings:
        width, told = self.entry_width(), False
        given = next((key for key in ("d_model", "size") if getattr(self.input, key, None)), None)
        at: Path = ("input", given) if given else ("input",)
        if width is None:
            hint = "write `d_model` on the stack or its input"
            yield Finding("SEQ220", (), "the width of the stack is not known", hint)
            return
        for layer in self.flat():
            if layer.recurrent:
                width = layer.recurrent.width(_attended(layer.recurrent, others))
                at = (*layer.path, "hidden_size")
            elif layer.linear:
                width, at = layer.linear.size, (*layer.path, "size")
            elif width != self.d_model and not told:
                known = "the stack has none" if self.d_model is None else f"d_model is {self.d_model}"
                text = f"a block needs channels of the stack's d_model; {width} arrive, and {known}"
                hint = f"write `d_model: {width}` on the stack" if self.d_model is None else "make the widths equal"
                yield Finding("SEQ204", at, text, hint)
                told = True

    def _check_reads(self, name: str, others: Mapping[str, Facts]) -> Findings:
        total = sum(layer.recurrent.num_layers for layer in self.flat() if layer.recurrent)
        first = 0
        for layer in self.flat():
            if layer.recurrent:
                place = Place(layer.recurrent.layers, first, total)
                first += layer.recurrent.num_layers
                found = layer.recurrent.check_reads(place, {key: facts.source for key, facts in others.items()})
                yield from (f.under(*layer.path) for f in found)
        for layer in self.distinct():
            parts: list[tuple[Path, str]] = []
            for path, sublayer in opened(layer.block):
                if isinstance(sublayer, CrossAttention):
                    parts.append(((*path, "from"), sublayer.from_))
            if layer.recurrent and layer.recurrent.bridge:
                parts.append((("initial_state", "from"), layer.recurrent.bridge.from_))
            if layer.recurrent and layer.recurrent.attend:
                parts.append((("attend", "from"), layer.recurrent.attend.from_))
            for path, other in parts:
                if other == name:
                    yield Finding("SEQ221", (*layer.path, *path), f"`{name}` cannot read itself")
                elif other not in others:
                    known = ", ".join(f"`{k}`" for k in others) or "none that is complete before this one"
                    text = f"there is no stack `{other}` to read"
                    yield Finding("SEQ205", (*layer.path, *path), text, f"stacks that can be read: {known}")

    def _check_causal(self, name: str) -> Findings:
        example = "`mask: {all: [causal, {kind: window, size: 16}]}`"
        hint = f"combine it with `causal`, as in {example}, or write `causal: false` on the stack"
        if isinstance(self.input, Audio | Image):
            text = f"`{self.input.kind}` is read at once, the future included, and the {name} is causal"
            yield Finding("SEQ222", ("input",), text, "write `causal: false` on the stack if that is meant")
        for layer in self.distinct():
            for path, sublayer in opened(layer.block):
                if isinstance(sublayer, SelfAttention) and not sublayer.causal:
                    text = f"this mask lets a position of the {name} see the future"
                    yield Finding("SEQ207", (*layer.path, *path, "mask"), text, hint)
                elif isinstance(sublayer, LinearAttention | LowRankAttention) and not sublayer.causal:
                    text = f"this `{sublayer.kind}` lets a position of the {name} see the future"
                    yield Finding("SEQ207", (*layer.path, *path), text, "write `causal: false` on the stack")
            if layer.recurrent and layer.recurrent.bidirectional:
                yield Finding(
                    "SEQ222",
                    (*layer.path, "bidirectional"),
                    f"a bidirectional layer reads the future, and the {name} is causal",
                    "write `causal: false` on the stack if that is meant",
                )


def _layers(entry: Entry) -> int:
    """How many layers an entry stands for."""
    if isinstance(entry, Pattern):
        return entry.repeat * len(entry.pattern)
    return entry.repeat * (1 if isinstance(entry, Block | LinearLayer) else entry.num_layers)


def _rates(dropout: float | DropoutRates | None) -> DropoutRates:
    if isinstance(dropout, DropoutRates):
        return dropout
    return DropoutRates.model_construct(input=dropout or 0.0, residual=dropout or 0.0)


def _attended(layer: Recurrent, others: Mapping[str, Facts]) -> int | None:
    """The width of the stack that a layer's `attend` reads."""
    facts = others.get(layer.attend.from_) if layer.attend else None
    return facts.width if facts else None
