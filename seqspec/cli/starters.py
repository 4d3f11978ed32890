"""The specs that `seqspec init` writes: small, commented and valid."""

from __future__ import annotations

_MODELINE = "# yaml-language-server: $schema=https://seqspec.dev/schemas/seqspec-1.schema.json\n"

_LANGUAGE_MODEL = """\
# A decoder that predicts the next token, in the manner of LLaMA.
seqspec: 1
name: my-language-model
decoder:
  input: {kind: tokens, vocab_size: 32000}
  d_model: 512 # the width of everything between the layers
  bias: false # of the linear maps
  position: {kind: rope, theta: 10000}
  norm: rmsnorm
  norm_placement: pre # or post, or sandwich
  layers:
    - repeat: 8
      block: # sublayers run in this order, each with a norm and a residual
        - {kind: attention, heads: 8, kv_heads: 2} # causal, as everything in a decoder
        - {kind: ffn, d_ff: 1408, activation: silu, gated: true}
head: {kind: lm, tied: true} # tied: the token table is the output matrix
"""

_CLASSIFIER = """\
# One label for a text: a bidirectional LSTM whose final state is classified.
seqspec: 1
name: my-classifier
encoder:
  input: {kind: tokens, vocab_size: 30000, d_model: 128, pad_id: 0} # id 0 is padding, which nothing reads
  layers:
    - {kind: lstm, hidden_size: 256, num_layers: 2, bidirectional: true, dropout: 0.3}
head: {kind: classifier, classes: 2, pool: final_state} # or pool: mean, max, first, last; none labels every token
"""

_SEQ2SEQ = """\
# Text to text: the Transformer of Vaswani et al. 2017 with the norms in front.
seqspec: 1
name: my-translator
defaults: # for both stacks
  d_model: 512
  position: sinusoidal
  norm: layernorm
  norm_placement: pre
  dropout: 0.1
encoder:
  input: {kind: tokens, vocab_size: 16000, pad_id: 0}
  layers:
    - repeat: 6
      block:
        - {kind: attention, heads: 8}
        - {kind: ffn, d_ff: 2048, activation: relu}
decoder:
  input: {kind: tokens, share: encoder.input} # one token table for both
  layers:
    - repeat: 6
      block:
        - {kind: attention, heads: 8} # causal here
        - {kind: cross_attention, from: encoder, heads: 8}
        - {kind: ffn, d_ff: 2048, activation: relu}
head: {kind: lm, tied: true}
"""

_ENCODER = """\
# A vector for a sentence: a small BERT whose outputs are averaged over the real tokens.
seqspec: 1
name: my-encoder
encoder:
  input: {kind: tokens, vocab_size: 30522, pad_id: 0, token_types: 2, norm: {kind: layernorm, eps: 1e-12}}
  d_model: 384
  position: {kind: learned, max_length: 512}
  norm: {kind: layernorm, eps: 1e-12}
  norm_placement: post
  dropout: 0.1
  layers:
    - repeat: 6
      block:
        - {kind: attention, heads: 12}
        - {kind: ffn, d_ff: 1536, activation: gelu}
head: {kind: embedding, pool: mean, normalize: true}
"""

_FORECASTER = """\
# A number from a series of measurements: a GRU, read at the last real step.
seqspec: 1
name: my-forecaster
encoder:
  input: {kind: features, size: 8} # eight measurements a step; with d_model they pass a linear map first
  layers:
    - {kind: gru, hidden_size: 64, num_layers: 2, dropout: 0.1}
head: {kind: regression, size: 1, pool: last}
"""

STARTERS = {
    "language-model": _MODELINE + _LANGUAGE_MODEL,
    "classifier": _MODELINE + _CLASSIFIER,
    "seq2seq": _MODELINE + _SEQ2SEQ,
    "encoder": _MODELINE + _ENCODER,
    "forecaster": _MODELINE + _FORECASTER,
}
