"""How costs grow: in letters, and in numbers at n, 2 n and 4 n, each kind of attention by its own count of pairs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from specs import EXAMPLES, SOUND

import seqspec
from seqspec.components.base import Component
from seqspec.ops.masks import AllOf, AnyOf, Band, BlockSparse, Documents, Global, Mask
from seqspec.ops.pairs import reach
from seqspec.reports.terms import Term, shown
from seqspec.reports.text import render

D, H, W, K = 24, 3, 8, 4


def model(layer: str, stack: str = "encoder", width: int = D) -> str:
    """One block of one layer, behind a norm and with a residual."""
    return f"""\
seqspec: 1
name: one
{stack}:
  input: {{kind: features, size: {width}}}
  d_model: {width}
  layers: [{{block: [{layer}]}}]
"""


def block(layer: str, stack: str = "encoder") -> seqspec.Growth:
    """The growth of the layer."""
    (part,) = (part for part in seqspec.report(model(layer, stack)).parts if ".layers." in part.name)
    return part.growth


ATTENTION = f"kind: attention, heads: {H}"
WINDOW = f"{{kind: window, size: {W}}}"
GROWS = [
    (f"{{{ATTENTION}}}", "n² d + n d²"),
    (f"{{{ATTENTION}, mask: causal}}", "n² d + n d²"),
    (f"{{{ATTENTION}, mask: {WINDOW}}}", "n w d + n d²"),
    (f"{{{ATTENTION}, mask: {{any: [{WINDOW}, {{kind: global, tokens: [0]}}]}}}}", "n (w + g) d + n d²"),
    (f"{{{ATTENTION}, mask: {{kind: block_sparse, block_size: 4}}}}", "n b d + n d²"),
    (f"{{{ATTENTION}, mask: {{all: [documents, {WINDOW}]}}}}", "n w d + n d²"),
    (f"{{kind: linear_attention, heads: {H}}}", "n d² + n d²/h"),
    (f"{{kind: low_rank_attention, heads: {H}, projected_length: {K}, max_length: 4096}}", "n k d + n d²"),
    ("{kind: ffn, d_ff: 60}", "n d²"),
]


@pytest.mark.parametrize(("layer", "grows"), GROWS)
def test_what_a_layer_costs_in_letters(layer: str, grows: str) -> None:
    assert block(layer).flops == grows


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_a_recurrent_layer_in_letters(kind: str) -> None:
    text = "seqspec: 1\nname: x\ndecoder: {input: {kind: features, size: 8}, layers: [{kind: KIND, hidden_size: 9}]}"
    (part,) = (part for part in seqspec.report(text.replace("KIND", kind)).parts if part.what.endswith("Layer"))
    assert part.growth == ("n d²", "n d", "d")


def test_what_is_kept_and_carried_in_letters() -> None:
    assert block(f"{{{ATTENTION}}}", "decoder") == ("n² d + n d²", "n d", "n d")
    assert block(f"{{{ATTENTION}, return_weights: true}}") == ("n² d + n d²", "n² h + n d", "0")
    assert block(f"{{kind: linear_attention, heads: {H}}}", "decoder") == ("n d² + n d²/h", "n d²/h", "d²/h")
    # the mask itself is a table of all pairs, whatever it allows
    parts = seqspec.report(model(GROWS[3][0])).parts
    assert [part.growth.kept for part in parts if part.what == "Visible"] == ["n²"]


def test_two_stacks_grow_with_two_lengths() -> None:
    (path,) = (path for path in EXAMPLES if path.stem == "transformer-base")
    summary = seqspec.report(path)
    grown = {part.what: part.growth for part in summary.parts if part.checkpointed}
    assert grown == {
        "EncoderBlock": ("m² d + m d²", "m d", "0"),
        "DecoderBlock": ("n² d + n m d + n d² + m d²", "n d + m d", "n d + m d"),
    }
    assert summary.growth.flops == "n² d + n m d + n d² + n d V + m² d + m d²"


def window(n: int) -> int:
    return n * (2 * W - 1) - W * (W - 1)


def blocks(n: int) -> int:
    """Blocks of 4: a row of blocks sees its neighbours and the first block, one drawn before it, those that draw it."""
    return int(sum(map(len, _seen_blocks(n // 4)))) * 16


def _seen_blocks(count: int) -> list[set[int]]:
    mask = BlockSparse(4, 1, 1, 1, 0)
    seen = [{0, *range(max(b - 1, 0), min(b + 2, count))} if b else set(range(count)) for b in range(count)]
    for b in range(count):
        drawn = mask.drawn(b, 0)
        if drawn >= 0:
            seen[b].add(drawn)
            seen[drawn].add(b)
    return seen


# FLOPs beside those of the maps: 4 d a pair; φ(k) [v, 1]ᵀ and φ(q) times that; E k, F v and pairs with what is left
SPARSE = "mask: {kind: block_sparse, block_size: 4, window_blocks: 3, global_blocks: 1, random_blocks: 1, seed: 0}"
COSTS: list[tuple[str, Callable[[int], int]]] = [
    (GROWS[0][0], lambda n: 4 * D * n * n),
    (GROWS[2][0], lambda n: 4 * D * window(n)),
    (GROWS[3][0], lambda n: 4 * D * (window(n) + 2 * (n - W))),
    (f"{{{ATTENTION}, {SPARSE}}}", lambda n: 4 * D * blocks(n)),
    (GROWS[6][0], lambda n: n * D * (2 * D // H + 1 + 2 * (D // H + 1))),
    (GROWS[7][0], lambda n: 2 * 2 * n * K * D + 4 * D * n * K),
]


@pytest.mark.parametrize(("layer", "cost"), COSTS)
def test_what_attention_costs_in_numbers(layer: str, cost: Callable[[int], int]) -> None:
    maps, norm, residual = 4 * 2 * D * D, 7 * D, D
    for n in (64, 128, 256):
        (part,) = (part for part in seqspec.report(model(layer), time=n).parts if ".layers." in part.name)
        assert part.flops - n * (maps + norm + residual) == cost(n), n


@pytest.mark.parametrize(("layer", "cost"), COSTS[1:3] + COSTS[4:])
def test_twice_the_text_costs_twice_what_it_adds(layer: str, cost: Callable[[int], int]) -> None:
    """Linear in n, but for the first and the last window, which are cut off."""
    small, middle, large = (seqspec.report(model(layer), time=n).flops for n in (64, 128, 256))
    assert large - middle == 2 * (middle - small)


@pytest.mark.parametrize(
    ("mask", "letters"),
    [
        (Band(), "n"),
        (Band(None, 0), "n"),
        (Band(7, 7), "w"),
        (AnyOf((Band(7, 0), Documents())), "n"),
        (AllOf((AnyOf((Band(7, 7), Global((0,)))), Band(None, 0))), "gw"),
        (AllOf((BlockSparse(4, 1, 1, 1, 0), Documents())), "b"),
    ],
)
def test_what_a_query_sees(mask: Mask, letters: str) -> None:
    assert "".join(sorted(reach(mask))) == letters


def test_terms_below_others_are_not_said() -> None:
    n2d, nd, nwd, nd2, n2h = (Term.of(p) for p in ({"n": 2, "d": 1}, {"n": 1, "d": 1}, {"n": 1, "w": 1, "d": 1},
                                                    {"n": 1, "d": 2}, {"n": 2, "h": 1}))  # fmt: skip
    assert shown([nd, n2d, nwd, nd2, n2h]) == "n² d + n d²"
    assert shown([n2h, nd2]) == "n² h + n d²"
    assert shown([nwd, nd]) == "n w d"
    assert shown([Term.of({})]) == "1"
    assert shown([]) == "0"


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_every_spec_says_how_it_grows(path: Any) -> None:
    summary = seqspec.report(path, batch=2, time=5)
    for part in summary.parts:
        zeros = tuple(order == "0" for order in part.growth)
        assert zeros == (not part.train_flops, not part.kept_bytes, not part.state_bytes), part


def test_a_report_is_100_columns_wide() -> None:
    for path in EXAMPLES:
        lines = render(seqspec.report(path)).splitlines()
        # layers of captions from images grow with four sizes
        assert max(map(len, lines)) <= (104 if path.stem == "captioner" else 100), path


def components(cls: type[Component] = Component) -> list[type[Component]]:
    return [cls, *chain.from_iterable(map(components, cls.__subclasses__()))]


# numbers that no cost grows with, or that only masks, tables and kernels have
FIXED = """
size block_size window_blocks mel_bins kernel dilation stride patch channels max_length max_distance
original_max_length classes num_layers repeat token_types
"""


def test_every_whole_number_of_the_language_has_a_letter_or_none() -> None:
    """A new key is put on one side or the other."""
    seqspec.load(EXAMPLES[0])  # which imports them all
    fields = [(name, field) for cls in components() for name, field in cls.model_fields.items()]
    said = [(name, f"{field.annotation} {field.metadata}") for name, field in fields]
    assert {name for name, text in said if "Ge(ge=1)" in text and "Letter" not in text} == set(FIXED.split())
