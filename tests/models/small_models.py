"""Small models of every kind, with odd sizes, and what their ONNX files are compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import yaml

from seqspec.backends.weights import initial
from seqspec.build import build
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature
from seqspec.spec.model import Model

Array = np.ndarray
BLOCK = "[{kind: attention, heads: 4, kv_heads: 2}, {kind: ffn, d_ff: 40, activation: silu, gated: true}]"
CROSS = "[{kind: attention, heads: 2}, {kind: cross_attention, from: encoder, heads: 2}, {kind: ffn, d_ff: 20}]"
SPECS = {
    "bilstm": """
        encoder:
          input: {kind: tokens, vocab_size: 50, d_model: 12, pad_id: 0}
          layers: [{kind: lstm, hidden_size: 9, num_layers: 2, bidirectional: true, dropout: 0.3}]
        head: {kind: classifier, classes: 2, pool: final_state}""",
    "gru": """
        encoder:
          input: {kind: features, size: 5}
          layers: [{kind: gru, hidden_size: 7}]
        head: {kind: regression, size: 1, pool: last}""",
    "lstm_lm": """
        decoder:
          input: {kind: tokens, vocab_size: 33, d_model: 12}
          layers: [{kind: lstm, hidden_size: 11, num_layers: 2}]
        head: {kind: lm}""",
    "gpt": """
        decoder:
          input: {kind: tokens, vocab_size: 57}
          d_model: 18
          position: {kind: learned, max_length: 24}
          norm: {kind: layernorm, eps: 1.0e-5}
          norm_placement: pre
          dropout: 0.1
          layers: [{repeat: 3, block: [{kind: attention, heads: 3}, {kind: ffn, d_ff: 40, activation: gelu_tanh}]}]
        head: {kind: lm, tied: true}""",
    "llama": f"""
        decoder:
          input: {{kind: tokens, vocab_size: 61, pad_id: 0}}
          d_model: 32
          bias: false
          position: {{kind: rope, theta: 10000}}
          norm: rmsnorm
          norm_placement: pre
          layers: [{{repeat: 2, block: {BLOCK}}}]
        head: {{kind: lm, tied: true}}""",
    "mistral": """
        decoder:
          input: {kind: tokens, vocab_size: 61, pad_id: 0}
          d_model: 24
          position: {kind: rope, theta: 10000, layout: interleaved, fraction: 0.5}
          norm: rmsnorm
          norm_placement: pre
          blocks:
            local:
              - kind: attention
                heads: 4
                kv_heads: 2
                head_dim: 32
                mask: {all: [causal, {kind: window, size: 3}]}
                bias: {query: true, key: false, value: true, output: false}
              - {kind: ffn, d_ff: 40, activation: silu, gated: true}
            global:
              - {kind: attention, heads: 4, kv_heads: 1, head_dim: 16, position: none, softcap: 2.5, scale: 0.4}
              - {kind: ffn, d_ff: 40, activation: gelu}
          layers: [{repeat: 2, pattern: [local, local, global]}]
        head: {kind: lm}""",
    "grouped": """
        decoder:
          input: {kind: tokens, vocab_size: 61}
          d_model: 32
          bias: false
          position: {kind: rope, theta: 10000}
          norm: rmsnorm
          norm_placement: pre
          layers:
            - repeat: 3
              block:
                - {kind: attention, heads: 4, kv_heads: 2, head_dim: 16}
                - {kind: ffn, d_ff: 40, activation: silu, gated: true}
        head: {kind: lm}""",
    "bert": """
        encoder:
          input: {kind: tokens, vocab_size: 50, pad_id: 0, token_types: 2, norm: {kind: layernorm, eps: 1.0e-12}}
          d_model: 24
          position: {kind: learned, max_length: 32}
          norm: {kind: layernorm, eps: 1.0e-12}
          norm_placement: post
          layers: [{repeat: 2, block: [{kind: attention, heads: 3}, {kind: ffn, d_ff: 30, activation: gelu}]}]
        head: {kind: embedding, pool: mean, normalize: true}""",
    "transformer": f"""
        defaults: {{d_model: 16, position: sinusoidal, norm: layernorm, norm_placement: post, dropout: 0.1}}
        encoder:
          input: {{kind: tokens, vocab_size: 37, pad_id: 0, scale: sqrt_d_model}}
          layers: [{{repeat: 2, block: [{{kind: attention, heads: 2}}, {{kind: ffn, d_ff: 20, activation: relu}}]}}]
        decoder:
          input: {{kind: tokens, share: encoder.input}}
          layers: [{{repeat: 2, block: {CROSS}}}]
        head: {{kind: lm, tied: true}}""",
    "bahdanau": """
        encoder:
          input: {kind: tokens, vocab_size: 40, d_model: 12, pad_id: 0}
          layers: [{kind: gru, hidden_size: 10, bidirectional: true}]
        decoder:
          input: {kind: tokens, vocab_size: 45, d_model: 12, pad_id: 0}
          layers:
            - kind: gru
              hidden_size: 14
              initial_state: {kind: bridge, from: encoder, map: linear_tanh}
              attend: {from: encoder, score: additive, d_attention: 9, query: previous}
        head: {kind: lm}""",
}
SPLIT = {"transformer", "bahdanau"}
STATEFUL = ("gru", "lstm_lm", "gpt", "llama", "mistral", "grouped", "transformer", "bahdanau")
# True is real: padding on the right, on the left, in the middle, none
MASK = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1]])


def make(name: str) -> Graph:
    text = f"seqspec: 1\nname: {name}\n"
    return build(Model.model_validate(yaml.safe_load(text) | yaml.safe_load(SPECS[name])))


def random_weights(graph: Graph) -> dict[str, Array]:
    """Around where parameters start, but norms and biases are no ones and zeros."""
    rng = np.random.default_rng(3)
    return {p.name: initial(p, 0) + rng.normal(0, 0.1, p.shape).astype(np.float32) for p in graph.root.params}


def feeds(graph: Graph, mask: Array = MASK) -> dict[str, Array]:
    """An array for every input but position_ids; the decoder's mask is the encoder's upside down."""
    rng, batch_time = np.random.default_rng(5), mask.shape
    made: dict[str, Array] = {}
    for value in graph.root.inputs:
        if value.name.endswith("attention_mask"):
            made[value.name] = (mask[::-1] if value.name.startswith("decoder") else mask).astype(np.int64)
        elif value.dtype == "float":
            made[value.name] = rng.normal(0, 1, (*batch_time, value.shape[2])).astype(np.float32)  # type: ignore[arg-type]
        elif not value.name.endswith("position_ids"):
            made[value.name] = rng.integers(0, 2 if "types" in value.name or "type" in value.name else 33, batch_time)
    return made


def reference(graph: Graph, weights: Mapping[str, Array], given: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
    """The first output and the presents by public name."""
    doubles = {k: v.astype(np.float64) for k, v in weights.items()}
    arguments = [given.get(v.name) for v in graph.root.inputs]
    outputs, present = interpret(graph.root, np, doubles, arguments)
    named = {s.present: present[s.path] for s in signature(graph).states}
    return outputs[0], {k: v for k, v in named.items() if v is not None}


def session(made: ir.Model, optimise: bool = True) -> ort.InferenceSession:
    return opened(ir.to_proto(made), optimise)


def opened(proto: onnx.ModelProto, optimise: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(opened: ort.InferenceSession, values: Mapping[str, Array]) -> dict[str, Array]:
    names = [o.name for o in opened.get_outputs()]
    return dict(zip(names, opened.run(names, {i.name: values[i.name] for i in opened.get_inputs()}), strict=True))


class Runner:
    """The files of a model, driven as a Session drives them: the encoder first, pasts from presents."""

    def __init__(self, graph: Graph, models: Mapping[str, ir.Model], optimise: bool = True) -> None:
        self.sessions = {role: session(m, optimise) for role, m in models.items()}
        self.states = signature(graph).states
        self.state: dict[str, Array] = {}

    def __call__(self, given: Mapping[str, Array]) -> dict[str, Array]:
        main = self.sessions.get("decoder") or self.sessions["model"]
        if not self.state:
            self.start(main, given)
        out = run(main, {**given, **self.state})
        self.state |= {s.past: out[s.present] for s in self.states if s.present in out}
        return out

    def start(self, main: ort.InferenceSession, given: Mapping[str, Array]) -> None:
        out = run(self.sessions["encoder"], given) if "encoder" in self.sessions else {}
        batch = len(next(iter(given.values())))
        for port in main.get_inputs():
            found = next((s for s in self.states if s.past == port.name), None)
            if found is not None:
                sizes = [batch if d == "batch_size" else 0 if isinstance(d, str) else d for d in port.shape]
                self.state[found.past] = out[found.present] if found.present in out else np.zeros(sizes, np.float32)


def close(found: Array, wanted: Array, atol: float = 2e-5) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=atol)
