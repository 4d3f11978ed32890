"""Which weights cannot learn, by hand, for a few stacks that read one position."""

from __future__ import annotations

from typing import Any

import pytest

import seqspec

from .reach import LENGTH, idle

FEATURES = {"input": {"kind": "features", "size": 4, "d_model": 4}}
ATTENTION = {"kind": "attention", "heads": 2, "qk_norm": "rmsnorm"}
TWO = {"kind": "gru", "hidden_size": 2, "num_layers": 2, "bidirectional": True}
SCORES = {f"attention.{name}" for name in ("q_proj", "k_proj", "q_norm", "k_norm")}


@pytest.mark.parametrize(
    ("pool", "stack", "wanted"),
    [
        ("mean", {"layers": [{"kind": "lstm", "hidden_size": 4}, {"block": [ATTENTION]}]}, set()),
        ("first", {"layers": [{"kind": "lstm", "hidden_size": 4}]}, {"0.lstm.weight_hh_l0"}),
        ("first", {"layers": [{"kind": "lstm", "hidden_size": 4, "initial_state": "learned"}]}, set()),
        ("last", {"layers": [{"kind": "lstm", "hidden_size": 4}]}, set()),
        ("last", {"layers": [TWO]}, {"0.gru.weight_hh_l1_reverse"}),
        ("first", {"layers": [TWO]}, {"0.gru.weight_hh_l1"}),
        ("first", {"layers": [TWO, {"block": [ATTENTION]}]}, set()),
        ("first", {"causal": True, "layers": [{"block": [ATTENTION]}]}, {f"0.{name}" for name in SCORES}),
        ("last", {"causal": True, "layers": [{"block": [ATTENTION]}]}, set()),
        ("last", {"mask": {"kind": "window", "size": 1}, "layers": [{"block": [ATTENTION]}]},
         {f"0.{name}" for name in SCORES}),
        ("last", {"layers": [{"kind": "rnn", "hidden_size": 4}, {"block": [
            {**ATTENTION, "mask": {"kind": "window", "left": 5, "right": 0}, "residual": "none"}]}]}, set()),
        ("last", {"layers": [{"block": [{"kind": "parallel", "block": [
            {**ATTENTION, "mask": {"kind": "window", "size": 1}}, {"kind": "ffn", "d_ff": 3}]}]}]},
         {f"0.parallel.{name}" for name in SCORES}),
    ],
)  # fmt: skip
def test_what_is_not_reached(pool: str, stack: dict[str, Any], wanted: set[str]) -> None:
    _, covered = weights(pool, stack)
    found = {name.rpartition(".")[0] if "_l" not in name else name for name in covered}
    assert found == {f"encoder.layers.{name}" for name in wanted}


@pytest.mark.parametrize("residual", ["add", "none"])
def test_a_mask_that_hides_all_leaves_what_goes_around_it(residual: str) -> None:
    unseen = {"all": [{"kind": "global", "tokens": [n]} for n in (LENGTH, LENGTH + 1)]}
    first = {**ATTENTION, "mask": unseen, "residual": residual}
    names, covered = weights("mean", {"layers": [{"block": [first]}, {"block": [ATTENTION]}]})
    assert covered == ({n for n in names if n.startswith("encoder.layers.0.")} if residual == "add" else set(names))


def weights(pool: str, stack: dict[str, Any]) -> tuple[list[str], set[str]]:
    """All, and those that cannot learn."""
    head = {"kind": "embedding", "pool": pool}
    spec = seqspec.load({"seqspec": 1, "name": "x", "encoder": FEATURES | stack, "head": head})
    rows = list(idle("encoder", spec.resolved().stacks["encoder"], pool))
    names = [p.name for p in seqspec.build(spec).root.params]
    return names, {name for name in names if any(row.covers(name) for row in rows)}
