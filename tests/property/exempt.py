"""Exemptions of some specs from a property, each with its reason. At most five."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seqspec.components.cross_attention import CrossAttention
from seqspec.graph.ir import Region
from seqspec.ops.norm import LayerNorm, OffsetRMSNorm, RMSNorm
from seqspec.ops.normalize import Normalize

from .reach import SCORES, idle
from .strategy import Spec


@dataclass(frozen=True)
class Exemption:
    """Weights of some specs that are exempt from `every weight learns`."""

    reason: str
    applies: Callable[[Spec, str], bool]


def no_gradient(spec: Spec, weight: str) -> str | None:
    """The reason why a weight's gradient may be zero for every batch, or None."""
    return next((row.reason for row in EXEMPT if row.applies(spec, weight)), None)


def _single_channel(spec: Spec, weight: str) -> bool:
    attention, _, rest = weight.rpartition(".")[0].rpartition(".")
    heads = {p.name: p.shape for p in spec.graph.root.params}.get(f"{attention}.q_norm.weight")
    if heads == (1,) and rest in SCORES:
        return True
    return any(_normalises_one(region) for region in spec.graph.regions())


def _normalises_one(region: Region) -> bool:
    for item in region.items:
        op = getattr(item, "op", None)
        if getattr(item, "name", "") in ("q_norm", "k_norm"):
            continue
        if isinstance(op, LayerNorm | RMSNorm | OffsetRMSNorm | Normalize) and item.outputs[0].shape[-1] == 1:
            return True
    return False


def _key_bias(spec: Spec, weight: str) -> bool:
    return weight.endswith(("k_proj.bias", "k_norm.bias"))


def _not_reached(spec: Spec, weight: str) -> bool:
    resolved = spec.model.resolved()
    stacks = ((n, s, spec.pooled if n == resolved.last else None) for n, s in resolved.stacks.items())
    return any(row.covers(weight) for name, stack, pooled in stacks for row in idle(name, stack, pooled))


def _partly_read(spec: Spec, weight: str) -> bool:
    """Whether the decoder reads final states of the encoder and nothing else, and not all of them."""
    model = spec.model.resolved()
    if not (model.encoder and model.decoder and weight.startswith("encoder.")):
        return False
    layers = [layer.recurrent for layer in model.decoder.flat() if layer.recurrent]
    bridges = [layer.bridge for layer in layers]
    whole = any(isinstance(s, CrossAttention) for layer in model.decoder.flat() for s in layer.sublayers)
    whole = whole or any(layer.attend for layer in layers) or any(b and b.state == "mean" for b in bridges)
    narrow = any(b and b.direction != "both" for b in bridges) or not all(bridges)
    narrow = narrow or weight.startswith("encoder.final_norm") or not list(model.encoder.flat())[-1].recurrent
    return not whole and narrow


EXEMPT = (
    Exemption("normalised over one channel, anything is constant", _single_channel),
    Exemption("a key's bias adds the same to every score of a query, unless it is turned", _key_bias),
    Exemption("from the positions that are read it cannot be reached", _not_reached),
    Exemption("final states are read in part: of some layers, or of one direction", _partly_read),
)
