"""Weights that no model is made of: the same error from every function, naming the tensor, and nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from small_targets import fault

import seqspec
from seqspec import api

SPEC = {
    "seqspec": 1,
    "name": "small",
    "encoder": {"input": {"kind": "features", "size": 3}, "layers": [{"kind": "gru", "hidden_size": 4}]},
    "head": {"kind": "regression", "size": 2, "pool": "last"},
}
NAME = "head.bias"
ZEROS = np.zeros(2, np.float32)


def makers(folder: Path) -> Iterator[Callable[[Any], Any]]:
    yield lambda weights: seqspec.to_torch(SPEC, weights=weights)
    yield lambda weights: api.write_torch(SPEC, folder / "torch", weights=weights)
    yield lambda weights: seqspec.to_onnx(SPEC, folder / "onnx", weights=weights)
    yield lambda weights: seqspec.to_onnx(SPEC, folder / "half", weights=weights, dtype="float16", verify=False)


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    return dict(seqspec.to_torch(SPEC).state_dict())


def refused(sound: dict[str, Any], value: Any, folder: Path, code: str, *words: str) -> None:
    for make in makers(folder):
        with fault(code, f"`{NAME}`", *words):
            make(sound | {NAME: value})
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (ZEROS.astype(complex), "complex128"),
        (torch.zeros(2, dtype=torch.complex64), "complex64"),
        (np.array(["0.1", "0.2"]), "str"),
        (ZEROS.astype(object), "object"),
        (ZEROS.astype(int), "int64"),
        (ZEROS.astype(bool), "bool"),
        (ZEROS.astype(np.longdouble), "float128"),
        (torch.zeros(2, dtype=torch.float8_e4m3fn), "float8"),
        (torch.zeros(2, device="meta"), "meta"),
        (torch.zeros(2).to_sparse(), "sparse"),
        ([0.0, 0.0], "list"),
        (0.5, "float 0.5"),
        (None, "None"),
    ],
)
def test_other_types(sound: dict[str, Any], value: Any, word: str, tmp_path: Path) -> None:
    refused(sound, value, tmp_path, "SEQ418", word)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("number", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_numbers_that_are_none(sound: dict[str, Any], kind: Any, number: float, word: str, tmp_path: Path) -> None:
    refused(sound, np.array([0, number]).astype(kind), tmp_path, "SEQ419", word)
    refused(sound, torch.tensor([number, 0]), tmp_path, "SEQ419", word)


def test_numbers_past_the_end(sound: dict[str, Any], tmp_path: Path) -> None:
    refused(sound, np.array([-1e39, 0]), tmp_path, "SEQ419", "beyond float")
    # the last number that rounds to float16's largest, and the first that does not
    assert np.float16(65519.0) == 65504
    seqspec.to_onnx(SPEC, tmp_path / "a", weights=sound | {NAME: np.array([65519.0, 0])}, dtype="float16", verify=False)
    with fault("SEQ419", NAME, "6.55e+04", "float16"):
        seqspec.to_onnx(SPEC, tmp_path / "b", weights=sound | {NAME: np.array([65520.0, 0])}, dtype="float16")
    with np.errstate(over="ignore"):
        assert np.isinf(np.array(65520.0).astype(np.float16))


def test_one_error_lists_all(sound: dict[str, Any]) -> None:
    wrong = {name: value for name, value in sound.items() if name != NAME}
    with fault("SEQ407", NAME, "not in the model", "`5`", "`x\\u202e`", "head.weight", "list"):
        seqspec.to_torch(SPEC, weights=wrong | {5: ZEROS, "x\u202e": ZEROS, "head.weight": [1.0]})
    with fault("SEQ419", "head.weight", "NaN", "weight_ih_l0", "infinity"):
        wrong = sound | {"head.weight": sound["head.weight"] * np.nan}
        first = "encoder.layers.0.gru.weight_ih_l0"
        seqspec.to_torch(SPEC, weights=wrong | {first: sound[first] / 0})


@pytest.mark.parametrize(
    "value",
    [
        ZEROS + 0.5,
        ZEROS.astype(">f4") + np.float32(0.5),
        ZEROS.astype(np.float64) + 0.5,
        ZEROS.astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(0.5),
        torch.full((2,), 0.5, dtype=torch.bfloat16),
        torch.full((2,), 0.5, requires_grad=True),
    ],
)
def test_every_float_is_taken(sound: dict[str, Any], value: Any, tmp_path: Path) -> None:
    module = seqspec.to_torch(SPEC, weights=sound | {NAME: value})
    assert module.state_dict()[NAME].tolist() == [0.5, 0.5]
    seqspec.to_onnx(SPEC, tmp_path / "onnx", weights=sound | {NAME: value})
    api.write_torch(SPEC, tmp_path / "torch", weights=sound | {NAME: value})
