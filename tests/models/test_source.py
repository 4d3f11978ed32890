"""The emitted text: golden files, style, names, line breaks. What it computes is tested in test_torch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from call_counts import count_calls
from hand_built import GRAPHS, B, T, decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from seqspec.api import build
from seqspec.backends.source import source
from seqspec.backends.source.names import CONTAINER_ATTRIBUTES, MODULE_ATTRIBUTES, class_name, common_ending, snake
from seqspec.backends.source.past import Run, literal
from seqspec.backends.source.plan import Plan
from seqspec.backends.source.shapes import Letters
from seqspec.backends.source.wrap import WIDTH, split, statement
from seqspec.diagnostics import SeqspecError
from seqspec.graph.builder import Builder
from seqspec.graph.dims import ceil_div, dim
from seqspec.graph.ir import Graph
from seqspec.ops.cache import Append
from seqspec.ops.elementwise import Add, Multiply, Unary
from seqspec.ops.linear import Linear
from seqspec.ops.shape import MergeHeads, SplitHeads

GOLDEN = Path(__file__).parent / "golden"


def golden(spec: Path) -> Path:
    return GOLDEN / f"example_{spec.stem.replace('-', '_').replace('.', '_')}.py"


# an empty golden file is where to begin for another one
EXAMPLES = [spec for spec in sorted((Path(__file__).parents[2] / "examples").glob("*.yaml")) if golden(spec).exists()]


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name: str) -> None:
    """`python tests/models/test_source.py` writes them anew; read the difference like code."""
    assert source(GRAPHS[name]) == (GOLDEN / f"{name}.py").read_text()


@pytest.mark.parametrize("spec", EXAMPLES, ids=lambda path: path.stem)
def test_golden_examples(spec: Path) -> None:
    assert source(build(spec)) == golden(spec).read_text()


def test_every_golden_file_has_its_spec() -> None:
    assert {f.name for f in GOLDEN.glob("example_*.py")} == {golden(spec).name for spec in EXAMPLES}


def test_golden_files_are_as_ruff_writes_them() -> None:
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(GOLDEN)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_text_depends_on_nothing_but_the_graph_and_needs_no_torch() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from hand_built import GRAPHS; "
        "from seqspec.backends.source import source; texts = [source(g) for g in GRAPHS.values()]; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; import hashlib; "
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_eighty_layers_are_one_loop_and_quick() -> None:
    few, many = decoder(12), decoder(80)
    assert source(many) == source(few).replace("range(12)", "range(80)").replace("* 12", "* 80")
    assert count_calls(lambda: source(many)) < 3 * count_calls(lambda: source(few))
    assert count_calls(lambda: decoder(80)) < 7 * count_calls(lambda: decoder(12))  # the square would be 44 times


def test_kinds_of_layers_are_written_compactly() -> None:
    def stack(*kinds: str) -> str:
        text = source(decoder(len(kinds), kinds))
        return next(line.strip() for line in text.splitlines() if "self.layers = " in line)

    assert stack("A", "A") == "self.layers = nn.ModuleList(ABlock() for _ in range(2))"
    assert stack("A") == "self.layers = nn.ModuleList([ABlock()])"
    assert stack(*["A", ""] * 3) == "self.layers = nn.ModuleList(kind() for kind in [ABlock, Block] * 3)"
    assert stack("A", "", "", "", "") == "self.layers = nn.ModuleList(kind() for kind in [ABlock, *[Block] * 4])"


def region(graph: Graph, name: str) -> str:
    """The text of one class."""
    tree = ast.parse(text := source(graph))
    found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return str(ast.get_source_segment(text, found))


def test_variables_are_reused_when_dead_and_numbered_while_alive() -> None:
    m = Builder("Names")
    x = m.input("x", (B, T, 4))
    first = m.add(Linear(4, 4), x, name="first", hint="x")  # the input is read again below
    second = m.add(Linear(4, 4), first, name="second", hint="x")  # and `first` is not
    text = region(Graph(m.done(m.add(Add(), x, second, hint="torch"))), "Names")
    assert "x_2 = self.first(x)" in text
    assert "x_2 = self.second(x_2)" in text
    assert "return Output(x + x_2)" in text


def test_an_expression_that_an_op_mentions_twice_gets_a_name() -> None:
    m = Builder("Twice")
    x = m.input("x", (B, T, 4))
    y = m.add(Linear(4, 4), x, name="proj")
    text = region(Graph(m.done(m.add(Multiply(), y, y, hint="y"))), "Twice")
    assert text.count("self.proj(x)") == 1


def test_long_expressions_are_cut_into_named_ones() -> None:
    m = Builder("Long")
    x = m.input("x", (B, T, 4))
    for n in range(12):
        x = m.add(Unary("gelu_tanh"), m.add(Linear(4, 4), x, name=f"a_rather_long_name_{n}"))
    text = source(Graph(m.done(x)))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.count("F.gelu(") == 12


def test_a_variable_leaves_the_name_of_a_helper_alone() -> None:
    m = Builder("Shadow")
    x = m.input("x", (B, T, 4))
    y = m.add(SplitHeads(2, 2), x, hint="append")
    kept = m.add(Append("key"), y, hint="append")
    text = region(Graph(m.done(m.add(MergeHeads(), m.add(Add(), kept, kept), hint="y"))), "Shadow")
    assert "append_2 = append(past, append_2)" in text


def test_a_size_of_the_past_is_read_before_anything_else() -> None:
    text = region(GRAPHS["hybrid"], "Decoder")
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("past_length = 0 if past is None else past_layers[0][0].shape[2]")
    assert lines[at - 1] == "past_attention_mask, past_layers = past or (None, None)"


@pytest.mark.parametrize("name", ["forward", "training", "checkpoint", "class", "a b", "x;import os", "__init__", "é"])
def test_a_part_that_torch_could_not_have_is_refused(name: str) -> None:
    m = Builder("Bad")
    x = m.input("x", (B, T, 4))
    with pytest.raises(SeqspecError):
        source(Graph(m.done(m.add(Linear(4, 4), x, name=name, hint="y"))))


@pytest.mark.parametrize("name", ["self", "past", "state", "torch", "lambda", "x-y", "zip"])
def test_an_input_that_python_could_not_have_is_refused(name: str) -> None:
    m = Builder("Bad")
    x = m.input(name, (B, T, 4))
    with pytest.raises(SeqspecError):
        source(Graph(m.done(m.add(Linear(4, 4), x, name="proj", hint="y"))))


@pytest.mark.parametrize("hint", ["state", "_hidden", "x-y", "class"])
def test_an_output_that_a_tuple_could_not_have_is_refused(hint: str) -> None:
    m = Builder("Bad")
    x = m.input("x", (B, T, 4))
    with pytest.raises(SeqspecError):
        source(Graph(m.done(m.add(Linear(4, 4), x, name="proj", hint=hint))))


def test_a_dot_in_a_public_name_is_an_underscore_in_python() -> None:
    m = Builder("Dotted")
    x = m.input("initial_state.0.h", (B, T, 4))
    text = source(Graph(m.done(m.add(Linear(4, 4), x, name="proj", hint="attentions.3"))))
    assert "def forward(self, initial_state_0_h: Tensor) -> Output:" in text
    assert "    attentions_3: Tensor" in text


def test_a_method_leaves_the_names_of_parts_alone() -> None:
    m = Builder("Model")
    inner = m.child("Proj")
    x = inner.input("x", (B, T, 4))
    part = inner.done(inner.add(Linear(4, 4), x, name="first"))
    y = m.call(part, "", m.input("x", (B, T, 4)))
    text = source(Graph(m.done(m.add(Linear(4, 4), y, name="proj", hint="y"))))
    assert "self.proj(self.proj_2(x))" in text


def test_without_a_state_there_is_no_first_call() -> None:
    m = Builder("Model")
    ids = m.input("x", (B, T, 4))
    graph = Graph(m.done(m.add(Linear(4, 4), ids, name="proj", hint="y")), frozenset({"x"}))
    assert source(graph) == source(Graph(graph.root))


def test_two_parts_of_one_name_are_refused() -> None:
    m = Builder("Bad")
    x = m.input("x", (B, T, 4))
    x = m.add(Linear(4, 4), x, name="proj")
    with pytest.raises(SeqspecError, match="two parts are called proj"):
        source(Graph(m.done(m.add(Linear(4, 4), x, name="proj", hint="y"))))


def test_no_name_of_a_spec_becomes_code() -> None:
    m = Builder("x(); import os #")
    x = m.input("x", (B, T, 4))
    y = m.add(Linear(4, 4), x, name="proj", hint="y();#")
    y = m.add(Add(), y, y, hint="logits")
    doc = 'quotes """\nimport os\n\\" and ends with a backslash \\'
    tree = ast.parse(source(Graph(m.done(y)), doc=doc))
    imported = [n for n in ast.walk(tree) if isinstance(n, ast.Import)]
    assert [alias.name for n in imported for alias in n.names] == []
    assert "XImportOs" in [n.name for n in tree.body if isinstance(n, ast.ClassDef)]


def test_names_taken_by_torch_are_known() -> None:
    torch = pytest.importorskip("torch")
    public = {n for n in dir(torch.nn.Module()) if not n.startswith("_")} - {"smart_apply"}  # which transformers adds
    assert public <= MODULE_ATTRIBUTES
    assert {n for n in dir(torch.nn.ModuleDict()) if not n.startswith("_")} - {"smart_apply"} <= CONTAINER_ATTRIBUTES


def test_words() -> None:
    assert snake("LearnedPositions") == "learned_positions"
    assert snake("GRUCell") == "gru_cell"
    assert class_name("llama-3.2 1b") == "Llama321b"
    assert class_name("3d") == "Model3d"
    assert common_ending("LocalFeedForward", "GlobalFeedForward") == "FeedForward"
    assert common_ending("Encoder", "Decoder") == ""


def test_names_of_states() -> None:
    run = Run(("2", "3"), (("a.2.key", "a.2.value"), ("a.3.key", "a.3.value")))
    assert literal(run) == '[(f"a.{n}.key", f"a.{n}.value") for n in range(2, 4)]'
    assert eval(literal(run)) == [("a.2.key", "a.2.value"), ("a.3.key", "a.3.value")]
    numbers = tuple("0123")
    mixed = Run(numbers, tuple(f"a.{n}.{'k' if int(n) % 2 else 'h'}" for n in numbers))
    assert eval(literal(mixed)) == list(mixed.layers)
    uneven = Run(("0", "1", "2"), ("a.0.h", "a.1.k", "a.2.k"))
    assert eval(literal(uneven)) == list(uneven.layers)
    for bad in ('a"b', "a{b}", "a b"):
        with pytest.raises(SeqspecError):
            literal(bad)


def test_sizes_have_letters() -> None:
    m = Builder("Sizes")
    m.input("x", (B, T, dim("past_sequence_length") + T, ceil_div(T, 2), T * 3 - 1))
    letters = Letters(m.done())
    assert letters.shape(m.inputs[0].shape) == "[B, T, S, ceil(T / 2), 3 * T - 1]"
    e = Builder("Encoder")
    e.input("x", (B, dim("encoder_sequence_length")))
    assert Letters(e.done()).shape(e.inputs[0].shape) == "[B, T]"  # the only time it knows


def test_the_plan_runs_once_what_the_first_call_alone_can_compute() -> None:
    graph = GRAPHS["translator"]
    plan = Plan(graph.root, frozenset(v for v in graph.root.inputs if v.name in graph.once))
    assert [s.once for s in plan.statements] == [True, True, False, False]
    assert {v.hint for v in plan.once} >= {"memory", "first"}


calls = st.recursive(
    st.sampled_from(["x", "self.norm", "None", "1e-05", '"a, (b"']),
    lambda inner: st.builds(
        lambda name, args: f"{name}({', '.join(args)})",
        st.sampled_from(["f", "torch.cat", "self.projection"]),
        st.lists(inner, max_size=6),
    ),
    max_leaves=40,
)


@given(calls, st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_broken_lines_mean_the_same(call: str, depth: int) -> None:
    lines = statement(f"x = f({call}, {call})", 4 * depth)
    assert ast.dump(ast.parse("if 1:\n" + "\n".join("    " + line for line in lines))) == ast.dump(
        ast.parse(f"if 1:\n{' ' * (4 + 4 * depth)}x = f({call}, {call})")
    )
    assert all(len(line) <= WIDTH or "(" not in line.rstrip("(,") for line in lines)


def test_split() -> None:
    assert split('a, f(b, c), "d, e", [g, h]') == ["a", "f(b, c)", '"d, e"', "[g, h]"]


if __name__ == "__main__":
    for key, graph in GRAPHS.items():
        (GOLDEN / f"{key}.py").write_text(source(graph))
    for spec in EXAMPLES:
        golden(spec).write_text(source(build(spec)))
