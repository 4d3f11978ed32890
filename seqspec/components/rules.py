"""What must hold of a resolved stack, one function per rule."""

from __future__ import annotations

from collections.abc import Mapping

from seqspec.components.base import Finding, Findings, Path
from seqspec.components.blocks import check_names
from seqspec.components.inputs import Owner
from seqspec.components.masks import Causal, NoMask
from seqspec.components.stack import Facts, Stack
from seqspec.components.states import Place
from seqspec.components.tokens import Tokens

MAX_LAYERS = 10_000
"""The limit for one stack. Real models have a few hundred."""
_OF_BLOCKS = ("norm_placement", "residual_scale", "init_scale")


def check(stack: Stack, name: str, others: Mapping[str, Facts], owner: Stack | None) -> Findings:
    """Applies every rule. `others` are the stacks built before this one; `owner` is the one whose tables it shares."""
    shared = Owner(owner.input, owner.d_model) if owner and isinstance(owner.input, Tokens) else None
    yield from (f.under("input") for f in stack.input.check(stack.d_model, shared))
    yield from keys_are_used(stack)
    yield from positions_fit(stack)
    yield from blocks_are_used(stack)
    yield from blocks_are_known(stack)
    yield from layers_fit(stack)
    yield from widths_agree(stack, others)
    yield from states_fit(stack, others)
    yield from others_are_there(stack, name, others)
    if stack.causal:
        yield from nothing_looks_ahead(stack, name)


def size_is_bounded(stack: Stack) -> Findings:
    """The number of layers is limited. Checked before anything iterates over the layers."""
    counts = [(entry.repeat * entry.count, n) for n, entry in enumerate(stack.layers)]
    total, (most, where) = sum(count for count, _ in counts), max(counts)
    if total > MAX_LAYERS:
        key = "repeat" if stack.layers[where].repeat > 1 else "num_layers"
        text = f"the stack has {total:,} layers, {most:,} of them here"
        yield Finding("SEQ306", ("layers", where, key), text, f"at most {MAX_LAYERS:,} can be built")


def outputs_are_read(stack: Stack) -> Findings:
    """If only final states are read, nothing follows the last recurrent layer."""
    text = "nobody reads what this puts out: only final states are read"
    layers = list(stack.flat())
    last = max((n for n, layer in enumerate(layers) if layer.recurrent), default=None)
    if last is None:
        return  # the bridge reports that
    if stack.final_norm:
        yield Finding("SEQ232", ("final_norm",), text)
    for path in dict.fromkeys(layer.path for layer in layers[last + 1 :]):
        yield Finding("SEQ232", path, text)


def state_is_read(stack: Stack) -> Findings:
    """Asked where the head reads the final state alone."""
    last, where = list(stack.flat())[-1], "the head reads the final state alone"
    if last.recurrent and stack.final_norm:
        yield Finding("SEQ232", ("final_norm",), f"nobody reads what this puts out: {where}")
    if last.recurrent and last.recurrent.attend and not last.recurrent.attend.is_seen_in_state:
        text = f"with `query: current` the state does not depend on the context, and {where}"
        hint = "write `query: previous` or `input_feeding: true`, or choose another `pool`"
        yield Finding("SEQ232", (*last.path, "attend"), text, hint)


def keys_are_used(stack: Stack) -> Findings:
    """Settings of blocks and of self-attention need a block or a self-attention."""
    if not stack.has_blocks:
        if stack.norm is not None and not stack.final_norm:
            yield Finding("SEQ232", ("norm",), "`norm` belongs to blocks, and the stack has none")
        for key in _OF_BLOCKS:
            if getattr(stack, key) is not None:
                yield Finding("SEQ232", (key,), f"`{key}` belongs to blocks, and the stack has none")
    elif stack.norm_placement == "none" and stack.norm is not None and not stack.final_norm:
        yield Finding("SEQ232", ("norm",), "no sublayer takes a `norm` where `norm_placement` is none")
    if stack.mask is not None and not list(stack.attentions()) and not isinstance(stack.mask, Causal | NoMask):
        yield Finding("SEQ232", ("mask",), "`mask` belongs to self-attention, and the stack has none")


def positions_fit(stack: Stack) -> Findings:
    """A position that acts in self-attention needs one, and a table fits an input of fixed length."""
    position = stack.position
    if position and position.acts and not any(sublayer.takes(position) for sublayer in stack.sublayers()):
        text = f"`{position.kind}` acts in self-attention, and no layer here takes it"
        yield Finding("SEQ234", ("position",), text)
    if position and stack.input.count is not None:
        yield from (f.under("position") for f in position.check_count(stack.input.count))


def blocks_are_used(stack: Stack) -> Findings:
    """A pattern uses every named block."""
    used = {name for entry in stack.layers for name in entry.named}
    for block in stack.blocks or {}:
        if block not in used:
            yield Finding("SEQ219", ("blocks", block), f"no pattern uses the block `{block}`")


def blocks_are_known(stack: Stack) -> Findings:
    """Patterns name blocks that exist."""
    for n, entry in enumerate(stack.layers):
        yield from (f.under("layers", n) for f in entry.check_named(stack.blocks or {}))


def layers_fit(stack: Stack) -> Findings:
    """Every layer is valid by itself."""
    for layer in stack.distinct():
        yield from (f.under(*layer.inside) for f in check_names(layer.block))
        if layer.bare:
            yield from (f.under(*layer.path) for f in layer.bare.check())
        for n, sublayer in enumerate(layer.block):
            if stack.d_model is not None:
                yield from (f.under(*layer.inside, n) for f in sublayer.check(stack.d_model))


def widths_agree(stack: Stack, others: Mapping[str, Facts]) -> Findings:
    """The width that reaches a block is the stack's d_model."""
    width, told = stack.entry_width, False
    given = next((key for key in ("d_model", "size") if getattr(stack.input, key, None)), None)
    at: Path = ("input", given) if given else ("input",)
    if width is None:
        yield Finding("SEQ220", (), "the width of the stack is not known", "write `d_model` on the stack or its input")
        return
    for layer in stack.flat():
        if layer.bare:
            width, at = stack.width(layer, width, others), (*layer.path, layer.bare.width_key)
        elif width != stack.d_model and not told:
            known = "the stack has none" if stack.d_model is None else f"d_model is {stack.d_model}"
            text = f"a block needs channels of the stack's d_model; {width} arrive, and {known}"
            hint = f"write `d_model: {width}` on the stack" if stack.d_model is None else "make the widths equal"
            yield Finding("SEQ204", at, text, hint)
            told = True


def states_fit(stack: Stack, others: Mapping[str, Facts]) -> Findings:
    """What bare layers read of other stacks fits them."""
    bare = [(layer.path, layer.bare) for layer in stack.flat() if layer.bare]
    total, first = sum(layer.layers.layers for _, layer in bare), 0
    for path, layer in bare:
        found = layer.check_reads(Place(layer.layers, first, total), {key: f.source for key, f in others.items()})
        first += layer.layers.layers
        yield from (f.under(*path) for f in found)


def others_are_there(stack: Stack, name: str, others: Mapping[str, Facts]) -> Findings:
    """The stacks that it reads exist and are built before it."""
    for path, part in stack.parts():
        for inner, other in part.reads():
            if other == name:
                yield Finding("SEQ221", (*path, *inner), f"`{name}` cannot read itself")
            elif other not in others:
                known = ", ".join(f"`{k}`" for k in others) or "none that is complete before this one"
                text = f"there is no stack `{other}` to read"
                yield Finding("SEQ205", (*path, *inner), text, f"stacks that can be read: {known}")


def nothing_looks_ahead(stack: Stack, name: str) -> Findings:
    """No part of a causal stack sees later positions."""
    if stack.input.at_once:
        text = f"`{stack.input.kind}` is read at once, the future included, and the {name} is causal"
        yield Finding("SEQ222", ("input",), text, "write `causal: false` on the stack if that is meant")
    for path, part in stack.parts():
        yield from (f.under(*path) for f in part.check_causal(name))
