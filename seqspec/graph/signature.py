"""The signature: a compiled model's inputs, outputs and states, by their public names. The manifest is its JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from seqspec.graph.dims import ENCODER_TIME, PAST, Shape, names, parse
from seqspec.graph.ir import Graph, State, Value
from seqspec.graph.types import DType


@dataclass(frozen=True)
class Port:
    """A named input or output. `once`: read on the first call only. `optional`: may be left out, or be None.

    `starts` names the past state that the files take in its place on the first call, such as `past_state.0.lstm.h`.
    """

    name: str
    shape: Shape
    dtype: DType
    optional: bool = False
    once: bool = False
    starts: str = ""

    @property
    def python(self) -> str:
        """The name as a Python argument or attribute: `attentions_3` for `attentions.3`."""
        return python_name(self.name)

    @cached_property
    def looks_back(self) -> bool:
        """Whether its second axis, that of time, covers the past too."""
        return len(self.shape) > 1 and PAST in names(self.shape[1])

    @property
    def timed(self) -> bool:
        """Whether an input has a value for every position, unlike an image, an initial state or a number per row."""
        return any(names(size) for size in self.shape[1:])

    @property
    def time_axis(self) -> int:
        """The axis of time of a timed input: the first after the batch whose size is not fixed."""
        return next(axis for axis, size in enumerate(self.shape) if axis and not isinstance(size, int))

    @property
    def is_sound(self) -> bool:
        """Whether an input is frames of sound, [B, C, T], whose positions stand in front of all padding."""
        return self.dtype == "float" and self.timed and self.time_axis > 1

    @property
    def of_pairs(self) -> bool:
        """Whether an input has a value for each query and each key, those of the past included."""
        return any(PAST in names(size) for size in self.shape[2:])

    @property
    def of_encoder(self) -> bool:
        """Whether the encoder before a decoder reads it: its length is its own, and only the first call takes it."""
        return self.once or any(ENCODER_TIME in names(size) for size in self.shape)


def python_name(name: str) -> str:
    """A public name as a Python identifier: dots become underscores."""
    return name.replace(".", "_")


@dataclass(frozen=True)
class Carried:
    """A state: `past` goes in, `present` comes out. A held one comes out of the first call only, and goes in after.

    `path` is its full name in the graph, empty in a signature read from a manifest.
    """

    path: str
    past: str
    present: str
    shape: Shape
    dtype: DType
    held: bool


@dataclass(frozen=True)
class Signature:
    """The inputs, outputs and states of a model, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Carried, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON, with sizes as text."""
        return {
            "inputs": [_port(p) for p in self.inputs],
            "outputs": [_port(p) for p in self.outputs],
            "states": [_state(s) for s in self.states],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        """The inverse of `to_json`, except that states have no paths."""
        inputs, outputs = (tuple(_read_port(p) for p in data[key]) for key in ("inputs", "outputs"))
        return cls(inputs, outputs, tuple(_read_state(s) for s in data["states"]))


def signature(graph: Graph) -> Signature:
    """The signature of a whole model."""
    root = graph.root
    inputs = tuple(Port(v.name, v.shape, v.dtype, v.optional, v.name in graph.once) for v in root.inputs)
    outputs = tuple(Port(output_name(v), v.shape, v.dtype, v.optional) for v in root.outputs)
    return Signature(inputs, outputs, carried(root.states))


def output_name(value: Value) -> str:
    """The public name of an output: its hint, else its name."""
    return value.hint or value.name


def starting(model: Signature, files: Signature) -> Iterator[Port]:
    """The inputs of a model that its files take as the past state of the first call."""
    taken = {port.name for port in files.inputs}
    for port in model.inputs:
        _, given, place = port.name.partition("initial_state.")
        if given and port.name not in taken:
            layer, leaf = place.split(".")
            pasts = [s.past for s in files.states if not s.held and s.past.startswith(f"past_state.{layer}.")]
            yield replace(port, starts=next(past for past in pasts if past.endswith(f".{leaf}")))


def carried(states: tuple[State, ...]) -> tuple[Carried, ...]:
    """Public names for states, which come with their full paths.

    Keys and values of layer N are `past_key_values.N.key` and `.value`. Before the last part stands `decoder.` or
    `encoder.` if the layer also attends to an encoder, and the sublayer's name if the layer has several caches of one
    sort. Any other state of a layer is `past_state.N.<sublayer>.<name>`; outside of layers it is `past_state.<name>`.
    """
    crossed = {_layer(s.name) for s in states if s.cache and s.held}
    sorts = Counter((_layer(s.name), s.held, s.name.rsplit(".", 1)[-1]) for s in states if s.cache)
    return tuple(_carried(s, _layer(s.name) in crossed, sorts) for s in states)


def _carried(state: State, crossed: bool, sorts: Counter[tuple[str, bool, str]]) -> Carried:
    layer, leaf = _layer(state.name), state.name.rsplit(".", 1)[-1]
    if state.cache:
        side = ("encoder." if state.held else "decoder.") if crossed else ""
        if sorts[layer, state.held, leaf] > 1:
            side += state.name.split(".")[-2] + "."
        past, present = f"past_key_values.{layer}.{side}{leaf}", f"present.{layer}.{side}{leaf}"
    elif layer:
        rest = state.name.split(f"layers.{layer}.", 1)[1]
        past, present = f"past_state.{layer}.{rest}", f"present_state.{layer}.{rest}"
    elif state.held:
        past = present = leaf
    else:
        past, present = f"past_state.{leaf}", f"present_state.{leaf}"
    return Carried(state.name, past, present, state.shape, state.dtype, state.held)


def _layer(path: str) -> str:
    """The layer index in a path, or an empty string."""
    parts = path.split(".")
    return parts[parts.index("layers") + 1] if "layers" in parts else ""


def _port(port: Port) -> dict[str, Any]:
    data: dict[str, Any] = {"name": port.name, "shape": list(map(str, port.shape)), "dtype": port.dtype}
    data |= ({"optional": True} if port.optional else {}) | ({"once": True} if port.once else {})
    return data | ({"starts": port.starts} if port.starts else {})


def _state(state: Carried) -> dict[str, Any]:
    shape = list(map(str, state.shape))
    return {"past": state.past, "present": state.present, "shape": shape, "dtype": state.dtype, "held": state.held}


def _read_port(data: Mapping[str, Any]) -> Port:
    optional, once = bool(data.get("optional")), bool(data.get("once"))
    return Port(data["name"], tuple(map(parse, data["shape"])), data["dtype"], optional, once, data.get("starts", ""))


def _read_state(data: Mapping[str, Any]) -> Carried:
    shape = tuple(map(parse, data["shape"]))
    return Carried("", data["past"], data["present"], shape, data["dtype"], data["held"])
