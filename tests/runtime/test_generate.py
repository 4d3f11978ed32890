"""Generation: the same ids from PyTorch and ONNX, from a batch and from each row alone, greedy and drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_targets import GENERATING, SPLIT, Array, Compiled, fault, run_torch
from transformers.generation import logits_process

import seqspec
from seqspec.runtime.generate import generate, stream
from seqspec.runtime.options import Decoding
from seqspec.runtime.sampling import Adjustment, Draws, Sampling

Get = Callable[[str], Compiled]
ROWS = [[5, 9, 13, 2], [7], [3, 4, 8, 8, 1, 11]]
START = 2


def options(name: str) -> dict[str, int]:
    return {"decoder_start_id": START} if name in SPLIT else {}


def greedy(model: Compiled, row: list[int], count: int) -> list[int]:
    """By the module, everything computed again for every id: no state, no driver."""
    made: list[int] = []
    for _ in range(count):
        if model.name in SPLIT:
            given = {"input_ids": np.array([row]), "decoder_input_ids": np.array([[START, *made]])}
            given["decoder_attention_mask"] = np.ones((1, 1 + len(made)), np.int64)
        else:
            given = {"input_ids": np.array([row + made])}
        made.append(int(run_torch(model, given)[0][0, -1].argmax()))
    return made


@pytest.mark.parametrize("name", GENERATING)
def test_greedy_is_the_likeliest_id_every_time(compiled: Get, name: str) -> None:
    model = compiled(name)
    want = [greedy(model, row, 8) for row in ROWS]
    for runner in (model.session, model.module):
        assert generate(runner, ROWS, max_new_tokens=8, **options(name)).tolist() == want
        assert generate(runner, ROWS[0], max_new_tokens=8, **options(name)).tolist() == want[0]


@pytest.mark.parametrize("name", GENERATING)
def test_drawn_ids_are_the_same_on_both(compiled: Get, name: str) -> None:
    model = compiled(name)
    drawn = {"max_new_tokens": 12, "temperature": 1.3, "top_k": 30, "top_p": 0.95, "seed": 7, **options(name)}
    on_torch, on_onnx = generate(model.module, ROWS, **drawn), model.session.generate(ROWS, **drawn)
    np.testing.assert_array_equal(on_torch, on_onnx)
    np.testing.assert_array_equal(model.session.generate(ROWS, **drawn), on_onnx)
    assert (model.session.generate(ROWS, **drawn | {"seed": 8}) != on_onnx).any()
    # a row draws from a stream of its own
    np.testing.assert_array_equal(model.session.generate(ROWS[:1], **drawn), on_onnx[:1])


def test_a_mask_may_pad_on_either_side(compiled: Get) -> None:
    model = compiled("llama-3.2-1b")
    want = model.session.generate(ROWS, max_new_tokens=5)
    for left in (False, True):
        table, mask = np.full((3, 6), 60), np.zeros((3, 6), np.int64)
        for n, row in enumerate(ROWS):
            place = slice(6 - len(row), None) if left else slice(0, len(row))
            table[n, place], mask[n, place] = row, 1
        for runner in (model.session, model.module):
            np.testing.assert_array_equal(generate(runner, table, max_new_tokens=5, attention_mask=mask), want)


@pytest.mark.parametrize("name", ["gpt2", "nmt-bahdanau"])
def test_rows_end_one_by_one(compiled: Get, name: str) -> None:
    model = compiled(name)
    rows = [[n, n + 1] for n in range(1, 9)]
    free = model.session.generate(rows, max_new_tokens=10, **options(name))
    eos = int(free[0, 3])
    ended = model.session.generate(rows, max_new_tokens=10, eos_id=eos, **options(name))
    for row, whole in zip(ended, free, strict=True):
        length = int(np.argmax(whole == eos)) + 1 if eos in whole else 10
        np.testing.assert_array_equal(row[:length], whole[:length])
        assert (row[length:] == eos).all()
    alone = model.session.generate(rows[0], max_new_tokens=10, eos_id=eos, **options(name))
    assert alone[-1] == eos
    assert len(alone) <= 4
    np.testing.assert_array_equal(generate(model.module, rows, max_new_tokens=10, eos_id=eos, **options(name)), ended)


def test_streaming_gives_ids_as_they_come(compiled: Get) -> None:
    model = compiled("gpt2")
    columns = model.session.stream(ROWS, max_new_tokens=4)
    first = next(columns)
    want = model.session.generate(ROWS, max_new_tokens=4)
    np.testing.assert_array_equal(first, want[:, 0])
    np.testing.assert_array_equal(np.stack(list(columns), 1), want[:, 1:])


def test_the_module_is_left_as_it_was(compiled: Get) -> None:
    """transformer-base drops a tenth in training."""
    model = compiled("transformer-base")
    want = generate(model.module, ROWS, max_new_tokens=6, decoder_start_id=START)
    model.module.train()
    try:
        np.testing.assert_array_equal(generate(model.module, ROWS, max_new_tokens=6, decoder_start_id=START), want)
        assert model.module.training
        partly = stream(model.module, ROWS, max_new_tokens=6, decoder_start_id=START)
        next(partly)
        partly.close()  # type: ignore[attr-defined]
        assert model.module.training
        assert all(p.grad is None for p in model.module.parameters())
    finally:
        model.module.eval()


def test_ids_of_padding_are_generated_as_any_other(tmp_path: object) -> None:
    """A model that always says its pad_id: what it said counts as said."""
    spec = """
        seqspec: 1
        name: stubborn
        decoder:
          input: {kind: tokens, vocab_size: 5, pad_id: 0}
          d_model: 8
          position: {kind: learned, max_length: 12}
          layers: [{block: [{kind: attention, heads: 2}]}]
        head: {kind: lm, bias: true}"""
    weights = dict(seqspec.to_torch(spec).state_dict())
    weights["head.bias"] = torch.tensor([50.0, 0, 0, 0, 0])
    folder = seqspec.to_onnx(spec, f"{tmp_path}/out", weights=weights)
    session = seqspec.Session(folder)
    assert session.generate([1, 2], max_new_tokens=10).tolist() == [0] * 10
    with fault("SEQ506"):  # every one of them takes a position
        session.generate([1, 2], max_new_tokens=12)


def test_an_encoder_that_reads_features(tmp_path: object) -> None:
    spec = """
        seqspec: 1
        name: listener
        encoder:
          input: {kind: features, size: 3}
          layers: [{kind: gru, hidden_size: 6}]
        decoder:
          input: {kind: tokens, vocab_size: 11, d_model: 5}
          layers: [{kind: gru, hidden_size: 6, initial_state: {kind: bridge, from: encoder, map: copy}}]
        head: {kind: lm}"""
    module = seqspec.to_torch(spec, seed=4)
    session = seqspec.Session(seqspec.to_onnx(spec, f"{tmp_path}/out", seed=4))
    heard = {"features": np.random.default_rng(0).standard_normal((2, 7, 3)).astype(np.float32)}
    drawn = {"max_new_tokens": 9, "decoder_start_id": 1, "temperature": 2.0}
    on_onnx = session.generate(heard, **drawn)
    assert on_onnx.shape == (2, 9)
    np.testing.assert_array_equal(on_onnx, generate(module, heard, **drawn))
    with fault("SEQ511", "decoder_start_id"):
        session.generate(heard, max_new_tokens=2)


WRONG = {
    "max_new_tokens": [0, -1, None, 1.5, "a", True, [3]],
    "min_new_tokens": [-1, 3, None, 0.5],
    "eos_id": [1.5, "a", -1, 10**30, True, [3, "b"], [-2], np.array(2.5)],
    "stop": [3, "ab", [3], [[]], [["a"]], [[1.5]], [[-1]]],
    "temperature": [-1.0, float("nan"), float("inf"), "a", None, True, 10**400],
    "top_k": [0, "a", 1.5],
    "top_p": [0.0, 1.1, "a", float("nan")],
    "min_p": [0, -0.5, 2, "a"],
    "repetition_penalty": [0, -1.0, "a", None, float("inf")],
    "seed": [None, "a", -1, 1.5, 10**30],
    "tempature": [1.0],
}


@pytest.mark.parametrize("option", WRONG)
def test_an_option_of_the_wrong_kind(compiled: Get, option: str) -> None:
    for runner in (compiled("gpt2").session, compiled("gpt2").module):
        for value in WRONG[option]:
            with fault("SEQ514", "temperature" if option == "tempature" else option):
                generate(runner, [1], **{"max_new_tokens": 2, option: value})


def test_options_that_have_no_effect(compiled: Get) -> None:
    for cut in ("top_k", "top_p", "min_p"):
        with fault("SEQ514", "temperature"):
            compiled("gpt2").session.generate([1], max_new_tokens=2, **{cut: 1})
    with fault("SEQ514", "max_new_tokens is missing"):
        compiled("gpt2").session.generate([1])
    with fault("SEQ516", "int"):
        generate(3, [1], max_new_tokens=2)


@pytest.mark.parametrize("where", ["session", "module"])
def test_what_is_no_prompt(compiled: Get, where: str) -> None:
    """The same errors from a Session and from a module."""
    model = getattr(compiled("gpt2"), where)
    for empty in ([], [[]], [[1], []], np.zeros((0, 3), int)):
        with fault("SEQ513"):
            generate(model, empty, max_new_tokens=2)
    ragged = ([1, [2]], [[1, [2]]], [[[1], [2]]])
    for wrong in (None, 3, "12", b"12", {1, 2}, [1.5], [None], ["1"], [True], np.array(4), [2**70], *ragged):
        with fault("SEQ505"):
            generate(model, wrong, max_new_tokens=2)
    with fault("SEQ504", "attention_mask"):
        generate(model, [[1, 2]], max_new_tokens=2, attention_mask=[[1, 1, 1]])
    for wrong in ("ab", [[1.0, 0.0]], [[1, 1], [0]]):
        with fault("SEQ505" if wrong != "ab" else "SEQ504"):
            generate(model, [[1, 2]], max_new_tokens=2, attention_mask=wrong)
    for outside in (61, -1, 2**40):
        with fault("SEQ510", "from 0 to 60"):
            generate(model, [3, outside], max_new_tokens=2)
    for given in ({"eos_id": [3, 61]}, {"stop": [[1, 61]]}):
        with fault("SEQ510", "61"):
            generate(model, [3], max_new_tokens=2, **given)
    with fault("SEQ514", "one stack"):
        generate(model, [1], max_new_tokens=2, decoder_start_id=2)
    with fault("SEQ511", "rows of ids"):
        generate(model, {"input_ids": [[1]]}, max_new_tokens=2)
    split = getattr(compiled("transformer-base"), where)
    with fault("SEQ511", "decoder_start_id"):
        generate(split, [1], max_new_tokens=2)
    for outside in (61, 2**30):
        with fault("SEQ510", "decoder_input_ids"):
            generate(split, [1], max_new_tokens=2, decoder_start_id=outside)
    for wrong in (-1, "a", 1.5, 2**40):
        with fault("SEQ514", "decoder_start_id"):
            generate(split, [1], max_new_tokens=2, decoder_start_id=wrong)
    with fault("SEQ510", "input_ids"):
        generate(split, [[1], [3, 61]], max_new_tokens=2, decoder_start_id=2)
    with fault("SEQ503"):
        generate(split, {"words": [[1]]}, max_new_tokens=2, decoder_start_id=2)
    with fault("SEQ502"):
        generate(split, {}, max_new_tokens=2, decoder_start_id=2)
    for name in ("minilm", "lstm-sentiment", "lstm-tagger"):
        with fault("SEQ511", "lm"):
            generate(getattr(compiled(name), where), [1], max_new_tokens=2)


@pytest.mark.parametrize("where", ["session", "module"])
def test_the_end_of_a_position_table_is_seen_beforehand(compiled: Get, where: str) -> None:
    model = getattr(compiled("gpt2"), where)  # of 19 positions
    for prompt, most in (([3], 19), ([1, 2, 3], 17), ([[1], [4, 5, 6]], 17), (list(range(19)), 1)):
        assert generate(model, prompt, max_new_tokens=most).shape[-1] == most
        with fault("SEQ506", "19", f"at most {most} after"):
            stream(model, prompt, max_new_tokens=most + 1)  # before the first id is asked for
    with fault("SEQ506"):
        generate(model, list(range(20)), max_new_tokens=1)
    assert len(generate(getattr(compiled("llama-3.2-1b"), where), [1], max_new_tokens=25)) == 25


@pytest.mark.parametrize("name", ["llama-3.2-1b", "nmt-bahdanau"])
def test_any_number_of_ids_may_be_allowed(compiled: Get, name: str) -> None:
    """No memory is taken for what is not made."""
    for runner in (compiled(name).session, compiled(name).module):
        columns = stream(runner, ROWS, max_new_tokens=10**30, **options(name))
        want = generate(runner, ROWS, max_new_tokens=3, **options(name))
        np.testing.assert_array_equal(np.stack([next(columns) for _ in range(3)], 1), want)


@pytest.mark.parametrize("name", ["hybrid-window", "nmt-luong"])
def test_ends_of_every_kind(compiled: Get, name: str) -> None:
    model = compiled(name)
    rows = [[n, n + 1] for n in range(1, 9)]
    free = model.session.generate(rows, max_new_tokens=12, temperature=2.0, **options(name))
    ends, pair = [int(free[0, 4]), int(free[1, 6])], [int(free[2, 3]), int(free[2, 4])]
    given = {"max_new_tokens": 12, "temperature": 2.0, **options(name)}
    for asked in ({"eos_id": ends}, {"stop": [pair, [int(free[3, 7])]]}, {"eos_id": ends[1], "stop": [pair]}):
        found = model.session.generate(rows, **given, **asked)
        np.testing.assert_array_equal(generate(model.module, rows, **given, **asked), found)
        eos = np.atleast_1d(asked.get("eos_id", [])).tolist()
        texts = [[one] for one in eos] + asked.get("stop", [])
        for row, whole in zip(found.tolist(), free.tolist(), strict=True):
            stops = [n for n in range(1, 13) if any(whole[max(0, n - len(t)) : n] == t for t in texts)]
            want = whole[: stops[0]] if stops else whole
            assert row == want + [eos[0] if eos else -1] * (len(row) - len(want))
    late = model.session.generate(rows, **given, eos_id=ends, min_new_tokens=9)
    assert not np.isin(late[:, :8], ends).any()


def test_several_draws_for_a_row(compiled: Get) -> None:
    """The first of them is what one draw gives, and a batch changes nothing."""
    for name in ("llama-3.2-1b", "transformer-base"):
        model = compiled(name)
        asked = {"max_new_tokens": 7, "temperature": 1.5, "seed": 3, **options(name)}
        found = model.session.generate(ROWS, num_return_sequences=3, **asked)
        assert found.shape == (3, 3, 7)
        np.testing.assert_array_equal(found[:, 0], model.session.generate(ROWS, **asked))
        np.testing.assert_array_equal(generate(model.module, ROWS, num_return_sequences=3, **asked), found)
        np.testing.assert_array_equal(model.session.generate(ROWS[0], num_return_sequences=3, **asked), found[0])
        assert len({tuple(text) for row in found for text in row}) == 9
        columns = list(model.session.stream(ROWS, num_return_sequences=3, **asked))
        np.testing.assert_array_equal(np.stack(columns, 2), found)


def choose(sampling: Sampling, logits: list[float], uniform: float) -> int:
    return int(sampling.choose(np.array([logits]), lambda: np.array([uniform]))[0])


def test_sampling_by_hand() -> None:
    """Probabilities 0.5, 0.25, 0.125, 0.125 in ids 2, 0, 1, 3."""
    logits = np.log([0.25, 0.125, 0.5, 0.125]).tolist()
    places = (0, 0.49, 0.51, 0.74, 0.76, 0.87, 0.88, 0.999)
    assert [choose(Sampling(1.0), logits, u) for u in places] == [2, 2, 0, 0, 1, 1, 3, 3]
    assert [choose(Sampling(1.0, top_k=2), logits, u) for u in (0.66, 0.67, 0.999)] == [2, 0, 0]
    # half is reached by one id; a little more needs the second
    assert [choose(Sampling(1.0, top_p=0.5), logits, u) for u in (0, 0.999)] == [2, 2]
    assert [choose(Sampling(1.0, top_p=0.51), logits, u) for u in (0.66, 0.67, 0.999)] == [2, 0, 0]
    # temperature 1/2 squares the odds: 16 : 4 : 1 : 1
    assert [choose(Sampling(0.5), logits, u) for u in (0.72, 0.73, 0.90, 0.91, 0.96)] == [2, 0, 0, 1, 3]
    assert choose(Sampling(0.0), [1.0, 3.0, 3.0], 0.9) == 1


CUTS = [{}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.9, "min_p": 0.05}]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_what_is_drawn_from_is_transformers(temperature: float, cut: dict[str, float]) -> None:
    logits = np.random.default_rng(0).normal(0, 3, (50, 40))
    warpers = [logits_process.TemperatureLogitsWarper(temperature)]
    kinds = {"top_k": "TopKLogitsWarper", "top_p": "TopPLogitsWarper", "min_p": "MinPLogitsWarper"}
    warpers += [getattr(logits_process, kinds[name])(value) for name, value in cut.items()]
    scores = torch.from_numpy(logits)
    for warper in warpers:
        scores = warper(None, scores)
    weights, order = Sampling(temperature, **cut).weights(logits)
    found = np.zeros_like(logits)
    np.put_along_axis(found, order, weights / weights.sum(-1, keepdims=True), -1)
    np.testing.assert_allclose(found, scores.softmax(-1).numpy(), atol=1e-12)


def test_a_repetition_costs_what_it_costs_in_transformers() -> None:
    random = np.random.default_rng(1)
    prompts, said = random.integers(0, 12, (3, 4)), random.integers(0, 12, (3, 2))
    adjust = Adjustment(Decoding(5, eos_ids=(4, 7), min_new_tokens=3, repetition_penalty=1.3), list(prompts))
    adjust(random.normal(0, 2, (3, 12)))
    origins = np.array([2, 0, 0])  # beams change places
    adjust.follow(said[:, 0], origins)
    adjust.follow(said[:, 1], np.arange(3))
    scores = random.normal(0, 2, (3, 12))
    theirs = logits_process.RepetitionPenaltyLogitsProcessor(1.3)
    before = torch.from_numpy(np.concatenate([prompts[origins], said], 1))
    want = theirs(before, torch.from_numpy(scores.copy())).numpy()
    want[:, [4, 7]] = -np.inf
    np.testing.assert_allclose(adjust(scores), want, rtol=1e-12)
    adjust.follow(said[:, 1], np.arange(3))
    assert np.isfinite(adjust(scores)).all()


def test_sampling_stands_extremes() -> None:
    for logits in ([-np.inf, 0.0, -np.inf], [1e30, 0.0, -1e30], [-1e30, 5e4, -5e4]):
        for u in (0.0, 0.5, 1 - 2**-53):
            assert choose(Sampling(0.7, top_p=1.0), logits, u) == int(np.argmax(logits))
            assert choose(Sampling(5e-324), logits, u) == int(np.argmax(logits))


def test_frequencies() -> None:
    draws, sampling = Draws(1, 4), Sampling(1.0)
    logits: Array = np.tile(np.log([0.1, 0.6, 0.3]), (4, 1))
    ids = np.concatenate([sampling.choose(logits, draws.next) for _ in range(2000)])
    np.testing.assert_allclose(np.bincount(ids, minlength=3) / 8000, [0.1, 0.6, 0.3], atol=0.02)
