"""Recurrent layers that ONNX has no op for, as a Scan over one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, dim
from seqspec.graph.ir import Param, Region
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, TorchWriter, Weights, primitive
from seqspec.ops.cells import LstmCell
from seqspec.ops.loop import Loop
from seqspec.ops.padding import last_columns
from seqspec.ops.ragged import KeepAtPadding

if TYPE_CHECKING:
    from seqspec.ops.recurrent import Direction, Recurrent

_LEAVES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_ch", "weight_hr")
_FARTHEST = -(2**31)


@primitive
class LstmStep(LstmCell):
    """x[B,I], h[B,O], c[B,H] -> h', c': a cell with the parameters of one direction of a layer."""

    suffix: str = "_l0"

    def params(self) -> tuple[Param, ...]:
        return tuple(replace(p, name=p.name + self.suffix) for p in super().params())

    def reference(self, np: Any, weights: Weights, x: Array, *state: Array) -> tuple[Array, ...]:
        return super().reference(np, {n.removesuffix(self.suffix): w for n, w in weights.items()}, x, *state)

    def declare(self) -> None:  # type: ignore[override]
        """None: it has parameters but no module."""

    def helpers(self) -> tuple[Helper, ...]:
        return ()

    def torch(self, t: TorchWriter, x: Expr, *state: Expr) -> Expr:
        given = {p.name.removesuffix(self.suffix): t.param(p.name) for p in self.params()}
        weight_ih, weight_hh, bias_ih, bias_hh, *more = (given.get(leaf, "None") for leaf in _LEAVES)
        extra = "".join(f", {m}" for m in more if m != "None")
        step, states = t.use(self.rule.step()), ", ".join(state)
        return Expr(f"{step}(F.linear({x}, {weight_ih}, {bias_ih}), ({states}), {weight_hh}, {bias_hh}{extra})")

    def onnx(self, o: OnnxWriter, x: Any, *state: Any) -> tuple[Any, ...]:
        return super().onnx(_Suffixed(o, self.suffix), x, *state)


class _Suffixed:
    """A writer that finds a layer's parameters under a cell's names."""

    def __init__(self, o: OnnxWriter, suffix: str) -> None:
        self._o, self._suffix = o, suffix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._o, name)

    def param(self, leaf: str) -> Any:
        return self._o.param(leaf + self._suffix)

    def derived(self, tag: str, shape: Any, make: Any, *leaves: str, dtype: str = "float") -> Any:
        suffixed = (leaf + self._suffix for leaf in leaves)
        return self._o.derived(tag + self._suffix, shape, make, *suffixed, dtype=dtype)


def run(o: OnnxWriter, op: Recurrent, x: Any, mask: Any, starts: Sequence[Any]) -> tuple[Any, ...]:
    """x[B,T,I], mask[B,S] or None, starts[B,L·D,·] or None -> y[B,T,D·O], finals[B,L·D,·]"""
    real = None if mask is None else last_columns(o, mask, x)
    finals: list[list[Any]] = [[] for _ in op.widths]
    for layer in op.layers():
        outputs = []
        for d in layer:
            begin = [None if s is None else o.Gather(s, o.scalar(d.number, "int64"), axis=1) for s in starts]
            *last, y = _direction(o, op, d, x, real, begin)
            outputs.append(y)
            for kept, state in zip(finals, last, strict=True):
                kept.append(o.Unsqueeze(state, o.ints(1)))
        x = outputs[0] if len(outputs) == 1 else o.Concat(*outputs, axis=-1)
    return (x, *(kept[0] if len(kept) == 1 else o.Concat(*kept, axis=1) for kept in finals))


def _direction(o: OnnxWriter, op: Recurrent, d: Direction, x: Any, real: Any, begin: Sequence[Any]) -> tuple[Any, ...]:
    """finals [B,·], y[B,T,O]"""
    moving = [v if not d.backward else _reversed(o, v) for v in (x, real) if v is not None]
    loop = Loop(_body(op, d, real is not None), len(op.widths), len(moving), stateful=False)
    *last, y = loop.onnx(o, *begin, *moving)
    y = _reversed(o, y) if d.backward else y
    return (*last, y if real is None else o.Where(o.Unsqueeze(real, o.ints(2)), y, o.scalar(0.0)))


def _reversed(o: OnnxWriter, x: Any) -> Any:
    """[B,T,…] reversed in time."""
    return o.Slice(x, o.ints(-1), o.ints(_FARTHEST), o.ints(1), o.ints(-1))


def _body(op: Recurrent, d: Direction, padded: bool) -> Region:
    """h, c, x (, real) -> h', c', h'. Padding keeps the states."""
    b, batch = Builder(f"Step{d.suffix}"), dim(BATCH)
    states = [b.input(n, (batch, width)) for n, width in zip(op.rule.carried, op.widths, strict=True)]
    x = b.input("x", (batch, d.input_size))
    settings = {f.name: getattr(op, f.name) for f in fields(op) if f.name in ("bias", "peepholes", "projection_size")}
    new = b.add_many(LstmStep(d.input_size, op.hidden_size, suffix=d.suffix, **settings), x, *states)
    if not padded:
        return b.done(*new, new[0])
    real = b.input("real", (batch,), "bool")
    kept = [b.add(KeepAtPadding(), real, n, s) for n, s in zip(new, states, strict=True)]
    return b.done(*kept, new[0])
