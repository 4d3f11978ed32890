"""What a property does not ask of some specs, each with its reason. At most five."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seqspec.components.attention import SelfAttention
from seqspec.components.biases import RelativeBias
from seqspec.components.cross_attention import CrossAttention
from seqspec.components.efficient import LowRankAttention
from seqspec.components.sublayers import Sublayer
from seqspec.graph.ir import Region
from seqspec.ops.norm import LayerNorm, OffsetRMSNorm, RMSNorm
from seqspec.ops.normalize import Normalize
from seqspec.ops.pairs import seen

from .strategy import Spec

MIXING = ("embed_relative", "weight_hh", "q_proj", "k_proj", "query_proj", "key_proj", "score_proj")


@dataclass(frozen=True)
class Exemption:
    """Weights of some specs that `every weight learns` says nothing of."""

    reason: str
    applies: Callable[[Spec, str], bool]


def no_gradient(spec: Spec, weight: str) -> str | None:
    """Why a weight's gradient may be zero for every batch, or None."""
    return next((row.reason for row in EXEMPT if row.applies(spec, weight)), None)


def _single_channel(spec: Spec, weight: str) -> bool:
    return any(_normalises_one(region) for region in spec.graph.regions())


def _normalises_one(region: Region) -> bool:
    for item in region.items:
        op = getattr(item, "op", None)
        if isinstance(op, LayerNorm | RMSNorm | OffsetRMSNorm | Normalize) and item.outputs[0].shape[-1] == 1:
            return True
    return False


def _key_bias(spec: Spec, weight: str) -> bool:
    return weight.endswith("k_proj.bias")


def _first_only(spec: Spec, weight: str) -> bool:
    if spec.pooled in ("first", "last") and any(part in weight for part in ("patch_embedding", "class_token")):
        return True  # without attention one of an image's vectors is read
    return spec.pooled == "first" and any(part in weight for part in MIXING)


def _sees_one(spec: Spec, weight: str) -> bool:
    """Whether every query of the attention that a weight is of sees one key at most, or none."""
    scoring = any(part in weight for part in ("q_proj", "k_proj", "e_proj", "embed_relative"))
    tables: list[int] = []
    first = spec.pooled == "first" and spec.facts.causal  # then the others are not read
    for stack in spec.model.resolved().stacks.values():
        for layer in stack.distinct():
            for sublayer in layer.sublayers:
                most = _most_seen(sublayer, slice(1) if first else slice(6))
                if isinstance(sublayer, SelfAttention) and isinstance(sublayer.position, RelativeBias):
                    tables.append(_most_seen(sublayer, slice(-1, None)) if spec.pooled == "last" else most)
                own = f".{sublayer.name}." in weight or f"{sublayer.name}_norm." in weight
                if own and (most == 0 or (most == 1 and scoring)):
                    return True
    return "embed_relative" in weight and min(tables, default=2) <= 1


def _most_seen(sublayer: Sublayer, queries: slice) -> int:
    """Keys that one of these queries sees among six tokens, nothing being given."""
    if isinstance(sublayer, SelfAttention):
        counts = [sum(stop - start for start, stop in seen(sublayer.allowed, query, 6)) for query in range(6)]
        return max(counts[queries])
    return sublayer.projected_length if isinstance(sublayer, LowRankAttention) else 6


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
    Exemption("the first token, looking back, sees only itself", _first_only),
    Exemption("over a single key the weight is 1, whatever the score, and over none nothing comes out", _sees_one),
    Exemption("final states are read in part: of some layers, or of one direction", _partly_read),
)
