"""What holds of the ONNX files of every spec, on onnxruntime with optimisations off and on."""

from __future__ import annotations

from . import batches
from .batches import Batch, Side
from .case import Case, Onnx
from .errors import finite, same_single
from .of_torch import spans, switches, told
from .rounds import Property


def is_torch_as_written(case: Case) -> float:
    """ONNX with optimisations off = torch, both in float32."""
    return _against_torch(case, case.plain, case.batch)


def is_torch_optimised(case: Case) -> float:
    """ONNX with all optimisations = torch, both in float32."""
    return _against_torch(case, case.optimised, case.batch)


def takes_any_sizes(case: Case) -> float:
    """The same file at other sizes, a single token in a single row among them."""
    last = len(case.batch.sides) - 1
    worst = 0.0
    for size, length, padding in ((1, 1, "none"), (3, 1, "empty row"), (1, 17, "left"), (5, 3, "holes")):
        sides = tuple(
            Side(s.prefix, length if n == last else 18 - length, padding, False, False, s.typed)
            for n, s in enumerate(case.batch.sides)
        )
        worst = max(worst, _against_torch(case, case.optimised, batches.fill(case.spec, size, sides, (length,), 3)))
    return worst


def padding_is_not_read(case: Case) -> float:
    """NaN and infinities in vectors at padding reach no output."""
    values = case.optimised.run(case.batch.unplaced().noise(wild=True))
    for name, array in values.items():
        finite(array, name)
    return 0.0


def chunks_are_the_whole(case: Case) -> float | None:
    """In chunks with the state handed on = torch at once. A Session refuses chunks without a token."""
    if not case.spec.signature.states or switches(case):
        return None
    batch, state, parts = case.batch.unplaced(), {}, []
    for start, stop in spans(batch, empty=False):
        values, state = case.plain.step(batch, start, stop, state)
        parts.append(values)
    single, double = case.run(batch, case.single), case.run(batch)
    got, want = told(case, parts, single)
    return same_single(got, want, told(case, parts, double)[1], lambda: case.costs(batch))


def _against_torch(case: Case, onnx: Onnx, batch: Batch) -> float:
    batch = batch.unplaced()
    single, double = case.run(batch, case.single), case.run(batch)
    return same_single(onnx.run(batch), single, double, lambda: case.costs(batch))


PROPERTIES = (
    Property("ONNX = torch, as written", is_torch_as_written),
    Property("ONNX = torch, optimised", is_torch_optimised),
    Property("ONNX at any sizes", takes_any_sizes),
    Property("ONNX: padding is not read", padding_is_not_read),
    Property("ONNX: chunks = whole", chunks_are_the_whole),
)
