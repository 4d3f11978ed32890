"""The printed graph, each invariant violated once, and the graph in networkx."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from seqspec.diagnostics import SeqspecError
from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, ENCODER_TIME, TIME, dim
from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value
from seqspec.graph.nx import critical_path, dead, difference, reads, to_networkx
from seqspec.graph.text import text
from seqspec.graph.verify import INVARIANTS, Stage, verify
from seqspec.ops.cache import Append, Hold
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add, Unary
from seqspec.ops.gru import Gru
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loop import Loop
from seqspec.ops.shape import SplitHeads
from seqspec.passes.inline import inline

B, T, E = dim(BATCH), dim(TIME), dim(ENCODER_TIME)
SIZES = {BATCH: 2, TIME: 3}


def block(parent: Builder, width: int = 4) -> Region:
    b = parent.child("Block")
    x = b.input("x", (B, T, width))
    return b.done(b.add(Add(), x, b.add(Unary("tanh"), b.add(Linear(width, width), x, name="proj"))))


def stacked(layers: int = 2) -> Graph:
    root = Builder("Stacked")
    x = root.input("features", (B, T, 4))
    for index in range(layers):
        x = root.call(block(root), f"layers.{index}", x)
    table = Param("layers.0.proj.weight", (4, 4))
    return Graph(root.done(root.add(TiedLinear(), x, table, hint="logits")))


PRINTED = """\
region Block
  input  x: float[batch_size, sequence_length, 4]
  v1: float[batch_size, sequence_length, 4] = proj: Linear(4, 4) x
  v2: float[batch_size, sequence_length, 4] = Unary('tanh') v1
  v3: float[batch_size, sequence_length, 4] = Add() x, v2
  return v3

region Stacked
  input  features: float[batch_size, sequence_length, 4]
  v1: float[batch_size, sequence_length, 4] = layers.0: @Block features
  v2: float[batch_size, sequence_length, 4] = layers.1: @Block v1
  v3: float[batch_size, sequence_length, 4] = TiedLinear() v2, %layers.0.proj.weight
  return logits = v3
"""


def test_text() -> None:
    assert text(stacked()) == PRINTED


def test_text_of_states_options_and_different_regions_of_a_name() -> None:
    root = Builder("Root")
    x = root.input("x", (B, T, 4), optional=True)
    inner = root.child("Part")
    y = inner.input("y", (B, T, 4))
    first = inner.done(inner.add(Append("key"), inner.add(SplitHeads(2, 2), y), name="cache"))
    other = root.child("Part")
    second = other.done(other.like(x, "z"))
    root.call(first, "a", x)
    printed = text(Graph(root.done(root.call(second, "b", x)), frozenset({"x"})))
    assert "input  !x: float[batch_size, sequence_length, 4]?" in printed
    assert "    state  key: float[batch_size, 2, past_sequence_length, 2] -> v2" in printed
    assert "= b: @Part.2 x" in printed


# invariants


def region(*items: Node | Call, inputs: tuple[Value, ...] = (), outputs: tuple[Value, ...] = ()) -> Graph:
    return Graph(Region("Broken", inputs or (X,), items, outputs))


X, Y, Z = (Value(name, (B, T, 4)) for name in "xyz")
TANH = Unary("tanh")


def misread() -> Graph:
    return region(Node(TANH, (X,), (Y,)), Node(Add(), (Y, replace(Y, shape=(B, 1, 4))), (Z,)))


def carrying_body() -> Graph:
    step = Builder("Step")
    h, x = step.input("h", (B, 4)), step.input("x", (B, 1, 4))
    step.add(Append("key"), step.add(SplitHeads(2, 2), x))

    class Careless(Loop):
        def infer(self, *inputs: Value | None) -> tuple[()]:
            return ()

        def states(self, *inputs: Value | None) -> tuple[()]:
            return ()

    return region(Node(Careless(step.done(h), 1), (None, X), ()))


def unheld() -> Graph:
    """An encoder's value read on every call."""
    graph = region(
        Node(TANH, (replace(X, name="memory"),), (Y,)),
        Node(Add(), (X, Y), (Z,)),
        inputs=(X, replace(X, name="memory")),
        outputs=(Z,),
    )
    return replace(graph, once=frozenset({"memory"}))


class Shrinking(Append):
    """A cache whose present is another size than past and new together."""

    def states(self, x: Value) -> tuple[object, ...]:  # type: ignore[override]
        (state,) = super().states(x)
        return (replace(state, shape=(*state.shape[:3], 1)),)


HEADS = Value("heads", (B, 2, T, 2))
BREACHES: dict[str, tuple[Callable[[], Graph], Stage]] = {
    "y is read before it is made": (lambda: region(Node(TANH, (Y,), (Z,))), "built"),
    "y is made twice": (lambda: region(Node(TANH, (X,), (Y,)), Node(TANH, (X,), (Y,))), "built"),
    "the output z is never made": (lambda: region(Node(TANH, (X,), (Y,)), outputs=(Z,)), "built"),
    "y is made as float[batch_size, sequence_length, 4] and read as float[batch_size, 1, 4]": (misread, "built"),
    "its outputs are declared": (lambda: region(Node(TANH, (X,), (replace(Y, dtype="int64"),))), "built"),
    "a linear map of width 5 is given": (lambda: region(Node(Linear(5, 4), (X,), (Y,))), "built"),
    "x is float[batch_size, sequence_length, 5] and gets": (
        lambda: region(Call(block(Builder("R"), 5), "a", (X,), (replace(Y, shape=(B, T, 5)),))),
        "built",
    ),
    "two parts own proj.weight": (
        lambda: region(Node(Linear(4, 4), (X,), (Y,), "proj"), Node(Linear(4, 4, bias=False), (X,), (Z,), "proj")),
        "built",
    ),
    "nothing owns the tie table[9, 4]": (
        lambda: region(Node(TiedLinear(), (X, Param("table", (9, 4))), (replace(Y, shape=(B, T, 9)),))),
        "built",
    ),
    "the past is": (
        lambda: region(
            Node(Shrinking("key"), (HEADS,), tuple(replace(Y, shape=t.shape) for t in Append("key").infer(HEADS))),
            inputs=(HEADS,),
        ),
        "built",
    ),
    "the body of a loop carries key": (carrying_body, "built"),
    "layers.0 is a call": (stacked, "flat"),
    "reads y on every call": (unheld, "flat"),
    "dropout is left at y": (lambda: region(Node(Dropout(0.1), (X,), (Y,))), "inference"),
    "dropout is left at z": (
        lambda: region(
            Node(Gru(4, 4, num_layers=2, dropout=0.1), (X,), (Z, replace(Y, shape=(B, 2, 4)))),
        ),
        "inference",
    ),
    "the input x is optional": (lambda: region(inputs=(replace(X, optional=True),)), "inference"),
}


@pytest.mark.parametrize("message", BREACHES)
def test_every_violation_is_found(message: str) -> None:
    make, stage = BREACHES[message]
    with pytest.raises(SeqspecError) as caught:
        verify(make(), stage)
    assert caught.value.code == "SEQ304"
    assert message in caught.value.diagnostics[0].message


def test_every_law_is_broken_above() -> None:
    broken = set()
    for make, stage in BREACHES.values():
        broken |= {invariant.__name__ for invariant in INVARIANTS[stage] if list(invariant(make()))}
    assert broken == {invariant.__name__ for each in INVARIANTS.values() for invariant in each}


def test_a_held_value_may_be_read_late_and_a_state_may_start_once() -> None:
    root = Builder("Root")
    x, memory = root.input("x", (B, T, 4)), root.input("memory", (B, 1, 4))
    held = root.add(Hold("memory"), memory)
    y, _ = root.add_many(Gru(4, 4, stateful=True), x, None, root.add(TANH, memory), name="gru")
    graph = inline(Graph(root.done(root.add(Add(), y, held)), frozenset({"memory"})))
    verify(graph, "flat")


def test_one_part_called_twice_shares_its_parameters() -> None:
    root = Builder("Root")
    x = root.input("x", (B, T, 4))
    shared = block(root)
    graph = Graph(root.done(root.call(shared, "layer", root.call(shared, "layer", x))))
    verify(graph, "built")
    verify(inline(graph), "flat")
    assert [p.name for p in inline(graph).root.params] == ["layer.proj.weight", "layer.proj.bias"]


# networkx


def test_nodes_are_ops_by_path_and_edges_are_values() -> None:
    drawn = to_networkx(stacked())
    assert set(drawn) == {
        "input features", "parameter layers.0.proj.weight", "output logits", "TiedLinear",
        *(f"layers.{n}{op}" for n in range(2) for op in (".proj/Linear", "/Unary", "/Add")),
    }  # fmt: skip
    assert drawn.nodes["layers.1.proj/Linear"]["op"] == "Linear(4, 4)"
    assert drawn.nodes["layers.1.proj/Linear"]["shapes"] == [(B, T, 4)]
    (edge,) = drawn.get_edge_data("layers.0/Add", "layers.1.proj/Linear").values()
    assert edge["shape"] == (B, T, 4)
    assert drawn.number_of_edges("layers.0/Add", "layers.1/Add") == 1


def test_a_value_read_twice_is_two_edges() -> None:
    root = Builder("Root")
    x = root.input("x", (B, T, 4))
    drawn = to_networkx(Graph(root.done(root.add(Add(), x, x, hint="y"))))
    assert sorted(e["argument"] for e in drawn.get_edge_data("input x", "Add").values()) == [0, 1]


def test_dead_ops_and_what_an_output_reads() -> None:
    root = Builder("Root")
    x, unread = root.input("x", (B, T, 4)), root.input("unread", (B, T, 4))
    root.add(Linear(4, 9), unread, name="forgotten")
    graph = Graph(root.done(root.add(TANH, x, hint="y")))
    assert dead(graph) == ["forgotten/Linear"]
    assert reads(graph, "y") == ["x"]
    assert dead(stacked()) == []


def test_critical_path_takes_the_dearer_branch() -> None:
    root = Builder("Root")
    x = root.input("x", (B, T, 4))
    wide = root.add(Linear(8, 4, bias=False), root.add(Linear(4, 8, bias=False), x, name="up"), name="down")
    graph = Graph(root.done(root.add(Add(), root.add(TANH, x), wide, hint="y")))
    chain, flops = critical_path(graph, SIZES)
    assert chain == ["up/Linear", "down/Linear", "Add"]
    assert flops == 2 * (2 * 3 * 4 * 8) * 2 + 2 * 3 * 4  # by hand: two maps of 4 x 8 on 6 rows, then a sum


def test_difference_names_what_changed() -> None:
    assert not difference(stacked(), stacked())
    longer = difference(stacked(2), stacked(3))
    assert longer.removed == ()
    assert longer.added == ("layers.2.proj/Linear", "layers.2/Unary", "layers.2/Add")
    changed = difference(mapped(bias=True), mapped(bias=False)).changed
    assert [(name, before.split(" -> ")[0], after.split(" -> ")[0]) for name, before, after in changed] == [
        ("a/Linear", "Linear(4, 4)", "Linear(4, 4, bias=False)")
    ]


def mapped(bias: bool) -> Graph:
    root = Builder("Mapped")
    x = root.input("features", (B, T, 4))
    return Graph(root.done(root.add(Linear(4, 4, bias), x, name="a", hint="y")))
