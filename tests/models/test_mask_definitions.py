"""Masks from spec to numbers: each against its definition in NumPy, pair by pair, in PyTorch and in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from attention_equations import OneLayer, attention, features, heads_of, single

import seqspec
from seqspec.ops.masks import BlockSparse

Array = Any
T = 11
DOCUMENTS = np.array([[3, 3, 3, 3, 7, 7, 7, 1, 1, 1, 1], [0] * 11])
PREFIX = np.array([5, 2])
EXTRA = np.random.default_rng(5).random((2, T, T)) < 0.5
# right padding with a hole, padding on the left
REAL = np.array([[1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]])
BLOCKS = BlockSparse(2, 0, 1, 1, seed=4)

Allowed = Callable[[int, int, int, int, int], bool]
"""(row, query, key, place of the query, place of the key) in real tokens -> whether the pair may attend."""


def blocks(b: int, i: int, j: int, p: int, q: int) -> bool:
    early, late = sorted((p // 2, q // 2))
    return early == 0 or late == early or BLOCKS.drawn(late, 0) == early


MASKS: dict[str, Allowed] = {
    "{kind: global, tokens: [2, 0]}": lambda b, i, j, p, q: p in (0, 2) or q in (0, 2),
    "prefix": lambda b, i, j, p, q: q < PREFIX[b],
    "documents": lambda b, i, j, p, q: DOCUMENTS[b, i] == DOCUMENTS[b, j],
    "{kind: given, name: extra}": lambda b, i, j, p, q: bool(EXTRA[b, i, j]),
    "{kind: block_sparse, block_size: 2, window_blocks: 1, random_blocks: 1, seed: 4}": blocks,
    "{any: [{kind: window, size: 3}, {kind: global, tokens: [0]}]}": (
        lambda b, i, j, p, q: abs(p - q) < 3 or 0 in (p, q)
    ),
    "{any: [causal, prefix]}": lambda b, i, j, p, q: q <= p or q < PREFIX[b],
    "{all: [causal, {any: [{kind: given, name: extra}, {kind: window, left: 1}]}]}": (
        lambda b, i, j, p, q: q <= p and (bool(EXTRA[b, i, j]) or q >= p - 1)
    ),
    "{any: [{all: [documents, causal]}, {kind: window, size: 1}]}": (
        lambda b, i, j, p, q: (DOCUMENTS[b, i] == DOCUMENTS[b, j] and q <= p) or p == q
    ),
}


def pairs(allowed: Allowed, real: Array) -> Array:
    found = np.zeros((2, T, T), bool)
    place = np.cumsum(real, 1) - 1
    for b, i, j in np.ndindex(2, T, T):
        found[b, i, j] = real[b, j] and allowed(b, i, j, place[b, i], place[b, j])
    return found


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("real", [np.ones((2, T), int), REAL], ids=["whole", "padded"])
def test_a_mask_is_its_definition(mask: str, real: Array, tmp_path: Path) -> None:
    one = OneLayer(f"{{kind: attention, heads: 4, kv_heads: 2, return_weights: true, mask: {mask}}}")
    x = features(2, T)
    inputs = {"features": x, "attention_mask": real}
    told = {"document_ids": DOCUMENTS, "prefix_length": PREFIX, "extra": EXTRA.astype(np.int64)}
    inputs |= {name: told[name] for name in told if any(p.name == name for p in _ports(one))}
    clean = np.where(real[..., None], x, 0)
    want, weights = attention(one.norm(clean), one.weights(), 4, pairs(MASKS[mask], real), kv_heads=2)
    kept = real.astype(bool)
    out = one.run(inputs)
    filed = one.session(tmp_path).run(single(inputs))
    given = (filed["last_hidden_state"], filed["attentions.0"])
    for (y, found), tolerance in (((out[0].numpy(), out[1].numpy()), 1e-10), (given, 2e-6)):
        np.testing.assert_allclose((y - clean)[kept], want[kept], atol=tolerance)
        np.testing.assert_allclose(found.swapaxes(1, 2)[kept], weights.swapaxes(1, 2)[kept], atol=tolerance)


def _ports(one: OneLayer) -> Any:
    from seqspec.graph.signature import signature

    return signature(seqspec.build(one.spec)).inputs


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_is_torchs_own_attention_with_explicit_pairs(mask: str) -> None:
    one = OneLayer(f"{{kind: attention, heads: 3, mask: {mask}}}")
    x, w = features(2, T, 1), one.weights()
    inputs = {"features": x, "document_ids": DOCUMENTS, "prefix_length": PREFIX, "extra": EXTRA.astype(np.int64)}
    inputs = {k: v for k, v in inputs.items() if k in {p.name for p in _ports(one)}}
    q, k, v = (torch.from_numpy(heads_of(one.norm(x), w, letter, 3)) for letter in "qkv")
    allowed = torch.from_numpy(pairs(MASKS[mask], np.ones((2, T), int)))[:, None]
    y = F.scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2).flatten(2).numpy()
    np.testing.assert_allclose(one.layer(inputs), y @ w["o_proj.weight"].T + w["o_proj.bias"], atol=1e-10)


# ---- packed documents --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["rope", "{kind: learned, max_length: 16}", "alibi", "relative_bias"])
@pytest.mark.parametrize(
    "mask",
    [
        "documents",
        "{all: [documents, causal]}",
        "{all: [documents, {kind: window, size: 2}]}",
        "{all: [documents, {any: [{kind: global, tokens: [1]}, {kind: block_sparse, block_size: 1}]}]}",
    ],
)
def test_packed_documents_are_separate_documents(position: str, mask: str) -> None:
    layer = f"{{repeat: 2, block: [{{kind: attention, heads: 3, mask: {mask}}}, {{kind: ffn, d_ff: 8}}]}}"
    text = f"""
seqspec: 1
name: packed
encoder:
  input: {{kind: tokens, vocab_size: 30}}
  d_model: 12
  position: {position}
  layers: [{layer}]
"""
    model = seqspec.to_torch(text, seed=1).double().eval()
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 30, (1, 11)))
    documents = torch.from_numpy(DOCUMENTS[:1])
    # a hole, and padding at the ends that says that it belongs to the document before
    hole = torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0]])
    with torch.no_grad():
        whole = model(ids, document_ids=documents)[0]
        padded = model(ids, hole, document_ids=documents)[0]
        for start, stop in ((0, 4), (4, 7), (7, 11)):
            torch.testing.assert_close(whole[:, start:stop], model(ids[:, start:stop])[0], atol=1e-12, rtol=0)
            kept = hole[0, start:stop].bool()
            alone = model(ids[:, start:stop][:, kept])[0]
            torch.testing.assert_close(padded[:, start:stop][:, kept], alone, atol=1e-12, rtol=0)


# ---- state -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[4, 6, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [10]])
def test_documents_and_prefixes_are_carried(cuts: list[int], tmp_path: Path) -> None:
    mask = "{any: [{all: [documents, causal]}, prefix]}"
    one = OneLayer(f"{{kind: attention, heads: 3, position: rope, mask: {mask}}}", "decoder")
    prefix = np.minimum(PREFIX, REAL[:, : cuts[0]].sum(1))  # it lies in the first call
    x = features(2, T)
    inputs = {"features": x, "document_ids": DOCUMENTS, "prefix_length": prefix, "attention_mask": REAL}
    whole, session = one.run(inputs)[0].numpy(), one.session(tmp_path)
    state, filed, start = None, None, 0
    for stop in [*cuts, T]:
        chunk = {k: v[:, start:stop] for k, v in inputs.items() if v.ndim > 1}
        if start == 0:
            chunk["prefix_length"] = inputs["prefix_length"]
        out = one.run(chunk, state)
        state = out.state
        np.testing.assert_allclose(out[0].numpy(), whole[:, start:stop], atol=1e-12)
        made = session.run(single(chunk), filed)
        filed = made.state
        np.testing.assert_allclose(made["last_hidden_state"], whole[:, start:stop], atol=2e-6)
        start = stop
    assert set(state) >= {"past_state.document_ids", "past_state.document_places", "past_state.prefix_length"}


def test_what_a_past_was_told_cannot_be_left_out() -> None:
    one = OneLayer("{kind: attention, heads: 3, mask: {all: [documents, causal]}}", "decoder")
    x = features(2, T)
    out = one.run({"features": x[:, :4], "document_ids": DOCUMENTS[:, :4]})
    with pytest.raises(ValueError, match="document_ids were given for the past"):
        one.run({"features": x[:, 4:]}, out.state)
    prefixed = OneLayer("{kind: attention, heads: 3, mask: {any: [causal, prefix]}}", "decoder")
    with pytest.raises(ValueError, match=r"prefix_length \[5, 2\] reaches beyond the first call"):
        prefixed.run({"features": x[:, :4], "prefix_length": PREFIX})


def test_nothing_given_is_one_document_and_no_prefix() -> None:
    x = features(2, T)
    for mask, same in (("documents", "none"), ("{any: [causal, prefix]}", "causal")):
        one, other = (OneLayer(f"{{kind: attention, heads: 3, mask: {m}}}") for m in (mask, same))
        np.testing.assert_allclose(one.layer({"features": x}), other.layer({"features": x}), atol=1e-12)


# ---- what the blocks draw ----------------------------------------------------------------------------------------


def test_every_block_draws_its_number_and_none_twice() -> None:
    mask = BlockSparse(16, 1, 1, 3, seed=0)
    for block in range(200):
        drawn = [d for n in range(3) if (d := mask.drawn(block, n)) >= 0]
        free = range(mask.first, block - mask.reach)
        assert len(set(drawn)) == len(drawn) == min(3, len(free))
        assert all(d in free for d in drawn)


def test_draws_are_spread_and_differ_by_seed() -> None:
    hits = np.zeros(100)
    for seed in range(400):
        hits[BlockSparse(1, 0, 0, 1, seed).drawn(100, 0)] += 1
    # 400 draws of 100 blocks: a chi-square of 99 degrees, whose 99.9th percentile is 148
    assert ((hits - 4) ** 2 / 4).sum() < 148
    drawn = [BlockSparse(1, 0, 0, 1, 0).drawn(block, 0) / block for block in range(50, 450)]
    counts = np.histogram(drawn, 10, (0, 1))[0]
    assert ((counts - 40) ** 2 / 40).sum() < 28  # 9 degrees


def test_a_longer_text_keeps_its_mask() -> None:
    one = OneLayer("{kind: attention, heads: 3, mask: {all: [causal, {kind: block_sparse, block_size: 1}]}}", "decoder")
    x = features(1, 40)
    longer, shorter = one.layer({"features": x}), one.layer({"features": x[:, :23]})
    np.testing.assert_allclose(longer[:, :23], shorter, atol=1e-12)


# ---- what a check finds ------------------------------------------------------------------------------------------

SPARSE = "{kind: block_sparse, block_size: 4"


@pytest.mark.parametrize(
    ("stack", "layer", "code"),
    [
        ("decoder", "{kind: attention, heads: 3, mask: {any: [causal, documents]}}", "SEQ207"),
        ("decoder", "{kind: attention, heads: 3, mask: {kind: given, name: extra}}", "SEQ207"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: input_ids}}", "SEQ107"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: decoder_x}}", "SEQ107"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: last_hidden_state}}", "SEQ107"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: initial_state_0_h}}", "SEQ107"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: class}}", "SEQ107"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: past}}", "SEQ107"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: given, name: __seen}}", "SEQ107"),
        ("encoder", f"{{kind: attention, heads: 3, mask: {SPARSE}, window_blocks: 2}}}}", "SEQ106"),
        ("encoder", f"{{kind: attention, heads: 3, mask: {SPARSE}, random_blocks: 0, seed: 3}}}}", "SEQ232"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: global, tokens: []}}", "SEQ109"),
        ("encoder", "{kind: attention, heads: 3, mask: {kind: global, tokens: [-1]}}", "SEQ106"),
    ],
)
def test_masks_that_cannot_be_met(stack: str, layer: str, code: str) -> None:
    with pytest.raises(seqspec.SpecError) as caught:
        OneLayer(layer, stack)
    assert [d.code for d in caught.value.diagnostics] == [code]


@pytest.mark.parametrize("name", ["within_band", "visible_pairs", "attend_visible", "within_band_2", "_seen", "len"])
def test_a_mask_may_be_called_like_a_function_of_the_emitted_file(name: str) -> None:
    mask = "{{any: [{{kind: given, name: {}}}, {{kind: window, size: 2}}]}}"
    one, other = (OneLayer(f"{{kind: attention, heads: 3, mask: {mask.format(n)}}}") for n in (name, "extra"))
    x = features(2, T)
    given = other.layer({"features": x, "extra": EXTRA.astype(int)})
    np.testing.assert_array_equal(one.layer({"features": x, name: EXTRA.astype(int)}), given)


def test_a_prefix_is_given_and_not_written() -> None:
    """What it lets a decoder see ahead is no view of the future, so that such a decoder can be run in chunks."""
    one = OneLayer("{kind: attention, heads: 3, mask: {any: [causal, prefix]}}", "decoder")
    assert one.run({"features": features(1, 3)}).state
