"""The target specs, compiled once for all tests here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from small_targets import Compiled, random_weights, spec

import seqspec


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compiled]:
    """Compiled and verified models by name."""

    @cache
    def get(name: str) -> Compiled:
        model = spec(name)
        graph = seqspec.build(model)
        weights = random_weights(graph)
        folder = seqspec.to_onnx(model, tmp_path_factory.mktemp(name) / "out", weights=weights)
        module = seqspec.to_torch(model, weights=weights).eval()
        return Compiled(name, model, graph, weights, folder, seqspec.Session(folder), module)

    return get
