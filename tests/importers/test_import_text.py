"""document/dump.py: what is written reads back as what was meant, in YAML 1.2."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqspec.document import load_text
from seqspec.document.dump import to_yaml

WORDS = st.from_regex(r"[a-z_]{1,12}", fullmatch=True).filter(lambda word: word != "extends")
KEYS = WORDS | st.sampled_from(["true", "null"])
SCALARS = (
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc")), max_size=20)
    | st.sampled_from(["true", "No", "null", "1e5", "0x10", "~", "a-b", "MiniLM-L6", "", "#x", "a: b", "-"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=5), st.lists(st.text(max_size=30), max_size=2))
def test_round_trip(data: dict[str, Any], notes: list[str]) -> None:
    text = to_yaml(data, notes)
    assert load_text(text).data == data


@pytest.mark.parametrize(
    ("value", "written"),
    [(1e-12, "1e-12"), (1e-05, "1e-5"), (500000.0, "500000"), (0.1, "0.1"), (1e16, "1e+16"), ("true", '"true"')],
)
def test_scalars_as_people_write_them(value: object, written: str) -> None:
    assert to_yaml({"x": value}) == f"x: {written}\n"


def test_structure_in_blocks_and_settings_on_a_line() -> None:
    block = [{"kind": "attention", "heads": 4}, {"kind": "ffn", "d_ff": 8}]
    layers = [{"repeat": 2, "block": block}, {"pattern": ["local", "global"]}]
    data = {"encoder": {"d_model": 4, "layers": layers}, "head": {"kind": "lm"}}
    assert to_yaml(data, ["a note\nof two lines"]) == (
        "# a note\\nof two lines\n"
        "encoder:\n"
        "  d_model: 4\n"
        "  layers:\n"
        "    - repeat: 2\n"
        "      block:\n"
        "        - {kind: attention, heads: 4}\n"
        "        - {kind: ffn, d_ff: 8}\n"
        "    - pattern: [local, global]\n"
        "head: {kind: lm}\n"
    )
