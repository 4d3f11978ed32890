"""For every field of every class of the language, a spec and a change of that field: some number must change with it.

A row is `field: value`, set in the group's spec at the group's path; `field: (before, value)` with other settings made
first, on both sides; a value with a `=` in it is a whole setting of its own, for what is chosen elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from seqspec.components import (
    attend,
    attention,
    audio,
    biases,
    blocks,
    bridge,
    conv,
    cross_attention,
    ctc,
    efficient,
    features,
    feedforward,
    given_masks,
    gru,
    image,
    inherited,
    joined_masks,
    language_model,
    linear,
    lstm,
    masked_language_model,
    masks,
    norms,
    parallel,
    pooled_heads,
    positions,
    projected,
    rnn,
    rope,
    rope_scaling,
    sparse_masks,
    stack,
    tokens,
)
from seqspec.components.base import Component
from seqspec.spec.model import Model

Row = str | tuple[str, str]

TRANSFORMER = """
seqspec: 1
name: base
encoder:
  input: {kind: tokens, vocab_size: 7}
  d_model: 8
  layers:
    - block: [{kind: attention, heads: 2}, {kind: ffn, d_ff: 6}]
"""
FEATURES = """
seqspec: 1
name: base
encoder:
  input: {kind: features, size: 3}
  layers: [{kind: gru, hidden_size: 8}]
"""
LSTM = """
seqspec: 1
name: base
encoder:
  input: {kind: features, size: 3}
  layers: [{kind: lstm, hidden_size: 4, num_layers: 2}]
"""
GRU, RNN = LSTM.replace("lstm", "gru"), LSTM.replace("lstm", "rnn")
LINEAR = FEATURES.replace("{kind: gru, hidden_size: 8}", "{kind: linear, size: 4}")
CONV = FEATURES.replace("{kind: gru, hidden_size: 8}", "{kind: conv, channels: 3, kernel: 3}")
PATTERN = """
seqspec: 1
name: base
encoder:
  input: {kind: tokens, vocab_size: 7}
  d_model: 4
  blocks: {one: [{kind: ffn, d_ff: 3}], two: [{kind: ffn, d_ff: 5}]}
  layers: [{pattern: [one, two]}]
"""
PARALLEL = TRANSFORMER.replace("block: [", "block: [{kind: parallel, block: [").replace("6}]", "6}]}]")
CROSS = """
seqspec: 1
name: base
encoder:
  input: {kind: tokens, vocab_size: 7}
  d_model: 8
  layers: [{block: [{kind: ffn, d_ff: 6}]}]
decoder:
  input: {kind: tokens, vocab_size: 7}
  d_model: 8
  layers: [{block: [{kind: cross_attention, from: encoder, heads: 2}]}]
"""
STEPS = """
seqspec: 1
name: base
encoder:
  input: {kind: features, size: 3}
  layers: [{kind: gru, hidden_size: 4, bidirectional: true}, {kind: gru, hidden_size: 4, bidirectional: true}]
decoder:
  input: {kind: features, size: 3}
  layers:
    - {kind: gru, hidden_size: 4, initial_state: {kind: bridge, from: encoder, map: linear}}
    - kind: gru
      hidden_size: 4
      initial_state: {kind: bridge, from: encoder, map: linear}
      attend: {from: encoder}
"""
DEFAULTS = TRANSFORMER.replace("  d_model: 8\n", "").replace("encoder:", "defaults: {d_model: 8}\nencoder:")
ROPE = TRANSFORMER.replace("d_model: 8", "d_model: 8\n  position: {kind: rope, scaling: {kind: linear, factor: 2}}")

AUDIO = """
seqspec: 1
name: base
encoder:
  input: {kind: audio, mel_bins: 4, convolutions: [{channels: 8, kernel: 3}, {channels: 8, kernel: 3}]}
  layers: [{block: [{kind: ffn, d_ff: 6}]}]
"""
AUDIO_LONGER = "[{channels: 8, kernel: 3}, {channels: 8, kernel: 3}, {channels: 8, kernel: 1}]"
IMAGE = """
seqspec: 1
name: base
encoder:
  input: {kind: image, size: 4, patch: 2}
  d_model: 8
  layers: [{block: [{kind: ffn, d_ff: 6}]}]
"""
READER = (
    "{input: {kind: tokens, vocab_size: 7}, d_model: 4, "
    "layers: [{block: [{kind: cross_attention, from: encoder, heads: 2}]}]}"
)

BLOCK, ATTENTION, LAYER = "encoder.layers[0].block", "encoder.layers[0].block[0]", "encoder.layers[0]"
LONG_ROPE = "{kind: longrope, short_factor: [1.0, 1.0], long_factor: [2.0, 3.0],"
SCALING, CURRENT = "encoder.position.scaling", "decoder.layers[1].attend.query=current"


@dataclass(frozen=True)
class Group:
    """The rows of one class: `spec`, and where in it the class is found."""

    cls: type[Component]
    spec: str
    path: str
    rows: dict[str, Row]


_RECURRENT: dict[str, Row] = {
    "repeat": "2",
    "hidden_size": "5",
    "num_layers": "3",
    "bidirectional": "true",
    "merge": (f"{LAYER}.bidirectional=true", "sum"),
    "dropout": "0.5",
    "bias": "single",
    "initial_state": "learned",
    "attend": (
        "decoder={input: {kind: features, size: 3}, layers: [{kind: KIND, hidden_size: 4, initial_state: "
        "{kind: bridge, from: encoder, layer: last}}]}",
        "decoder.layers[0].attend={from: encoder}",
    ),
}
_MAPPED: dict[str, Row] = {"bias": "false", "init_scale": "0.5", "residual": "none"}
_PROJECTED: dict[str, Row] = _MAPPED | {"heads": "4", "kv_heads": "1", "head_dim": "3", "value_dim": "3"}
_HEADS: dict[str, Row] = _PROJECTED | {"scale": "2.0", "softcap": "0.1", "dropout": "0.5", "return_weights": "true"}
_INHERITED: dict[str, Row] = {
    "d_model": "4",
    "position": "sinusoidal",
    "norm": "rmsnorm",
    "norm_placement": "post",
    "residual_scale": "1.5",
    "init_scale": "0.5",
    "final_norm": "false",
    "bias": "false",
    "dropout": "0.5",
}
_ATTEND, _BRIDGE = "decoder.layers[1].attend", "decoder.layers[0].initial_state"
_LOCAL = f"{_ATTEND}.window={{kind: local_p, size: 1}}"

GROUPS = (
    Group(Model, TRANSFORMER, "", {
        "defaults": "defaults.norm=rmsnorm",
        "encoder": "encoder.d_model=4",
        "decoder": (f"{ATTENTION}.mask=causal", f"decoder={READER}"),
        "head": "head={kind: classifier, classes: 2, pool: mean}",
        "outputs": "outputs={word: lm}",
    }),
    Group(inherited.Defaults, DEFAULTS, "defaults", _INHERITED),
    Group(stack.Stack, TRANSFORMER, "encoder", _INHERITED | {
        "input": "{kind: features, size: 3}",
        "causal": "true",
        "mask": "{kind: window, size: 2}",
        "blocks": "encoder=" + "{blocks: {one: [{kind: ffn, d_ff: 3}]}, layers: [{pattern: [one]}]}",
        "layers": "[{block: [{kind: ffn, d_ff: 6}]}]",
    }),
    Group(inherited.DropoutRates, TRANSFORMER, "encoder.dropout", {
        rate: (f"encoder.dropout.{rate}=0.0", "0.5") for rate in ("input", "residual", "attention", "inner")
    }),
    Group(blocks.Block, TRANSFORMER, LAYER, {"repeat": "2", "block": "[{kind: ffn, d_ff: 6}]"}),
    Group(parallel.Parallel, PARALLEL, f"{BLOCK}[0]", {
        "block": "[{kind: ffn, d_ff: 6}, {kind: attention, heads: 4}]", "residual": "none"}),
    Group(blocks.Pattern, PATTERN, LAYER, {"repeat": "2", "pattern": "[two, one]"}),
    # ---- attention -----------------------------------------------------------------------------------------------
    Group(attention.SelfAttention, TRANSFORMER, ATTENTION, _HEADS | {
        "mask": "causal",
        "position": "rope",
        "projections": (f"{ATTENTION}.bias=false", "encoder=" + "{layers: [{block: "
                        "[{kind: attention, heads: 2, projections: none}, {kind: ffn, d_ff: 6}]}]}"),
        "qk_norm": "rmsnorm",
        "qk_norm_place": (f"{ATTENTION}={{position: rope, qk_norm: layernorm}}", "after_rotation"),
    }),
    Group(projected.Biases, TRANSFORMER, f"{ATTENTION}.bias",
          dict.fromkeys(("query", "key", "value", "output"), "false")),
    Group(cross_attention.CrossAttention, CROSS, "decoder.layers[0].block[0]", _HEADS),
    Group(efficient.LinearAttention, TRANSFORMER.replace("attention,", "linear_attention,"), ATTENTION,
          _PROJECTED | {"causal": "true"}),
    Group(efficient.LowRankAttention,
          TRANSFORMER.replace("attention,", "low_rank_attention, projected_length: 2, max_length: 8,"), ATTENTION,
          _HEADS | {"projected_length": "3", "max_length": "9"}),
    Group(feedforward.FeedForward, TRANSFORMER, f"{BLOCK}[1]",
          _MAPPED | {"d_ff": "7", "activation": "relu", "gated": "true", "dropout": "0.5"}),
    # ---- masks ---------------------------------------------------------------------------------------------------
    Group(masks.Causal, TRANSFORMER, "", {"kind": "encoder.mask=causal"}),
    Group(masks.NoMask, TRANSFORMER, "", {"kind": ("encoder.mask=causal", f"{ATTENTION}.mask=none")}),
    Group(sparse_masks.Window, TRANSFORMER, "encoder.mask", {
        "size": ("encoder.mask={kind: window, size: 2}", "3"),
        "left": ("encoder.mask={kind: window, left: 1}", "2"),
        "right": ("encoder.mask={kind: window, left: 1}", "0"),
    }),
    Group(given_masks.Prefix, TRANSFORMER, "", {
        "kind": ("encoder.mask=causal", "encoder.mask={any: [causal, prefix]}"),
    }),
    Group(sparse_masks.Global, TRANSFORMER, "encoder.mask", {
        "tokens": ("encoder.mask={any: [{kind: window, size: 1}, {kind: global, tokens: [0]}]}",
                   "encoder.mask={any: [{kind: window, size: 1}, {kind: global, tokens: [0, 2]}]}"),
    }),
    Group(sparse_masks.BlockSparse, TRANSFORMER, "encoder.mask", {
        field: ("encoder.mask={kind: block_sparse, block_size: 1, window_blocks: 1, global_blocks: 0, "
                "random_blocks: 1, seed: 0}", value)
        for field, value in
        {"block_size": "2", "window_blocks": "3", "global_blocks": "1", "random_blocks": "2", "seed": "5"}.items()
    }),
    Group(given_masks.Documents, TRANSFORMER, "", {"kind": "encoder.mask=documents"}),
    Group(given_masks.Given, TRANSFORMER, "", {"kind": "encoder.mask={kind: given, name: allowed}"}),
    Group(joined_masks.AllOf, TRANSFORMER, "encoder.mask", {
        "all": ("encoder.mask={all: [causal]}", "[causal, {kind: window, size: 2}]")}),
    Group(joined_masks.AnyOf, TRANSFORMER, "encoder.mask", {
        "any": ("encoder.mask={any: [causal]}", "[causal, {kind: window, size: 2}]")}),
    # ---- positions -----------------------------------------------------------------------------------------------
    Group(positions.NoPosition, ROPE, "", {"kind": "encoder.position=none"}),
    Group(positions.Sinusoidal, TRANSFORMER, "encoder.position", {
        "layout": ("encoder.position=sinusoidal", "half_split"), "base": ("encoder.position=sinusoidal", "50.0")}),
    Group(positions.Learned, TRANSFORMER, "encoder.position", {
        "max_length": ("encoder.position={kind: learned, max_length: 9}", "10")}),
    Group(biases.Alibi, TRANSFORMER, "", {"kind": "encoder.position=alibi"}),
    Group(biases.RelativeBias, TRANSFORMER, "encoder.position", {
        "buckets": ("encoder.position={kind: relative_bias, buckets: 4, max_distance: 4}", "8"),
        "max_distance": ("encoder.position={kind: relative_bias, buckets: 8, max_distance: 4}", "16"),
    }),
    Group(rope.Rope, ROPE, "encoder.position", {
        "theta": "100.0", "layout": "interleaved", "fraction": "0.5", "scaling": f"{SCALING}.factor=3.0"}),
    Group(rope_scaling.LinearScaling, ROPE, SCALING, {"factor": "3.0"}),
    Group(rope_scaling.Llama3Scaling, ROPE, SCALING, {
        field: (f"{SCALING}={{kind: llama3, factor: 2, low_freq_factor: 1, high_freq_factor: 4, "
                "original_max_length: 20}", value)
        for field, value in
        {"factor": "4.0", "low_freq_factor": "0.1", "high_freq_factor": "40.0", "original_max_length": "200"}.items()
    }),
    Group(rope_scaling.DynamicScaling, ROPE, SCALING, {
        field: (f"{SCALING}={{kind: dynamic, factor: 2, original_max_length: 3}}", value)
        for field, value in {"factor": "4.0", "original_max_length": "4"}.items()
    }),
    Group(rope_scaling.YarnScaling, ROPE.replace("heads: 2", "heads: 1, head_dim: 32"), SCALING, {
        field: (f"{SCALING}={{kind: yarn, factor: 2, original_max_length: 20, beta_fast: 3, beta_slow: 0.01}}", value)
        for field, value in {"factor": "4.0", "original_max_length": "200", "beta_fast": "0.1", "beta_slow": "2.0",
                             "attention_factor": "2.0", "truncate": "false"}.items()
    }),
    Group(rope_scaling.LongRopeScaling, ROPE, SCALING, {
        field: (f"{SCALING}={LONG_ROPE} original_max_length: 4}}", value)
        for field, value in {"long_factor": "[2.0, 4.0]", "original_max_length": "10",
                             "factor": "2.0", "attention_factor": "2.0"}.items()
    } | {
        "short_factor": (f"{SCALING}={LONG_ROPE} original_max_length: 9}}", "[1.0, 1.5]")
    }),
    # ---- norms, inputs, heads ------------------------------------------------------------------------------------
    Group(norms.LayerNorm, TRANSFORMER, "encoder.norm", {
        "eps": ("encoder.norm=layernorm", "0.5"), "bias": ("encoder.norm=layernorm", "false")}),
    Group(norms.RMSNorm, TRANSFORMER, "encoder.norm", {
        "eps": ("encoder.norm=rmsnorm", "0.5"), "offset": ("encoder.norm=rmsnorm", "1.0")}),
    Group(tokens.Tokens, TRANSFORMER, "encoder.input", {
        "vocab_size": "9", "d_model": "5", "pad_id": "1", "scale": "sqrt_d_model", "token_types": "2",
        "norm": "rmsnorm",
        "share": ("encoder.input.vocab_size=7", "decoder=" + "{input: {kind: tokens, share: encoder.input}, "
                  "layers: [{block: [{kind: cross_attention, from: encoder, heads: 2}]}]}"),
    }),
    Group(features.Features, FEATURES, "encoder.input", {"size": "4", "d_model": "5", "norm": "rmsnorm"}),
    Group(audio.Audio, AUDIO, "encoder.input", {"mel_bins": "5", "convolutions": AUDIO_LONGER, "norm": "rmsnorm"}),
    Group(audio.Convolution, AUDIO, "encoder.input.convolutions[0]", {
        "channels": "5", "kernel": "5", "stride": "2", "activation": "gelu", "bias": "false"}),
    Group(image.Image, IMAGE, "encoder.input", {
        "size": "6", "patch": "1", "channels": "1", "class_token": "true", "norm": "rmsnorm"}),
    Group(language_model.LanguageModel, TRANSFORMER, "head", {
        field: ("head=lm", value)
        for field, value in
        {"tied": "true", "bias": "true", "vocab_size": "9", "scale": "0.5", "softcap": "0.1"}.items()
    }),
    Group(masked_language_model.MaskedLanguageModel, TRANSFORMER, "head", {
        field: ("head=masked_lm", value)
        for field, value in
        {"tied": "true", "bias": "false", "activation": "relu", "norm": "rmsnorm", "vocab_size": "9"}.items()
    }),
    Group(ctc.Ctc, TRANSFORMER, "head", {
        field: ("head={kind: ctc, vocab_size: 5}", value)
        for field, value in {"vocab_size": "6", "bias": "false"}.items()
    }),
    Group(pooled_heads.Classifier, TRANSFORMER, "head", {
        field: ("head={kind: classifier, classes: 2, pool: mean}", value)
        for field, value in {"classes": "3", "pool": "last", "bias": "false"}.items()
    }),
    Group(pooled_heads.Regression, TRANSFORMER, "head", {
        field: ("head={kind: regression, size: 2, pool: mean}", value)
        for field, value in {"size": "3", "pool": "first", "bias": "false"}.items()
    }),
    Group(pooled_heads.Embedding, TRANSFORMER, "head", {
        field: ("head={kind: embedding, pool: mean}", value)
        for field, value in {"pool": "max", "normalize": "true"}.items()
    }),
    # ---- recurrent layers ----------------------------------------------------------------------------------------
    Group(lstm.LSTM, LSTM, LAYER, _RECURRENT | {
        "forget_bias": "3.0", "peepholes": "true", "projection_size": "3"}),
    Group(gru.GRU, GRU, LAYER, _RECURRENT | {"reset": "before", "update": "write"}),
    Group(rnn.RNN, RNN, LAYER, _RECURRENT | {"activation": "sigmoid"}),
    Group(linear.LinearLayer, LINEAR, LAYER, {"repeat": "2", "size": "5", "activation": "tanh", "bias": "false"}),
    Group(conv.ConvLayer, CONV, LAYER, {
        "repeat": "2", "channels": "5", "kernel": "5", "dilation": "2", "causal": "true", "activation": "tanh",
        "bias": "false"}),
    Group(bridge.Zeros, LSTM, "", {"kind": (f"{LAYER}.initial_state=learned", f"{LAYER}.initial_state=zeros")}),
    Group(bridge.Learned, LSTM, "", {"kind": f"{LAYER}.initial_state=learned"}),
    Group(bridge.Given, LSTM, "", {"kind": f"{LAYER}.initial_state=given"}),
    Group(bridge.Bridge, STEPS, _BRIDGE, {
        "map": "linear_tanh", "state": "mean", "layer": "last", "direction": "backward"}),
    Group(attend.Attend, STEPS, _ATTEND, {
        "score": "general", "d_attention": "3", "query": "current", "output": "hidden",
        "input_feeding": (CURRENT, "true"), "window": "{kind: local_p, size: 1}", "return_weights": "true"}),
    Group(attend.LocalP, STEPS, f"{_ATTEND}.window", {"size": (_LOCAL, "2")}),
)  # fmt: skip

EXCUSED = {
    "blank_id": "what the loss and the reading of CTC leave out: tests/models/test_ctc.py",
    "kind": "chooses the class, and the fields of each have rows; what has no other field has a row for `kind`",
    "from_": "names the other stack, and a decoder has one to read",
    "name": "names parameters, the model's class, or an input: no number",
    "seqspec": "the version of the language: there is one",
    **dict.fromkeys(("tokenizer", "file", "eos", "start"), "of text, not of numbers: tests/runtime/test_tokenizer.py"),
}
