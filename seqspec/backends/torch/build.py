"""Graph and weights -> nn.Module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seqspec.backends.source import write
from seqspec.backends.torch.load import load
from seqspec.backends.weights import as_numpy, check, check_values, initial
from seqspec.diagnostics import SeqspecError
from seqspec.graph.ir import Graph, join


def module(
    graph: Graph,
    weights: Mapping[str, Any] | None = None,
    seed: int = 0,
    *,
    name: str = "",
    checkpoint: bool = False,
    copy: bool = True,
) -> nn.Module:
    """The emitted model in float32, with the given weights (arrays or tensors) or those that `seed` draws.

    Weights are copied; without `copy` the module takes float32 arrays as they are, which must then be its own.
    `checkpoint` recomputes activations inside repeated layers in the backward pass instead of keeping them.
    """
    params = graph.root.params
    if weights is not None:
        check(params, weights)
        check_values(params, weights)
    source = write(graph, name)
    build = getattr(load(source.text), source.model)
    with _Unset():
        model: nn.Module = build(checkpoint=True) if checkpoint and source.checkpoint else build()
    if weights is None:
        _set(model, {p.name: torch.from_numpy(initial(p, seed)) for p in params})
    else:
        made = _copied if copy else _taken
        _set(model, {p.name: made(weights[p.name]) for p in params})
    return model


class _Unset(TorchFunctionMode):
    """Makes parameters that have shapes alone: no memory, and nothing drawn that would be overwritten."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__:
            return given["tensor"] if "tensor" in given else args[0]
        with_device = {**given, "device": "meta"} if func in _FACTORIES else given
        return func(*args, **with_device)


_FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn})


def _set(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Gives every parameter its tensor. The invariant of the source backend: the model has exactly these parameters."""
    found: dict[str, tuple[int, ...]] = {}
    for scope, part in model.named_modules():
        for leaf, unset in list(part.named_parameters(recurse=False)):
            found[name := join(scope, leaf)] = tuple(unset.shape)
            if name in tensors:
                setattr(part, leaf, nn.Parameter(tensors[name]))
    wanted = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != wanted:
        differing = sorted({*found.items()} ^ {*wanted.items()}, key=str)
        raise SeqspecError("SEQ304", f"the emitted model and the graph disagree on {differing[:4]}")


def _copied(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.float32, copy=True)
    return torch.from_numpy(np.array(as_numpy(value), np.float32))


def _taken(value: Any) -> Tensor:
    return torch.from_numpy(np.require(value, np.float32, ["ALIGNED", "WRITEABLE"]))
