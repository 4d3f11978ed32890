"""A spec through the public surface to numbers, by PyTorch and by onnxruntime, with weights given one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seqspec

Array = Any
Arrays = Mapping[str, Array]

PLAIN_NORM = "{kind: rmsnorm, eps: 1.0e+8}"
"""With a weight of 1e4 this norm gives back its input, to 1e-8: the cases have none, and every sublayer has one."""


class Both:
    """One spec as a PyTorch model and as a Session."""

    def __init__(self, spec: str, weights: Arrays, folder: Path, **options: Any) -> None:
        self.model = in_torch(spec, weights)
        self.path = seqspec.to_onnx(named(spec), folder / "out", weights=self.model.state_dict(), **options)
        self.session = seqspec.Session(self.path)

    def run(self, inputs: Arrays, state: tuple[Any, Any] | None = None) -> list[dict[str, Array]]:
        """Outputs of PyTorch, then of onnxruntime."""
        return [outputs for outputs, _ in self.step(inputs, state)]

    def step(self, inputs: Arrays, state: tuple[Any, Any] | None = None) -> list[tuple[dict[str, Array], Any]]:
        """(outputs, state) of both; `state` are the two of the last step."""
        of_torch, of_onnx = state or (None, None)
        return [torch_step(self.model, inputs, of_torch), self._onnx(inputs, of_onnx)]

    def in_steps(self, inputs: Arrays, *, axis: int = 1) -> list[Array]:
        """The output of both, one position at a time, joined."""
        length = next(iter(inputs.values())).shape[axis]
        state, parts = None, []
        for t in range(length):
            now = {k: v if v.shape[axis] != length else v[:, t : t + 1] for k, v in inputs.items()}
            (one, first), (two, second) = self.step(now, state)
            state = (first, second)
            parts.append([next(iter(one.values())), next(iter(two.values()))])
        return [np.concatenate(column, axis) for column in zip(*parts, strict=True)]

    def _onnx(self, inputs: Arrays, state: Any) -> tuple[dict[str, Array], Any]:
        result = self.session.run({k: _narrow(v, self.session.dtype) for k, v in inputs.items()}, state)
        return dict(result), result.state


def named(spec: str) -> str:
    """The spec with the two keys that every one begins with."""
    return f"seqspec: 1\nname: case\n{spec}"


def in_torch(spec: str, weights: Arrays) -> torch.nn.Module:
    """The PyTorch model alone. Weights that are not given change nothing."""
    shapes = {p.name: p.shape for p in seqspec.build(named(spec)).root.params}
    assert not weights.keys() - shapes.keys(), f"no such weights: {sorted(weights.keys() - shapes.keys())}"
    given = {name: _weight(name, shape, weights) for name, shape in shapes.items()}
    return seqspec.to_torch(named(spec), weights=given).eval()


def torch_step(model: torch.nn.Module, inputs: Arrays, state: Any = None) -> tuple[dict[str, Array], Any]:
    """One call of a PyTorch model, in its own dtype."""
    dtype = next(model.parameters()).dtype
    given = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in inputs.items()}
    given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}
    with torch.no_grad():
        out = model(**given, **({} if state is None else {"state": state}))
    values = {k: v.double().numpy() for k, v in out._asdict().items() if isinstance(v, torch.Tensor)}
    return values, getattr(out, "state", None)


def weights_of(out: Arrays) -> Array:
    """The attention weights [B, H, T, S] of the first layer that returns them."""
    return next(array for name, array in out.items() if name.startswith("attentions"))


def close(got: Array, want: Any, tolerance: float = 1e-5) -> bool:
    """Absolute and relative, as the cases say it."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return got.shape == want.shape and bool(np.allclose(got, want, atol=tolerance, rtol=tolerance))


def agree(got: Array, want: Any, *, not_: Any = None, tolerance: float = 1e-5) -> None:
    """`got` is the right value; what wrong code gives, `not_`, would be told apart."""
    assert close(got, want, tolerance), f"{got}\nis not\n{want}"
    assert not_ is None or not close(not_, want, tolerance), "the wrong value passes too"


def gen(shape: tuple[int, ...], k: int, scale: float = 1.0) -> Array:
    """The cases' numbers: element i in C order is scale · sin(0.7 i + 1.3 k + 0.1), rounded to 4 places."""
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return np.round(scale * np.sin(0.7 * i + 1.3 * k + 0.1), 4).reshape(shape)


def picks(count: int, start: int, width: int) -> Array:
    """[count, width]: channels `start` on, as they are."""
    return np.eye(width)[start : start + count]


class Heads:
    """Attention over q, k and v that a case gives: a token's features are its q, k and v of all heads, side by side.

    The projections pick them out, and the output is put in the first channels, added to the features.
    """

    def __init__(self, heads: int, head_dim: int, kv_heads: int | None = None) -> None:
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads or heads, head_dim
        self.width = (heads + 2 * self.kv_heads) * head_dim

    def spec(self, role: str, keys: str = "", stack: str = "") -> str:
        """A stack of that one layer; `keys` are the attention's, `stack` the stack's."""
        counts = f"heads: {self.heads}, kv_heads: {self.kv_heads}, head_dim: {self.head_dim}"
        return f"""
{role}:
  input: {{kind: features, size: {self.width}}}
  d_model: {self.width}
  bias: false
  norm: {PLAIN_NORM}
  final_norm: false
  {stack}
  layers:
    - block: [{{kind: attention, {counts}, {keys}}}]
"""

    def weights(self, role: str) -> dict[str, Array]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = f"{role}.layers.0.attention"
        return {
            f"{layer}.q_proj.weight": picks(queries, 0, self.width),
            f"{layer}.k_proj.weight": picks(keys, queries, self.width),
            f"{layer}.v_proj.weight": picks(keys, queries + keys, self.width),
            f"{layer}.o_proj.weight": picks(queries, 0, self.width).T,
        }

    def features(self, q: Any, k: Any, v: Any) -> Array:
        """q[H, T, d], k and v[G, T, d] -> [1, T, width]"""
        parts = [np.concatenate(list(np.asarray(x, np.float64)), -1) for x in (q, k, v)]
        return np.concatenate(parts, -1)[None]

    def attended(self, output: Array, features: Array) -> Array:
        """What attention added, [H, T, d]."""
        y = (output - features)[0, :, : self.heads * self.head_dim]
        return y.reshape(len(y), self.heads, self.head_dim).swapaxes(0, 1)


def _weight(name: str, shape: tuple[Any, ...], weights: Arrays) -> Array:
    """What is given; else identities for maps of the input, 1e4 for the plain norm, zeros."""
    if name in weights:
        return np.asarray(weights[name], np.float32).reshape(shape)
    if name.endswith("input_proj.weight"):
        return np.eye(*shape, dtype=np.float32)
    return np.full(shape, 1e4 if name.endswith("_norm.weight") else 0.0, np.float32)


def _narrow(array: Array, dtype: Any) -> Array:
    return array.astype(dtype) if array.dtype == np.float64 else array
