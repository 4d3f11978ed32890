"""Graph and weights -> nn.Module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqspec.backends.source import write
from seqspec.backends.torch.load import load
from seqspec.backends.weights import as_numpy, check, check_values, initial
from seqspec.diagnostics import SeqspecError
from seqspec.graph.ir import Graph


def module(
    graph: Graph, weights: Mapping[str, Any] | None = None, seed: int = 0, *, name: str = "", checkpoint: bool = False
) -> nn.Module:
    """The emitted model in float32, with copies of the given weights (arrays or tensors) or those that `seed` draws.

    `checkpoint` recomputes activations inside repeated layers in the backward pass instead of keeping them.
    """
    params = graph.root.params
    if weights is not None:
        check(params, weights)
        check_values(params, weights)
    source = write(graph, name)
    build = getattr(load(source.text), source.model)
    with torch.device("meta"):
        model: nn.Module = build(checkpoint=True) if checkpoint and source.checkpoint else build()
    _check_names(model, {p.name: p.shape for p in params})
    if weights is None:
        tensors = {p.name: torch.from_numpy(initial(p, seed)) for p in params}
    else:
        tensors = {name: _copied(value) for name, value in weights.items()}
    model.load_state_dict(tensors, assign=True)
    return model


def _copied(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.float32, copy=True)
    return torch.from_numpy(np.array(as_numpy(value), np.float32))


def _check_names(model: nn.Module, wanted: Mapping[str, tuple[Any, ...]]) -> None:
    """The invariant of the source backend: the state dict has exactly the graph's parameters."""
    found = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    if found != dict(wanted):
        differing = sorted({*found.items()} ^ {*wanted.items()}, key=str)
        raise SeqspecError("SEQ304", f"the emitted model and the graph disagree on {differing[:4]}")
