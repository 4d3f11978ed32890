"""Losses: outputs of a head and optional labels -> a scalar, or None without labels.

They are computed in at least float32, whatever dtype the model has, and are means over the labels that count. If none
counts, the loss and all its gradients are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.padding import last_columns

IGNORED = -100
"""The label that is ignored, as in torch.nn.functional.cross_entropy."""

_CROSS_ENTROPY = Helper(
    "cross_entropy",
    '''
def cross_entropy(logits, labels):
    """The mean of -log softmax(logits[..., C]) at labels[...], those that are -100 left out; 0 where none is left."""
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels are {list(labels.shape)}, the logits {list(logits.shape)}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)
''',
)

_REAL_LABELS = Helper(
    "real_labels",
    '''
def real_labels(labels, mask):
    """labels[B, T] with -100 where the last T columns of the mask are False."""
    return labels if mask is None else labels.masked_fill(~mask[:, mask.size(1) - labels.size(1) :], -100)
''',
)

_NEXT_LABELS = Helper(
    "labels_ahead",
    '''
def labels_ahead(labels, mask, length):
    """labels[B, T] -> [B, T], at every real token the label of the next one; -100 at the last, and at padding.

    With labels[B, T + 1] the last column is what follows this chunk.
    """
    if labels.size(1) not in (length, length + 1):
        raise ValueError(f"labels have {labels.size(1)} columns, {length} positions {length} or {length + 1}")
    labels = F.pad(labels, (0, length + 1 - labels.size(1)), value=-100)
    if mask is None:
        return labels[:, 1:]
    real = mask[:, mask.size(1) - length :]
    place = torch.arange(length + 1, device=labels.device).where(F.pad(real, (0, 1), value=True), length)
    following = place.flip(1).cummin(1).values.flip(1)[:, 1:]
    return labels.gather(1, following).masked_fill(~real, -100)
''',
)

_SQUARED_ERROR = Helper(
    "squared_error",
    '''
def squared_error(y, labels, mask=None):
    """The mean of (y - labels)² over the last T columns of the mask; 0 where there is nothing."""
    if labels.shape != y.shape:
        raise ValueError(f"labels are {list(labels.shape)}, the output {list(y.shape)}")
    dtype = torch.promote_types(y.dtype, torch.float32)
    error = y.to(dtype) - labels.to(dtype)
    if mask is None:
        return error.square().sum() / max(error.numel(), 1)
    real = mask[:, mask.size(1) - y.size(1) :, None]
    return error.masked_fill(~real, 0).square().sum() / (real.sum() * y.size(2)).clamp(min=1)
''',
)


@primitive
class CrossEntropy(Op):
    """logits[B, T, C] or [B, C], labels[B, T] or [B]?, mask[B, S]? -> loss[]?, the mean cross entropy of real labels.

    `shift`: the logits at a token are compared with the label of the next real token, as when a causal model is
    trained on its own input. Labels of -100 are left out, and so is padding, by the last T columns of the mask.
    """

    shift: bool = False

    def infer(self, logits: Value, labels: Value, mask: Value | None) -> tuple[Type, ...]:
        if (labels.shape, labels.dtype) != (logits.shape[:-1], "int64"):
            raise ShapeError(
                f"labels of logits {show(logits.shape)} are ids {show(logits.shape[:-1])}, "
                f"not {labels.dtype}{show(labels.shape)}"
            )
        if (self.shift or mask is not None) and len(logits.shape) != 3:
            raise ShapeError(f"logits {show(logits.shape)} have no time")
        return (Type((), "float", labels.optional),)

    def flops(self, logits: Value, labels: Value, mask: Value | None) -> Size:
        return 3 * prod(logits.shape)  # subtracting the maximum, an exponential, a sum

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        logits, labels, _ = inputs
        yield from (Value("", logits.shape, "float32"), labels)  # log softmax

    def reference(
        self, np: Any, weights: Weights, logits: Array, labels: Array | None, mask: Array | None
    ) -> tuple[Array | None, ...]:
        if labels is None:
            return (None,)
        losses = []
        for place, label in self._targets(np, logits, labels, mask):
            if label != IGNORED:
                scores = logits[place] - logits[place].max()
                losses.append(np.log(np.exp(scores).sum()) - scores[label])
        return (np.array(sum(losses) / max(len(losses), 1)),)

    def _targets(
        self, np: Any, logits: Array, labels: Array, mask: Array | None
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        """Indices into the logits, each with its label."""
        if logits.ndim == 2:
            yield from (((b,), int(label)) for b, label in enumerate(labels))
            return
        length = logits.shape[1]
        for b, row in enumerate(labels):
            real = np.ones(length, bool) if mask is None else mask[b, mask.shape[1] - length :]
            places = [int(t) for t in np.flatnonzero(real)]
            read = [*places[1:], length] if self.shift else places
            yield from (((b, t), int(row[k])) for t, k in zip(places, read, strict=False) if k < len(row))

    def torch(self, t: TorchWriter, logits: Expr, labels: Expr, mask: Expr | None) -> Expr:
        targets: str = labels
        if self.shift:
            targets = f"{t.use(_NEXT_LABELS)}({labels}, {mask}, {logits.tight}.size(1))"
        elif mask is not None:
            targets = f"{t.use(_REAL_LABELS)}({labels}, {mask})"
        return Expr.infix(f"None if {labels} is None else {t.use(_CROSS_ENTROPY)}({logits}, {targets})")

    def onnx(self, o: OnnxWriter, logits: Any, labels: Any, mask: Any | None) -> tuple[Any, ...]:
        real = None if mask is None else last_columns(o, mask, logits)
        if self.shift:
            labels = _labels_ahead(o, labels, real)
        if real is not None:
            labels = o.Where(real, labels, o.scalar(IGNORED, "int64"))
        counts = o.Not(o.Equal(labels, o.scalar(IGNORED, "int64")))
        place = o.Unsqueeze(o.Where(counts, labels, o.scalar(0, "int64")), o.ints(-1))
        chosen = o.GatherElements(o.LogSoftmax(o.cast(logits, "float32"), axis=-1), place, axis=-1)
        return (_mean(o, o.Where(counts, o.Neg(o.Squeeze(chosen, o.ints(-1))), o.scalar(0.0, "float32")), counts),)


@primitive
class MeanSquaredError(Op):
    """y[B, T, N] or [B, N], labels (as y)?, mask[B, S]? -> loss[]?, the mean of (y − labels)² at real positions."""

    def infer(self, y: Value, labels: Value, mask: Value | None) -> tuple[Type, ...]:
        if (labels.shape, labels.dtype) != (y.shape, "float"):
            raise ShapeError(f"labels of {show(y.shape)} are numbers like it, not {labels.dtype}{show(labels.shape)}")
        if mask is not None and len(y.shape) != 3:
            raise ShapeError(f"an output {show(y.shape)} has no time")
        return (Type((), "float", labels.optional),)

    def flops(self, y: Value, labels: Value, mask: Value | None) -> Size:
        return 3 * prod(y.shape)  # a difference, a square, a sum

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(
        self, np: Any, weights: Weights, y: Array, labels: Array | None, mask: Array | None
    ) -> tuple[Array | None, ...]:
        if labels is None:
            return (None,)
        real = np.ones(y.shape[:-1], bool) if mask is None else mask[:, mask.shape[1] - y.shape[1] :]
        errors = (y[real] - labels[real]) ** 2
        return (np.array(errors.sum() / max(errors.size, 1)),)

    def torch(self, t: TorchWriter, y: Expr, labels: Expr, mask: Expr | None) -> Expr:
        arguments = f"{y}, {labels}" + ("" if mask is None else f", {mask}")
        return Expr.infix(f"None if {labels} is None else {t.use(_SQUARED_ERROR)}({arguments})")

    def onnx(self, o: OnnxWriter, y: Any, labels: Any, mask: Any | None) -> tuple[Any, ...]:
        error = o.Sub(o.cast(y, "float32"), o.cast(labels, "float32"))
        if mask is None:
            counts = o.Expand(o.scalar(1, "bool"), o.Shape(y))
        else:
            counts = o.Expand(o.Unsqueeze(last_columns(o, mask, y), o.ints(2)), o.Shape(y))
            error = o.Where(counts, error, o.scalar(0.0, "float32"))
        return (_mean(o, o.Mul(error, error), counts),)


def _labels_ahead(o: OnnxWriter, labels: Any, real: Any | None) -> Any:
    """labels[B, T] -> the label of the next real token [B, T]."""
    length = o.size(labels, 1)
    places = o.Range(o.scalar(0, "int64"), o.Squeeze(length, o.ints(0)), o.scalar(1, "int64"))
    later = o.Unsqueeze(o.Less(o.Unsqueeze(places, o.ints(1)), places), o.ints(0))  # [1, T, T]
    candidates = later if real is None else o.And(later, o.Unsqueeze(real, o.ints(1)))
    following = o.ReduceMin(o.Where(candidates, places, length), o.ints(2), keepdims=0)
    padded = o.Pad(labels, o.ints(0, 0, 0, 1), o.scalar(IGNORED, "int64"))
    return o.GatherElements(padded, o.Expand(following, o.Shape(labels)), axis=1)


def _mean(o: OnnxWriter, x: Any, counts: Any) -> Any:
    """The sum of x divided by the number of True in `counts`."""
    number = o.ReduceSum(o.cast(counts, "float32"), keepdims=0)
    return o.cast(o.Div(o.ReduceSum(x, keepdims=0), o.Max(number, o.scalar(1.0, "float32"))), "float")
