"""Examples that bear a model's name are that model: transformers' own, shrunk alike, with the same weights."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import seqspec

ROOT = Path(__file__).parents[2]
SHRINK = runpy.run_path(str(ROOT / "tests" / "models" / "shrink.py"))["shrink"]
Split = Callable[[str, Tensor, "Sizes"], Iterator[tuple[str, Tensor]]]


@dataclass(frozen=True)
class Sizes:
    """What is read of a small spec, so that a configuration can say the same."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocabulary: int
    position: dict[str, Any]

    @classmethod
    def of(cls, model: seqspec.Model) -> Sizes:
        stack = next(iter(model.resolved().stacks.values()))
        layers = list(stack.flat())
        parts = {part.kind: part for part in layers[0].sublayers}
        attention, ffn = parts["attention"], parts["ffn"]
        position = stack.position.model_dump(exclude_none=True) if stack.position else {}
        return cls(
            stack.d_model, len(layers), attention.heads, attention.kv_heads, attention.head_dim, ffn.d_ff,
            stack.input.vocab_size, position,
        )  # fmt: skip

    @property
    def common(self) -> dict[str, Any]:
        """Under the names that most configurations share."""
        return {
            "vocab_size": self.vocabulary, "hidden_size": self.width, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
            "attn_implementation": "eager",
        }  # fmt: skip

    @property
    def grouped(self) -> dict[str, Any]:
        more = {"num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "intermediate_size": self.d_ff}
        return self.common | more

    def rope(self, **more: Any) -> dict[str, Any]:
        return {"rope_parameters": {"rope_theta": self.position["theta"], "rope_type": "default"} | more}


# ---- models of transformers, and what their weights are called here --------------------------------------------------

LLAMA = (
    (r"^model\.embed_tokens", "decoder.embed_tokens"),
    (r"^model\.layers", "decoder.layers"),
    (r"^model\.(final_layernorm|norm)", "decoder.final_norm"),
    (r"self_attn\.([qk]_norm)", r"attention.\1"),
    (r"self_attn\.dense", "attention.o_proj"),
    (r"self_attn\.", "attention."),
    (r"mlp\.fc1", "ffn.up_proj"),
    (r"mlp\.fc2", "ffn.down_proj"),
    (r"mlp\.", "ffn."),
    (r"^lm_head", "head"),
)
PRE = ((r"\.input_layernorm", ".attention_norm"), (r"\.post_attention_layernorm", ".ffn_norm"))
GEMMA = (
    (r"\.input_layernorm", ".attention_norm"),
    (r"\.post_attention_layernorm", ".post_attention_norm"),
    (r"\.pre_feedforward_layernorm", ".ffn_norm"),
    (r"\.post_feedforward_layernorm", ".post_ffn_norm"),
)
PHI = ((r"\.input_layernorm", ".parallel_norm"), (r"\.(attention|ffn)\.", r".parallel.\1."))
BLOOM = (
    (r"^transformer\.word_embeddings_layernorm", "decoder.embed_norm"),
    (r"^transformer\.word_embeddings", "decoder.embed_tokens"),
    (r"^transformer\.h\.", "decoder.layers."),
    (r"^transformer\.ln_f", "decoder.final_norm"),
    (r"self_attention\.dense", "attention.o_proj"),
    (r"self_attention\.", "attention."),
    (r"mlp\.dense_h_to_4h", "ffn.up_proj"),
    (r"mlp\.dense_4h_to_h", "ffn.down_proj"),
)


def whole(name: str, weight: Tensor, sizes: Sizes) -> Iterator[tuple[str, Tensor]]:
    yield name, weight


def in_rows(name: str, weight: Tensor, sizes: Sizes) -> Iterator[tuple[str, Tensor]]:
    """Queries, then keys, then values; a feed-forward's gate before its way up."""
    counts = (sizes.heads, sizes.kv_heads, sizes.kv_heads)
    for fused in ("qkv_proj", "query_key_value"):
        if fused in name:
            parts = weight.split([count * sizes.head_dim for count in counts])
            yield from ((name.replace(fused, f"{letter}_proj"), p) for letter, p in zip("qkv", parts, strict=True))
            return
    if "gate_up_proj" in name:
        yield from ((name.replace("gate_up", part), p) for part, p in zip(("gate", "up"), weight.chunk(2), strict=True))
        return
    yield name, weight


def by_heads(name: str, weight: Tensor, sizes: Sizes) -> Iterator[tuple[str, Tensor]]:
    """Head by head, each with its query, key and value."""
    if "query_key_value" not in name:
        yield name, weight
        return
    parts = weight.unflatten(0, (sizes.heads, 3, sizes.head_dim)).unbind(1)
    for letter, part in zip("qkv", parts, strict=True):
        yield name.replace("query_key_value", f"{letter}_proj"), part.flatten(0, 1)


def norms_from_one(name: str, weight: Tensor, sizes: Sizes) -> Iterator[tuple[str, Tensor]]:
    """LayerNorm1P keeps what its weight differs from one by."""
    yield name, weight + 1 if name.endswith("norm.weight") else weight


@dataclass(frozen=True)
class Published:
    """A model of transformers for an example: configuration, names, and how its fused weights are cut.

    `sizes` are said where theirs has no width of a head by itself.
    """

    make: Callable[[Sizes], transformers.PreTrainedModel]
    names: tuple[tuple[str, str], ...]
    split: Split = whole
    sizes: tuple[str, ...] = ()

    def weights(self, model: transformers.PreTrainedModel, sizes: Sizes) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for theirs, weight in model.state_dict().items():
            name = theirs
            for pattern, ours in self.names:
                name = re.sub(pattern, ours, name)
            found |= dict(self.split(name, weight, sizes))
        return found


def llama(s: Sizes, **scaling: Any) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(**s.grouped, **s.rope(**scaling), rms_norm_eps=1e-5)
    if "original_max_position_embeddings" in scaling:
        config.max_position_embeddings = scaling["original_max_position_embeddings"]
    return transformers.LlamaForCausalLM(config)


def falcon(s: Sizes) -> transformers.PreTrainedModel:
    sizes = s.common | {"ffn_hidden_size": s.d_ff}
    return transformers.FalconForCausalLM(transformers.FalconConfig(**sizes, multi_query=True, bias=False, **s.rope()))


def phi(s: Sizes) -> transformers.PreTrainedModel:
    rope = s.rope(partial_rotary_factor=s.position["fraction"])
    return transformers.PhiForCausalLM(transformers.PhiConfig(**s.common, intermediate_size=s.d_ff, **rope))


def gemma2(s: Sizes) -> transformers.PreTrainedModel:
    more = {"query_pre_attn_scalar": s.head_dim, "sliding_window": 4}
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**s.grouped, **s.rope(), **more))


def nemotron(s: Sizes) -> transformers.PreTrainedModel:
    rope = s.rope(partial_rotary_factor=s.position["fraction"])
    return transformers.NemotronForCausalLM(transformers.NemotronConfig(**s.grouped, **rope))


def phi3(s: Sizes) -> transformers.PreTrainedModel:
    scaling = s.position["scaling"]
    factors = {name: scaling[name] for name in ("short_factor", "long_factor")}
    config = transformers.Phi3Config(
        **s.grouped,
        **s.rope(rope_type="longrope", **factors),
        rms_norm_eps=1e-5,
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
    )
    return transformers.Phi3ForCausalLM(config)


def mistral(s: Sizes) -> transformers.PreTrainedModel:
    config = transformers.MistralConfig(**s.grouped, **s.rope(), rms_norm_eps=1e-5, sliding_window=4)
    return transformers.MistralForCausalLM(config)


def qwen3(s: Sizes) -> transformers.PreTrainedModel:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**s.grouped, **s.rope(), tie_word_embeddings=True))


def bloom(s: Sizes) -> transformers.PreTrainedModel:
    sizes = {"vocab_size": s.vocabulary, "hidden_size": s.width, "n_layer": s.layers, "n_head": s.heads}
    return transformers.BloomForCausalLM(transformers.BloomConfig(**sizes))


YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
MODELS = {
    "llama-2-7b": Published(llama, LLAMA + PRE),
    "vicuna-7b-16k": Published(lambda s: llama(s, rope_type="linear", factor=4.0), LLAMA + PRE),
    "yarn-llama-2-7b-64k": Published(lambda s: llama(s, **YARN), LLAMA + PRE),
    "mistral-7b": Published(mistral, LLAMA + PRE),
    "qwen3-0.6b": Published(qwen3, LLAMA + PRE),
    "gemma-2-2b": Published(gemma2, LLAMA + GEMMA),
    "phi-2": Published(phi, LLAMA + PHI, sizes=("d_model=20",)),
    "phi-3-mini-128k": Published(phi3, LLAMA + PRE, in_rows, ("d_model=192",)),
    "falcon-7b": Published(falcon, BLOOM + PHI, in_rows, ("d_model=24", "layers[0].block[0].block[0].heads=4")),
    "bloom-560m": Published(bloom, BLOOM + PRE, by_heads, ("d_model=10", "layers[0].block[1].d_ff=40")),
    "nemotron-4-15b": Published(nemotron, LLAMA + PRE, norms_from_one),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_published_model(name: str) -> None:
    published, shrunk = MODELS[name], SHRINK(seqspec.load(ROOT / "examples" / f"{name}.yaml"))
    overrides = [f"decoder.{size}" for size in published.sizes]
    spec = seqspec.load(shrunk.model_dump(by_alias=True, exclude_none=True), overrides)
    sizes = Sizes.of(spec)
    torch.manual_seed(0)
    theirs = published.make(sizes).double().eval()
    for parameter in theirs.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    ours = seqspec.to_torch(spec).double().eval()
    weights = published.weights(theirs, sizes)
    ours.load_state_dict({key: weights[key] for key in ours.state_dict()})
    ids = torch.randint(3, sizes.vocabulary, (2, 13))
    with torch.no_grad():
        expected, found = theirs(ids).logits, ours(input_ids=ids).logits
    # theirs has angles, norms and softmax in float32, whatever the rest is in
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6 * float(expected.abs().max()))
