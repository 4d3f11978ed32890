"""Recovers the parameters of a spec from the tensors of an ONNX folder.

A file stores some parameters unchanged and others derived: transposed, with reordered gates, stacked or summed. Every
derivation is a sum of signed elements. Running it on the indices of elements instead of their values tells which ones.
If a file stores only a sum, one summand is set to the whole of it, which computes the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from seqspec.backends.onnx import export
from seqspec.diagnostics import RuntimeFault
from seqspec.graph.ir import Graph, Param
from seqspec.ops.quantized import restored, unpacked
from seqspec.passes.quantize import BITS
from seqspec.runtime.manifest import Manifest
from seqspec.runtime.state import Array

_DIGIT = 1 << 22  # counts this far are exact in float32


@dataclass(frozen=True)
class Stored:
    """A tensor of a file, and the parameters it is derived from. `lazy` derives it anew from the probe's arrays."""

    name: str
    array: Array
    lazy: Derivation
    sources: tuple[str, ...]


def recover(manifest: Manifest, graph: Graph, wanted: Collection[str] | None = None) -> dict[str, Array]:
    """{parameter: values} in float32, of all parameters or the wanted ones; SEQ507 if a tensor contradicts the spec."""
    params = {p.name: p for p in graph.root.params}
    names = params.keys() if wanted is None else wanted
    probe = _Probe(params)
    tensors = [s for s in stored(manifest, graph, probe) if not set(s.sources).isdisjoint(names)]
    values = {name: np.full(_shape(params[name]), np.nan, np.float32) for s in tensors for name in s.sources}
    for tensor in filter(_is_parameter, tensors):
        values[tensor.name] = tensor.array.astype(np.float32)
    derived = [s for s in tensors if not _is_parameter(s)]
    maps = [(s, {name: _places(s, name, probe) for name in s.sources}) for s in derived]
    for tensor, places in maps:
        _settle(tensor, places, values, shared=False)
    for tensor, places in maps:
        _settle(tensor, places, values, shared=True)
    # a parameter that no file stores is never read
    found = {name: np.nan_to_num(values.get(name, np.zeros(_shape(params[name]), np.float32))) for name in names}
    probe.arrays = found
    for tensor in derived:
        if set(tensor.sources) <= found.keys() and not _equal(tensor.lazy.numpy(), tensor.array):
            text = f"the tensor `{tensor.name}` is not what the spec beside it says"
            raise RuntimeFault("SEQ507", text, file=str(manifest.folder))
    return found


def stored(manifest: Manifest, graph: Graph, weights: Mapping[str, Any]) -> Iterator[Stored]:
    """The tensors of all files, each once, with their derivation from `weights`; SEQ507 if one is missing."""
    seen: set[int] = set()
    probe = weights if isinstance(weights, _Probe) else None
    fresh = export(graph, weights, kept="float32" if probe else None, **manifest.options)
    for role, file in manifest.graphs.items():
        written = _initializers(file)
        for name, value in fresh[role].graph.initializers.items():
            lazy = value.const_value
            if not isinstance(lazy, ir.LazyTensor) or id(lazy) in seen:
                continue
            seen.add(id(lazy))
            held = written[name].const_value if name in written else None
            if held is None or tuple(held.shape) != tuple(lazy.shape):
                raise RuntimeFault("SEQ507", f"{file.name} has no tensor `{name}` that fits its spec", file=str(file))
            sources = probe.read_by(lazy) if probe else ()
            if probe is None or not manifest.quantized:
                yield Stored(str(name), held.numpy(), lazy, sources)
                written[name].const_value = None  # it maps the whole file
            elif f"{name}.scales" in written:
                joined = _Joined(probe, sources)
                scales = written[f"{name}.scales"].const_value
                # a tied table is stored unquantized as well
                if scales is not None and not set(sources) <= written.keys():
                    array = _restored(held.numpy(), scales.numpy(), manifest, joined.numpy().shape[1])
                    yield Stored(str(name), array, joined, sources)
            elif str(name).removesuffix(".scales") not in written or not str(name).endswith(".scales"):
                yield Stored(str(name), held.numpy(), lazy, sources)


def _initializers(file: Path) -> Mapping[str, ir.Value]:
    """The initializers of a file. A link to its weights, as in caches and sandboxes, is followed, for hashes are of its
    target."""
    found = ir.load(file).graph.initializers
    for value in found.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            real = Path(tensor.path).resolve()
            value.const_value = ir.ExternalTensor(
                real.name, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=str(value.name),
                base_dir=real.parent,
            )  # fmt: skip
    return found


def _restored(stored: Array, scales: Array, manifest: Manifest, inputs: int) -> Array:
    """weight[O, I], dequantized from the tensors of a quantized file."""
    bits = BITS[manifest.options["quantize"]]
    array: Array = restored(np, unpacked(np, stored, bits), scales.astype(np.float32), bits, inputs)
    return array


class Derivation(Protocol):
    """How a tensor of a file is computed from parameters; every call evaluates it anew."""

    def numpy(self) -> Any: ...


class _Probe(Mapping[str, Array]):
    """Gives zeros, or `arrays`, under the names of parameters, and records which were read."""

    def __init__(self, params: Mapping[str, Param]) -> None:
        self.params, self.arrays = params, dict[str, Array]()
        self.read: list[str] = []

    def __getitem__(self, name: str) -> Array:
        self.read.append(name)
        if name in self.arrays:
            return self.arrays[name]
        return np.broadcast_to(np.float32(0), _shape(self.params[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)

    def read_by(self, lazy: ir.LazyTensor) -> tuple[str, ...]:
        self.read.clear()
        lazy.numpy()
        return tuple(dict.fromkeys(self.read))


def _is_parameter(tensor: Stored) -> bool:
    """Whether the tensor is an unchanged parameter; derived tensors have names of their own."""
    return tensor.sources == (tensor.name,)


@dataclass(frozen=True)
class _Joined:
    """Several weights, concatenated along their rows."""

    probe: _Probe
    sources: tuple[str, ...]

    def numpy(self) -> Array:
        return np.concatenate([self.probe[name] for name in self.sources])


def _places(tensor: Stored, name: str, probe: _Probe) -> tuple[Array, Array]:
    """For every element of the tensor, the sign (0 if none) and the index of the parameter's element in its sum."""
    shape = probe[name].shape
    count = int(np.prod(shape))

    def derived(numbers: Array) -> Array:
        probe.arrays = {name: numbers.astype(np.float32).reshape(shape)}
        return np.asarray(tensor.lazy.numpy()).reshape(-1)

    sign = derived(np.ones(count)).astype(np.int8)
    numbers = np.arange(count)
    index = np.abs(derived(numbers % _DIGIT)).astype(np.int64)
    if count > _DIGIT:
        index += np.abs(derived(numbers // _DIGIT)).astype(np.int64) * _DIGIT
    probe.arrays = {}
    return sign, index


def _settle(
    tensor: Stored, places: Mapping[str, tuple[Array, Array]], values: Mapping[str, Array], *, shared: bool
) -> None:
    """Sets elements of parameters that are alone in a tensor's element; if `shared`, the first unknown of each sum."""
    rest = tensor.array.reshape(-1).astype(np.float32)
    entering = sum((sign != 0).astype(np.int8) for sign, _ in places.values())
    at = (entering > 1) if shared else (entering == 1)
    if shared and at.any():
        for name, (sign, index) in places.items():
            known = np.nan_to_num(values[name].reshape(-1)[index])
            rest -= np.where(at & (sign != 0), sign * known, 0)
    for name, (sign, index) in places.items():
        flat = values[name].reshape(-1)
        here = np.flatnonzero(at & (sign != 0))
        here = here[np.isnan(flat[index[here]])]
        flat[index[here]] = sign[here] * rest[here]
        rest[here] = 0


def _shape(param: Param) -> tuple[int, ...]:
    return tuple(int(size) for size in param.shape)  # type: ignore[arg-type]


def _equal(derived: Any, array: Array) -> bool:
    a, b = np.asarray(derived, np.float32), array.astype(np.float32)
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-7 * float(np.abs(b).max(initial=0.0))))
