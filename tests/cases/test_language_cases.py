"""Cases 42 and 44: what YAML makes of a spec, misspelt keys, values of the wrong type, rules across fields."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from end_to_end import named

import seqspec

SPEC = """
encoder:
  input: {kind: tokens, vocab_size: 9}
  d_model: 8
  norm: {kind: layernorm, eps: 1e-5}
  bias: true
  layers:
    - block:
        - {kind: attention, heads: 4, kv_heads: 2}
        - {kind: ffn, d_ff: 16, activation: gelu}
"""


def checked(old: str = "", new: str = "") -> seqspec.Report:
    assert old in SPEC
    return seqspec.check(named(SPEC.replace(old, new) if old else SPEC))


def refused(old: str, new: str, *told: str) -> None:
    report = checked(old, new)
    assert report.has_errors, f"accepted: {new}"
    text = str([(d.message, d.hint) for d in report])
    assert all(word in text for word in told), text
    assert all(d.line and d.column for d in report)


def test_the_spec_itself_is_fine() -> None:
    assert not checked().has_errors


@pytest.mark.parametrize("text", ["1e-5", "5e-6", "1E-5", "1e5"])
def test_42_a_number_with_an_exponent_is_a_number(text: str) -> None:
    model = seqspec.load(named(SPEC.replace("1e-5", text)))
    assert model.encoder is not None
    assert model.encoder.norm is not None
    assert model.encoder.norm.eps == float(text)
    assert type(model.encoder.norm.eps) is float


def test_42_an_exponent_is_no_integer() -> None:
    refused("d_ff: 16", "d_ff: 1e5", "d_ff")


@pytest.mark.parametrize("word", ["no", "off", "yes", "on"])
def test_42_words_are_never_booleans(word: str) -> None:
    refused("bias: true", f"bias: {word}", "true" if word in ("yes", "on") else "false")
    refused("activation: gelu", f"activation: {word}", word)
    refused("{kind: layernorm, eps: 1e-5}", word, word)


@pytest.mark.parametrize("word", ["no", "off", "yes", "on"])
def test_42_a_word_is_the_text_of_a_text(word: str) -> None:
    assert seqspec.load(f"seqspec: 1\nname: {word}\n{SPEC}").name == word


def test_42_a_key_twice() -> None:
    refused("heads: 4,", "heads: 4, heads: 8,", "heads")
    refused("vocab_size: 9", "vocab_size: 9, vocab_size: 10", "vocab_size")
    (found,) = checked("  d_model: 8\n", "  d_model: 8\n  d_model: 16\n")
    assert (found.line, [other.span.line for other in found.related]) == (7, [6])
    assert "`d_model`" in found.message


def test_42_an_explicit_key_wins_over_a_merged_one() -> None:
    text = SPEC.replace("{kind: attention, heads: 4, kv_heads: 2}", "{<<: &a {kind: attention, heads: 4}, heads: 2}")
    assert seqspec.load(named(text)).encoder.layers[0].block[0].heads == 2  # type: ignore[union-attr]


def test_42_aliases_of_aliases() -> None:
    levels = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    tracemalloc.start()
    with pytest.raises(seqspec.SpecError, match="more than 50,000 values"):
        seqspec.load("\n".join(levels))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


def test_42_depth() -> None:
    with pytest.raises(seqspec.SpecError, match="levels deep"):
        seqspec.load(named("[" * 5000 + "]" * 5000))
    deep = "{all: [" * 10 + "causal" + "]}" * 10
    assert not seqspec.check(named(SPEC.replace("heads: 4,", f"heads: 4, mask: {deep},"))).has_errors


@pytest.mark.parametrize("key", ["dropuot", "Dropout", "drop_out"])
@pytest.mark.parametrize("place", ["bias: true", "heads: 4", "d_ff: 16"])
def test_44_a_misspelt_key(key: str, place: str) -> None:
    refused(place, f"{place}, {key}: 0.5" if "bias" not in place else f"{place}\n  {key}: 0.5", key, "dropout")


def test_44_a_misspelt_key_at_the_root() -> None:
    report = seqspec.check(named(SPEC.replace("encoder:", "enocder:")))
    assert "encoder" in str([(d.message, d.hint) for d in report])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("heads: 4,", "heads: true,"),
        ("heads: 4,", "heads: 8.0,"),
        ("heads: 4,", "heads: 8.5,"),
        ("heads: 4,", "heads: '8',"),
        ("bias: true", "bias: 1"),
        ("bias: true", "dropout: true"),
        ("bias: true", "dropout: '1e-5'"),
        ("d_ff: 16", "d_ff: null"),
        ("heads: 4,", "heads: -4,"),
        ("eps: 1e-5", "eps: .nan"),
        ("eps: 1e-5", "eps: .inf"),
    ],
)
def test_44_values_of_the_wrong_type(old: str, new: str) -> None:
    refused(old, new)


def test_44_layers_null() -> None:
    start = SPEC.index("  layers:")
    assert seqspec.check(named(SPEC[:start] + "  layers: null\n")).has_errors


def test_44_a_whole_number_where_a_float_is_meant() -> None:
    eps = seqspec.load(named(SPEC.replace("eps: 1e-5", "eps: 1"))).encoder.norm.eps  # type: ignore[union-attr]
    assert (eps, type(eps)) == (1.0, float)
    report = checked("heads: 4,", "heads: 4.0,")
    assert report.has_errors  # a count is written without a point


def test_44_rules_across_fields() -> None:
    refused("d_model: 8", "d_model: 10", "10", "4")
    refused("heads: 4, kv_heads: 2", "heads: 8, kv_heads: 3", "8", "3")


def test_44_the_schema_says_the_rules_that_it_cannot_check() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "seqspec-1.schema.json").read_text())
    attentions = [d["properties"] for d in schema["definitions"].values() if "kv_heads" in d.get("properties", ())]
    assert attentions
    for keys in attentions:
        assert "must divide `d_model`" in keys["heads"]["description"]
        assert "must divide `heads`" in keys["kv_heads"]["description"]


GOOD = ["", "dropout: 0.5", "dropout: {attention: 0.1}", "mask: {kind: window, size: 3}", "position: rope"]
BAD = ["dropuot: 0.5", "dropout: true", "bias: 1", "norm: off", "mask: {kind: windw}", "layers: []", "d_model: '8'"]


def test_44_the_schema_and_the_validator_agree() -> None:
    """What the published schema refuses is refused, and what is accepted passes it."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "seqspec-1.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    base = {
        "seqspec": 1,
        "name": "case",
        "encoder": {
            "input": {"kind": "tokens", "vocab_size": 9},
            "d_model": 8,
            "layers": [{"block": [{"kind": "attention", "heads": 4}, {"kind": "ffn", "d_ff": 16}]}],
        },
    }
    import yaml

    for line in GOOD + BAD:
        data = {**base, "encoder": base["encoder"] | (yaml.safe_load(line.replace("off", "'off'")) or {})}
        passes, accepted = validator.is_valid(data), not seqspec.check(data).has_errors
        assert accepted == (line in GOOD), line
        assert passes == accepted, f"the schema says {passes} to `{line}`"
