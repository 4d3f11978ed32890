"""Parameters, FLOPs and bytes against counts made by hand and by listing the graph."""

from __future__ import annotations

import json
from itertools import takewhile
from math import prod
from pathlib import Path

import pytest
from specs import EXAMPLES, HERE, SOUND

import seqspec
from seqspec.reports.text import render

# Counted from the papers' and the models' published sizes, or by the formulas beside them.
PARAMETERS = {
    "gpt2": 124_439_808,
    "llama-3.2-1b": 1_235_814_400,
    # 6 (4 d² + 4 d + 2 d f + f + d + 4 d) + 6 (8 d² + 8 d + 2 d f + f + d + 6 d) + V d with d 512, f 2048, V 37000
    "transformer-base": 63_082_496,
    # BERT's 384-wide embeddings 30522 + 512 + 2 and a norm, then 6 layers of 1,774,464
    "minilm": (30522 + 512 + 2) * 384 + 2 * 384 + 6 * 1_774_464,
    # 30522 · 128; then 2 layers and 2 directions of 4 H (I + H) + 8 H; then 512 · 2 + 2
    "lstm-sentiment": 30522 * 128 + 2 * (1024 * (128 + 256) + 2048) + 2 * (1024 * (512 + 256) + 2048) + 512 * 2 + 2,
    "gru-forecast": 192 * (8 + 64) + 2 * 192 + 64 + 1,
}


def example(name: str) -> seqspec.Model:
    return seqspec.load(HERE.parents[1] / "examples" / f"{name}.yaml")


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_by_hand(name: str) -> None:
    summary = seqspec.report(example(name))
    assert summary.parameters == PARAMETERS[name]
    assert summary.weight_bytes == 4 * PARAMETERS[name]


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_the_parts_make_up_the_whole(path: Path) -> None:
    model = seqspec.load(path)
    summary = seqspec.report(model, batch=2, time=5)
    graph = seqspec.build(model)
    listed = {p.name: prod(int(str(size)) for size in p.shape) for p in graph.root.params}
    assert summary.parameters == sum(listed.values())
    assert sum(part.count * part.parameters for part in summary.parts) == summary.parameters
    assert sum(part.count * part.flops for part in summary.parts) == summary.flops_first
    assert sum(part.count * part.train_flops for part in summary.parts) == summary.train_flops
    assert sum(part.count * part.kept_bytes for part in summary.parts) == summary.kept_bytes
    assert sum(part.count * part.state_bytes for part in summary.parts) == summary.state_bytes
    assert summary.kept_bytes_checkpointed <= summary.kept_bytes
    assert max(part.working_bytes for part in summary.parts) <= summary.working_bytes


def test_flops_of_a_small_decoder_by_hand() -> None:
    text = """\
seqspec: 1
name: x
decoder:
  input: {kind: tokens, vocab_size: 11}
  d_model: 6
  bias: false
  norm: rmsnorm
  final_norm: false
  layers:
    - {repeat: 3, block: [{kind: attention, heads: 2, mask: causal}]}
head: lm
"""
    one = seqspec.report(seqspec.load(text), batch=2, time=5, past=4)
    tokens = 2 * 5
    maps = 4 * 2 * tokens * 6 * 6
    pairs = sum(range(5, 10))  # query i of five sees four cached keys and i + 1 of its own
    attention = 2 * 2 * 2 * pairs * 3 * 2
    head = 2 * tokens * 6 * 11
    norm, add = 4 * tokens * 6, tokens * 6  # square, sum, divide, weight; and one
    assert one.flops == 3 * (maps + attention + norm + add) + head
    assert one.state_bytes == 2 * 9 * 1 + 3 * 2 * (2 * 9 * 6 * 4)  # the mask, and keys and values of nine places


def test_a_training_step_of_a_small_decoder_by_hand() -> None:
    """Products twice more, for both factors; features take no gradient, so that what reads them costs one less."""
    text = """\
seqspec: 1
name: x
decoder:
  input: {kind: features, size: 4}
  d_model: 6
  bias: false
  norm: rmsnorm
  final_norm: false
  layers:
    - {repeat: 3, block: [{kind: ffn, d_ff: 10, activation: none, dropout: 0.5}]}
head: {kind: regression, size: 5, pool: none}
"""
    summary = seqspec.report(seqspec.load(text), batch=2, time=7)
    tokens = 2 * 7
    entry, maps, norm, add = 2 * tokens * 4 * 6, 2 * 2 * tokens * 6 * 10, 4 * tokens * 6, tokens * 6
    drop, head, loss = tokens * 10, 2 * tokens * 6 * 5, 3 * tokens * 5
    assert summary.flops == entry + 3 * (maps + norm + add + drop) + head
    forward = summary.flops + loss
    backward = entry + 3 * (2 * maps + 2 * norm + 0 * add + drop) + 2 * head + loss
    assert summary.train_flops == forward + backward
    # of a layer x, a mean square, what the first map reads; which of the ten are dropped; what the second one reads
    inside = 4 * tokens * (1 + 6 + 10) + tokens * 10
    (layer,) = (part for part in summary.parts if part.checkpointed)
    assert (layer.kept_bytes, layer.inside_bytes) == (inside + 4 * tokens * 6, inside)
    # features with zeros at the padding, the mask that says where that is, what the first layer reads, and the output
    assert summary.kept_bytes == 3 * layer.kept_bytes + 4 * tokens * (4 + 6 + 5) + tokens
    assert summary.kept_bytes_checkpointed == summary.kept_bytes - 2 * inside


def test_the_encoder_counts_on_the_first_call_only() -> None:
    model = example("transformer-base")
    first = seqspec.report(model, time=1, source_time=50)
    later = seqspec.report(model, time=1, past=10, source_time=50)
    assert first.flops == first.flops_first
    assert later.flops < later.flops_first / 3
    assert any(part.once for part in later.parts)
    assert later.held_bytes == 6 * 2 * 512 * 50 * 4 + 50


def test_element_types_scale_bytes_only() -> None:
    full, half = (seqspec.report(example("gpt2"), dtype=dtype) for dtype in ("float32", "bfloat16"))
    assert (half.parameters, half.flops) == (full.parameters, full.flops)
    assert 2 * half.weight_bytes == full.weight_bytes


def test_layers_that_repeat_are_one_line() -> None:
    text = render(seqspec.report(example("gpt2")))
    assert "decoder.layers.0-11" in text
    assert "× 12" in text
    assert len(text.splitlines()) < 35
    summary = seqspec.report(example("hybrid-window"))
    assert [part.count for part in summary.parts if "layers" in part.name] == [3, 1] * 4


def test_the_json_of_a_report() -> None:
    data = json.loads(json.dumps(seqspec.report(example("nmt-bahdanau"), batch=3, past=2, time=1).to_json()))
    assert data["version"] == 1
    assert data["sizes"] == {
        "batch_size": 3,
        "sequence_length": 1,
        "past_sequence_length": 2,
        "encoder_sequence_length": 1,
    }
    assert set(data) == {
        *("version", "name", "dtype", "sizes", "parameters", "weight_bytes", "flops", "flops_first", "state_bytes"),
        *("held_bytes", "working_bytes", "train_flops", "train_flops_checkpointed", "kept_bytes"),
        *("kept_bytes_checkpointed", "growth", "parts"),
    }
    assert set(data["parts"][0]) == {
        *("name", "what", "count", "parameters", "flops", "train_flops", "state_bytes", "kept_bytes", "inside_bytes"),
        *("working_bytes", "checkpointed", "once", "growth"),
    }
    assert set(data["growth"]) == set(data["parts"][0]["growth"]) == {"flops", "kept", "state"}


def test_every_example_has_a_report() -> None:
    for path in EXAMPLES:
        assert seqspec.report(seqspec.load(path)).parameters > 0


def test_a_table_of_positions_ends() -> None:
    """12 positions, behind a past or not; by default a report is of as many as there are."""
    model = seqspec.load(HERE.parents[1] / "examples/gpt2.yaml", ["decoder.position.max_length=12"])
    assert seqspec.report(model).sizes["sequence_length"] == 12
    assert seqspec.report(model, past=5).sizes["sequence_length"] == 7
    assert seqspec.report(model, time=4, past=8).sizes["sequence_length"] == 4
    for time, past, said in ((13, 0, "13 positions are asked for;"), (5, 8, "of which 8 are the past")):
        with pytest.raises(seqspec.RuntimeFault, match="SEQ506") as caught:
            seqspec.report(model, time=time, past=past)
        assert said in str(caught.value)
    assert seqspec.report(example("llama-3.2-1b"), time=4096).sizes["sequence_length"] == 4096
    table = "position={kind: learned, max_length: 9}"
    two = seqspec.load(HERE.parents[1] / "examples/transformer-base.yaml", [f"encoder.{table}"])
    assert seqspec.report(two, time=30, source_time=9).sizes["sequence_length"] == 30
    with pytest.raises(seqspec.RuntimeFault, match="--source-time"):
        seqspec.report(two, time=30)


@pytest.mark.parametrize("name", ["gpt2", "transformer-base", "minilm"])
def test_the_columns_of_a_table_add_up(name: str) -> None:
    summary = seqspec.report(example(name))
    lines = iter(render(summary).splitlines())
    assert next(line for line in lines if line.split()[:1] == ["part"]).split()[-2:] == ["train", "step"]
    rows = [[int(cell.replace(",", "")) for cell in line.split()[-3:]] for line in takewhile(is_part, lines)]
    *parts, total = rows
    assert [sum(column) for column in zip(*parts, strict=True)] == total
    assert total == [summary.parameters, summary.flops_first, summary.train_flops]


def is_part(line: str) -> bool:
    return bool(line) and "*" not in line[:4]


def test_a_pool_has_its_line() -> None:
    classes = "head={kind: classifier, classes: 2, pool: first}"
    text = render(seqspec.report(seqspec.load(HERE.parents[1] / "examples/lstm-sentiment.yaml", [classes])))
    assert "Pool (first)" in text


def test_attention_to_a_sound_is_counted_over_the_frames_that_strides_leave() -> None:
    sound = {"kind": "audio", "mel_bins": 3, "convolutions": [{"channels": 4, "kernel": 3, "stride": 2}]}
    decoder = {"input": {"kind": "tokens", "vocab_size": 5, "d_model": 4}}
    decoder["layers"] = [{"kind": "gru", "hidden_size": 4, "attend": {"from": "encoder", "score": "general"}}]
    encoder = {"input": sound, "layers": [{"kind": "gru", "hidden_size": 4}]}
    spec = {"seqspec": 1, "name": "x", "encoder": encoder, "decoder": decoder}
    flops = [seqspec.report(spec, time=1, source_time=frames).flops for frames in (7, 8, 9)]
    assert flops[0] == flops[1] < flops[2]
