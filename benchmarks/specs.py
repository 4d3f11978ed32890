"""Models that are timed and that no other exporter takes, or not with what makes the difference."""

from __future__ import annotations

VOCABULARY, WIDTH = 8192, 256

LAYERS = """
seqspec: 1
name: bench-{kind}
encoder:
  input: {{kind: features, size: 256}}
  layers: [{{kind: {kind}, hidden_size: 256, num_layers: 2, bidirectional: true}}]
"""
SENTENCES = """
seqspec: 1
name: bench-sentences
encoder:
  input: {kind: tokens, vocab_size: 8192, pad_id: 0}
  d_model: 768
  position: {kind: learned, max_length: 512}
  norm: layernorm
  norm_placement: post
  layers: [{repeat: 4, block: [{kind: attention, heads: 12}, {kind: ffn, d_ff: 3072, activation: gelu}]}]
head: {kind: embedding, pool: mean, normalize: true}
"""
BAHDANAU = """
seqspec: 1
name: bench-bahdanau
encoder:
  input: {kind: tokens, vocab_size: 8192, pad_id: 0}
  d_model: 256
  layers: [{kind: gru, hidden_size: 256}]
decoder:
  input: {kind: tokens, vocab_size: 8192}
  d_model: 256
  layers: [{kind: gru, hidden_size: 256, attend: {from: encoder, score: additive, query: previous}}]
head: {kind: lm}
"""

WINDOWS = """
seqspec: 1
name: windows
decoder:
  input: {{kind: tokens, vocab_size: 8192}}
  d_model: 512
  bias: false
  position: {{kind: rope, theta: 10000}}
  norm: rmsnorm
  norm_placement: pre
  layers:
    - repeat: 8
      block:
        - {{kind: attention, heads: 8, kv_heads: 2, mask: {{all: [causal, {{kind: window, size: {size}}}]}}}}
        - {{kind: ffn, d_ff: 1408, activation: silu, gated: true}}
head: {{kind: lm}}
"""
