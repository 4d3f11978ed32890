"""What the ONNX writer promises the faces of ops: nodes once, weights once, nothing that nobody reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from call_counts import count_calls
from onnx.reference import ReferenceEvaluator
from small_models import SPECS, close, make, opened, random_weights

from seqspec.backends.onnx import model
from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, TIME, dim
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Graph, Node, Param, Value
from seqspec.ops.base import OnnxWriter
from seqspec.ops.elementwise import Add, Multiply, Unary
from seqspec.ops.fused import FusedOp
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loop import Loop
from seqspec.ops.norm import LayerNorm, RMSNorm
from seqspec.passes.fuse_skip_norm import fuse_skip_norm
from seqspec.passes.inline import inline
from seqspec.passes.pipeline import fused, inference

B, T = dim(BATCH), dim(TIME)


class Written(Unary):
    """An op whose ONNX face is the test's: `emit` is set on the class."""

    emit: Any = None

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (4, 4)), Param("other", (4, 4)))

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (type(self).emit(o, x),)


def written(emit: Any) -> ir.Model:
    """The model of one op with this face, x[B, T, 4] -> y."""
    root = Builder("Root")
    x = root.input("x", (B, T, 4))
    op = type("Written", (Written,), {"emit": staticmethod(emit)})("tanh")
    return model(Graph(root.done(root.add(op, x, name="op", hint="y"))))


def kinds(made: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in made.graph)


def test_an_equal_node_is_written_once() -> None:
    made = written(lambda o, x: o.Add(o.Tanh(x), o.Mul(o.Tanh(x), o.Tanh(o.Identity(x)))))
    assert kinds(made) == {"Tanh": 2, "Identity": 1, "Mul": 1, "Add": 1}


def test_attributes_tell_nodes_apart() -> None:
    made = written(lambda o, x: o.Add(o.Softmax(x, axis=1), o.Add(o.Softmax(x, axis=2), o.Softmax(x, axis=1))))
    assert kinds(made)["Softmax"] == 2


def test_what_nobody_reads_is_not_there() -> None:
    def emit(o: OnnxWriter, x: Any) -> Any:
        o.Add(o.MatMul(x, o.param("other")), o.scalar(7.0))
        return o.MatMul(x, o.param("weight"))

    made = written(emit)
    assert kinds(made) == {"MatMul": 1}
    assert list(made.graph.initializers) == ["op.weight"]


def test_constants_and_derived_weights_are_stored_once() -> None:
    def emit(o: OnnxWriter, x: Any) -> Any:
        first, second = (o.derived("turned", (4, 4), lambda np, w: w.T, "weight") for _ in range(2))
        return o.Add(o.Mul(o.MatMul(o.MatMul(x, first), second), o.scalar(2.0)), o.scalar(2.0))

    assert sorted(written(emit).graph.initializers) == ["float(2.0)", "op.weight.turned"]


def test_a_number_is_typed_by_the_schema() -> None:
    made = written(lambda o, x: o.LeakyRelu(x, alpha=1))
    (node,) = made.graph
    assert node.attributes["alpha"].type == ir.AttributeType.FLOAT


def test_sizes_known_and_sizes_measured() -> None:
    made = written(lambda o, x: o.Reshape(x, o.Concat(o.size(x, 0), o.size(x, -2), o.size(x, -1), axis=0)))
    assert kinds(made)["Shape"] == 2  # the last size is 4, and no node
    assert made.graph.outputs[0].shape == [BATCH, TIME, 4]


def test_an_input_given_back_is_copied() -> None:
    made = written(lambda o, x: x)
    assert [v.name for v in made.graph.outputs] == ["y"]
    onnx.checker.check_model(ir.to_proto(made), full_check=True)


def test_tied_weights_are_one_initializer() -> None:
    root = Builder("Root")
    x = root.input("x", (B, T, 4))
    y = root.add(TiedLinear(), root.add(TiedLinear(), x, Param("a.weight", (4, 4))), Param("a.weight", (4, 4)))
    z = root.add(Add(), y, root.add(Linear(4, 4), x, name="a"))
    made = model(Graph(root.done(z)))
    assert sorted(made.graph.initializers) == ["a.bias", "a.weight", "a.weight.transposed"]


# loops


def loop() -> Graph:
    """h' = tanh(W h + x + c) over time, c being an invariant of which the body takes the tanh."""
    root = Builder("Root")
    xs, c = root.input("xs", (B, T, 4)), root.input("c", (B, 4))
    step = root.child("Step")
    h, x, fixed = (step.input(n, (B, 4)) for n in ("h", "x", "c"))
    moved = step.add(Add(), step.add(Linear(4, 4), h, name="proj"), x)
    moved = step.add(Unary("tanh"), step.add(Add(), moved, step.add(Unary("tanh"), fixed)))
    body = step.done(moved, step.add(Multiply(), moved, x))
    _, ys = root.add_many(Loop(body, 1), None, xs, c, name="loop", hint="h ys")
    return Graph(root.done(ys))


def test_what_does_not_change_leaves_the_loop() -> None:
    made = model(loop())
    (scan,) = (n for n in made.graph if n.op_type == "Scan")
    inside = Counter(n.op_type for n in scan.attributes["body"].as_graph())
    assert inside["Tanh"] == 1
    assert any(n.op_type == "Tanh" and n.inputs[0] is made.graph.inputs[1] for n in made.graph)
    assert not scan.attributes["body"].as_graph().initializers


@pytest.mark.parametrize("time", [0, 1, 5])
@pytest.mark.parametrize("batch", [1, 3])
def test_loops_of_any_length(time: int, batch: int) -> None:
    graph = loop()
    weights, rng = random_weights(graph), np.random.default_rng(0)
    xs, c = (rng.normal(size=s).astype(np.float32) for s in ((batch, time, 4), (batch, 4)))
    past = np.zeros((batch, 4), np.float32)
    (name,) = (i.name for i in model(graph).graph.inputs if i.name not in ("xs", "c"))
    found = opened(ir.to_proto(model(graph, weights))).run(["ys"], {"xs": xs, "c": c, name: past})[0]
    wanted, _ = interpret(graph.root, np, {k: v.astype(float) for k, v in weights.items()}, (xs, c), {"loop.h": past})
    close(found, wanted[0])


# fused ops


def norms(*ops: Any) -> Graph:
    """x + y, normed by each op in turn and added to x again."""
    root = Builder("Root")
    x, y = root.input("x", (B, T, 4)), root.input("y", (B, T, 4))
    for number, op in enumerate(ops):
        y = root.add(op, root.add(Add(), x, y), name=f"norm_{number}")
    return inline(Graph(root.done(y)))


ALL_NORMS = (LayerNorm(4), LayerNorm(4, 1e-2), LayerNorm(4, bias=False), RMSNorm(4), RMSNorm(4, 1e-1))


def test_one_function_serves_all_values_of_an_attribute() -> None:
    made = model(norms(*ALL_NORMS))
    assert sorted(made.functions) == [
        ("com.microsoft", "SkipLayerNormalization", ""),
        ("com.microsoft", "SkipLayerNormalization", "1"),  # the one without a bias is another
        ("com.microsoft", "SkipSimplifiedLayerNormalization", ""),
    ]


@pytest.mark.parametrize("op", ALL_NORMS, ids=str)
def test_kernel_function_and_reference_agree(op: Any) -> None:
    graph = norms(op)
    weights, rng = random_weights(graph), np.random.default_rng(1)
    x, y = (rng.normal(size=(2, 3, 4)).astype(np.float32) for _ in "xy")
    (wanted,), _ = interpret(graph.root, np, {k: v.astype(float) for k, v in weights.items()}, (x, y))
    proto = ir.to_proto(model(graph, weights))
    close(opened(proto).run(None, {"x": x, "y": y})[0], wanted)
    close(ReferenceEvaluator(proto).run(None, {"x": x, "y": y})[0], wanted)  # type: ignore[index]


def test_a_fused_op_is_worth_its_parts() -> None:
    graph = norms(LayerNorm(4))
    (node,) = (n for n in fuse_skip_norm(graph, "cpu", "float32").root.items if isinstance(n, Node))
    assert isinstance(node.op, FusedOp)
    sized = [Value(n, (2, 3, 4)) for n in "xy"]
    assert node.op.flops(*sized) == Add().flops(*sized) + LayerNorm(4).flops(sized[0])
    assert [t.shape for t in node.op.infer(*sized)] == [(2, 3, 4)] * 2
    weights = {"weight": np.arange(4.0), "bias": np.ones(4)}
    x, y = np.random.default_rng(2).normal(size=(2, 2, 3, 4))
    normed, total = node.op.reference(np, weights, x, y)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(normed, LayerNorm(4).reference(np, weights, x + y)[0])


def test_sums_that_broadcast_are_left_alone() -> None:
    root = Builder("Root")
    x, row = root.input("x", (B, T, 4)), root.input("row", (1, T, 4))
    graph = inline(Graph(root.done(root.add(LayerNorm(4), root.add(Add(), x, row), name="norm"))))
    left = fuse_skip_norm(graph, "cpu", "float32").root.items
    assert not any(isinstance(n.op, FusedOp) for n in left if isinstance(n, Node))


def test_eighty_layers_are_prepared_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes tell nodes apart by name and identity; comparing regions by value would grow with the square."""

    def prepare(layers: int) -> int:
        monkeypatch.setitem(SPECS, "deep", SPECS["llama"].replace("repeat: 2", f"repeat: {layers}"))
        graph = make("deep")
        return count_calls(lambda: fused(inference(graph), "cpu"))

    assert prepare(80) < 4.5 * prepare(20)
