"""`model_type: llama`: a pre-norm decoder with RMSNorm, rotary positions and gated feed-forwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqspec.diagnostics import quoted
from seqspec.importers.hf.config import Config
from seqspec.importers.hf.parts import dropout, language_model_head, renamed
from seqspec.importers.imported import Imported
from seqspec.importers.weights import Tensor

MODULES = {
    "embed_tokens": "decoder.embed_tokens",
    "layers.*.input_layernorm": "decoder.layers.*.attention_norm",
    "layers.*.self_attn.q_proj": "decoder.layers.*.attention.q_proj",
    "layers.*.self_attn.k_proj": "decoder.layers.*.attention.k_proj",
    "layers.*.self_attn.v_proj": "decoder.layers.*.attention.v_proj",
    "layers.*.self_attn.o_proj": "decoder.layers.*.attention.o_proj",
    "layers.*.post_attention_layernorm": "decoder.layers.*.ffn_norm",
    "layers.*.mlp.gate_proj": "decoder.layers.*.ffn.gate_proj",
    "layers.*.mlp.up_proj": "decoder.layers.*.ffn.up_proj",
    "layers.*.mlp.down_proj": "decoder.layers.*.ffn.down_proj",
    "norm": "decoder.final_norm",
    "lm_head": "head",
}
FREQUENCY_BUFFERS = ("layers.*.self_attn.rotary_emb.inv_freq",)
# {kind of scaling: {a parameter's name in `transformers`: its name in the language}}
SCALINGS: dict[str, dict[str, str]] = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "original_max_length",
    },
}


def read(config: Config, tensors: Mapping[str, Tensor], head: dict[str, Any] | None) -> Imported:
    """LlamaForCausalLM, or LlamaModel if no language model head was saved."""
    spec = {"decoder": _decoder(config)} | language_model_head(config, "LlamaModel", False, head)
    # rotary positions have no table that ends: a maximal length is advice. pretraining_tp only splits the same products
    config.without_effect("max_position_embeddings", "pretraining_tp")
    config.close()
    untied = spec.get("head") == {"kind": "lm"}
    weights = renamed(tensors, "model.", MODULES, FREQUENCY_BUFFERS if untied else (*FREQUENCY_BUFFERS, "lm_head.*"))
    return Imported(spec, weights)


def _decoder(config: Config) -> dict[str, Any]:
    config.must_be("pruned_heads", {})
    vocab_size, width = config.size("vocab_size", 32000), config.size("hidden_size", 4096)
    attention_bias, ffn_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    return {
        "input": {"kind": "tokens", "vocab_size": vocab_size, **config.pad_id(vocab_size, None)},
        "d_model": width,
        "bias": ffn_bias,
        "position": _rope(config),
        "norm": {"kind": "rmsnorm", "eps": config.number("rms_norm_eps", 1e-6)},
        "norm_placement": "pre",
        **dropout(attention=config.number("attention_dropout", 0.0)),
        "layers": [
            {
                "repeat": config.size("num_hidden_layers", 32),
                "block": [
                    _attention(config, width) | ({"bias": attention_bias} if attention_bias != ffn_bias else {}),
                    {
                        "kind": "ffn",
                        "d_ff": config.size("intermediate_size", 11008),
                        "activation": config.activation("hidden_act", "silu"),
                        "gated": True,
                    },
                ],
            }
        ],
    }


def _attention(config: Config, width: int) -> dict[str, Any]:
    heads = config.size("num_attention_heads", 32)
    kv_heads, head_dim = config.size("num_key_value_heads", heads), config.size("head_dim", width // heads)
    attention: dict[str, Any] = {"kind": "attention", "heads": heads}
    return (
        attention
        | ({"kv_heads": kv_heads} if kv_heads != heads else {})
        | ({"head_dim": head_dim} if head_dim * heads != width else {})
    )


def _rope(config: Config) -> dict[str, Any]:
    """Reads `rope_parameters`, or in older files `rope_theta` and `rope_scaling`."""
    given = config.table("rope_parameters") or config.table("rope_scaling")
    config.without_effect("rope_parameters", "rope_scaling")
    theta = given.get("rope_theta", config.number("rope_theta", 10000.0))
    kind = given.get("rope_type", given.get("type", "default"))
    rope = {"kind": "rope", "theta": theta}
    if kind == "default":
        return rope
    names = SCALINGS.get(kind) if isinstance(kind, str) else None
    if names is None:
        raise config.refuse(f"the rotary scaling {quoted(kind)} cannot be expressed")
    unread = given.keys() - names.keys() - {"rope_type", "type", "rope_theta"}
    if unread or not names.keys() <= given.keys():
        odd = min(unread or names.keys() - given.keys())
        raise config.refuse(f"the rotary scaling {quoted(kind)} {'has' if unread else 'lacks'} {quoted(odd)}")
    return rope | {"scaling": {"kind": kind} | {ours: given[theirs] for theirs, ours in names.items()}}
