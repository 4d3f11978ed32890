"""No key is a no-op: every field of the language moves a number.

An output in inference or training, or a weight's start, shape or presence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import seqspec
from seqspec.graph.dims import evaluate
from seqspec.graph.signature import Port, signature
from seqspec.spec.fields import reachable

from .effects import EXCUSED, GROUPS, Group

ROWS = [(group, field) for group in GROUPS for field in group.rows]


@pytest.mark.parametrize(("group", "field"), ROWS, ids=[f"{group.cls.__name__}.{field}" for group, field in ROWS])
def test_a_number_changes(group: Group, field: str) -> None:
    row = group.rows[field]
    before, value = row if isinstance(row, tuple) else ("", row)
    setting = value if _is_whole(value) else f"{group.path}.{field}={value}"
    settings = [before.replace("KIND", group.cls.__name__.lower())] if before else []
    if numbers(group.spec, settings) == numbers(group.spec, [*settings, setting]):
        pytest.fail(f"{setting} changes nothing in\n{group.spec}{settings}")


def test_every_field_has_a_row() -> None:
    rows = {(group.cls, field) for group, field in ROWS}
    missing = {f"{cls.__name__}.{field}" for cls in reachable(seqspec.Model) for field in cls.model_fields
               if (cls, field) not in rows and field not in EXCUSED}  # fmt: skip
    assert not missing
    alone = {cls for cls in reachable(seqspec.Model) if not set(cls.model_fields) - EXCUSED.keys()}
    assert not {cls.__name__ for cls in alone if (cls, "kind") not in rows} - {"Tokenizer"}  # outside the graph


def numbers(spec: str, settings: list[str]) -> dict[str, Any]:
    """Everything of a spec that is a number, as bytes: weights at their start, outputs in both modes."""
    model = seqspec.load(spec, settings)
    graph, module = seqspec.build(model), seqspec.to_torch(model, seed=0)
    told = {name: (tuple(p.shape), p.detach().numpy().tobytes()) for name, p in module.state_dict().items()}
    given = {port.name: _value(port) for port in signature(graph).inputs if _is_given(port)}
    tensors = {name.replace(".", "_"): torch.from_numpy(array) for name, array in given.items()}
    for training in (False, True):
        torch.manual_seed(0)
        out = module.train(training)(**tensors)
        for field, tensor in out._asdict().items():
            if isinstance(tensor, torch.Tensor):
                told[f"{field}, training={training}"] = (tuple(tensor.shape), tensor.detach().numpy().tobytes())
    return told


SIZES = {"batch_size": 2, "sequence_length": 7, "encoder_sequence_length": 5, "past_sequence_length": 0}


def _is_given(port: Port) -> bool:
    return not port.name.endswith(("attention_mask", "position_ids"))


def _value(port: Port) -> Any:
    """The same numbers wherever an input of this name and shape is asked for."""
    random = np.random.default_rng(len(port.name))
    shape = [evaluate(size, SIZES) for size in port.shape]
    if port.dtype == "float":
        return random.standard_normal(shape).astype(np.float32)
    most = 2 if "type" in port.name or "document" in port.name or port.name == "allowed" else 5
    values = random.integers(0, most, shape)
    return np.sort(values, -1) if "document" in port.name else values


def _is_whole(value: str) -> bool:
    """Whether a row's value is a setting of its own: a path, `=`, and more."""
    path, equals, _ = value.partition("=")
    return bool(equals) and path.replace(".", "").replace("[", "").replace("]", "").replace("_", "").isalnum()
