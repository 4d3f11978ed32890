"""What the functions of the package refuse, each argument by name: never an error of Python's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_targets import Compiled, fault

import seqspec
from seqspec import api
from seqspec.cli.main import run
from seqspec.diagnostics import SeqspecError

Get = Callable[[str], Compiled]
IDS = np.array([[5, 6, 7]])
SPEC = {
    "seqspec": 1,
    "name": "small",
    "encoder": {"input": {"kind": "features", "size": 3}, "layers": [{"kind": "gru", "hidden_size": 4}]},
}


class OfBytes:
    """A path as `os` allows it and no text has it."""

    def __fspath__(self) -> bytes:
        return b"model.yaml"


ODD: list[Any] = [None, 1, 1.5, True, [], (1,), {1}, b"x", object(), OfBytes(), 10**30, float("nan"), np.zeros(2)]
PATHS = [*ODD, "", "a\0b", "half \ud800"]
STEPS: list[Callable[[Any], Any]] = [
    seqspec.check,
    seqspec.load,
    seqspec.build,
    seqspec.to_source,
    seqspec.to_torch,
    seqspec.report,
    api.resolved,
]


def named(odd: list[Any]) -> Any:
    return pytest.mark.parametrize("odd", odd, ids=lambda value: type(value).__name__)


@named(ODD)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_is_no_spec(step: Callable[[Any], Any], odd: Any) -> None:
    with pytest.raises(SeqspecError) as caught:
        step(odd)
    assert caught.value.code == ("SEQ417" if isinstance(odd, OfBytes) else "SEQ116")
    assert "a path" in str(caught.value)


@named(PATHS)
def test_what_is_no_path(odd: Any) -> None:
    for call in (
        lambda: seqspec.to_onnx(SPEC, odd),
        lambda: api.write_torch(SPEC, odd),
        lambda: api.write_source(SPEC, odd),
        lambda: seqspec.verify(odd),
        lambda: seqspec.import_model(odd, "out"),
        lambda: seqspec.import_model(".", odd),
    ):
        with fault("SEQ417", "a path"):
            call()
    with fault("SEQ517", "`path`", "a path"):
        seqspec.Session(odd)


@pytest.mark.parametrize("name", ["target", "logits", "quantize", "dtype", "seed", "verify", "told", "weights"])
def test_options_of_to_onnx(name: str, tmp_path: Path) -> None:
    taken: dict[str, Any] = {"seed": (int,), "verify": (bool,)}
    nothing = ("quantize", "told", "weights")
    for odd in ODD:
        if (odd is None and name in nothing) or type(odd) in taken.get(name, ()):
            continue
        with fault("SEQ411" if name == "dtype" else "SEQ417", "float32" if name == "dtype" else f"`{name}` takes"):
            seqspec.to_onnx(SPEC, tmp_path / "out", **{name: odd})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "word", "meant"),
    [("target", "cdua", "cuda"), ("logits", "lats", "last"), ("quantize", "int_8", "int8"), ("dtype", "half16", "")],
)
def test_a_word_that_is_meant(
    name: str, word: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(api.resolved(SPEC))
    with fault("SEQ411" if name == "dtype" else "SEQ417", word, f"did you mean `{meant}`" if meant else "float16"):
        seqspec.to_onnx(SPEC, tmp_path / "out", **{name: word})  # type: ignore[arg-type]
    code = run(["compile", str(tmp_path / "a.yaml"), "--to", "onnx", "-o", str(tmp_path / "out"), f"--{name}", word])
    said = capsys.readouterr().err
    assert code == (1 if name == "dtype" else 2)
    assert word in said
    assert (f"Did you mean `{meant}`" if meant else "float16") in said


@pytest.mark.parametrize("name", ["batch", "time", "past", "source_time", "dtype"])
def test_options_of_report(name: str) -> None:
    for odd in ODD:
        if odd is None and name in ("time", "source_time"):
            continue
        if type(odd) is int and name != "dtype":
            continue
        with fault("SEQ417", f"`{name}` takes"):
            seqspec.report(SPEC, **{name: odd})
    with fault("SEQ417", "`past`", "-1"):
        seqspec.report(SPEC, past=-1)


def test_overrides_are_a_list() -> None:
    for odd in (None, "name=x", 1, b"name=x", ["name=x", 1], {"name": "x"}):
        with fault("SEQ417", "KEY=VALUE"):
            seqspec.check(SPEC, odd)  # type: ignore[arg-type]
    assert seqspec.load(SPEC, ("name=x",)).name == "x"


def test_a_model_is_a_spec_and_checked() -> None:
    model = seqspec.load(SPEC)
    assert seqspec.load(model) == model
    assert seqspec.check(model).ok
    assert seqspec.load(model, ["encoder.input.size=5"]).encoder != model.encoder
    layers = [{"kind": "gru", "hidden_size": 4, "merge": "sum"}]
    wrong = seqspec.Model.model_validate(SPEC | {"encoder": SPEC["encoder"] | {"layers": layers}})  # type: ignore[operator]
    for step in (seqspec.load, seqspec.build, seqspec.to_source):
        with fault("SEQ232", "encoder.layers[0].merge"):
            step(wrong)


# ---- running ---------------------------------------------------------------------------------------------------------


@named([None, 1, IDS, "x", [("input_ids", IDS)]])
def test_inputs_are_arrays_by_name(compiled: Get, odd: Any) -> None:
    with fault("SEQ517", "`inputs`", "by name"):
        compiled("gpt2").session.run(odd)


class Raises:
    """An array that cannot be had."""

    def __array__(self, *args: Any, **options: Any) -> None:
        raise KeyError("gone")


def test_inputs_that_are_no_arrays(compiled: Get) -> None:
    session = compiled("gpt2").session
    with fault("SEQ505", "input_ids", "different lengths", "pad"):
        session.run({"input_ids": [[1, 2], [3]]})
    for odd in (Raises(), torch.ones(1, 3, dtype=torch.long, device="meta"), None, "abc", {}, IDS.astype(complex)):
        with fault("SEQ505", "input_ids"):
            session.run({"input_ids": odd})
    with fault("SEQ503", "`1`"):
        session.run({1: IDS})  # type: ignore[dict-item]


def test_tensors_in_the_midst_of_training(compiled: Get) -> None:
    features = torch.randn(2, 3, 5, requires_grad=True)
    session = compiled("gru-forecast").session
    want = session.run({"features": features.detach().numpy()})
    got = session.run({"features": features})
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    assert want.state is not None
    carried = {name: torch.tensor(array, requires_grad=True) for name, array in want.state.items()}
    again = session.run({"features": features}, carried)  # type: ignore[arg-type]
    after = session.run({"features": features}, want.state)
    for name in want:
        np.testing.assert_array_equal(again[name], after[name])


def test_states_that_are_none(compiled: Get) -> None:
    session = compiled("gpt2").session
    state = session.run({"input_ids": IDS}).state
    assert state is not None
    for odd in (1, [], "x", {1: 2, "a": 3}, dict.fromkeys(state), {name: [[1], [2, 3]] for name in state}):
        with pytest.raises(SeqspecError) as caught:
            session.run({"input_ids": IDS}, odd)  # type: ignore[arg-type]
        assert caught.value.code in ("SEQ509", "SEQ505")


def test_rows_of_a_state(compiled: Get) -> None:
    state = compiled("gpt2").session.run({"input_ids": np.tile(IDS, (2, 1))}).state
    assert state is not None
    for odd in ([2], [0, -1], 2**70, [2**70], [0.5], [[0]], 0, None, "a", [True, False], []):
        with fault("SEQ517", "`rows`"):
            state.reorder(odd)
    for rows in ([1, 0, 1], np.array([1, 0, 1], np.uint8), torch.tensor([1, 0, 1])):
        for name, array in state.reorder(rows).items():  # type: ignore[arg-type]
            np.testing.assert_array_equal(array, state[name][[1, 0, 1]])


def test_providers_that_are_none(compiled: Get) -> None:
    folder = compiled("gpt2").folder
    for odd in (1, {"cpu": {}}, b"cpu", [1], [None], [("cpu",)], ("cpu", {}), [("cpu", 1)]):
        with fault("SEQ517", "`providers`", "names"):
            seqspec.Session(folder, odd)  # type: ignore[arg-type]
    with fault("SEQ501", "Cpux is not in"):
        seqspec.Session(folder, "Cpux")
    for one in ("CPUExecutionProvider", "cpu", "CPU", [("cpu", {})]):
        assert seqspec.Session(folder, one).providers == ["CPUExecutionProvider"]
