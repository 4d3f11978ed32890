"""Every pass on a small graph, before and after as printed text, and what holds of all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, dim
from seqspec.graph.ir import Graph, Param
from seqspec.graph.text import text
from seqspec.graph.verify import Stage, verify
from seqspec.ops.attention import Attention
from seqspec.ops.cache import Append, Hold
from seqspec.ops.cells import GruCell, LstmCell
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add, Multiply, Unary
from seqspec.ops.embedding import Embedding
from seqspec.ops.gru import Gru
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loop import Loop
from seqspec.ops.lstm import Lstm
from seqspec.ops.masks import CAUSAL, Band, Mask
from seqspec.ops.norm import LayerNorm, RMSNorm
from seqspec.ops.padding import Padding
from seqspec.ops.positions import LearnedPositions, Positions
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.rnn import Rnn
from seqspec.ops.scanned import Scanned
from seqspec.ops.shape import Concat, MergeHeads, SplitHeads
from seqspec.ops.state import SelectState
from seqspec.passes.bind import bind
from seqspec.passes.drop_dead import drop_dead
from seqspec.passes.drop_dropout import drop_dropout
from seqspec.passes.expand import expand
from seqspec.passes.fuse_attention import declined, fuse_attention
from seqspec.passes.fuse_skip_norm import fuse_skip_norm
from seqspec.passes.hoist import hoist
from seqspec.passes.inline import inline
from seqspec.passes.pipeline import fused, inference, parts
from seqspec.passes.rewrite import nodes
from seqspec.passes.scan_recurrent import scan_recurrent
from seqspec.passes.split import split
from seqspec.passes.support import matrix
from seqspec.passes.window_caches import window_caches

FIXTURES = Path(__file__).parent / "fixtures" / "passes"
B, T, S, E = dim(BATCH), dim(TIME), dim(PAST) + dim(TIME), dim(ENCODER_TIME)
WIDTH = 8


def attention(parent: Builder, dropout: float = 0.0, width: int = 4, sees: Mask = CAUSAL) -> Any:
    """x, mask -> attention of two heads of this width, causal or as `sees` says."""
    b = parent.child("Attention")
    x, mask = b.input("x", (B, T, WIDTH)), b.input("mask", (B, S), "bool", optional=True)
    q, k, v = (
        b.add(SplitHeads(2, width), b.add(Linear(WIDTH, 2 * width, bias=False), x, name=f"{n}_proj")) for n in "qkv"
    )
    y = b.add(Attention(sees, dropout=dropout), q, b.add(Append("key"), k), b.add(Append("value"), v), mask)
    return b.done(b.add(Linear(2 * width, WIDTH), b.add(MergeHeads(), y), name="o_proj"))


def decoder(layers: int = 2, width: int = 4, sees: tuple[Mask, ...] = (CAUSAL,)) -> Graph:
    """Ids -> logits, pre-norm, with dropout, positions, and the table tied to the head."""
    root = Builder("Tiny")
    ids = root.input("input_ids", (B, T), "int64")
    given = root.input("attention_mask", (B, S), "int64", optional=True)
    position_ids = root.input("position_ids", (B, T), "int64", optional=True)
    mask = root.add(Padding(0, looks_back=True), ids, given)
    positions = root.add(Positions(looks_back=True), ids, mask, position_ids)
    table = root.add(LearnedPositions(16, WIDTH), positions, name="embed_positions")
    x = root.add(Add(), root.add(Embedding(11, WIDTH), ids, name="embed_tokens"), table)
    for index in range(layers):
        b = root.child("Block")
        h, inner_mask = b.like(x, "x"), b.like(mask, "mask")
        called = attention(b, 0.1, width, sees[index % len(sees)])
        y = b.call(called, "attention", b.add(RMSNorm(WIDTH), h, name="attention_norm"), inner_mask)
        h = b.add(Add(), h, b.add(Dropout(0.1), y))
        x = root.call(b.done(h), f"layers.{index}", x, mask)
    x = root.add(LayerNorm(WIDTH), x, name="final_norm")
    table = Param("embed_tokens.weight", (11, WIDTH))
    return Graph(root.done(root.add(TiedLinear(), x, table, hint="logits")))


def translator() -> Graph:
    """features -> a GRU; its last state starts the GRU of a decoder, and is held to weigh a sum over time there."""
    root = Builder("Translator")
    features, xs = root.input("features", (B, E, 3)), root.input("decoder_features", (B, T, 3))
    bias = root.input("decoder_bias", (B, 1, 4), optional=True)
    memory, final = root.add_many(Gru(3, 4), features, name="encoder", hint="memory final")
    mean = root.add(SelectState(0), final)
    held = root.add(Hold("summary"), mean, name="decoder")
    start = root.add(Unary("tanh"), final)
    y, _ = root.add_many(Gru(3, 4, stateful=True), xs, None, start, name="decoder", hint="y h")
    scale = root.add(Linear(4, 4), held, name="scale_proj")
    root.add(Linear(4, 4), memory, name="unread")
    step = root.child("Step")
    s, x_t, w = step.input("s", (B, 4)), step.input("x", (B, 4)), step.input("w", (B, 4))
    moved = step.add(Add(), step.add(Dropout(0.5), s), step.add(Multiply(), x_t, w))
    _, ys = root.add_many(Loop(step.done(moved, moved), 1), None, y, scale, name="decoder.sum", hint="s ys")
    return Graph(root.done(root.add(Add(), ys, bias, hint="logits")), frozenset({"features"}))


def looping() -> Graph:
    """Two loops over time: the first cell reads [x; its output; a constant], the second one x alone."""
    root = Builder("Looping")
    x, w = root.input("x", (B, T, 3)), root.input("w", (B, 2))
    first = root.child("First")
    h, output, own = (first.input(n, (B, width)) for n, width in (("h", 4), ("output", 4), ("x", 3)))
    whole = first.add(Concat(), own, output, first.input("w", (B, 2)))
    new = first.add(GruCell(9, 4), whole, h, name="gru", hint="h")
    _, _, y = root.add_many(Loop(first.done(new, new, new), 2), None, None, x, w, name="first", hint="h output y")
    second = root.child("Second")
    h, c, own = (second.input(n, (B, 4)) for n in ("h", "c", "x"))
    new, cell = second.add_many(LstmCell(4, 4), own, h, c, name="lstm", hint="h c")
    _, _, z = root.add_many(Loop(second.done(new, cell, new), 2), None, None, y, name="second", hint="h c z")
    return Graph(root.done(z))


def skip_norm(graph: Graph) -> Graph:
    return fuse_skip_norm(graph, "cpu", "float32")


def flat_decoder() -> Graph:
    return inline(decoder(1))


def bare(graph: Graph) -> Graph:
    return bind(drop_dropout(inline(graph)))


PASSES: dict[str, tuple[Callable[[], Graph], Callable[[Graph], Graph], Stage]] = {
    "inline": (lambda: decoder(2), inline, "flat"),
    "drop_dropout": (flat_decoder, drop_dropout, "flat"),
    "bind": (lambda: drop_dropout(flat_decoder()), bind, "inference"),
    "drop_dead": (lambda: bare(translator()), drop_dead, "inference"),
    "fuse_skip_norm": (lambda: bare(decoder(2)), skip_norm, "part"),
    "fuse_attention": (lambda: bare(decoder(2, 8)), lambda g: fuse_attention(g, "cpu", "float32"), "part"),
    "scan_recurrent": (
        lambda: drop_dead(bare(translator())),
        lambda g: scan_recurrent(g, "cpu", "float32"),
        "inference",
    ),
    "window_caches": (lambda: bare(decoder(3, sees=(Band(3, 0), CAUSAL))), window_caches, "part"),
    "hoist": (looping, hoist, "part"),
    "split_encoder": (lambda: drop_dead(bare(translator())), lambda g: split(g)[0], "part"),
    "split_decoder": (lambda: drop_dead(bare(translator())), lambda g: split(g)[1], "part"),
}


@pytest.mark.parametrize("name", PASSES)
def test_before_and_after(name: str) -> None:
    make, rewrite, stage = PASSES[name]
    before = make()
    after = rewrite(before)
    verify(after, stage)
    expected = (FIXTURES / f"{name}.txt").read_text()
    assert f"{text(before)}\n--- {name} ---\n\n{text(after)}" == expected


@pytest.mark.parametrize("make", [decoder, translator])
def test_laws_hold_between_all_passes(make: Callable[[], Graph]) -> None:
    graph = make()
    verify(graph, "built")
    stages: list[tuple[Callable[[Graph], Graph], Stage]] = [
        (inline, "flat"), (drop_dropout, "flat"), (bind, "inference"), (drop_dead, "inference")
    ]  # fmt: skip
    for rewrite, stage in stages:
        graph = rewrite(graph)
        verify(graph, stage)
    for part in parts(graph).values():
        verify(part, "part")
        verify(fused(part, "cpu"), "part")


@pytest.mark.parametrize("rewrite", [inline, drop_dropout, bind, drop_dead, skip_norm])
def test_a_second_time_changes_nothing(rewrite: Callable[[Graph], Graph]) -> None:
    done = rewrite(inference(decoder(2)))
    assert text(rewrite(done)) == text(done)


def test_hoisting_a_second_time_changes_nothing() -> None:
    done = hoist(looping())
    assert text(hoist(done)) == text(done)


def test_expand_undoes_a_fusion() -> None:
    graph = inference(decoder(3))
    assert facts(expand(skip_norm(graph))) == facts(graph)


def test_expand_undoes_a_scan() -> None:
    graph = inference(translator())
    scanned = scan_recurrent(graph, "cpu", "float32")
    assert facts(scanned) != facts(graph) == facts(expand(scanned))


@pytest.mark.parametrize(
    ("layer", "on_cuda"),
    [
        (Rnn(3, 4), False), (Rnn(3, 4, activation="relu"), True), (Rnn(3, 4, activation="sigmoid"), True),
        (Gru(3, 4), False), (Gru(3, 4, update="write"), False), (Gru(3, 4, reset="before"), True),
        (Lstm(3, 4), False), (Lstm(3, 4, peepholes=True), True), (Lstm(3, 4, projection_size=2), True),
    ],
)  # fmt: skip
def test_which_layers_are_a_scan(layer: Recurrent, on_cuda: bool) -> None:
    """On a CPU all, over real steps alone; on CUDA those that cuDNN has not, which has none in bfloat16."""
    root = Builder("One")
    x, names = root.input("x", (B, T, 3)), " ".join(("y", *layer.rule.carried))
    graph = Graph(root.done(root.add_many(layer, x, None, name="layer", hint=names)[0]))
    for target, packed in (("cpu", True), ("portable", True), ("cuda", False)):
        (node,) = nodes(scan_recurrent(graph, target, "float32").root)  # type: ignore[arg-type]
        assert node.op == (Scanned(layer, packed) if packed or on_cuda else layer)
    (node,) = nodes(scan_recurrent(graph, "cuda", "bfloat16").root)  # type: ignore[arg-type]
    assert node.op == Scanned(layer, packed=False)


def facts(graph: Graph) -> dict[str, Any]:
    """What gives each value, whatever the order; a node without parameters has no name that matters."""
    return {v.name: (n.op, n.inputs, n.name if n.params else "") for n in nodes(graph.root) for v in n.outputs}


def test_inlining_keeps_every_public_name() -> None:
    graph = decoder(3)
    flat = inline(graph)
    assert [p.name for p in flat.root.params] == [p.name for p in graph.root.params]
    assert [s.name for s in flat.root.states] == [s.name for s in graph.root.states]


def test_equal_fusions_are_one_region() -> None:
    done = skip_norm(bare(decoder(4)))
    names = [line.split()[1] for line in text(done).splitlines() if line.startswith("region ")]
    # the norms of four layers are alike, the last one is another
    assert names == ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "Tiny"]


def test_the_support_matrix_is_the_table_of_forms() -> None:
    page = Path(__file__).parents[2] / "docs" / "support.md"
    assert page.read_text() == matrix(), "python -m seqspec.passes.support > docs/support.md"


def test_a_form_that_cannot_run_says_why() -> None:
    narrow, fitting = inference(decoder(2, 4)), inference(decoder(2, 8))
    assert declined(fuse_attention(narrow, "cpu", "float32"), "cpu", "float32") == [
        "not so: the width of a head is a multiple of 8"
    ] * 2  # fmt: skip
    assert declined(fuse_attention(fitting, "cpu", "float32"), "cpu", "float32") == []
    assert declined(fuse_attention(fitting, "cuda", "float32"), "cuda", "float32") == [
        "GroupQueryAttention on cuda is for float16, bfloat16"
    ] * 2  # fmt: skip
