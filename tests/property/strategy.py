"""`specs()` draws valid specs of the whole language; a failure shows one as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from hypothesis import assume
from hypothesis import strategies as st

from seqspec.build import build
from seqspec.checking import load
from seqspec.components.rules import outputs_are_read, state_is_read
from seqspec.components.stack import Facts
from seqspec.graph.ir import Graph
from seqspec.graph.signature import Signature, signature
from seqspec.spec.model import Model

from . import parts
from .parts import Plain

_HOISTED = (
    "d_model",
    "position",
    "norm",
    "norm_placement",
    "final_norm",
    "bias",
    "dropout",
    "residual_scale",
    "init_scale",
)


@dataclass(frozen=True, eq=False)
class Spec:
    """A drawn spec, as values and as the text that is compiled."""

    data: Plain

    @cached_property
    def text(self) -> str:
        return str(yaml.safe_dump(self.data, sort_keys=False, default_flow_style=None, width=110))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"\n\n{self.text}")

    @cached_property
    def model(self) -> Model:
        return load(self.text)

    @cached_property
    def graph(self) -> Graph:
        return build(self.model)

    @cached_property
    def signature(self) -> Signature:
        return signature(self.graph)

    @property
    def pooled(self) -> str | None:
        """How the head reduces time, if it does; or all of several heads."""
        pools = {head.pooled for head in self.model.heads.values()}
        how = pools.pop() if len(pools) == 1 else "none"
        return None if how == "none" else how

    @property
    def facts(self) -> Facts:
        """What the last stack is."""
        resolved = self.model.resolved()
        return resolved.facts()[resolved.last]


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """One or two stacks and a head."""
    shape = draw(st.sampled_from(["encoder", "decoder", "both"]))
    data: Plain = {"seqspec": 1, "name": draw(st.sampled_from(["m", "llama-3.2-1b", "A_b.c", "module"]))}
    if shape == "both":
        data["encoder"] = draw(stacks("encoder"))
        data["decoder"] = draw(readers(Spec(dict(data))))
    else:
        data[shape] = draw(stacks(shape))
    if "encoder" in data and "decoder" in data:
        share(draw, data)
    data |= hoisted(draw, data)
    if draw(st.integers(0, 4)) == 0:
        names = draw(st.sampled_from([["a"], ["count", "words"], ["x", "y", "A_1"]]))
        drawn = {name: draw(_head(data)) for name in names}
        outputs = {name: head for name, head in drawn.items() if head}
        return Spec(data | {"outputs": outputs} if outputs else data)
    head = draw(_head(data))
    return Spec(data if head is None else data | {"head": head})


# ---- one stack ---------------------------------------------------------------------------------------------------


@st.composite
def stacks(draw: st.DrawFn, role: str) -> Plain:
    """A stack that reads no other."""
    causal = role == "decoder"
    stack: Plain = {}
    if draw(st.integers(0, 3)) == 0:
        causal = draw(st.booleans())
        stack["causal"] = causal
    match draw(st.sampled_from(["blocks", "recurrent", "mixed"])):
        case "blocks":
            width = draw(st.integers(2, 16))
            return _fitted(stack | _outside(draw, width, causal) | draw(_block_layers(width, causal, None, repeats=2)))
        case "recurrent":
            layers, _ = draw(_recurrent_layers(not causal))
            width = draw(st.integers(1, 8))
            source = draw(_inputs(width, blocks=False, whole=not causal))
            return _fitted(stack | source | _around(draw, False) | {"layers": layers})
        case _:
            return _fitted(stack | draw(_mixed(causal)))


def _fitted(stack: Plain) -> Plain:
    """The same; an image has as many positions as it has."""
    source, position = stack["input"], stack.get("position")
    if source["kind"] == "image" and isinstance(position, dict) and position["kind"] == "learned":
        count = (source["size"] // source["patch"]) ** 2 + source.get("class_token", False)
        return stack | {"position": position | {"max_length": count}}
    return stack


@st.composite
def _mixed(draw: st.DrawFn, causal: bool) -> Plain:
    """Recurrent layers before or behind blocks."""
    layers, width = draw(_recurrent_layers(not causal))
    assume(width >= 2)
    stack = _outside(draw, width, causal)
    stack |= draw(_block_layers(width, causal, None, repeats=1))
    first = draw(st.booleans())
    return stack | {"layers": layers + stack["layers"] if first else stack["layers"] + layers}


@st.composite
def _recurrent_layers(draw: st.DrawFn, two_ways: bool) -> tuple[list[Plain], int]:
    """One or two recurrent layers and perhaps one of another sort among them, and the channels that they put out."""
    layers = [draw(parts.recurrents(draw(st.integers(1, 6)), two_ways, 2)) for _ in range(draw(st.integers(1, 2)))]
    if draw(st.integers(0, 3)) == 0:
        layers[0]["repeat"] = draw(st.integers(1, 2))
    layers = _with_another(draw, layers)
    return layers, parts.width_of(layers[-1])


def _with_another(draw: st.DrawFn, layers: list[Plain]) -> list[Plain]:
    """The same, perhaps with a linear layer or a convolution somewhere."""
    if draw(st.integers(0, 2)):
        return layers
    place = draw(st.integers(0, len(layers)))
    return [*layers[:place], draw(st.one_of(parts.convolutions, parts.linears)), *layers[place:]]


def _outside(draw: st.DrawFn, width: int, causal: bool) -> Plain:
    """Input, width and what blocks inherit, but for the layers."""
    return draw(_inputs(width, blocks=True, whole=not causal)) | _around(draw, True)


def _around(draw: st.DrawFn, blocks: bool) -> Plain:
    """What a stack says for its layers. Keys that no layer would read are errors."""
    optional: Plain = {"dropout": parts.dropouts, "final_norm": st.one_of(st.booleans(), parts.norms)}
    if blocks:
        norms = {"norm": parts.norms, "norm_placement": st.sampled_from(["pre", "post", "sandwich"])}
        optional |= draw(st.sampled_from([norms, norms, norms, {"norm_placement": st.just("none")}]))
        optional |= {"bias": st.booleans()}
        optional |= {"residual_scale": st.sampled_from([0.5, 1.0, 1.7]), "init_scale": st.sampled_from([0.3, 2.0])}
    else:
        optional |= {"position": parts.added_positions, "bias": st.booleans()}
    return draw(st.fixed_dictionaries({}, optional=optional))


@st.composite
def _inputs(draw: st.DrawFn, width: int, blocks: bool, whole: bool = False) -> Plain:
    """`input`, and `d_model` where it is said there. A table of another width gets a linear map.

    `whole`: it may be one that is read at once.
    """
    if whole and draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            return {"input": draw(parts.images), "d_model": width}
        return {"input": draw(parts.sounds(width))} | ({"d_model": width} if blocks and draw(st.booleans()) else {})
    if draw(st.integers(0, 2)) == 0:
        source = draw(parts._kind("features", {"norm": parts.norms}, size=st.integers(1, 5)))
        if blocks or draw(st.booleans()):
            return _widths(draw, source, width, st.just(width))
        return {"input": source}
    optional: Plain = {
        "pad_id": st.integers(0, 3),
        "scale": st.sampled_from(["none", "sqrt_d_model"]),
        "token_types": st.integers(1, 3),
        "norm": parts.norms,
    }
    source = draw(parts._kind("tokens", optional, vocab_size=st.integers(4, 30)))
    return _widths(draw, source, width, st.integers(1, 16))


def _widths(draw: st.DrawFn, source: Plain, width: int, others: st.SearchStrategy[int]) -> Plain:
    match draw(st.sampled_from(["stack", "input", "both", "two"])):
        case "stack":
            return {"input": source, "d_model": width}
        case "input":
            return {"input": source | {"d_model": width}}
        case "both":
            return {"input": source | {"d_model": width}, "d_model": width}
        case _:
            return {"input": source | {"d_model": draw(others)}, "d_model": width}


@st.composite
def _block_layers(draw: st.DrawFn, width: int, causal: bool, source: str | None, repeats: int) -> Plain:
    """`position`, `mask`, `blocks` and `layers`. Where a `source` is named, some block reads it."""
    position = draw(st.one_of(parts.added_positions, parts.ropes, parts.score_biases))
    acting = position not in ("none", "sinusoidal") and not _is_added(position)
    stack: Plain = {} if position == "none" and draw(st.booleans()) else {"position": position}
    repeat = st.fixed_dictionaries({}, optional={"repeat": st.integers(1, repeats)})
    if draw(st.integers(0, 2)):
        found = draw(parts.blocks(width, causal, position, acting, source))
        stack["layers"] = [draw(repeat) | {"block": found}]
        written = [found]
    else:
        named = dict(zip(["local", "global"], (None, source), strict=True))
        stack["blocks"] = {
            name: draw(parts.blocks(width, causal, position, acting and name == "local", reads))
            for name, reads in named.items()
        }
        stack["layers"] = [draw(repeat) | {"pattern": draw(st.permutations(["local", "global"]))}]
        written = list(stack["blocks"].values())
    if "'kind': 'attention'" in str(written) and draw(st.booleans()):
        stack["mask"] = draw(parts.causal_masks if causal else parts.open_masks)
    return stack


def _is_added(position: Any) -> bool:
    """Whether a position goes into the embedding, and not into attention."""
    return isinstance(position, dict) and position["kind"] in ("sinusoidal", "learned")


# ---- a decoder that reads an encoder -----------------------------------------------------------------------------


@st.composite
def readers(draw: st.DrawFn, encoder: Spec) -> Plain:
    """A decoder with cross-attention, or with recurrent layers that start from the encoder or attend to it."""
    if draw(st.booleans()):
        width = draw(st.integers(2, 16))
        return _outside(draw, width, True) | draw(_block_layers(width, True, "encoder", repeats=2))
    stack = draw(_inputs(draw(st.integers(1, 8)), blocks=False)) | _around(draw, False)
    return stack | {"layers": draw(_reading_layers(encoder))}


@st.composite
def _reading_layers(draw: st.DrawFn, spec: Spec) -> list[Plain]:
    """Recurrent layers, every one of which may have a bridge; one layer may attend. Some of them reads the encoder."""
    encoder, hidden = spec.facts, draw(st.integers(1, 6))
    layers = [draw(parts.recurrents(hidden, False, 2)) for _ in range(draw(st.integers(1, 2)))]
    total = sum(layer.get("num_layers", 1) for layer in layers)
    attending = draw(st.booleans())
    if attending:
        total -= layers[-1].pop("num_layers", 1) - 1
        layers[-1].pop("dropout", None)
    # an encoder whose last layers only its outputs would show must have these read
    read = attending or not list(outputs_are_read(spec.model.resolved().stacks["encoder"]))
    for n, layer in enumerate(layers):
        if (n == 0 and not attending) or draw(st.booleans()):
            layer["initial_state"] = draw(_bridges(encoder, layers, n, total, whole=n == 0 and not read))
    if attending:
        layers[-1]["attend"] = draw(parts.attends(parts.width_of(layers[-1]), encoder.width))
    return _with_another(draw, layers)


@st.composite
def _bridges(draw: st.DrawFn, encoder: Facts, layers: list[Plain], number: int, total: int, *, whole: bool) -> Plain:
    """A bridge for one entry of `layers`, which hold `total` single layers. A copy sets the entry's width.

    `whole`: it must read the encoder's outputs.
    """
    own, flat = layers[number], encoder.source.flat()
    bridge: Plain = {"kind": "bridge", "from": "encoder"}
    if whole or not flat or draw(st.integers(0, 3)) == 0:
        bridge["state"] = "mean"
        widths = {encoder.source.width}
    else:
        if len(flat) != total or draw(st.booleans()):
            bridge["layer"] = "last"
        direction = "both"
        if all(entry.directions == 2 for entry in encoder.source.entries):
            direction = draw(st.sampled_from(["both", "forward", "backward"]))
            bridge["direction"] = direction
        first = sum(layer.get("num_layers", 1) for layer in layers[:number])
        several = flat[first : first + own.get("num_layers", 1)]
        picked = flat[-1:] if bridge.get("layer") == "last" else several
        entries = [encoder.source.entries[entry] for entry, _ in picked]
        widths = {entry.width(direction, part) for entry in entries for part in range(len(entry.widths))}
    maps = ["linear", "linear_tanh"]
    if len(widths) == 1 and min(widths) <= 16 and "projection_size" not in own:
        maps.append("copy")
    bridge["map"] = draw(st.sampled_from(maps))
    if bridge["map"] == "copy":
        own["hidden_size"] = min(widths)
    return bridge


# ---- around the stacks -------------------------------------------------------------------------------------------


def share(draw: st.DrawFn, data: Plain) -> None:
    """Lets one stack read the other's tables, where both read tokens."""
    one, other = draw(st.sampled_from([("encoder", "decoder"), ("encoder", "decoder"), ("decoder", "encoder")]))
    owner, reader = data[one]["input"], data[other]["input"]
    if owner["kind"] == reader["kind"] == "tokens" and draw(st.booleans()):
        kept = {k: v for k, v in reader.items() if k not in ("vocab_size", "d_model", "token_types")}
        if kept.get("pad_id", 0) >= owner["vocab_size"]:
            kept.pop("pad_id")
        if "d_model" not in data[other] and "d_model" in reader:
            data[other]["d_model"] = reader["d_model"]  # the layers were drawn for this width
        data[other]["input"] = kept | {"share": f"{one}.input"}
        if _width(data[one]) != _width(data[other]):
            owner.pop("token_types", None)  # a table of the owner's width cannot be added to another


def _width(stack: Plain) -> Any:
    return stack.get("d_model", stack["input"].get("d_model"))


def hoisted(draw: st.DrawFn, data: Plain) -> Plain:
    """`defaults` with some of what every stack says alike, taken out of the stacks."""
    found = [data[name] for name in ("encoder", "decoder") if name in data]
    defaults: Plain = {}
    for key in _HOISTED:
        if all(key in stack and stack[key] == found[0][key] for stack in found) and draw(st.booleans()):
            defaults[key] = found[0][key]
            for stack in found:
                del stack[key]
    return {"defaults": defaults} if defaults else {}


@st.composite
def _head(draw: st.DrawFn, data: Mapping[str, Any]) -> Plain | None:
    spec = Spec(dict(data))
    model = spec.model.resolved()
    table = model.table(model.last)
    tieable = table is not None and table.d_model == spec.facts.width
    final_state = spec.facts.last_recurrent and not list(state_is_read(model.stacks[model.last]))
    return draw(parts.heads(final_state, table is not None, tieable, model.last == "encoder"))
