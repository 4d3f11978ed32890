"""A stack: an input, layers over it, and what they inherit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import Field

from seqspec.components.base import Path, Word
from seqspec.components.inherited import Defaults, DropoutRates, Inheritance, Inherited
from seqspec.components.inputs import Input
from seqspec.components.layers import Entry, Layer, named_block
from seqspec.components.masks import Causal, Mask, NoMask
from seqspec.components.norms import LayerNorm
from seqspec.components.parts import Part
from seqspec.components.positions import NoPosition
from seqspec.components.states import Source
from seqspec.components.sublayers import Single, Sublayer
from seqspec.components.tokens import Tokens


class Facts(NamedTuple):
    """What other parts of a spec may know about a resolved stack. `source` is what a bridge sees of it."""

    width: int
    source: Source
    causal: bool  # nothing in it sees later positions, so that it can run in chunks
    last_recurrent: bool


class Stack(Inherited):
    """Reads an input, runs its layers in order, and outputs a vector for every position."""

    input: Input
    """What it reads."""
    causal: bool | None = None
    """Whether no layer may see later positions: true in a decoder by default, false in an encoder."""
    mask: Mask | None = None
    """Which positions may attend to which, for layers without a mask; by default causal if the stack is, else none."""
    blocks: dict[Word, list[Sublayer]] | None = None
    """Named blocks, for patterns to use."""
    layers: list[Entry] = Field(min_length=1)
    """Layers, blocks and patterns, in the order they run."""

    # ---- resolution --------------------------------------------------------------------------------------------

    def resolved(self, defaults: Defaults, role: str, owner: Stack | None) -> Stack:
        """Every default filled in. `owner` is the resolved stack whose tables `input.share` refers to."""
        merged = {k: v if (own := getattr(self, k)) is None else own for k, v in defaults}
        blocks = self.has_blocks
        causal = (role == "decoder") if self.causal is None else self.causal
        placement = merged["norm_placement"] or ("pre" if blocks else None)
        normed = blocks and placement != "none"
        norm = merged["norm"] or (LayerNorm.plain() if normed else None)
        final = merged["final_norm"]
        if final is None:
            final = normed and placement != "post"
        shared = owner.input if owner and isinstance(owner.input, Tokens) else None
        source = self.input.resolved(merged["d_model"], shared)
        update = {
            "d_model": merged["d_model"] or source.stack_width(shared),
            "input": source,
            "position": merged["position"] or NoPosition.plain(),
            "norm": norm if normed else self.norm,
            "norm_placement": placement if blocks else self.norm_placement,
            "residual_scale": (merged["residual_scale"] or 1.0) if blocks else self.residual_scale,
            "init_scale": (merged["init_scale"] or 1.0) if blocks else self.init_scale,
            "final_norm": (norm or LayerNorm.plain()) if final is True else final,
            "bias": True if merged["bias"] is None else merged["bias"],
            "dropout": DropoutRates.of(merged["dropout"]),
            "causal": causal,
            "mask": self.mask or (Causal.plain() if causal else NoMask.plain()),
        }
        return self.model_copy(update=update)._filled()

    def _filled(self) -> Stack:
        """The stack with every layer resolved."""
        assert self.position is not None
        assert self.mask is not None
        causal, bias = bool(self.causal), bool(self.bias)
        said = Inheritance(self.d_model, self.position, self.mask, causal, bias, self.init_scale, self.rates)
        blocks = self.blocks and {name: [s.resolved(said) for s in block] for name, block in self.blocks.items()}
        return self.model_copy(update={"blocks": blocks, "layers": [entry.resolved(said) for entry in self.layers]})

    # ---- what a resolved stack is ------------------------------------------------------------------------------

    @property
    def has_blocks(self) -> bool:
        """Whether any layer is a block, so that there are norms and residuals."""
        return any(entry.has_blocks for entry in self.layers)

    @property
    def rates(self) -> DropoutRates:
        """Its dropout, by place."""
        return DropoutRates.of(self.dropout)

    def flat(self) -> Iterator[Layer]:
        """Every layer in order, with repeats and patterns expanded; unknown blocks are left out."""
        for n, entry in enumerate(self.layers):
            for _ in range(entry.repeat):
                yield from entry.opened(("layers", n), self.blocks or {})

    def distinct(self) -> Iterator[Layer]:
        """Every layer as written, once, in order of first use, so that the order of `blocks` does not matter."""
        blocks = self.blocks or {}
        found: dict[Path, Layer] = {}
        for n, entry in enumerate(self.layers):
            for layer in entry.opened(("layers", n), blocks):
                found.setdefault(layer.path, layer)
        for name in blocks:
            found.setdefault(("blocks", name), named_block(name, blocks))
        yield from found.values()

    def parts(self) -> Iterator[tuple[Path, Part]]:
        """All parts of its distinct layers, with their paths."""
        for layer in self.distinct():
            yield from layer.parts()

    def sublayers(self) -> Iterator[Single]:
        """Every sublayer as written, with those inside a `parallel` listed one by one."""
        for layer in self.distinct():
            yield from layer.sublayers

    def attentions(self) -> Iterator[Single]:
        """The sublayers that the stack's mask applies to."""
        yield from (sublayer for sublayer in self.sublayers() if sublayer.masked)

    def reads(self) -> set[str]:
        """The stacks that its layers read."""
        return {name for _, part in self.parts() for _, name in part.reads()}

    def attends_to(self, name: str) -> bool:
        """Whether a layer attends to another stack."""
        return any(part.attends == name for _, part in self.parts())

    def averages(self, name: str) -> bool:
        """Whether a layer starts from the mean output of another stack."""
        return any(part.averages == name for _, part in self.parts())

    def width(self, layer: Layer, entering: int | None, others: Mapping[str, Facts]) -> int | None:
        """Output channels of one of its layers."""
        if layer.bare is None:
            return entering
        facts = others.get(layer.bare.attends or "")
        return layer.bare.width(facts.width if facts else None)

    @property
    def entry_width(self) -> int | None:
        """Channels that enter the first layer."""
        return self.input.entering(self.d_model)

    def facts(self, others: Mapping[str, Facts]) -> Facts:
        """What bridges, heads and states need to know about it."""
        width, entries, last = self.entry_width, [], False
        for layer in self.flat():
            width, last = self.width(layer, width, others), layer.recurrent is not None
            if layer.recurrent:
                entries.append(layer.recurrent.layers)
        causal = not self.input.at_once and not any(part.looks_ahead for _, part in self.parts())
        return Facts(width or 0, Source(tuple(entries), width or 0), causal, last)
