"""`model_type: gpt2`: a pre-norm decoder with learned positions and tied embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqspec.importers.hf.config import Config
from seqspec.importers.hf.parts import dropout, language_model_head, renamed
from seqspec.importers.imported import Imported
from seqspec.importers.weights import Tensor

MODULES = {
    "wte": "decoder.embed_tokens",
    "wpe": "decoder.embed_positions",
    "h.*.ln_1": "decoder.layers.*.attention_norm",
    "h.*.attn.c_attn": "decoder.layers.*.attention.qkv_proj",  # split below
    "h.*.attn.c_proj": "decoder.layers.*.attention.o_proj",
    "h.*.ln_2": "decoder.layers.*.ffn_norm",
    "h.*.mlp.c_fc": "decoder.layers.*.ffn.up_proj",
    "h.*.mlp.c_proj": "decoder.layers.*.ffn.down_proj",
    "ln_f": "decoder.final_norm",
    "lm_head": "head",
}
MASK_BUFFERS = ("h.*.attn.bias", "h.*.attn.masked_bias")
SUMMARY = (  # settings of a multiple-choice head
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
)


def read(config: Config, tensors: Mapping[str, Tensor], head: dict[str, Any] | None) -> Imported:
    """GPT2LMHeadModel, or GPT2Model if no language model head was saved."""
    spec = {"decoder": _decoder(config)} | language_model_head(config, "GPT2Model", True, head)
    config.without_effect("n_ctx", "reorder_and_upcast_attn", *SUMMARY)
    config.close()
    untied = spec.get("head") == {"kind": "lm"}
    weights = renamed(tensors, "transformer.", MODULES, MASK_BUFFERS if untied else (*MASK_BUFFERS, "lm_head.*"))
    return Imported(spec, _as_linear(weights))


def _decoder(config: Config) -> dict[str, Any]:
    config.must_be("scale_attn_weights", True)
    config.must_be("scale_attn_by_inverse_layer_idx", False)
    config.must_be("add_cross_attention", False)
    config.must_be("pruned_heads", {})
    vocab_size, width = config.size("vocab_size", 50257), config.size("n_embd", 768)
    return {
        "input": {"kind": "tokens", "vocab_size": vocab_size, **config.pad_id(vocab_size, None)},
        "d_model": width,
        "position": {"kind": "learned", "max_length": config.size("n_positions", 1024)},
        "norm": {"kind": "layernorm", "eps": config.number("layer_norm_epsilon", 1e-5)},
        "norm_placement": "pre",
        **dropout(
            input=config.number("embd_pdrop", 0.1),
            residual=config.number("resid_pdrop", 0.1),
            attention=config.number("attn_pdrop", 0.1),
        ),
        "layers": [{"repeat": config.size("n_layer", 12), "block": _block(config, width)}],
    }


def _block(config: Config, width: int) -> list[dict[str, Any]]:
    activation = config.activation("activation_function", "gelu_new")
    return [
        {"kind": "attention", "heads": config.size("n_head", 12)},
        {"kind": "ffn", "d_ff": config.size("n_inner", 4 * width), "activation": activation},
    ]


def _as_linear(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Transposes W, as GPT-2 computes x W, and splits its joint projection into query, key and value."""
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        linear = tensor.transposed() if name.endswith("_proj.weight") else tensor
        if ".qkv_proj." in name:
            parts = zip("qkv", linear.split(3), strict=True)
            found |= {name.replace("qkv_proj", f"{letter}_proj"): part for letter, part in parts}
        else:
            found[name] = linear
    return found
