"""Attention in float64 NumPy, written from the equations, and the model of one layer that is compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seqspec

Array = Any
WIDTH = 12


class OneLayer:
    """A stack whose one sublayer is `layer`: x + layer(norm(x)), x being its features of 12 channels."""

    def __init__(self, layer: str, stack: str = "encoder", more: str = "") -> None:
        source = f"{{kind: features, size: {WIDTH}}}"
        self.stack, self.name = stack, layer.split("kind: ")[1].split(",")[0].rstrip("}")
        self.text = (
            f"seqspec: 1\nname: one\n{stack}:\n  input: {source}\n  d_model: {WIDTH}\n  final_norm: false\n"
            f"  layers: [{{block: [{layer}]}}]\n{more}"
        )
        self.spec = seqspec.load(self.text)
        self.model = seqspec.to_torch(self.spec, seed=3).double().eval()
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.model.parameters():
                p += 0.1 * torch.randn(p.shape, generator=random, dtype=p.dtype)
                p.copy_(p.float())  # what a file holds, exactly
            entry = getattr(self.model, stack).input_proj
            entry.weight.copy_(torch.eye(WIDTH))
            entry.bias.zero_()

    def weights(self) -> dict[str, Array]:
        """The sublayer's own, by what follows its name."""
        prefix = f"{self.stack}.layers.0.{self.name}."
        state = self.model.state_dict()
        return {name.removeprefix(prefix): w.numpy() for name, w in state.items() if name.startswith(prefix)}

    def norm(self, x: Array) -> Array:
        """LayerNorm, as the block does it."""
        state = {k.split(".")[-1]: v.numpy() for k, v in self.model.state_dict().items() if f"{self.name}_norm." in k}
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * state["weight"] + state["bias"]

    def run(self, inputs: Mapping[str, Array], state: Any = None) -> Any:
        """PyTorch in float64."""
        made = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in inputs.items()}
        with torch.no_grad():
            return self.model(**made, **({} if state is None else {"state": state}))

    def layer(self, inputs: Mapping[str, Array]) -> Array:
        """What the sublayer adds to x."""
        return self.run(inputs)[0].numpy() - inputs["features"]

    def session(self, folder: Path) -> seqspec.Session:
        path = seqspec.to_onnx(self.spec, folder / "onnx", weights=self.model.float().state_dict())
        self.model.double()
        return seqspec.Session(path)


def single(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in inputs.items()}


def features(batch: int, time: int, seed: int = 0) -> Array:
    """Numbers that float32 holds exactly."""
    return np.random.default_rng(seed).normal(size=(batch, time, WIDTH)).astype(np.float32).astype(np.float64)


def heads_of(x: Array, weights: Mapping[str, Array], letter: str, heads: int) -> Array:
    """x Wᵀ + b, cut into heads: [B, H, T, d]."""
    y = x @ weights[f"{letter}_proj.weight"].T + weights.get(f"{letter}_proj.bias", 0)
    return y.reshape(*y.shape[:2], heads, -1).swapaxes(1, 2)


def attention(
    x: Array,
    weights: Mapping[str, Array],
    heads: int,
    allowed: Array,
    *,
    kv_heads: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Array = 0,
) -> tuple[Array, Array]:
    """Wₒ softmax(q kᵀ · scale + bias) v over allowed[B, T, S], and the weights, for x that is normed.

    A query that may see nothing gives zeros.
    """
    groups = kv_heads or heads
    q = heads_of(x, weights, "q", heads)
    k, v = (np.repeat(heads_of(x, weights, letter, groups), heads // groups, 1) for letter in "kv")
    scores = np.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(allowed[:, None], scores + bias, -np.inf)
    top = scores.max(-1, keepdims=True)
    raised = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = raised.sum(-1, keepdims=True)
    found = raised / np.where(total > 0, total, 1)
    y = np.einsum("bhij,bhjd->bihd", found, v).reshape(*x.shape[:2], -1)
    return y @ weights["o_proj.weight"].T + weights.get("o_proj.bias", 0), found
