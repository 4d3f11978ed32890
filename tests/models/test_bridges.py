"""Where a decoder starts, against the equations: bridges between all cells, in stacks of which one attends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recurrent_equations import Weights, gru, lstm, run

import seqspec

Array = Any
H, V = 6, 11
# True is real: padding on the right, on the left, in holes, nowhere
SOURCE = np.array([[1, 1, 1, 1, 0], [0, 0, 0, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1]])

BRIDGES: list[dict[str, str]] = [
    {"map": "copy"},
    {"map": "copy", "direction": "forward"},
    {"map": "copy", "direction": "backward"},
    {"map": "linear"},
    {"map": "linear_tanh"},
    {"map": "linear_tanh", "direction": "backward"},
    {"map": "linear", "layer": "last"},
    {"map": "copy", "state": "mean"},
    {"map": "linear", "state": "mean"},
    {"map": "linear_tanh", "state": "mean"},
]
CELLS = [("gru", "gru", 0), ("gru", "lstm", 1), ("lstm", "gru", 0), ("lstm", "lstm", 1)]


def spec(theirs: str, ours: str, at: int, bridge: dict[str, str]) -> dict[str, Any]:
    """Two layers of two directions; two layers that start from them, of which layer `at` attends."""
    width = H if "direction" in bridge else H // 2
    start = {"kind": "bridge", "from": "encoder", **bridge}
    layers: list[dict[str, Any]] = [{"kind": ours, "hidden_size": H, "initial_state": start} for _ in range(2)]
    layers[at]["attend"] = {"from": "encoder", "score": "general", "query": "current"}
    tokens = {"kind": "tokens", "vocab_size": V, "d_model": 4}
    return {
        "seqspec": 1,
        "name": "bridged",
        "encoder": {
            "input": tokens,
            "layers": [{"kind": theirs, "hidden_size": width, "bidirectional": True}] * 2,
        },
        "decoder": {"input": tokens, "layers": layers},
    }


# ---- the equations ---------------------------------------------------------------------------------------------------


def encode(model: torch.nn.Module, kind: str, xs: Array) -> tuple[Array, list[dict[str, Array]]]:
    """What the encoder puts out, and where each layer's directions end: forward.h, backward.c, …"""
    ends = []
    for n in range(2):
        w = Weights(model, f"encoder.layers.{n}.")
        zeros = np.zeros(w[f"{kind}.weight_hh_l0"].shape[1])
        there, h, c = run(w, kind, xs, zeros, zeros)
        back, g, d = run(w, kind, xs[::-1], zeros, zeros, "_reverse")
        xs = np.concatenate([there, back[::-1]], -1)
        ends.append({"forward h": h, "forward c": c, "backward h": g, "backward c": d})
    return xs, ends


def start(w: Weights, bridge: dict[str, str], part: str, memory: Array, ends: list[dict[str, Array]], n: int) -> Array:
    """h or c of decoder layer n."""
    found = ends[-1 if bridge.get("layer") == "last" else n]
    match bridge.get("direction"), bridge.get("state"):
        case _, "mean":
            state = memory.mean(0)
        case None, _:
            state = np.concatenate([found[f"forward {part}"], found[f"backward {part}"]])
        case direction, _:
            state = found[f"{direction} {part}"]
    if bridge["map"] == "copy":
        return state
    name = "bridge" if part == "h" else "bridge_cell"
    mapped = w[f"{name}.weight"] @ state + w[f"{name}.bias"]
    return np.tanh(mapped) if bridge["map"] == "linear_tanh" else mapped


def attending(w: Weights, kind: str, xs: Array, h: Array, c: Array, memory: Array) -> Array:
    """tanh(W [context; h]) of each step: Luong et al. 2015, general."""
    ys = []
    for x in xs:
        if kind == "lstm":
            h, c = lstm(w, f"step.{kind}", x, h, c)
        else:
            h = gru(w, f"step.{kind}", x, h)
        scores = np.exp([h @ (w["key_proj.weight"] @ m) for m in memory])
        context = scores / scores.sum() @ memory
        ys.append(np.tanh(w["step.output_proj.weight"] @ np.concatenate([context, h])))
    return np.array(ys)


def decode(
    model: torch.nn.Module, cells: tuple[str, str, int], bridge: dict[str, str], source: Array, target: Array
) -> Array:
    theirs, ours, at = cells
    memory, ends = encode(model, theirs, Weights(model, "encoder.")["embed_tokens.weight"][source])
    xs = Weights(model, "decoder.")["embed_tokens.weight"][target]
    for n in range(2):
        w = Weights(model, f"decoder.layers.{n}.")
        h = start(w, bridge, "h", memory, ends, n)
        # a c is there from LSTM to LSTM alone, and none has a mean
        both = theirs == ours == "lstm" and "state" not in bridge
        c = start(w, bridge, "c", memory, ends, n) if both else np.zeros(H)
        xs = attending(w, ours, xs, h, c, memory) if n == at else run(w, ours, xs, h, c)[0]
    return xs


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", CELLS, ids=lambda cells: f"{cells[0]}-{cells[1]}-{cells[2]}")
@pytest.mark.parametrize("bridge", BRIDGES, ids=lambda bridge: "-".join(bridge.values()))
def test_a_bridge_is_its_equation(cells: tuple[str, str, int], bridge: dict[str, str], tmp_path: Path) -> None:
    made = spec(*cells, bridge)
    model = seqspec.to_torch(made, seed=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2  # so that a start is still seen after a few steps
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, V, SOURCE.shape), rng.integers(0, V, (len(SOURCE), 4))
    inputs = {"input_ids": source, "attention_mask": SOURCE, "decoder_input_ids": target}
    path = seqspec.to_onnx(made, tmp_path / "out", weights=model.state_dict(), verify=False)
    filed = seqspec.Session(path).run(inputs)["last_hidden_state"]
    with torch.no_grad():
        found = model.double()(**{k: torch.from_numpy(v) for k, v in inputs.items()}).last_hidden_state.numpy()
    for row, real in enumerate(SOURCE == 1):
        want = decode(model, cells, bridge, source[row, real], target[row])
        np.testing.assert_allclose(found[row], want, rtol=0, atol=1e-10)
        np.testing.assert_allclose(filed[row], want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_a_bridge_is_read_on_the_first_call_alone(layers: int) -> None:
    made = spec("gru", "gru", 0, {"map": "linear_tanh", "layer": "last"})
    start = made["decoder"]["layers"][1]["initial_state"]
    made["decoder"]["layers"] = [{"kind": "gru", "hidden_size": H, "num_layers": layers, "initial_state": start}]
    model = seqspec.to_torch(made, seed=2).double().eval()
    rng = np.random.default_rng(3)
    source, target = (torch.from_numpy(rng.integers(0, V, (2, length))) for length in (5, 4))
    with torch.no_grad():
        whole = model(input_ids=source, decoder_input_ids=target).last_hidden_state
        first = model(input_ids=source, decoder_input_ids=target[:, :1])
        rest = model(decoder_input_ids=target[:, 1:], state=first.state)
    joined = torch.cat([first.last_hidden_state, rest.last_hidden_state], 1)
    torch.testing.assert_close(joined, whole, rtol=0, atol=1e-12)
