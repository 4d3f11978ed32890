"""`model_type: bert`: a post-norm encoder with learned positions and token types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqspec.importers.hf.config import Config
from seqspec.importers.hf.parts import dropout, renamed
from seqspec.importers.imported import Imported
from seqspec.importers.weights import Tensor

MODULES = {
    "embeddings.word_embeddings": "encoder.embed_tokens",
    "embeddings.position_embeddings": "encoder.embed_positions",
    "embeddings.token_type_embeddings": "encoder.embed_types",
    "embeddings.LayerNorm": "encoder.embed_norm",
    "encoder.layer.*.attention.self.query": "encoder.layers.*.attention.q_proj",
    "encoder.layer.*.attention.self.key": "encoder.layers.*.attention.k_proj",
    "encoder.layer.*.attention.self.value": "encoder.layers.*.attention.v_proj",
    "encoder.layer.*.attention.output.dense": "encoder.layers.*.attention.o_proj",
    "encoder.layer.*.attention.output.LayerNorm": "encoder.layers.*.attention_norm",
    "encoder.layer.*.intermediate.dense": "encoder.layers.*.ffn.up_proj",
    "encoder.layer.*.output.dense": "encoder.layers.*.ffn.down_proj",
    "encoder.layer.*.output.LayerNorm": "encoder.layers.*.ffn_norm",
}
LEFT_OUT = ("embeddings.position_ids", "pooler.*")


def read(config: Config, tensors: Mapping[str, Tensor], head: dict[str, Any] | None) -> Imported:
    """BertModel, with the `head` of a sentence model if there is one."""
    if head is None and config.architecture() not in (None, "BertModel"):
        hint = "save the encoder alone: AutoModel.from_pretrained(DIR).save_pretrained(OTHER)"
        raise config.refuse(f"the head of {config.architecture()} cannot be expressed", hint)
    encoder = _encoder(config)
    config.without_effect("classifier_dropout", "tie_word_embeddings")
    config.close()
    notes = ("The pooler (a dense layer over the first token) is left out: it is read by classifiers alone.",)
    return Imported(
        {"encoder": encoder} | ({"head": head} if head else {}),
        renamed(tensors, "bert.", MODULES, LEFT_OUT if head is None else (*LEFT_OUT, "cls.*")),
        notes if any(name.removeprefix("bert.").startswith("pooler.") for name in tensors) else (),
    )


def _encoder(config: Config) -> dict[str, Any]:
    config.must_be("position_embedding_type", "absolute")
    config.must_be("is_decoder", False)
    config.must_be("add_cross_attention", False)
    config.must_be("pruned_heads", {})
    vocab_size = config.size("vocab_size", 30522)
    norm = {"kind": "layernorm", "eps": config.number("layer_norm_eps", 1e-12)}
    hidden = config.number("hidden_dropout_prob", 0.1)
    return {
        "input": {
            "kind": "tokens",
            "vocab_size": vocab_size,
            **config.pad_id(vocab_size, 0),
            "token_types": config.size("type_vocab_size", 2),
            "norm": norm,
        },
        "d_model": config.size("hidden_size", 768),
        "position": {"kind": "learned", "max_length": config.size("max_position_embeddings", 512)},
        "norm": norm,
        "norm_placement": "post",
        **dropout(input=hidden, residual=hidden, attention=config.number("attention_probs_dropout_prob", 0.1)),
        "layers": [{"repeat": config.size("num_hidden_layers", 12), "block": _block(config)}],
    }


def _block(config: Config) -> list[dict[str, Any]]:
    activation = config.activation("hidden_act", "gelu")
    return [
        {"kind": "attention", "heads": config.size("num_attention_heads", 12)},
        {"kind": "ffn", "d_ff": config.size("intermediate_size", 3072), "activation": activation},
    ]
