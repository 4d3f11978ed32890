"""The training examples, cut short: the loss falls, and what is saved is what was trained."""

from __future__ import annotations

import importlib
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import seqspec

EXAMPLES = Path(__file__).parents[2] / "examples"

# steps, and what the loss falls to, as a part of where it starts
RUNS = {
    "language_model --model rnn": (30, 0.6),
    "language_model --model lstm": (50, 0.7),
    "language_model --model gru": (30, 0.6),
    "language_model --model transformer": (30, 0.7),
    "tbptt": (60, 0.6),
    "seq2seq": (60, 0.8),
    "classifier": (120, 0.7),
}


@pytest.fixture(autouse=True)
def _reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples import each other by their plain names."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (EXAMPLES / f"{name}.py").exists():
            del sys.modules[name]


def example(name: str) -> Any:
    found: ModuleType = importlib.import_module(name)
    return found


@pytest.mark.parametrize("run", RUNS)
def test_the_loss_falls(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *options = run.split()
    steps, part = RUNS[run]
    history = example(f"train_{name}").main([*options, "--steps", str(steps), "--output", str(tmp_path)])
    assert len(history) == steps
    assert np.mean(history[-5:]) < part * np.mean(history[:3])
    said = capsys.readouterr()
    assert re.search(rf"loss \d+\.\d+ -> \d+\.\d+ in {steps} steps", said.out)
    assert "training" in said.err  # the bar's label; the bar itself is for terminals
    (weights,) = tmp_path.glob("*/model.safetensors")
    session = seqspec.Session(weights.parent / "onnx")
    model = seqspec.to_torch(weights.parent / "onnx" / "spec.yaml", weights=weights).eval()
    ids = np.array([[1, 3, 4], [4, 3, 2]])
    given = {port.name: ids for port in session.inputs if port.name.endswith("input_ids")}
    with torch.no_grad():
        want = model(**{k: torch.from_numpy(v) for k, v in given.items()}).logits.numpy()
    np.testing.assert_allclose(session.run(given)["logits"], want, rtol=1e-4, atol=1e-4)


def test_the_page_s_code_runs() -> None:
    """docs/training.md, from top to bottom."""
    page = (EXAMPLES.parent / "docs" / "training.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    namespace: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(blocks), namespace)
    again, model = namespace["again"], namespace["model"]
    assert all(torch.equal(p, again.state_dict()[n]) for n, p in model.state_dict().items())


def test_what_is_saved_opens_in_plain_torch(tmp_path: Path) -> None:
    """The emitted file and the safetensors file, without seqspec: training goes on where it stopped."""
    module = example("train_classifier")
    module.main(["--steps", "3", "--output", str(tmp_path)])
    namespace: dict[str, Any] = {"__name__": "emitted"}
    exec(seqspec.to_source(module.SPEC), namespace)
    model = namespace["Brackets"]()
    model.load_state_dict(load_file(tmp_path / "brackets" / "model.safetensors"))
    model(torch.tensor([[1, 2]]), labels=torch.tensor([1])).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_gradient_of_a_plain_rnn_vanishes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "gradient.svg"
    found = example("vanishing_gradient").main(["--length", "33", "--output", str(drawn)])
    relative = {kind: np.array(row) / row[0] for kind, row in found.items()}
    assert all(len(row) == 33 for row in relative.values())
    for kind in ("lstm", "gru"):
        for distance in (8, 16, 32):
            assert relative["rnn"][distance] < 0.6 * relative[kind][distance]
    assert relative["rnn"][32] < 1e-3 * relative["lstm"][32]
    # by a constant factor a step
    rates = -np.diff(np.log(relative["rnn"]))[4:]
    assert rates.min() > 0.3
    assert rates.max() < 1.5
    assert "distance" in capsys.readouterr().out
    lines = ET.parse(drawn).getroot().findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3
    for line in lines:
        points = np.array([point.split(",") for point in line.attrib["points"].split()], float)
        assert len(points) == 33
        assert points.min() >= 0
        assert points[:, 1].max() <= 360
