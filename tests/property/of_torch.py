"""What holds of the PyTorch model of every spec."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator

import numpy as np
import torch

from seqspec.backends.torch import module
from seqspec.components.rope import Rope
from seqspec.graph.dims import ENCODER_TIME, TIME, names
from seqspec.reports.summary import summarise

from . import batches
from .batches import Array, Batch
from .case import Case, state_of, tensors
from .errors import Arrays, finite, same
from .exempt import no_gradient
from .reach import LENGTH
from .recast import without_dropout
from .rounds import Property


def is_its_reference(case: Case) -> float:
    """The emitted file in float64 = the NumPy face of every op."""
    return same(case.whole, case.reference, 1e-10)


def rows_are_independent(case: Case) -> float:
    """A row of a batch = that row alone."""
    rows = (case.batch.rows(slice(n, n + 1)) for n in range(case.batch.size))
    return max(
        same(case.run(row), {k: v[n : n + 1] for k, v in case.whole.items()}, 1e-12, f"row {n}")
        for n, row in enumerate(rows)
    )


def padding_is_not_read(case: Case) -> float:
    """NaN and infinities in vectors, or any ids, at padding: not a bit of what real tokens give changes."""
    noisy = case.run(case.batch.noise(wild=True))
    for name, array in noisy.items():
        finite(array, name)
    return same(real_only(case, noisy), real_only(case, case.whole), 0)


def padding_changes_nothing(case: Case) -> float | None:
    """A row padded right, left or in between = its real tokens alone, without a mask; and an empty row is finite."""
    worst = None
    for n in range(case.batch.size):
        if all(real[n].any() for real in case.batch.real.values()):
            alone = case.run(case.batch.compact(n))
            real, read = (np.flatnonzero(case.batch.seen(side)[n]) for side in (case.batch.last, case.batch.sides[0]))
            row = {k: v[n : n + 1] for k, v in along(case, case.whole, real, read).items()}
            worst = max(worst or 0, same(alone, row, 1e-11, f"row {n}"))
    return worst


def chunks_are_the_whole(case: Case) -> float | None:
    """Run in chunks, some without a token, with the state handed on = run at once; so is the state at the end."""
    if not case.spec.signature.states or switches(case):
        return None
    state, parts = None, []
    for start, stop in spans(case.batch):
        values, state = case.step(case.chunk(case.batch, start, stop, state), state)
        parts.append(values)
    _, end = case.step(case.batch.inputs, None)
    worst = same(*told(case, parts, case.whole), 1e-12)
    numbers = [{k: v.numpy() for k, v in s.items()} for s in (state, end)]
    return max(worst, same(*numbers, 1e-12, "state"))


def the_future_is_not_seen(case: Case) -> float | None:
    """Other tokens from some position on: not a bit before it changes, and no gradient comes from there."""
    cut = case.batch.last.length // 2
    given = any(name.endswith("prefix_length") for name in case.batch.inputs)  # what is seen in both directions
    if not case.spec.facts.causal or not case.timed or not cut or given or switches(case):
        return None
    side, changed = case.batch.last, dict(case.batch.inputs)
    data = next(n for n in (f"{side.prefix}input_ids", f"{side.prefix}features") if n in changed)
    before, future = changed[data][:, cut:], changed[data][::-1, cut:][:, ::-1] * data.endswith("ids")
    if side.by_ids:  # what is padding stays so: rows are packed by length, and another order of rows rounds otherwise
        pad_id = case.spec.model.resolved().stacks[case.spec.model.last].input.pad_id
        future = np.where((before == pad_id) | (future == pad_id), before, future)
    changed[data] = np.concatenate([changed[data][:, :cut], future], 1)
    if data.endswith("features"):
        changed[data][:, cut:] += 1.0
    after = case.step(changed, None)[0]
    worst = same(*({k: v[:, :cut] for k, v in x.items() if k in case.timed} for x in (after, case.whole)), 0)
    if data.endswith("features"):
        given = tensors(case.batch.inputs, torch.float64)
        given[data].requires_grad_()
        out = case.double(**given)
        ports = zip(case.spec.signature.outputs, out, strict=False)
        sum(v[:, :cut].sum() for port, v in ports if port.name in case.timed).backward()
        gradient = given[data].grad
        assert gradient is None or not gradient[:, cut:].any(), "a gradient comes from the future"
    return worst


def survives_saving(case: Case) -> float:
    """state_dict through a file, pickle, deepcopy: equal bits."""
    written = io.BytesIO()
    torch.save(case.double.state_dict(), written)
    written.seek(0)
    loaded = module(case.spec.graph, seed=1).double().eval()
    loaded.load_state_dict(torch.load(written, weights_only=True))
    copies = {
        "loaded": loaded,
        "pickled": pickle.loads(pickle.dumps(case.double)),
        "copied": copy.deepcopy(case.double),
    }
    return max(same(case.run(case.batch, model), case.whole, 0, what) for what, model in copies.items())


def has_the_weights_of_its_graph(case: Case) -> float:
    """The module's parameters are the graph's, a tied table one tensor; the report counts them and the state."""
    found = {name: tuple(p.shape) for name, p in case.single.named_parameters()}
    assert found == {p.name: p.shape for p in case.spec.graph.root.params}
    assert found.keys() == case.single.state_dict().keys()
    source = case.batch.sides[0].length
    told = summarise(case.spec.graph, batch=case.batch.size, time=case.batch.last.length, source_time=source)
    assert told.parameters == sum(p.numel() for p in case.single.parameters())
    _, state = case.step(case.batch.masked().inputs, None, case.single)
    assert told.state_bytes == sum(x.nbytes for x in (state or {}).values())
    return 0.0


def every_weight_learns(case: Case) -> float:
    """Finite gradients in training, for the batch at hand; and none that is zero throughout for a batch of 8."""
    model = copy.deepcopy(case.double).train()
    _backward(model, case.batch)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            finite(parameter.grad.numpy(), f"the gradient of {name}")
    waiting = {name for name, _ in model.named_parameters() if no_gradient(case.spec, name) is None}
    for number in range(6):
        if not waiting:
            break
        if number > 2:  # a relu may be dead for every token with one set of weights
            _draw_again(model, number)
        model.zero_grad()
        model.eval()
        _backward(model, _wide(case, number))
        waiting -= {n for n, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert not waiting, f"no gradient for {sorted(waiting)}"
    return 0.0


def training_without_dropout_is_inference(case: Case) -> float:
    """With every rate 0 the two modes give equal bits, padded rows included."""
    model = module(without_dropout(case.spec).graph, case.weights).double()
    return same(case.run(case.batch, model.train()), case.run(case.batch, model.eval()), 0)


def recomputing_changes_no_gradient(case: Case) -> float:
    """With `checkpoint` the gradients are the same."""
    plain = copy.deepcopy(case.double)
    again = module(case.spec.graph, case.weights, checkpoint=True).double().eval()
    for model in (plain, again):
        _backward(model, case.batch)
    found = [{n: _gradient(p) for n, p in m.named_parameters()} for m in (plain, again)]
    return same(found[1], found[0], 1e-12)


# ---- what they share ---------------------------------------------------------------------------------------------


def spans(batch: Batch, *, empty: bool = True) -> Iterator[tuple[int, int]]:
    """(start, stop) of every chunk; without `empty`, of those that have a token."""
    start = 0
    for length in batch.chunks:
        if length or empty:
            yield start, start + length
        start += length


def switches(case: Case) -> bool:
    """Whether rotary angles change on the way: then a past was turned by others, and steps are another function."""
    attentions = case.spec.model.resolved().stacks[case.spec.model.last].attentions()
    limits = [a.position.switch for a in attentions if isinstance(a.position, Rope) and a.position.switch]
    return any(case.batch.last.length > limit for limit in limits)


def told(case: Case, parts: list[dict[str, Array]], whole: Arrays) -> tuple[Arrays, Arrays]:
    """What chunks say together, beside what the whole says. A pooled output is the last chunk's."""
    joined = {}
    for port in case.spec.signature.outputs:
        timed = [axis for axis, size in enumerate(port.shape) if TIME in names(size)]
        found = [part[port.name] for part in parts]
        if len(timed) == 2:  # weights: keys that are not there yet are not seen
            length = whole[port.name].shape[timed[1]]
            found = [_wider(array, timed[1], length) for array in found]
        if timed:
            joined[port.name] = np.concatenate(found, timed[0])
    return parts[-1] | joined, whole


def _wider(array: Array, axis: int, length: int) -> Array:
    """With zeros behind, up to that length."""
    widths = [(0, length - array.shape[n] if n == axis else 0) for n in range(array.ndim)]
    return np.pad(array, widths)


def real_only(case: Case, values: Arrays) -> dict[str, Array]:
    """Outputs at real tokens; pooled ones as they are."""
    real = case.batch.seen(case.batch.last)
    values = {k: np.moveaxis(v, 2, 1) if v.ndim == 4 else v for k, v in values.items()}
    return {k: v[real] if k in case.timed or v.ndim == 4 else v for k, v in values.items()}


def along(case: Case, values: Arrays, picked: Array | None, read: Array | None) -> dict[str, Array]:
    """Outputs at these positions of the last stack and at those that are `read` of another, along every axis of time.

    None is all of them.
    """
    kept = {}
    for port in case.spec.signature.outputs:
        kept[port.name] = values[port.name]
        for axis, size in enumerate(port.shape):
            index = picked if TIME in names(size) else read if ENCODER_TIME in names(size) else None
            if index is not None:
                kept[port.name] = kept[port.name].take(index, axis)
    return kept


def _backward(model: torch.nn.Module, batch: Batch) -> None:
    """Gradients of a sum with random factors: a plain sum over a norm's channels is constant."""
    out = model(**tensors(batch.inputs, torch.float64), **state_of(None))
    draw = torch.Generator().manual_seed(0)
    values = [v for v in out if isinstance(v, torch.Tensor)]
    factors = [torch.randn(v.shape, generator=draw, dtype=v.dtype) for v in values]
    sum((v * f).sum() for v, f in zip(values, factors, strict=True)).backward()


def _draw_again(model: torch.nn.Module, number: int) -> None:
    """Other weights."""
    draw = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))


def _wide(case: Case, number: int) -> Batch:
    """Eight rows of several tokens, nothing padded."""
    prefixes = [side.prefix for side in case.batch.sides]
    sides = tuple(batches.Side(p, LENGTH, "none", by_ids=False, placed=False, typed=True) for p in prefixes)
    return batches.fill(case.spec, 8, sides, (LENGTH,), number)


def _gradient(parameter: torch.nn.Parameter) -> Array:
    return torch.zeros_like(parameter).numpy() if parameter.grad is None else parameter.grad.numpy()


OF_EVERY_SPEC = (
    is_its_reference, rows_are_independent, padding_is_not_read, padding_changes_nothing, chunks_are_the_whole,
)  # fmt: skip
"""What tests check that walk over many specs."""
PROPERTIES = (
    Property("torch = reference", is_its_reference),
    Property("batch = single rows", rows_are_independent),
    Property("padding is not read", padding_is_not_read),
    Property("padded = alone", padding_changes_nothing),
    Property("chunks = whole", chunks_are_the_whole),
    Property("no view of the future", the_future_is_not_seen),
    Property("save and load", survives_saving),
    Property("weights of the graph", has_the_weights_of_its_graph),
    Property("every weight learns", every_weight_learns),
    Property("train = eval without dropout", training_without_dropout_is_inference),
    Property("checkpointed gradients", recomputing_changes_no_gradient),
)
