"""Layers with a window keep that of the past: any padding, chunks and batches, against the whole past in float64."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_models import Array, Runner, close, random_weights, reference
from test_published import MODELS, ROOT, SHRINK, Sizes

import seqspec
from seqspec.backends.onnx import export
from seqspec.build import build
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature

LENGTH = 29
SPEC = """
seqspec: 1
name: windows
decoder:
  input: {{kind: tokens, vocab_size: 61}}
  d_model: 24
  position: {position}
  norm: rmsnorm
  norm_placement: pre
  {more}
  layers:
    - block: [{{kind: attention, heads: 4, kv_heads: 2, mask: {first}}}, {{kind: ffn, d_ff: 20}}]
    - block: [{{kind: attention, heads: 2, mask: {second}}}, {{kind: ffn, d_ff: 20}}]
    - block: [{{kind: attention, heads: 4, mask: {first}}}]
head: {{kind: lm}}
"""
RNG = np.random.default_rng(11)


def window(size: int, *more: str) -> str:
    return f"{{all: [causal, {{kind: window, size: {size}}}{''.join(f', {one}' for one in more)}]}}"


def spec(first: str, second: str = "causal", position: str = "{kind: rope, theta: 10000}", more: str = "") -> str:
    return SPEC.format(first=first, second=second, position=position, more=more)


SPECS = {
    "one token": spec(window(1)),
    "two widths": spec(window(3), window(7)),
    "nothing else": spec(window(4), window(4)),
    "longer than the text": spec(window(40), window(5)),
    "spare": spec(window(17)),
    "alibi": spec(window(4), position="alibi"),
    "relative": spec(window(4), position="{kind: relative_bias, buckets: 6, max_distance: 9}"),
    "or a narrower one": spec(f"{{any: [{window(2)}, {window(6)}]}}"),
    "capped": spec(window(4)).replace("heads: 2,", "heads: 2, softcap: 2.5,"),
}


def padded(*rows: str) -> Array:
    """Rows of runs: 5 real tokens and then 3 of padding are `5 -3`."""
    runs = [[(int(run) > 0, abs(int(run))) for run in row.split()] for row in rows]
    return np.array([[real for real, count in row for _ in range(count)] for row in runs], np.int64)


MASKS = {
    "none": padded("29", "29"),
    "one row": padded("29"),
    "right": padded("29", "20 -9", "3 -26"),
    "left": padded("29", "-9 20", "-26 3"),
    "inside": padded("4 -9 16", "1 -1 3 -6 10 -1 7", "29"),
    "an empty row": padded("-29", "-4 25"),
}
CUTS: dict[str, list[int]] = {
    "whole": [],
    "steps": list(range(1, LENGTH)),
    "prompt and steps": list(range(12, LENGTH)),
    "chunks": [2, 9, 10, 13, 21],
    "a long one last": [1, 2, 3, 4, 5],
}


def calls(mask: Array, cuts: list[int]) -> Iterator[dict[str, Array]]:
    ids = np.random.default_rng(5).integers(0, 61, mask.shape)
    for start, end in zip([0, *cuts], [*cuts, LENGTH], strict=True):
        yield {"input_ids": ids[:, start:end], "attention_mask": mask[:, :end]}


def at_real(array: Array, mask: Array, axis: int) -> Array:
    assert np.isfinite(array).all()
    return np.moveaxis(array, axis, 1)[mask.astype(bool)]


@pytest.fixture(scope="module", params=SPECS)
def judged(request: pytest.FixtureRequest) -> tuple[Graph, dict[str, Array], dict[str, tuple[Array, Any]]]:
    """Every mask's logits and keys by the NumPy reference of the graph as it was built, which keeps everything."""
    graph = build(seqspec.load(SPECS[request.param]))
    weights = random_weights(graph)
    return graph, weights, {name: reference(graph, weights, *calls(mask, [])) for name, mask in MASKS.items()}


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_any_padding_in_any_chunks(judged: Any, target: str, optimise: bool) -> None:
    graph, weights, wanted = judged
    runner = Runner(graph, export(graph, weights, target=target), optimise)
    for name, mask in MASKS.items():
        logits, presents = wanted[name]
        for cuts in CUTS.values():
            runner.state = {}
            parts = [runner(call) for call in calls(mask, cuts)]
            close(at_real(np.concatenate([p["logits"] for p in parts], 1), mask, 1), at_real(logits, mask, 1))
            for state in signature(graph).states:
                if state.present in parts[-1]:
                    kept = parts[-1][state.present]
                    length = kept.shape[2]
                    last = mask[:, LENGTH - length :]
                    whole = presents[state.present][:, :, LENGTH - length :]
                    close(at_real(kept, last, 2), at_real(whole, last, 2))


def lengths(result: Any, layer: int) -> int:
    return int(result.state[f"past_key_values.{layer}.key"].shape[2])


@pytest.mark.parametrize(("size", "most"), [(1, 1), (4, 4), (9, 9), (17, 18), (33, 36)])
def test_how_much_is_kept(tmp_path: Path, size: int, most: int) -> None:
    """The window but the query, then an eighth of it less one position until it is dropped, and the last chunk."""
    session = seqspec.Session(seqspec.to_onnx(spec(window(size)), tmp_path / "out", target="portable"))
    result = session.run({"input_ids": RNG.integers(0, 61, (2, 50))})
    assert lengths(result, 0) == 50  # what is dropped is known to be unseen on the next call
    seen = set()
    for count in range(40):
        result = session.run({"input_ids": RNG.integers(0, 61, (2, 1))}, state=result.state)
        seen.add(lengths(result, 0))
        assert lengths(result, 1) == 51 + count
        assert result.state["past_state.attention_mask"].shape == (2, 51 + count)
    assert max(seen) == most
    assert min(seen) == size  # what the next query sees: its own key joins


def test_rows_are_dropped_from_together(tmp_path: Path) -> None:
    """What one row needs is kept for all; a row of padding alone needs nothing."""
    session = seqspec.Session(seqspec.to_onnx(spec(window(4)), tmp_path / "out", target="portable"))
    for mask, kept in (("20", "18 -2"), 6), (("20", "5 -15"), 19), (("20", "2 -18"), 21), (("20", "-20"), 4):
        first = session.run({"input_ids": RNG.integers(0, 61, (2, 20)), "attention_mask": padded(*mask)})
        assert lengths(session.run({"input_ids": [[1], [2]]}, state=first.state), 0) == kept


def whole(name: str, folder: Path) -> list[bool]:
    """Of each layer, whether all of the past is kept."""
    session = seqspec.Session(seqspec.to_onnx(name, folder, target="portable", verify=False))
    keys = [s for s in session.signature.states if s.past.endswith(".key")]
    return ["past_sequence_length" in map(str, s.shape) for s in keys]


def test_what_is_seen_from_further_is_kept(tmp_path: Path) -> None:
    far = "{all: [causal, {any: [{kind: window, size: 4}, {kind: global, tokens: [0]}]}]}"
    assert whole(spec(far, window(3)), tmp_path / "far") == [True, False, True]
    assert whole(spec(window(4)), tmp_path / "near") == [False, True, False]
    shown = spec(window(4), window(3)).replace("attention, heads: 2,", "attention, heads: 2, return_weights: true,")
    assert whole(shown, tmp_path / "shown") == [False, True, False]  # the weights are of all keys


def test_documents_in_a_window(tmp_path: Path) -> None:
    """A window over the row, and of it what is in a query's own document: places and ids of the past stay whole."""
    text = spec(window(4, "{kind: documents}"), window(6))
    module = seqspec.to_torch(text, seed=0).eval()
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out", target="portable", weights=module.state_dict()))
    ids, documents = RNG.integers(0, 61, (2, LENGTH)), np.repeat([[0, 1, 1, 2], [0, 0, 3, 3]], 8, 1)[:, :LENGTH]
    with torch.no_grad():
        wanted = module(input_ids=torch.tensor(ids), document_ids=torch.tensor(documents)).logits.numpy()
    state, parts = None, []
    for at in range(LENGTH):
        given = {"input_ids": ids[:, at : at + 1], "document_ids": documents[:, at : at + 1]}
        result = session.run(given, state=state)
        state = result.state
        parts.append(result["logits"])
    close(np.concatenate(parts, 1), wanted)
    assert lengths(result, 0) == 4
    assert lengths(result, 1) == 6


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, seqspec.Session]:
    """transformers' model with a window of 4, our module and our file of the same weights."""
    published, model = MODELS["mistral-7b"], SHRINK(seqspec.load(ROOT / "examples" / "mistral-7b.yaml"))
    sizes = Sizes.of(model)
    torch.manual_seed(0)
    theirs = published.make(sizes).eval()
    for parameter in theirs.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    ours = seqspec.to_torch(model).eval()
    weights = published.weights(theirs, sizes)
    ours.load_state_dict({key: weights[key] for key in ours.state_dict()})
    folder = tmp_path_factory.mktemp("mistral") / "out"
    seqspec.to_onnx(model, folder, target="portable", weights=ours.state_dict())
    return theirs, ours, seqspec.Session(folder)


def test_mistral_with_the_sliding_cache_of_transformers(mistral: Any) -> None:
    theirs, _, session = mistral
    ids = torch.randint(3, session.facts["input_ids"].ids, (2, 23))
    cache = transformers.DynamicCache(config=theirs.config)
    assert all(layer.is_sliding for layer in cache.layers)
    state, at = None, 0
    for count in (6, 1, 1, 1, 1, 1, 5, 1, 1, 5):
        chunk = ids[:, at : at + count]
        with torch.no_grad():
            wanted = theirs(chunk, past_key_values=cache, use_cache=True).logits.numpy()
        found = session.run({"input_ids": chunk.numpy()}, state=state)
        np.testing.assert_allclose(found["logits"], wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())
        state, at = found.state, at + count
    assert at == ids.shape[1]
    assert lengths(found, 0) == 3 + 5


@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}, {"temperature": 0.9, "seed": 4}])
def test_generation(mistral: Any, options: dict[str, Any]) -> None:
    """Beams spread and reorder rows of what is kept."""
    _, ours, session = mistral
    prompts = [[5, 6, 7, 8, 9, 4, 3, 12], [7], [3, 9, 4]]
    found = session.generate(prompts, max_new_tokens=20, **options)
    assert found.tolist() == seqspec.generate(ours, prompts, max_new_tokens=20, **options).tolist()


def test_other_options(tmp_path: Path) -> None:
    """The last logits alone, and half precision, are verified as all is, with the caches that they keep."""
    asked: tuple[dict[str, Any], ...] = ({"logits": "last"}, {"dtype": "float16"}, {"target": "cuda"})
    for number, options in enumerate(asked):
        options = {"target": "portable", **options}
        folder = seqspec.to_onnx(spec(window(3), window(2)), tmp_path / str(number), **options)
        assert seqspec.verify(folder).passed
        assert "past_window_3_length" in (folder / "seqspec.json").read_text()


def test_quantized_where_no_kernel_keeps_the_cache(tmp_path: Path) -> None:
    text = spec(window(3)).replace("d_model: 24", "d_model: 32").replace("heads: 4,", "heads: 4, head_dim: 6,")
    folder = seqspec.to_onnx(text, tmp_path / "out", quantize="int8")
    assert seqspec.verify(folder).passed
    assert "past_window_3_length" in (folder / "seqspec.json").read_text()


def test_kernels_keep_everything(tmp_path: Path) -> None:
    """GroupQueryAttention reads what it needs of a cache in place; beside it a layer that it cannot compute."""
    text = spec(window(3), window(4)).replace("heads: 4,", "heads: 4, head_dim: 16,")
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out"))
    shapes = {s.past: str(s.shape[2]) for s in session.signature.states}
    assert shapes["past_key_values.0.key"] == shapes["past_key_values.2.value"] == "past_sequence_length"
    assert shapes["past_key_values.1.key"] == "past_window_4_length"
    assert session.in_place  # of the caches that grow
    module = seqspec.to_torch(text, seed=0).eval()
    prompts = [RNG.integers(0, 61, 9).tolist()] * 2
    for options in ({}, {"num_beams": 3}):
        found = session.generate(prompts, max_new_tokens=30, **options)
        assert found.tolist() == seqspec.generate(module, prompts, max_new_tokens=30, **options).tolist()


def test_a_state_that_lacks_what_a_window_shows(tmp_path: Path) -> None:
    session = seqspec.Session(seqspec.to_onnx(spec(window(5)), tmp_path / "out", target="portable", verify=False))
    ids = RNG.integers(0, 61, (2, 12))
    whole = session.run({"input_ids": ids})
    names = ["past_key_values.0.key", "past_key_values.0.value", "past_key_values.2.key", "past_key_values.2.value"]

    def cut(count: int) -> dict[str, Array]:
        return {**whole.state, **{name: whole.state[name][:, :, 12 - count :] for name in names}}

    wanted = session.run({"input_ids": ids[:, :1]}, state=whole.state)["logits"]
    close(session.run({"input_ids": ids[:, :1]}, state=cut(4))["logits"], wanted)
    with pytest.raises(seqspec.RuntimeFault, match=r"`past_key_values\.0\.key` in the state has 3 positions"):
        session.run({"input_ids": ids[:, :1]}, state=cut(3))
    mask = padded("4 -4 4 1", "13")
    close(session.run({"input_ids": ids[:, :1], "attention_mask": mask}, state=cut(4))["logits"][1:], wanted[1:])
    with pytest.raises(seqspec.RuntimeFault, match="SEQ509"):  # the mask says more of the past than is kept
        session.run({"input_ids": ids[:, :1], "attention_mask": padded("8 -4 1", "13")}, state=cut(4))
    longer = {**whole.state, **{name: np.repeat(whole.state[name], 2, 2) for name in names}}
    with pytest.raises(seqspec.RuntimeFault, match="SEQ509"):
        session.run({"input_ids": ids[:, :1]}, state=longer)


def test_a_whole_state_is_taken(mistral: Any) -> None:
    """As PyTorch keeps it."""
    _, ours, session = mistral
    ids = RNG.integers(3, 50, (2, 15))
    with torch.no_grad():
        first = ours(input_ids=torch.tensor(ids[:, :14]), attention_mask=torch.ones(2, 14, dtype=torch.long))
        wanted = ours(input_ids=torch.tensor(ids)).logits[:, 14:].numpy()
    state = {name: x.numpy() for name, x in first.state.items()}
    close(session.run({"input_ids": ids[:, 14:]}, state=state)["logits"], wanted)


def test_onnxruntime_alone(mistral: Any, tmp_path: Path) -> None:
    """The example that runs a folder without seqspec begins with an empty window."""
    import runpy

    _, _, session = mistral
    folder = shutil.copytree(session.path, tmp_path / "out")
    model = runpy.run_path(str(ROOT / "examples" / "run_with_onnxruntime.py"))["Model"](folder)
    ids = np.array([[5, 6, 7, 8, 9, 4]])
    model.begin({"input_ids": ids})
    logits, found = model.step(ids), []
    for _ in range(12):
        found.append(int(logits[0, -1].argmax()))
        logits = model.step(np.array([[found[-1]]]))
    assert found == session.generate(ids[0], max_new_tokens=12).tolist()


def test_onnxruntime_genai_gets_whole_caches(tmp_path: Path) -> None:
    """It makes room for every present by the length of the text."""
    folder = seqspec.to_onnx(spec(window(3)), tmp_path / "out", target="portable", genai=True)
    assert "past_window" not in (folder / "seqspec.json").read_text()
    assert seqspec.verify(folder).passed
