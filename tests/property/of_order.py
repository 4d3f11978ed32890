"""What holds of stacks without an order, and of documents packed on one row: of drawn specs recast to that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqspec.components.attention import SelfAttention
from seqspec.components.cross_attention import CrossAttention
from seqspec.components.efficient import LinearAttention
from seqspec.components.features import Features
from seqspec.components.feedforward import FeedForward
from seqspec.components.linear import LinearLayer
from seqspec.components.parts import Part
from seqspec.components.positions import NoPosition
from seqspec.components.stack import Stack
from seqspec.components.tokens import Tokens
from seqspec.ops import masks

from . import batches, recast
from .case import Case
from .errors import same
from .of_torch import along, real_only
from .rounds import Property
from .strategy import Spec

_POINTWISE = FeedForward | LinearLayer


def an_order_changes_nothing(case: Case) -> float | None:
    """Tokens in another order = the same vectors in that order, or the same vector where these are pooled."""
    case = _of(recast.without_order(case.spec), case)
    picked, model = {}, case.spec.model.resolved()
    random = np.random.default_rng(case.batch.seed)
    for side, (name, stack) in zip(case.batch.sides, model.stacks.items(), strict=True):
        if has_no_order(stack) and (name == model.last or not _reads_places(model.stacks[model.last])):
            picked[side.prefix] = random.permutation(side.length)
    mixed = any(_mixes(model.stacks[name]) for name in model.stacks) or case.spec.pooled
    if all(len(order) < 2 for order in picked.values()) or not mixed:
        return None
    moved = Case(case.spec, case.batch.columns(picked))
    orders = (picked.get(side.prefix) for side in (case.batch.last, case.batch.sides[0]))
    return same(real_only(moved, moved.whole), real_only(moved, along(case, case.whole, *orders)), 1e-11)


def packed_documents_are_alone(case: Case) -> float | None:
    """Each document of a row = its real tokens alone, without a mask and without `document_ids`."""
    drawn = case.spec.model.resolved()
    if not _may_be_packed(drawn.stacks[drawn.last]):
        return None
    case = _of(recast.of_documents(case.spec), case)
    model, batch, worst = case.spec.model.resolved(), case.batch, None
    name = f"{batch.last.prefix}document_ids"
    if not keeps_documents_apart(model.stacks[model.last]) or name not in batch.inputs:
        return None
    for n in range(batch.size):
        ids, real = batch.inputs[name][n], batch.real[batch.last.prefix][n]
        row = batch.rows(slice(n, n + 1)).without(name)
        for document in np.unique(ids[real]):
            kept = np.flatnonzero(real & (ids == document))
            alone = case.run(row.columns({batch.last.prefix: kept}))
            packed = {k: v[n : n + 1] for k, v in along(case, case.whole, kept, None).items()}
            worst = max(worst or 0.0, same(alone, packed, 1e-11, f"row {n}, document {document}"))
    return worst


def has_no_order(stack: Stack) -> bool:
    """Whether each of its vectors depends on the set of the others alone."""
    added = stack.position and not stack.position.acts and not isinstance(stack.position, NoPosition)
    source = isinstance(stack.input, Tokens | Features)
    return source and not added and all(_takes_a_set(part) for _, part in stack.parts())


def keeps_documents_apart(stack: Stack) -> bool:
    """Whether nothing goes from one document of a row to another."""
    return any(isinstance(part, SelfAttention) for _, part in stack.parts()) and all(
        isinstance(part, CrossAttention | _POINTWISE)
        or (isinstance(part, SelfAttention) and part.position and not part.position.switch and _within(part.allowed))
        for _, part in stack.parts()
    )


def _may_be_packed(stack: Stack) -> bool:
    """Whether it reads a row of tokens and has no recurrence but what may be taken out."""
    bound = any(list(layer.recurrent.reads()) for layer in stack.flat() if layer.recurrent)
    return isinstance(stack.input, Tokens | Features) and not bound


def _takes_a_set(part: Part) -> bool:
    match part:
        case SelfAttention():
            free = all(isinstance(a, masks.Given) or a == masks.EVERYTHING for a in masks.atoms(part.allowed))
            return free and isinstance(part.position, NoPosition)
        case LinearAttention():
            return not part.causal
        case _:
            return isinstance(part, CrossAttention | _POINTWISE)


def _within(mask: masks.Mask) -> bool:
    """Whether it allows pairs of one document alone, whatever else stands on the row."""
    if any(isinstance(atom, masks.Prefix) for atom in masks.atoms(mask)):
        return False
    match mask:
        case masks.AllOf(items):
            return any(_within(item) for item in items)
        case masks.AnyOf(items):
            return all(_within(item) for item in items)
        case _:
            return isinstance(mask, masks.Documents)


def _mixes(stack: Stack) -> bool:
    """Whether its vectors depend on others at all."""
    return not all(isinstance(part, _POINTWISE) for _, part in stack.parts())


def _reads_places(stack: Stack) -> bool:
    """Whether it asks where the vectors of another stack stand."""
    attends = [layer.recurrent.attend for layer in stack.flat() if layer.recurrent]
    return any(attend and attend.window for attend in attends)


def _of(spec: Spec, case: Case) -> Case:
    """The spec with a batch of the same sort, where all is told by masks and documents are given."""
    sides = tuple(replace(side, told=True) for side in case.batch.sides)
    return Case(spec, batches.fill(spec, case.batch.size, sides, case.batch.chunks, case.batch.seed).masked())


PROPERTIES = (
    Property("another order = the same", an_order_changes_nothing),
    Property("packed documents = alone", packed_documents_are_alone),
)
