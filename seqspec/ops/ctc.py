"""Connectionist temporal classification (Graves et al. 2006), which sums over all alignments of labels and frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from seqspec.diagnostics import CompileError
from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.loss import IGNORED

_CTC_LOSS = Helper(
    "ctc_loss",
    '''
def ctc_loss(logits, labels, mask, blank_id):
    """-log of the probability of labels[B, L], over its length, at the real frames of logits[B, T, V]: the mean.

    Those are in the last T columns of mask[B, S]. Labels that are -100 are left out. A row that is too short for its
    labels counts as 0.
    """
    if labels.dim() != 2 or len(labels) != len(logits):
        raise ValueError(f"labels are {list(labels.shape)}, one row for each of the {len(logits)} of the logits")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    lengths = torch.full((len(scores),), scores.size(1), device=scores.device)
    if mask is not None:
        mask = mask[:, mask.size(1) - scores.size(1) :]
        order = (~mask).byte().argsort(dim=1, stable=True)
        scores, lengths = scores.gather(1, order[..., None].expand_as(scores)), mask.sum(1)
    counts = labels != -100
    labels = labels.gather(1, (~counts).byte().argsort(dim=1, stable=True)).clamp(min=0)
    return F.ctc_loss(scores.transpose(0, 1), labels, lengths, counts.sum(1), blank_id, zero_infinity=True)
''',
)


@primitive
class CtcLoss(Op):
    """logits[B, T, V], labels[B, L]?, mask[B, S]? -> loss[]?, the mean over rows of −log p(labels) / number of labels.

    p sums over every path of T ids that gives the labels once repeats are merged and `blank_id` is dropped. Labels of
    −100 are left out, and so are padded frames, by the last T columns of the mask. A row that is too short for its
    labels has loss 0 and gradient 0: torch.nn.CTCLoss with `zero_infinity`.
    """

    blank_id: int = 0

    def infer(self, logits: Value, labels: Value, mask: Value | None) -> tuple[Type, ...]:
        if len(logits.shape) != 3:
            raise ShapeError(f"logits {show(logits.shape)} have no time")
        if len(labels.shape) != 2 or labels.shape[0] != logits.shape[0] or labels.dtype != "int64":
            raise ShapeError(f"labels of logits {show(logits.shape)} are rows of ids, not {show(labels.shape)}")
        if mask is not None and (len(mask.shape) != 2 or mask.shape[0] != logits.shape[0]):
            raise ShapeError(f"the mask of {show(logits.shape)} has a row for each of its own, not {show(mask.shape)}")
        return (Type((), "float", labels.optional),)

    def flops(self, logits: Value, labels: Value, mask: Value | None) -> Size:
        # a softmax, and in every frame three additions for each label and each blank around it
        return 3 * prod(logits.shape) + 3 * logits.shape[0] * logits.shape[1] * (2 * labels.shape[1] + 1)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        logits, labels, _ = inputs
        # log softmax, and the sums up to every label and the blanks around it
        yield Value("", logits.shape, "float32")
        yield from (labels, Value("", (*logits.shape[:2], 2 * labels.shape[1] + 1), "float32"))

    def reference(
        self, np: Any, weights: Weights, logits: Array, labels: Array | None, mask: Array | None
    ) -> tuple[Array | None, ...]:
        if labels is None:
            return (None,)
        total = 0.0
        for b, row in enumerate(labels):
            frames = logits[b] if mask is None else logits[b, mask[b, mask.shape[1] - logits.shape[1] :]]
            wanted = [int(label) for label in row if label != IGNORED]
            probability = self._probability(np, frames, wanted)
            total += -np.log(probability) / max(len(wanted), 1) if probability > 0 else 0.0
        return (np.array(total / max(len(labels), 1)),)

    def _probability(self, np: Any, frames: Array, labels: list[int]) -> float:
        """The summed probability of all paths: the forward recursion over blank, label, blank, label, …, blank."""
        if not len(frames):
            return 0.0 if labels else 1.0
        path = [self.blank_id]
        for label in labels:
            path += [label, self.blank_id]
        shares = np.exp(frames - frames.max(1, keepdims=True))
        shares = shares / shares.sum(1, keepdims=True)
        reached = [float(shares[0, label]) if s < 2 else 0.0 for s, label in enumerate(path)]
        for share in shares[1:]:
            before = reached
            reached = []
            for s, label in enumerate(path):
                ways = before[s] + (before[s - 1] if s else 0.0)
                if s > 1 and label not in (self.blank_id, path[s - 2]):
                    ways += before[s - 2]  # the blank between two different labels may be skipped
                reached.append(float(ways * share[label]))
        return sum(reached[-2:])

    def torch(self, t: TorchWriter, logits: Expr, labels: Expr, mask: Expr | None) -> Expr:
        loss = f"{t.use(_CTC_LOSS)}({logits}, {labels}, {mask}, {self.blank_id})"
        return Expr.infix(f"None if {labels} is None else {loss}")

    def onnx(self, o: OnnxWriter, logits: Any, labels: Any, mask: Any | None) -> tuple[Any, ...]:
        raise CompileError("SEQ414", "the loss of a CTC head exists in PyTorch alone")
