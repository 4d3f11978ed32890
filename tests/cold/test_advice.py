"""What findings advise, for mistakes that newcomers make."""

from __future__ import annotations

import pytest
from specs import HERE

import seqspec
from seqspec.cli.main import run
from seqspec.diagnostics import CODES

GPT2 = HERE.parents[1] / "examples/gpt2.yaml"
HEAD = "seqspec: 1\nname: x\n"


def decoder(layers: str, more: str = "d_model: 12") -> str:
    return f"{HEAD}decoder:\n  input: {{kind: tokens, vocab_size: 9}}\n  {more}\n  layers: {layers}\nhead: lm\n"


def found(text: str) -> list[tuple[str, int, int, str, str]]:
    return [(d.code, d.line, d.column, d.message, d.hint or "") for d in seqspec.check(text)]


@pytest.mark.parametrize("kind", ["attention", "cross_attention", "linear_attention", "low_rank_attention", "ffn"])
@pytest.mark.parametrize("bare", [False, True])
def test_a_sublayer_belongs_into_a_block(kind: str, bare: bool) -> None:
    ((code, *_, hint),) = found(decoder(f"[{kind}]" if bare else f"[{{kind: {kind}}}]"))
    assert code == "SEQ103"
    assert f"`block: [{{kind: {kind}, …}}]`" in hint


@pytest.mark.parametrize("key", ["model", "layers", "network"])
def test_a_spec_without_stacks(key: str) -> None:
    ((*_, hint),) = found(f"{HEAD}{key}:\n  - {{kind: lstm, hidden_size: 4}}\n")
    assert hint.startswith("write `encoder` or `decoder`")


def test_widths_are_shown_where_they_are_written() -> None:
    block = "[{block: [{kind: ffn, d_ff: 8}]}]"
    features = f"{HEAD}decoder:\n  input: {{kind: features, size: 3}}\n  layers: {block}\n"
    ((code, line, column, message, hint),) = found(features)
    assert (code, line, column) == ("SEQ204", 4, features.splitlines()[3].index("3") + 1)
    assert "None" not in message
    assert hint == "write `d_model: 3` on the stack"
    assert not found(features.replace("  layers", "  d_model: 3\n  layers"))


def test_masks_that_see_the_future_are_shown_a_sound_one() -> None:
    ((code, *_, hint),) = found(decoder("[{block: [{kind: attention, heads: 2, mask: none}]}]"))
    assert code == "SEQ207"
    example = "mask: {all: [causal, {kind: window, size: 16}]}"
    assert f"`{example}`" in hint
    assert not found(decoder(f"[{{block: [{{kind: attention, heads: 2, {example}}}]}}]"))


def test_key_value_heads_are_divisors() -> None:
    ((code, *_, hint),) = found(decoder("[{block: [{kind: attention, heads: 6, kv_heads: 4}]}]"))
    assert (code, hint) == ("SEQ202", "write one of 1, 2, 3, 6")


@pytest.mark.parametrize(("word", "meant"), [("swish", "silu"), ("gelu_new", "gelu_tanh"), ("SwiGLU", "silu")])
def test_words_of_others(word: str, meant: str) -> None:
    ((*_, hint),) = found(decoder(f"[{{block: [{{kind: ffn, d_ff: 8, activation: {word}}}]}}]"))
    assert f"`{meant}`" in hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("decoder.d_model=null", "`decoder.d_model` is null"),
        ("decoder.layers.0.repeat=2", "write `layers[0]`"),
        ("decoder.layers[3].repeat=2", "`decoder.layers` has one item and no item 3"),
        ("decoder.layers[3].repeat=2", "it is `layers[0]`"),
        ("decoder.layers[0].block[2].d_ff=2", "they run from `block[0]` to `block[1]`"),
    ],
)
def test_overrides(change: str, said: str) -> None:
    report = seqspec.checking.check(GPT2, [change])
    assert said in " ".join(f"{d.message} {d.hint}" for d in report)


def test_codes_are_listed_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("SEQ2", "seq2", "SEQ2xx"):
        assert run(["explain", word]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [code for code in CODES if code.startswith("SEQ2")]
    assert len({line.index(CODES[line[:6]].title) for line in lines}) == 1
    assert all(line[line.index(CODES[line[:6]].title) - 2 :].startswith("  ") for line in lines)
    assert run(["explain", "SEQ9"]) == 2


def test_a_report_says_whether_all_is_well() -> None:
    clean, wrong = seqspec.check(GPT2), seqspec.check("seqspec: 1\n")
    assert clean.ok
    assert not wrong.ok
    assert repr(clean) == "<Report: clean>"
    assert repr(wrong).startswith("<Report: ")
    assert f"{len(wrong)} errors" in repr(wrong)


def test_a_missing_choice_is_shown_the_choices() -> None:
    stack = "encoder: {input: {kind: features, size: 3}, layers: [{kind: gru, hidden_size: 4}]}"
    ((code, *_, hint),) = found(f"{HEAD}{stack}\nhead: {{kind: classifier, classes: 2}}\n")
    assert (code, hint) == ("SEQ102", "write one of `none`, `first`, `last`, `mean`, `max`, `final_state`")


def test_several_heads_are_led_to_outputs() -> None:
    stack = "encoder: {input: {kind: features, size: 3}, layers: [{kind: gru, hidden_size: 4}]}"
    ((code, *_, hint),) = found(f"{HEAD}{stack}\nheads: {{}}\n")
    assert code == "SEQ114"
    assert "`outputs`" in hint


def test_a_width_that_nobody_wrote_is_one_finding_under_a_tied_head() -> None:
    text = decoder("[{block: [{kind: attention, heads: 2}]}]", "position: rope").replace("lm", "{kind: lm, tied: true}")
    assert [code for code, *_ in found(text)] == ["SEQ220"]
