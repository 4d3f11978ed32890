"""The emitted text, executed: against the NumPy reference of every op, in chunks, pickled, exported, in training."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import subprocess
import sys
import traceback
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hand_built import GRAPHS, WORDS, B, T, decoder
from torch import Tensor, nn

from seqspec.backends.torch import module
from seqspec.backends.weights import initial
from seqspec.diagnostics import CompileError
from seqspec.graph.builder import Builder
from seqspec.graph.dims import evaluate
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Graph, Init, Param
from seqspec.graph.signature import signature
from seqspec.ops.linear import Linear

SIZES = {"batch_size": 3, "sequence_length": 7, "encoder_sequence_length": 5, "past_sequence_length": 0}


def inputs(graph: Graph, **sizes: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(1)
    found = {}
    for port in signature(graph).inputs:
        shape = tuple(evaluate(size, SIZES | sizes) for size in port.shape)
        if port.name == "attention_mask":
            lengths = torch.tensor([shape[1], 0, 2, 1])[: shape[0], None]
            found[port.name] = (torch.arange(shape[1]) >= shape[1] - lengths).long()  # padded left, one row wholly
        elif port.dtype == "int64":
            found[port.name] = torch.randint(WORDS, shape, generator=random)
        else:
            found[port.name] = torch.randn(shape, generator=random, dtype=torch.float64)
    return found


def chunk(graph: Graph, whole: Mapping[str, Tensor], start: int, stop: int) -> dict[str, Tensor]:
    """The inputs of one call: a mask covers all so far, and what is read once comes in the first call."""
    once = {p.name for p in signature(graph).inputs if p.once}
    found = {}
    for name, value in whole.items():
        if name in once:
            found |= {name: value} if start == 0 else {}
        else:
            found[name] = value[:, :stop] if name == "attention_mask" else value[:, start:stop]
    return found


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return GRAPHS[request.param]


@pytest.mark.parametrize("sizes", [{}, {"batch_size": 1, "sequence_length": 1}, {"sequence_length": 0}])
def test_numbers_are_the_reference_s(graph: Graph, sizes: dict[str, int]) -> None:
    model = module(graph, seed=3).double().eval()
    given = inputs(graph, **sizes)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    expected, present = interpret(graph.root, np, weights, [given[v.name].numpy() for v in graph.root.inputs])
    got = model(**given)
    for one, other in zip(got, expected, strict=False):
        np.testing.assert_allclose(one.detach().numpy(), other, rtol=0, atol=1e-12)
    for state in signature(graph).states:
        np.testing.assert_allclose(got.state[state.past].detach().numpy(), present[state.path], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cuts", [(0, 3, 4, 7), (0, 7), tuple(range(8))])
@pytest.mark.parametrize("name", ["decoder", "hybrid", "translator", "loose_translator"])
def test_chunks_are_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    graph = GRAPHS[name]
    model = module(graph).double().eval()
    given = inputs(graph)
    whole, state, parts = model(**given), None, []
    for start, stop in pairwise(cuts):
        output = model(**chunk(graph, given, start, stop), state=state)
        state = output.state
        parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole.logits, rtol=0, atol=1e-12)
    assert list(state) == list(whole.state)
    for key, value in state.items():
        torch.testing.assert_close(value, whole.state[key], rtol=0, atol=1e-12)


def test_the_encoder_runs_once() -> None:
    graph = GRAPHS["translator"]
    model = module(graph).double()
    ran: list[str] = []
    for part in ("encoder", "decoder.key_proj", "decoder.bridge", "decoder.step"):
        model.get_submodule(part).register_forward_hook(lambda *_, part=part: ran.append(part))
    state = model(**chunk(graph, inputs(graph), 0, 1)).state
    assert ran == ["encoder", "decoder.key_proj", "decoder.bridge", "decoder.step"]
    model(**chunk(graph, inputs(graph), 1, 3), state=state)
    assert ran[4:] == ["decoder.step"] * 2


def test_what_is_none_is_left_out_of_the_state() -> None:
    model = module(GRAPHS["decoder"])
    ids = torch.ones(2, 3, dtype=torch.long)
    bare = model(ids)
    assert "past_state.attention_mask" not in bare.state
    later = model(ids, torch.tensor([[1, 1, 1], [0, 1, 1]]), state=bare.state)  # a mask that only the second call has
    assert later.state["past_state.attention_mask"].shape == (2, 6)


def test_a_state_of_another_model_is_refused() -> None:
    with pytest.raises(KeyError, match="no state called keys"):
        module(GRAPHS["decoder"])(torch.ones(1, 1, dtype=torch.long), state={"keys": torch.ones(1)})


def test_states_are_detached_and_reordered() -> None:
    graph = GRAPHS["hybrid"]
    model, given = module(graph).double().eval(), inputs(graph)
    first = model(**chunk(graph, given, 0, 4))
    assert not any(x.requires_grad for x in first.state.detach().values())
    rows = torch.tensor([2, 2, 0])
    turned = {name: value[rows] for name, value in chunk(graph, given, 4, 7).items()}
    straight = model(**chunk(graph, given, 4, 7), state=first.state)
    torch.testing.assert_close(model(**turned, state=first.state.reorder(rows)).logits, straight.logits[rows])


def test_dropout_acts_in_training_alone() -> None:
    model, ids = module(GRAPHS["decoder"]), torch.ones(2, 5, dtype=torch.long)
    assert not torch.equal(model(ids).logits, model(ids).logits)
    model.eval()
    assert torch.equal(model(ids).logits, model(ids).logits)


def test_checkpointing_recomputes_layers_and_changes_no_gradient() -> None:
    gradients, runs = [], []
    for checkpoint in (False, True):
        model = module(GRAPHS["hybrid"], checkpoint=checkpoint)
        ran: list[int] = []
        model.decoder.layers[1].ffn.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        torch.manual_seed(5)
        model(torch.arange(12).reshape(2, 6)).logits.square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
        runs.append(len(ran))
    assert runs == [1, 2]
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_weights_go_in_under_the_graph_s_names(graph: Graph) -> None:
    model = module(graph, seed=1)
    assert {k: tuple(v.shape) for k, v in model.state_dict().items()} == {p.name: p.shape for p in graph.root.params}
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    again = module(graph, arrays)
    assert all(torch.equal(again.state_dict()[name], torch.tensor(value)) for name, value in arrays.items())
    name = next(iter(arrays))
    before = arrays[name].copy()
    with torch.no_grad():
        again.get_parameter(name).add_(1)
    assert np.array_equal(arrays[name], before)  # the caller's arrays stay as they are
    assert all(p.requires_grad and p.device.type == "cpu" for p in model.parameters())


def test_wrong_weights_are_listed_together() -> None:
    weights = dict(module(GRAPHS["odds"]).state_dict())
    del weights["proj.bias"]
    weights["shared.proj.weight"] = torch.ones(2, 3)
    weights["head.weight"] = torch.ones(1)
    with pytest.raises(CompileError) as error:
        module(GRAPHS["odds"], weights)
    for text in (
        "missing: `proj.bias`",
        "not in the model: `head.weight`",
        "`shared.proj.weight` is [2, 3], not [6, 6]",
    ):
        assert text in str(error.value)


def test_starts_follow_the_seed_and_the_name_alone() -> None:
    few, more = module(decoder(2)).state_dict(), module(decoder(3)).state_dict()
    assert all(torch.equal(value, more[name]) for name, value in few.items())
    layers = [few[f"decoder.layers.{n}.attention.q_proj.weight"] for n in (0, 1)]
    assert not torch.equal(*layers)
    assert not torch.equal(
        layers[0], module(decoder(2), seed=1).state_dict()["decoder.layers.0.attention.q_proj.weight"]
    )


def test_starts_are_as_declared() -> None:
    def draw(*args: Any, shape: tuple[int, ...] = (300, 200)) -> Any:
        return initial(Param("p", shape, init=Init(*args)))

    assert not draw("zeros").any()
    assert (draw("ones") == 1).all()
    assert (draw("constant", (0.25,)) == 0.25).all()
    uniform, normal = draw("uniform", (0.5,)), draw("normal", (0.02,))
    assert uniform.dtype == normal.dtype == np.float32
    assert -0.5 <= uniform.min() < -0.499 < 0.499 < uniform.max() <= 0.5
    assert abs(uniform.mean()) < 0.005
    assert abs(uniform.std() - 1 / np.sqrt(12)) < 0.005
    assert abs(normal.mean()) < 0.0005
    assert abs(normal.std() - 0.02) < 0.0002
    gates = draw("blocks", (Init("uniform", (0.5,)), Init("ones"), Init("zeros")), shape=(9,))
    assert (gates[3:6] == 1).all()
    assert not gates[6:].any()
    assert gates[:3].all()


def test_a_copy_is_the_same_model_and_its_own(graph: Graph) -> None:
    model, given = module(graph).double().eval(), inputs(graph)
    twin = copy.deepcopy(model)
    assert type(twin) is type(model)
    assert torch.equal(twin(**given)[0], model(**given)[0])
    with torch.no_grad():
        next(twin.parameters()).add_(1)
    assert not torch.equal(next(twin.parameters()), next(model.parameters()))


def test_models_and_states_open_in_a_process_that_never_saw_them(tmp_path: Path) -> None:
    graph = GRAPHS["hybrid"]
    model, given = module(graph, checkpoint=True).double().eval(), inputs(graph)
    first = model(**chunk(graph, given, 0, 4))
    expected = model(**chunk(graph, given, 4, 7), state=first.state)
    torch.save([model, first, chunk(graph, given, 4, 7), expected.logits], tmp_path / "all.pt")
    (tmp_path / "layer.pickle").write_bytes(pickle.dumps(model.decoder.layers[0]))
    code = (
        "import sys, torch, pickle\n"
        "model, first, given, logits = torch.load(sys.argv[1] + '/all.pt', weights_only=False)\n"
        "assert torch.equal(model(**given, state=first.state).logits, logits)\n"
        "assert type(first.state).__name__ == 'State' and first.state.reorder(torch.tensor([0]))\n"
        "assert model.decoder.checkpoint and not model.training\n"
        "print(type(pickle.load(open(sys.argv[1] + '/layer.pickle', 'rb'))).__name__)"
    )
    for name in ("layer.pickle", "all.pt"):
        assert (tmp_path / name).stat().st_size < 200_000
    alone = code.splitlines()[0] + "\n" + code.splitlines()[-1]  # a part comes first, and the model never
    for script in (code, alone):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
        assert done.stdout.strip() == "LocalBlock", done.stderr


def test_the_text_shows_in_tools_and_tracebacks() -> None:
    model = module(GRAPHS["decoder"])
    assert "self.layers = nn.ModuleList" in inspect.getsource(type(model.decoder))
    with pytest.raises(ValueError, match="attention_mask") as error:
        model(torch.ones(1, 3, dtype=torch.long), torch.ones(1, 9, dtype=torch.long))
    assert "mask = padding_mask(input_ids" in "".join(traceback.format_exception(error.value))


def test_the_file_stands_alone(tmp_path: Path) -> None:
    """Without seqspec: run as a script, its parameters start as declared."""
    text = Path(__file__).parent / "golden" / "odds.py"
    code = (
        "import sys, runpy, torch\n"
        "model = runpy.run_path(sys.argv[1])['Odds']()\n"
        "assert not any(name.startswith('seqspec') for name in sys.modules)\n"
        "print(model(torch.ones(2, 3, 6)).joined.shape, model.scaled.gain[0].item())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(text)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "torch.Size([2, 3, 18]) 0.5", done.stderr


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    graph = GRAPHS["hybrid"]
    model, given = module(graph).eval().to(dtype), inputs(graph)
    output = model(**chunk(graph, given, 0, 4))
    output = model(**chunk(graph, given, 4, 7), state=output.state)
    assert output.logits.dtype == dtype
    assert {x.dtype for name, x in output.state.items() if "mask" not in name} == {dtype}


@pytest.mark.parametrize("name", ["decoder", "hybrid"])
def test_export_takes_any_batch_and_length(name: str) -> None:
    graph, any_size = GRAPHS[name], torch.export.Dim.AUTO
    model, given = module(graph).double().eval(), inputs(graph)
    free = {0: any_size, 1: any_size}
    program = torch.export.export(model, (), given, dynamic_shapes=dict.fromkeys(given, free)).module()
    other = inputs(graph, batch_size=2, sequence_length=4)
    torch.testing.assert_close(program(**other).logits, model(**other).logits)

    state = dict(model(**chunk(graph, given, 0, 3)).state)
    later = {"input_ids": given["input_ids"][:, 3:], "state": state}
    axes = {key: {0: any_size, 2 if x.ndim == 4 else 1: any_size} for key, x in state.items()}
    shapes = {"input_ids": free, "state": axes}
    program = torch.export.export(model, (), later, dynamic_shapes=shapes).module()
    state = dict(model(**inputs(graph, batch_size=2, sequence_length=5)).state)
    later = {"input_ids": given["input_ids"][:2, 3:5], "state": state}
    torch.testing.assert_close(program(**later).logits, model(**later).logits)
    assert type(program(**later).state).__name__ == "State"


@pytest.mark.parametrize("name", ["decoder", "odds", "translator"])
def test_compile_makes_one_graph(name: str) -> None:
    graph = GRAPHS[name]
    model, given = module(graph).double().eval(), inputs(graph)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    first, expected = compiled(**given), model(**given)
    torch.testing.assert_close(first[0], expected[0])
    if signature(graph).states:
        later = chunk(graph, given, 3, 5)
        later.pop("attention_mask", None)
        torch.testing.assert_close(compiled(**later, state=first.state)[0], model(**later, state=first.state)[0])


def test_equal_graphs_share_their_module_of_code() -> None:
    one, two = module(decoder(2)), module(decoder(2))
    assert type(one) is type(two)
    assert type(one) is not type(module(decoder(3)))


def test_a_model_can_have_another_name() -> None:
    m = Builder("Small")
    graph = Graph(m.done(m.add(Linear(2, 2), m.input("x", (B, T, 2)), name="proj", hint="y")))
    model = module(graph, name="Regression")
    assert type(model).__name__ == "Regression"
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    again: nn.Module = torch.load(buffer, weights_only=False)
    assert torch.equal(again(torch.ones(1, 1, 2)).y, model(torch.ones(1, 1, 2)).y)
