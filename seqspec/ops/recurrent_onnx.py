"""Recurrent layers by ONNX's op: time first, real steps gathered to the front and scattered back afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seqspec.ops.base import OnnxWriter
from seqspec.ops.padding import last_columns
from seqspec.ops.recurrent_rule import BIAS_NAMES, BIASES

if TYPE_CHECKING:
    from seqspec.ops.recurrent import Direction, Recurrent


class Real(NamedTuple):
    """lengths[B]; place[B,T], the index of each step in the compacted row, where padding comes last; row[B,1]; t[T]."""

    lengths: Any
    place: Any
    row: Any
    t: Any


def run(o: OnnxWriter, op: Recurrent, x: Any, mask: Any, starts: Sequence[Any]) -> tuple[Any, ...]:
    """x[B,T,I], mask[B,S] or None, starts[B,L·D,H] or None -> y[B,T,D·H], finals[B,L·D,H]"""
    real = None if mask is None else _real(o, x, mask)
    # onnxruntime aborts at T = 0 where there are no lengths
    lengths = real.lengths if real else o.Expand(o.size(x, 1), o.size(x, 0))
    y = o.Transpose(x, perm=[1, 0, 2]) if real is None else _compacted(o, op, x, real)
    y, finals = _layers(o, op, y, o.cast(lengths, "int32"), starts)
    outputs = [_or_start(o, final, start, lengths) for final, start in zip(finals, starts, strict=True)]
    return (_batch_first(o, op, y, real), *outputs)


def whole(o: OnnxWriter, op: Recurrent, x: Any, starts: Sequence[Any]) -> tuple[Any, ...]:
    """As `run`, for at least one step and no padding."""
    y, finals = _layers(o, op, o.Transpose(x, perm=[1, 0, 2]), None, starts)
    return (_batch_first(o, op, y, None), *finals)


def _layers(o: OnnxWriter, op: Recurrent, y: Any, lengths: Any, starts: Sequence[Any]) -> tuple[Any, list[Any]]:
    """y[T,B,I] -> y[T,D,B,H], finals[B,L·D,H]"""
    attributes = op.rule.onnx_attributes | {"direction": "bidirectional" if op.bidirectional else "forward"}
    if "activations" in attributes:
        attributes["activations"] *= op.directions
    initial = [_by_layer(o, start, op.num_layers) for start in starts]
    finals = []
    for number, layer in enumerate(op.layers()):
        if number:
            y = _between(o, op, y)
        at_start = (states[number] for states in initial)
        W, R, B, P = _weights(o, op, layer)
        inputs = [y, W, R, B, lengths, *at_start, P]
        while inputs[-1] is None:
            inputs.pop()
        y, *last = o.many(op.rule.kind, 1 + len(starts), *inputs, hidden_size=op.hidden_size, **attributes)
        finals.append(last)
    return y, [o.Transpose(joined(o, parts, 0), perm=[1, 0, 2]) for parts in zip(*finals, strict=True)]


def _weights(o: OnnxWriter, op: Recurrent, layer: Sequence[Direction]) -> tuple[Any, Any, Any, Any]:
    """W[D,G·H,I], R[D,G·H,H], B[D,2G·H] and P[D,3H] (or None) of one layer, in ONNX's order of gates.

    They are put in order by nodes, which onnxruntime folds when it loads: a Scan reads the parameters as they are. If
    only one bias exists, the other is zeros.
    """
    rule, biases = op.rule, BIASES[op.bias]

    def blocks(leaf: str) -> Any:
        return _reordered(o, o.param(leaf), rule.onnx_blocks, rule.onnx_signs)

    def vector(d: Direction) -> Any:
        nothing = o.Expand(o.scalar(0.0), o.ints(rule.gates * op.hidden_size))
        given = [blocks(name + d.suffix) for name in BIAS_NAMES[:biases]]
        return o.Concat(*given, *[nothing] * (2 - biases), axis=0)

    def stacked(parts: Iterable[Any]) -> Any:
        return joined(o, [o.Unsqueeze(part, o.ints(0)) for part in parts], 0)

    matrices = (stacked(blocks(name + d.suffix) for d in layer) for name in ("weight_ih", "weight_hh"))
    peephole = "weight_ch" in rule.more_parameters(op.hidden_size)
    peepholes = (_reordered(o, o.param("weight_ch" + d.suffix), (0, 2, 1), (1, 1, 1)) for d in layer)  # i f o -> i o f
    return (*matrices, stacked(map(vector, layer)) if biases else None, stacked(peepholes) if peephole else None)


def _reordered(o: OnnxWriter, weight: Any, blocks: Sequence[int], signs: Sequence[int]) -> Any:
    """The blocks of rows of a weight in another order, those with a sign of −1 negated."""
    if len(blocks) == 1:
        return weight
    parts = o.many("Split", len(blocks), weight, axis=0, num_outputs=len(blocks))
    return o.Concat(*(parts[b] if s > 0 else o.Neg(parts[b]) for b, s in zip(blocks, signs, strict=True)), axis=0)


def joined(o: OnnxWriter, parts: Sequence[Any], axis: int) -> Any:
    """The parts along an axis; one is itself."""
    return parts[0] if len(parts) == 1 else o.Concat(*parts, axis=axis)


def _real(o: OnnxWriter, x: Any, mask: Any) -> Real:
    real = last_columns(o, mask, x)
    flags = o.cast(real, "int64")
    zero, one = o.scalar(0, "int64"), o.scalar(1, "int64")
    seen, lengths = o.CumSum(flags, one), o.ReduceSum(flags, o.ints(1), keepdims=0)
    t, row = (o.Range(zero, o.Squeeze(o.size(x, axis), o.ints(0)), one) for axis in (1, 0))
    behind = o.Add(o.Unsqueeze(lengths, o.ints(1)), o.Sub(t, seen))
    return Real(lengths, o.Where(real, o.Sub(seen, one), behind), o.Unsqueeze(row, o.ints(1)), t)


def _compacted(o: OnnxWriter, op: Recurrent, x: Any, real: Real) -> Any:
    """[B,T,I] -> [T,B,I], real steps first. The gather replaces the transpose and costs no more."""
    order = o.ScatterElements(real.place, real.place, o.Expand(real.t, o.Shape(real.place)), axis=1)
    rows = o.Transpose(o.Add(order, o.Mul(real.row, o.size(x, 1))), perm=[1, 0])
    return o.Gather(o.Reshape(x, o.ints(-1, op.input_size)), rows)


def _batch_first(o: OnnxWriter, op: Recurrent, y: Any, real: Real | None) -> Any:
    """[T,D,B,H] -> [B,T,D·H], every step back in its place; ONNX puts zeros after the real ones."""
    both = op.bidirectional
    if real is None:
        y = o.Transpose(y, perm=[2, 0, 1, 3])
    else:
        batch = o.size(y, 2)
        rows = o.Add(o.Mul(o.Mul(real.place, o.ints(2)) if both else real.place, batch), real.row)
        if both:
            rows = o.Add(o.Unsqueeze(rows, o.ints(2)), o.Concat(o.ints(0), batch, axis=0))
        y = o.Gather(o.Reshape(y, o.ints(-1, op.hidden_size)), rows)
        if not both:
            return y
    return o.Reshape(y, o.ints(0, 0, op.directions * op.hidden_size))


def _between(o: OnnxWriter, op: Recurrent, y: Any) -> Any:
    """[T,D,B,H] -> [T,B,D·H], what the next layer reads."""
    if op.directions == 1:
        return o.Squeeze(y, o.ints(1))
    return o.Reshape(o.Transpose(y, perm=[0, 2, 1, 3]), o.ints(0, 0, 2 * op.hidden_size))


def _by_layer(o: OnnxWriter, start: Any, layers: int) -> list[Any]:
    """[B,L·D,H] or None -> [D,B,H] or None, for every layer."""
    if start is None:
        return [None] * layers
    first = o.Transpose(start, perm=[1, 0, 2])
    return [first] if layers == 1 else o.many("Split", layers, first, axis=0, num_outputs=layers)


def _or_start(o: OnnxWriter, final: Any, start: Any, lengths: Any) -> Any:
    """final[B,L·D,H], but a row without steps keeps its start; onnxruntime gives zeros for it."""
    if start is None:
        return final
    return o.Where(o.Greater(o.Unsqueeze(lengths, o.ints(1, 2)), o.scalar(0, "int64")), final, start)
