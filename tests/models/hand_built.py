"""Small graphs made with the builder alone, each with what a source backend can get wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, dim
from seqspec.graph.ir import Graph, Init, Param, Region, Value
from seqspec.graph.types import Type
from seqspec.ops.attention import Attention
from seqspec.ops.base import Array, Expr, Op, TorchWriter, Weights
from seqspec.ops.cache import Append, Hold
from seqspec.ops.cells import GruCell
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add, Multiply, Scale, Unary
from seqspec.ops.embedding import Embedding
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loop import Loop
from seqspec.ops.masks import AllOf, Band
from seqspec.ops.norm import LayerNorm
from seqspec.ops.padding import Padding
from seqspec.ops.positions import LearnedPositions, Positions
from seqspec.ops.shape import Concat, MergeHeads, SplitHeads, Squeeze, Unsqueeze

B, T, E = dim(BATCH), dim(TIME), dim(ENCODER_TIME)
S = dim(PAST) + T
CAUSAL = Band(None, 0)
WORDS = 19


@dataclass(frozen=True)
class Gain(Op):
    """x -> gain · x, a parameter without a module that would hold it."""

    width: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def params(self) -> tuple[Param, ...]:
        return (Param("gain", (self.width,), init=Init("constant", (0.5,))),)

    def flops(self, x: Value) -> int:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (weights["gain"] * x,)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr.infix(f"{t.param('gain')} * {x.tight}")

    def onnx(self, o: Any, x: Any) -> tuple[Any, ...]:
        raise NotImplementedError


def attention(b: Builder, width: int, heads: int, mask: Any, name: str) -> Region:
    g = b.child(name)
    x, padding = (
        g.input("x", (B, T, width)),
        g.input("mask", (B, S), "bool", optional=True),
    )
    parts = {
        letter: g.add(
            SplitHeads(heads, width // heads), g.add(Linear(width, width), x, name=f"{letter}_proj"), hint=letter
        )
        for letter in "qkv"
    }
    k, v = g.add(Append("key"), parts["k"], hint="k"), g.add(Append("value"), parts["v"], hint="v")
    y = g.add(Attention(mask), parts["q"], k, v, padding)
    return g.done(g.add(Linear(width, width), g.add(MergeHeads(), y), name="o_proj"))


def block(b: Builder, width: int, mask: Any, name: str = "") -> Region:
    g = b.child(f"{name}Block")
    x, padding = (
        g.input("x", (B, T, width)),
        g.input("mask", (B, S), "bool", optional=True),
    )
    normed = g.add(LayerNorm(width, 1e-5), x, name="attention_norm")
    y = g.call(attention(g, width, 2, mask, f"{name}Attention"), "attention", normed, padding, hint="y")
    x = g.add(Add(), x, g.add(Dropout(0.1), y), hint="x")
    inner = g.child(f"{name}FeedForward")
    z = inner.input("x", (B, T, width))
    up = inner.add(Unary("gelu"), inner.add(Linear(width, 2 * width), z, name="up_proj"))
    ffn = inner.done(inner.add(Linear(2 * width, width), up, name="down_proj"))
    y = g.call(ffn, "ffn", g.add(LayerNorm(width, 1e-5), x, name="ffn_norm"))
    return g.done(g.add(Add(), x, y, hint="x"))


def decoder(layers: int = 4, kinds: tuple[str, ...] = ("",), width: int = 8) -> Graph:
    """A causal language model with a cache, tied, its layers one run; `kinds` are Local or not, in turns."""
    m = Builder("TinyDecoder" if kinds == ("",) else "TinyHybrid")
    g = m.child("Decoder")
    ids = g.input("input_ids", (B, T), "int64")
    given = g.input("attention_mask", (B, S), "int64", optional=True)
    mask = g.add(Padding(looks_back=True), ids, given, hint="mask")
    positions = g.add(Positions(looks_back=True), ids, mask, None)
    table = g.add(LearnedPositions(32, width), positions, name="embed_positions")
    x = g.add(Add(), g.add(Embedding(WORDS, width), ids, name="embed_tokens"), table, hint="x")
    for n in range(layers):
        kind = kinds[n % len(kinds)]
        x = g.call(
            block(g, width, AllOf((CAUSAL, Band(2, 2))) if kind else CAUSAL, kind), f"layers.{n}", x, mask, hint="x"
        )
    stack = g.done(g.add(LayerNorm(width, 1e-5), x, name="final_norm"))
    ids, given = m.like(ids, "input_ids"), m.like(given, "attention_mask")
    x = m.call(stack, "decoder", ids, given, hint="x")
    table = Param("decoder.embed_tokens.weight", (WORDS, width))
    return Graph(m.done(m.add(TiedLinear(), x, table, hint="logits")))


def translator(width: int = 8, loop: str = "step") -> Graph:
    """An encoder that is read on the first call only, and a decoder that steps, held values and a bridged start.

    With an empty `loop` the step's parameters are the decoder's own.
    """
    m = Builder("TinyTranslator")
    e = m.child("Encoder")
    ids = e.input("input_ids", (B, E), "int64")
    x = e.add(Embedding(WORDS, width), ids, name="embed_tokens", hint="x")
    memory = e.add(Unary("tanh"), e.add(Linear(width, width), x, name="proj"), hint="memory")
    encoder = e.done(memory)

    d = m.child("Decoder")
    words = d.input("input_ids", (B, T), "int64")
    memory = d.input("memory", (B, E, width))
    doubled = d.add(Scale(2.0), memory, hint="doubled")  # read twice, and only there on the first call
    keys = d.add(Hold("keys"), d.add(Linear(width, width, False), doubled, name="key_proj"), hint="keys")
    held = d.add(Hold("memory"), doubled, hint="memory")
    first = d.input("first", (B, width))
    start = d.add(Unary("tanh"), d.add(Linear(width, width), first, name="bridge"))
    x = d.add(Embedding(WORDS, width), words, name="embed_tokens")
    _, y = d.add_many(Loop(_step(d, width), 1, 1), start, x, keys, held, name=loop, hint="h y")
    stack = d.done(y)

    source, words = m.input("input_ids", (B, E), "int64"), m.input("decoder_input_ids", (B, T), "int64")
    shift = m.input("shift", (B, width))
    memory = m.call(encoder, "encoder", source, hint="memory")
    first = m.add(Add(), shift, m.add(Scale(0.5), shift), hint="first")
    y = m.call(stack, "decoder", words, memory, first, hint="y")
    out = m.add(Linear(width, WORDS), y, name="head", hint="logits")
    return Graph(m.done(out), frozenset({"input_ids", "shift"}))


def _step(b: Builder, width: int) -> Region:
    g = b.child("DecoderStep")
    h, x = g.input("h", (B, width)), g.input("x", (B, width))
    keys, memory = g.input("keys", (B, E, width)), g.input("memory", (B, E, width))
    query = g.add(Unsqueeze(1), g.add(Linear(width, width, False), h, name="query_proj"))
    energy = g.add(Unary("tanh"), g.add(Add(), query, keys))
    score = g.add(Unary("sigmoid"), g.add(Linear(width, 1, False), energy, name="score_proj"), hint="scores")
    mixed = g.add(Multiply(), score, memory)
    context = g.add(Squeeze(1), g.add(Unsqueeze(1), g.add(FirstRow(), mixed)), hint="context")
    h = g.add(GruCell(2 * width, width), g.add(Concat(), x, context), h, name="gru", hint="h")
    return g.done(h, g.add(Add(), h, context))


@dataclass(frozen=True)
class FirstRow(Op):
    """x[B, S, D] -> x[:, 0]"""

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type((x.shape[0], *x.shape[2:]), x.dtype),)

    def flops(self, x: Value) -> int:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x[:, 0],)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}[:, 0]")

    def onnx(self, o: Any, x: Any) -> tuple[Any, ...]:
        raise NotImplementedError


def odds(width: int = 6) -> Graph:
    """Parts without a scope, scopes with dots, a parameter without a module, layers that are no run, shared names."""
    m = Builder("Odds")
    x = m.input("x", (B, T, width))
    x = m.call(_gained(m, width), "", x, hint="x")  # a method: its parameters are the model's own
    x = m.call(_linear(m, width, "Part"), "outer.inner", x, hint="x")
    x = m.call(_linear(m, width, "Part", bias=False), "outer.other", x, hint="x")  # another region of that name
    x = m.add(Gain(width), x, name="scaled", hint="x")
    x, kept = m.call_many(_forked(m, width), "layers.0", x, hint="x kept")
    for n in (1, 2):
        x = m.call(_linear(m, width, "Part"), f"layers.{n}", x, hint="x")
    y = m.call(_linear(m, width, "Tail"), "layers.3", kept, hint="append")  # not chained, and a helper's name
    y = m.add(Add(), y, x, hint="y")
    x = m.call(_linear(m, width, "Part"), "shared", y, hint="x")
    x = m.call(_linear(m, width, "Part"), "shared", x, hint="x")  # twice: the same parameters
    joined = m.add(Concat(), x, y, kept, hint="joined")
    return Graph(m.done(joined, m.add(Add(), joined, joined, hint="doubled")))


def _gained(b: Builder, width: int) -> Region:
    g = b.child("Gained")
    x = g.input("x", (B, T, width))
    return g.done(g.add(Gain(width), g.add(Linear(width, width), x, name="proj")))


def _linear(b: Builder, width: int, name: str, bias: bool = True) -> Region:
    g = b.child(name)
    x = g.input("x", (B, T, width))
    return g.done(g.add(Unary("tanh"), g.add(Linear(width, width, bias), x, name="proj")))


def _forked(b: Builder, width: int) -> Region:
    g = b.child("Forked")
    x = g.input("x", (B, T, width))
    return g.done(g.add(Linear(width, width), x, name="left"), g.add(Linear(width, width), x, name="right"))


GRAPHS = {
    "decoder": decoder(),
    "hybrid": decoder(6, ("Local", "Local", "")),
    "translator": translator(),
    "loose_translator": translator(loop=""),
    "odds": odds(),
}
