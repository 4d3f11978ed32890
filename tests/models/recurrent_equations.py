"""Recurrent cells in float64 NumPy, written from the equations, one row and one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Array = Any


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Weights:
    """Parameters below a path, in float64."""

    def __init__(self, model: torch.nn.Module, path: str) -> None:
        self.found = {
            k.removeprefix(path): p.detach().numpy() for k, p in model.named_parameters() if k.startswith(path)
        }

    def __getitem__(self, leaf: str) -> Array:
        return self.found[leaf]


def gru(w: Weights, name: str, x: Array, h: Array, end: str = "") -> Array:
    """torch's: the reset gate behind the matrix, z keeps."""
    W, U, b, c = (np.split(w[f"{name}.{leaf}"], 3) for leaf in suffixed(w, name, end))
    r = sigmoid(W[0] @ x + b[0] + U[0] @ h + c[0])
    z = sigmoid(W[1] @ x + b[1] + U[1] @ h + c[1])
    return (1 - z) * np.tanh(W[2] @ x + b[2] + r * (U[2] @ h + c[2])) + z * h


def lstm(w: Weights, name: str, x: Array, h: Array, c: Array, end: str = "") -> tuple[Array, Array]:
    W, U, b, d = (np.split(w[f"{name}.{leaf}"], 4) for leaf in suffixed(w, name, end))
    i, f, g, o = (W[k] @ x + b[k] + U[k] @ h + d[k] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def suffixed(w: Weights, name: str, end: str = "") -> list[str]:
    """A layer's parameters end in _l0 (and then in `end`: _reverse), a cell's do not."""
    layer = "_l0" if f"{name}.weight_ih_l0" in w.found else ""
    return [leaf + layer + end for leaf in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def run(w: Weights, kind: str, xs: Array, h: Array, c: Array, end: str = "") -> tuple[Array, Array, Array]:
    """A layer over xs[T, I] from h (and c): what it puts out [T, H], and where it ends."""
    ys = []
    for x in xs:
        if kind == "lstm":
            h, c = lstm(w, kind, x, h, c, end)
        else:
            h = gru(w, kind, x, h, end)
        ys.append(h)
    return np.array(ys), h, c
