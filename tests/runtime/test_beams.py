"""Beam search against every text there is, and against transformers with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_targets import GENERATING, SPLIT, Array, Compiled, fault

import seqspec
from seqspec.importers import import_model
from seqspec.runtime import steppers
from seqspec.runtime.beams import Beams
from seqspec.runtime.carrying import Copying
from seqspec.runtime.generate import generate
from seqspec.runtime.options import Decoding
from seqspec.runtime.prompt import read
from seqspec.runtime.search import steps
from seqspec.runtime.steppers import stepper

Get = Callable[[str], Compiled]
V, END, START = 4, 1, 2
TOKENS = {"kind": "tokens", "vocab_size": V, "d_model": 6}
GRU = {"kind": "gru", "hidden_size": 7, "initial_state": {"kind": "bridge", "from": "encoder", "map": "linear_tanh"}}
BAHDANAU = {"from": "encoder", "score": "additive", "d_attention": 5, "query": "previous"}
LUONG = {"from": "encoder", "score": "general", "query": "current", "input_feeding": True}
SELF = {"kind": "attention", "heads": 2}
FFN = {"kind": "ffn", "d_ff": 9}


def seq2seq(**attend: Any) -> dict[str, Any]:
    encoder = {"input": TOKENS, "layers": [{"kind": "gru", "hidden_size": 5, "bidirectional": True}]}
    return {"encoder": encoder, "decoder": {"input": TOKENS, "layers": [GRU | {"attend": attend}]}}


def attending(d_model: int, *more: Any, **stack: Any) -> dict[str, Any]:
    tokens = {"kind": "tokens", "vocab_size": V}
    return {"input": tokens, "d_model": d_model, "layers": [{"repeat": 2, "block": [SELF, *more, FFN]}], **stack}


CROSS = {"kind": "cross_attention", "from": "encoder", "heads": 2}
SPECS: dict[str, dict[str, Any]] = {
    "rope, in the kernel's buffer": {"decoder": attending(32, position="rope")},
    "learned": {"decoder": attending(12, position={"kind": "learned", "max_length": 9}, norm="layernorm")},
    "transformer": {"encoder": attending(8, position="sinusoidal"), "decoder": attending(8, CROSS, position="rope")},
    "bahdanau": seq2seq(**BAHDANAU),
    "luong": seq2seq(**LUONG),
}


def spec(name: str) -> dict[str, Any]:
    return {"seqspec": 1, "name": "beams", **SPECS[name], "head": {"kind": "lm"}}


@pytest.fixture(scope="module", params=SPECS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Any]:
    """A name, a Session and a module, whose weights make up their mind."""
    module = seqspec.to_torch(spec(request.param), seed=5).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    path = tmp_path_factory.mktemp("beams") / "out"
    session = seqspec.Session(seqspec.to_onnx(spec(request.param), path, weights=module.state_dict()))
    return request.param, session, module


def starting(name: str) -> dict[str, int]:
    return {"decoder_start_id": START} if "encoder" in SPECS[name] else {}


def texts(length: int) -> Iterator[tuple[int, ...]]:
    """Every text: it ends with END, or has the full length."""
    for count in range(1, length + 1):
        for text in product(range(V), repeat=count):
            if END not in text[:-1] and (count == length or text[-1] == END):
                yield text


def log_probability(module: torch.nn.Module, name: str, row: list[int], text: tuple[int, ...]) -> float:
    """Σ log p, everything computed at once: no state and no search."""
    before = [START] if "encoder" in SPECS[name] else row
    given = {"input_ids": torch.tensor([row])}
    read_ids = torch.tensor([[*before, *text[:-1]]])
    given |= {"decoder_input_ids": read_ids} if "encoder" in SPECS[name] else {"input_ids": read_ids}
    with torch.no_grad():
        logits = module(**given).logits[0, len(before) - 1 :].double().log_softmax(-1)
    return sum(logits[n, one].item() for n, one in enumerate(text))


@pytest.mark.parametrize("penalty", [0.0, 1.0, -0.7])
def test_a_beam_of_all_texts_finds_the_best_of_them(tiny: tuple[str, Any, Any], penalty: float) -> None:
    name, session, module = tiny
    length, rows = 4, [[3, 2, 0], [2, 1, 3]]
    asked = {"num_beams": V**length, "num_return_sequences": 6, "length_penalty": penalty, "early_stopping": "never"}
    for runner in (session, module):
        found = generate(runner, rows, max_new_tokens=length, eos_id=END, **asked, **starting(name))
        assert found.shape[:2] == (2, 6)
        for row, best in zip(rows, found, strict=True):
            scored = {text: log_probability(module, name, row, text) / len(text) ** penalty for text in texts(length)}
            order = sorted(scored, key=scored.__getitem__, reverse=True)[:6]
            filled = [[*text, *[END] * (found.shape[2] - len(text))] for text in order]
            assert best.tolist() == filled


def test_scores_are_those_of_the_texts(tiny: tuple[str, Any, Any]) -> None:
    """A narrow beam misses texts, but what it says of those it found is true."""
    name, session, module = tiny
    prompt = read([[3, 2], [1, 1]], None, starting(name).get("decoder_start_id"), two_stacks=bool(starting(name)))
    search = Beams(Decoding(7, eos_ids=(END,), num_beams=3, num_return_sequences=3), prompt)
    for _ in steps(stepper(session), prompt, search, 30):
        pass
    for row, found, scores in zip([[3, 2], [1, 1]], search.texts(), search.ended_scores, strict=True):
        assert list(scores) == sorted(scores, reverse=True)
        for text, score in zip(found, scores, strict=True):
            said = tuple(text[text >= 0])
            np.testing.assert_allclose(score, log_probability(module, name, row, said) / len(said), rtol=1e-4)


@pytest.mark.parametrize("name", GENERATING)
def test_rows_of_a_batch_are_searched_alone(compiled: Get, name: str) -> None:
    """And PyTorch finds what onnxruntime finds."""
    model = compiled(name)
    rows = [[5, 9, 13, 2], [7], [3, 4, 8, 8, 1, 11]]
    start = {"decoder_start_id": 2} if name in SPLIT else {}
    asked = {"max_new_tokens": 9, "num_beams": 4, "eos_id": [17, 30], "num_return_sequences": 2, **start}
    found = model.session.generate(rows, **asked)
    np.testing.assert_array_equal(generate(model.module, rows, **asked), found)
    for row, texts_of_row in zip(rows, found, strict=True):
        alone = model.session.generate(row, **asked)
        assert alone.tolist() == texts_of_row[:, : alone.shape[1]].tolist()
        assert (texts_of_row[:, alone.shape[1] :] == 17).all()


@pytest.mark.parametrize("name", ["llama-3.2-1b", "nmt-bahdanau", "transformer-base"])
def test_states_that_are_copied_give_the_same(compiled: Get, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of bfloat16 are, which onnxruntime does not bind."""
    session, start = compiled(name).session, {"decoder_start_id": 2} if name in SPLIT else {}
    asked = {"max_new_tokens": 8, "num_beams": 3, "num_return_sequences": 2, "eos_id": 17, **start}
    want = session.generate([[5, 9, 13, 2], [7]], **asked)
    monkeypatch.setattr(steppers, "Carrying", lambda session, room: Copying(session))
    np.testing.assert_array_equal(session.generate([[5, 9, 13, 2], [7]], **asked), want)


@pytest.mark.parametrize("name", ["gpt2", "nmt-luong", "transformer-base"])
def test_one_beam_is_greedy(compiled: Get, name: str) -> None:
    model = compiled(name)
    start = {"decoder_start_id": 2} if name in SPLIT else {}
    rows = [[n, n + 1] for n in range(1, 7)]
    for eos in ((), (int(model.session.generate(rows, max_new_tokens=8, **start)[0, 3]),)):
        prompt = read(rows, None, start.get("decoder_start_id"), two_stacks=bool(start))
        search = Beams(Decoding(8, eos_ids=eos, num_beams=1), prompt)
        for _ in steps(stepper(model.module), prompt, search, 20):
            pass
        want = generate(model.module, rows, max_new_tokens=8, eos_id=eos, **start)
        found = search.texts()[:, 0]
        assert np.where(found < 0, eos[0] if eos else -1, found).tolist() == want[:, : found.shape[1]].tolist()


def disturbed(model: Any, seed: int) -> Any:
    """So far from where it starts that it says different things."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
    return model.eval()


ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {"vocab_size": 23, "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
THEIRS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **HEADS, **ENDS)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=23, n_positions=40, n_embd=16, n_layer=2, n_head=2, **ENDS)
    ),
}
ASKED: dict[str, dict[str, Any]] = {
    "four beams": {"num_beams": 4},
    "early": {"num_beams": 3, "early_stopping": True, "num_return_sequences": 3},
    "never": {"num_beams": 5, "early_stopping": "never", "length_penalty": 2.0, "num_return_sequences": 4},
    "short": {"num_beams": 4, "length_penalty": -1.0, "num_return_sequences": 2},
    "two ends": {"num_beams": 4, "eos": [2, 7], "num_return_sequences": 2},
    "at least six": {"num_beams": 4, "min_new_tokens": 6},
    "no repetition": {"num_beams": 4, "repetition_penalty": 1.7, "length_penalty": 0.4},
    "greedy": {"repetition_penalty": 1.4, "min_new_tokens": 5},
}


@pytest.fixture(scope="module", params=THEIRS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """A model of transformers, and what becomes of it here."""
    theirs, folder = disturbed(THEIRS[request.param](), 3), tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder / "theirs")
    import_model(folder / "theirs", folder / "ours")
    ours = {"weights": folder / "ours/model.safetensors"}
    module = seqspec.to_torch(folder / "ours/spec.yaml", **ours).eval()
    return theirs, seqspec.Session(seqspec.to_onnx(folder / "ours/spec.yaml", folder / "onnx", **ours)), module


@pytest.mark.parametrize("how", ASKED)
def test_it_is_transformers(pair: tuple[Any, Any, Any], how: str) -> None:
    theirs, session, module = pair
    asked = dict(ASKED[how])
    eos = asked.pop("eos", 2)
    prompts: Array = np.random.default_rng(4).integers(3, 23, (6, 5))
    given = {"max_new_tokens": 12, "eos_token_id": eos, "pad_token_id": 2, "do_sample": False, **asked}
    with torch.no_grad():
        made = theirs.generate(torch.from_numpy(prompts), attention_mask=torch.ones(6, 5, dtype=torch.long), **given)
    want = made[:, 5:].numpy()
    assert len({tuple(row) for row in want}) > 3
    for runner in (session, module):
        found = generate(runner, prompts, max_new_tokens=12, eos_id=eos, **asked)
        found = found.reshape(-1, found.shape[-1])
        # theirs may be cut where a longer text was dropped
        longest = max(found.shape[1], want.shape[1])
        both = [np.pad(x, ((0, 0), (0, longest - x.shape[1])), constant_values=2) for x in (found, want)]
        np.testing.assert_array_equal(*both)


def test_what_beams_share_does_not_move(tmp_path: Path) -> None:
    """The prompt's part of a buffer keeps its bytes, and held states stay the same value."""
    session = seqspec.Session(seqspec.to_onnx(spec("rope, in the kernel's buffer"), tmp_path / "out"))
    assert session.in_place
    model = stepper(session)
    with model.running(12):
        _, state = model.step({"input_ids": np.array([[3, 2, 1], [0, 1, 2]])}, None)
        state = model.spread(state, 2)
        for ids in ([0, 1, 2, 3], [3, 2, 1, 0]):
            _, state = model.step({"input_ids": np.array(ids)[:, None]}, state)
        before = {name: value.numpy().copy() for name, value in state.values.items()}
        pointers = {name: value.data_ptr() for name, value in state.values.items()}
        moved = model.reorder(state, np.array([1, 0, 2, 2]))
        for name, value in moved.values.items():
            assert value.data_ptr() == pointers[name]
            np.testing.assert_array_equal(value.numpy()[:, :, :5], before[name][[1, 0, 2, 2]][:, :, :5])
    split = seqspec.Session(seqspec.to_onnx(spec("transformer"), tmp_path / "split"))
    model = stepper(split)
    with model.running(9):
        _, state = model.step({"input_ids": np.array([[3, 2]]), "decoder_input_ids": np.array([[2]])}, None)
        state = model.spread(state, 3)
        _, state = model.step({"decoder_input_ids": np.array([[0], [1], [2]])}, state)
        moved = model.reorder(state, np.array([2, 0, 0]))
        same = [name for name, value in moved.values.items() if value is state.values[name]]
        held = [s.past for s in split.signature.states if s.held]
        assert held
        assert sorted(same) == sorted(held)


def test_what_does_not_go_together(compiled: Get) -> None:
    session = compiled("llama-3.2-1b").session
    for wrong, word in (
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 2, "temperature": 1.0}, "temperature"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"num_return_sequences": 2}, "greedy"),
        ({"length_penalty": 2.0}, "num_beams"),
        ({"early_stopping": True}, "num_beams"),
        ({"num_beams": 2, "early_stopping": "maybe"}, "never"),
        ({"num_beams": 2, "length_penalty": float("inf")}, "length_penalty"),
    ):
        with fault("SEQ514", word):
            session.generate([1], max_new_tokens=3, **wrong)
    with fault("SEQ514", "over"):
        session.stream([1], max_new_tokens=3, num_beams=2)
