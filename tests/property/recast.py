"""Specs derived from drawn ones, so that a property that few drawn specs have is tested on most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqspec.spec.dump import plain as values

from .parts import Plain, width_of
from .strategy import Spec

Change = Callable[[Plain], Plain]
_ORDERED = ("lstm", "gru", "rnn", "conv")
_BARE = ("repeat", "name")  # what these and a linear layer both say
_PROJECTED = ("name", "heads", "kv_heads", "head_dim", "value_dim", "bias", "init_scale", "residual")


def changed(value: Any, change: Change) -> Any:
    """The values with every mapping changed, the inner ones first."""
    if isinstance(value, dict):
        return change({key: changed(inner, change) for key, inner in value.items()})
    return [changed(inner, change) for inner in value] if isinstance(value, list) else value


def without_dropout(spec: Spec) -> Spec:
    """The spec with all dropout rates 0."""
    return Spec(changed(spec.data, lambda plain: {k: v for k, v in plain.items() if k != "dropout"}))


def without_order(spec: Spec) -> Spec:
    """The spec without positions, windows, recurrence and convolutions; a mask is given for each pair, or `none`."""
    return Spec(changed(values(spec.model.resolved()), _unordered))


def of_documents(spec: Spec) -> Spec:
    """Every self-attention of the last stack under a mask that has `documents`, and nothing else that looks around."""
    model = spec.model.resolved()
    data, last = values(model), model.last
    heads = {key: changed(data[key], _unpooled) for key in ("head", "outputs") if key in data}
    return Spec(data | {last: changed(data[last], _documented)} | heads)


def _unordered(plain: Plain) -> Plain:
    found = _unlike(plain, ("window", "qk_norm_place", "max_length", "projected_length"))
    if plain.get("pool", "none") != "none":
        found["pool"] = "max" if plain["pool"] == "max" else "mean"
    match plain.get("kind"):
        case "bridge":
            found = _unlike(found, ("layer", "direction")) | {"state": "mean", "map": "linear"}
        case "attention":
            found["mask"] = next(iter(_given(plain["mask"])), "none")
        case "low_rank_attention":
            found["kind"] = "attention"
    return _unrolled(found | {key: value for key, value in (("position", "none"), ("causal", False)) if key in plain})


def _documented(plain: Plain) -> Plain:
    found = dict(plain)
    match plain.get("kind"):
        case "attention":
            found["mask"] = {"all": [_unprefixed(plain["mask"]), "documents"]}
        case "linear_attention" | "low_rank_attention":
            seen = "causal" if plain.get("causal") else "none"
            found = {key: plain[key] for key in _PROJECTED} | {"position": "none", "mask": {"all": [seen, "documents"]}}
            found["kind"] = "attention"
    if isinstance(plain.get("scaling"), dict) and plain["scaling"]["kind"] in ("dynamic", "longrope"):
        del found["scaling"]  # which go by the longest row of a call
    return _unrolled(found)


def _unpooled(plain: Plain) -> Plain:
    return plain | ({"pool": "none"} if "pool" in plain else {})


def _unrolled(plain: Plain) -> Plain:
    """A linear layer instead of a convolution, or of a recurrent layer that reads no other stack."""
    state = plain.get("initial_state")
    reads = "attend" in plain or (isinstance(state, dict) and state["kind"] == "bridge")
    if plain.get("kind") not in _ORDERED or reads:
        return plain
    return {key: plain[key] for key in _BARE} | {"kind": "linear", "size": width_of(plain)}


def _unprefixed(mask: Any) -> Any:
    """Without a prefix, which is one of the row."""
    if isinstance(mask, dict):
        return {key: [_unprefixed(part) for part in v] if isinstance(v, list) else v for key, v in mask.items()}
    return "causal" if mask == "prefix" else mask


def _given(mask: Any) -> list[Plain]:
    """The atoms of a mask that name an input."""
    if not isinstance(mask, dict):
        return []
    inner = [part for key in ("all", "any") for part in mask.get(key, ())]
    return [mask] if mask.get("kind") == "given" else [atom for part in inner for atom in _given(part)]


def _unlike(plain: Plain, keys: tuple[str, ...]) -> Plain:
    return {key: value for key, value in plain.items() if key not in keys}
