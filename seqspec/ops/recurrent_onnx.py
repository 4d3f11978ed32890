"""Recurrent layers in ONNX: time first, with real steps gathered to the front and scattered back afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqspec.ops.base import OnnxWriter
from seqspec.ops.padding import last_columns


class Layer(NamedTuple):
    """W[D,G·H,I], R[D,G·H,H], B[D,2G·H] and P[D,3H] (or None) of one layer, in ONNX's order of gates."""

    W: Any
    R: Any
    B: Any
    P: Any


@dataclass(frozen=True)
class Sizes:
    """The sizes that all layers share."""

    input: int
    hidden: int
    directions: int


class Real(NamedTuple):
    """lengths[B]; place[B,T], the index of each step in the compacted row, where padding comes last; row[B,1]; t[T]."""

    lengths: Any
    place: Any
    row: Any
    t: Any


def run(
    o: OnnxWriter,
    kind: str,
    attributes: Mapping[str, Any],
    sizes: Sizes,
    layers: Sequence[Layer],
    x: Any,
    mask: Any,
    starts: Sequence[Any],
) -> tuple[Any, ...]:
    """x[B,T,I], mask[B,S] or None, starts[B,L·D,H] or None -> y[B,T,D·H], finals[B,L·D,H]"""
    real = None if mask is None else _real(o, x, mask)
    # onnxruntime aborts at T = 0 where there are no lengths
    lengths = real.lengths if real else o.Expand(o.size(x, 1), o.size(x, 0))
    y = o.Transpose(x, perm=[1, 0, 2]) if real is None else _compacted(o, x, real, sizes)
    initial = [_by_layer(o, start, len(layers)) for start in starts]
    finals = []
    for number, layer in enumerate(layers):
        if number:
            y = _between(o, y, sizes)
        at_start = (states[number] for states in initial)
        inputs = [y, layer.W, layer.R, layer.B, o.cast(lengths, "int32"), *at_start, layer.P]
        while inputs[-1] is None:
            inputs.pop()
        y, *last = o.many(kind, 1 + len(starts), *inputs, hidden_size=sizes.hidden, **attributes)
        finals.append(last)
    outputs = [_final(o, parts, start, lengths) for parts, start in zip(zip(*finals, strict=True), starts, strict=True)]
    return (_batch_first(o, y, real, sizes), *outputs)


def _real(o: OnnxWriter, x: Any, mask: Any) -> Real:
    real = last_columns(o, mask, x)
    flags = o.cast(real, "int64")
    zero, one = o.scalar(0, "int64"), o.scalar(1, "int64")
    seen, lengths = o.CumSum(flags, one), o.ReduceSum(flags, o.ints(1), keepdims=0)
    t, row = (o.Range(zero, o.Squeeze(o.size(x, axis), o.ints(0)), one) for axis in (1, 0))
    behind = o.Add(o.Unsqueeze(lengths, o.ints(1)), o.Sub(t, seen))
    return Real(lengths, o.Where(real, o.Sub(seen, one), behind), o.Unsqueeze(row, o.ints(1)), t)


def _compacted(o: OnnxWriter, x: Any, real: Real, sizes: Sizes) -> Any:
    """[B,T,I] -> [T,B,I], real steps first. The gather replaces the transpose and costs no more."""
    order = o.ScatterElements(real.place, real.place, o.Expand(real.t, o.Shape(real.place)), axis=1)
    rows = o.Transpose(o.Add(order, o.Mul(real.row, o.size(x, 1))), perm=[1, 0])
    return o.Gather(o.Reshape(x, o.ints(-1, sizes.input)), rows)


def _batch_first(o: OnnxWriter, y: Any, real: Real | None, sizes: Sizes) -> Any:
    """[T,D,B,H] -> [B,T,D·H], every step back in its place; ONNX puts zeros after the real ones."""
    both = sizes.directions == 2
    if real is None:
        y = o.Transpose(y, perm=[2, 0, 1, 3])
    else:
        batch = o.size(y, 2)
        rows = o.Add(o.Mul(o.Mul(real.place, o.ints(2)) if both else real.place, batch), real.row)
        if both:
            rows = o.Add(o.Unsqueeze(rows, o.ints(2)), o.Concat(o.ints(0), batch, axis=0))
        y = o.Gather(o.Reshape(y, o.ints(-1, sizes.hidden)), rows)
        if not both:
            return y
    return o.Reshape(y, o.ints(0, 0, sizes.directions * sizes.hidden))


def _between(o: OnnxWriter, y: Any, sizes: Sizes) -> Any:
    """[T,D,B,H] -> [T,B,D·H], what the next layer reads."""
    if sizes.directions == 1:
        return o.Squeeze(y, o.ints(1))
    return o.Reshape(o.Transpose(y, perm=[0, 2, 1, 3]), o.ints(0, 0, 2 * sizes.hidden))


def _by_layer(o: OnnxWriter, start: Any, layers: int) -> list[Any]:
    """[B,L·D,H] or None -> [D,B,H] or None, for every layer."""
    if start is None:
        return [None] * layers
    first = o.Transpose(start, perm=[1, 0, 2])
    return [first] if layers == 1 else o.many("Split", layers, first, axis=0, num_outputs=layers)


def _final(o: OnnxWriter, parts: Sequence[Any], start: Any, lengths: Any) -> Any:
    """[D,B,H] of every layer -> [B,L·D,H]. A row without steps keeps its start; onnxruntime gives zeros for it."""
    final = o.Transpose(parts[0] if len(parts) == 1 else o.Concat(*parts, axis=0), perm=[1, 0, 2])
    if start is None:
        return final
    return o.Where(o.Greater(o.Unsqueeze(lengths, o.ints(1, 2)), o.scalar(0, "int64")), final, start)
