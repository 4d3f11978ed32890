"""A recurrent layer with attention: a loop over time in which the cell steps and attends to another stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from seqspec.components.attend import STEP, Attend, Looked
from seqspec.components.base import Inlet, camel, width_of
from seqspec.components.layers import Beside, Outputs
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.loop import Loop
from seqspec.ops.padding import ZeroPadding
from seqspec.ops.ragged import KeepAtPadding, RealSteps
from seqspec.ops.shape import Concat, Unsqueeze

if TYPE_CHECKING:
    from seqspec.components.recurrent import Recurrent


def attending(
    layer: Recurrent,
    attend: Attend,
    b: Builder,
    inlet: Inlet,
    x: Value,
    padding: Value | None,
    begin: Sequence[Value],
    beside: Beside,
) -> Outputs:
    """Builds the loop over time; its body is `_step`."""
    memory, stateful = beside.memories[attend.from_], beside.stateful
    outer = inlet.take(memory.x, "memory"), inlet.take_optional(memory.mask, "memory_mask")
    looked = attend.look(b, *outer, layer.widths[0], stateful)
    step = b.child(camel(layer.called) + "Step")
    carried = {"h": layer.widths[0]} | ({"c": layer.widths[1]} if len(layer.widths) > 1 else {})
    if attend.input_feeding:
        carried["output"] = attend.width(layer.widths[0], width_of(memory.x))
    state = {name: step.input(name, (x.shape[0], width)) for name, width in carried.items()}
    x_t, real = step.input("x", (x.shape[0], x.shape[-1])), step.input("real", (x.shape[0],), "bool")
    inside = Inlet(step)
    ys = _step(layer, attend, step, state, x_t, real, looked.within(inside))
    loop = Loop(step.done(*ys), len(carried), 2, stateful)
    starting = (*begin, *[None] * (len(carried) - len(begin)))
    steps = b.add(RealSteps(), padding, x, hint="real")
    hint = " ".join([*carried, "y", "weights"][: len(ys)])
    outputs = b.add_many(loop, *starting, x, steps, *inside.arguments, name=STEP, hint=hint)
    y, *more = (b.add(ZeroPadding(), v, padding, hint=v.hint) for v in outputs[len(carried) :])
    last = list(zip(outputs[: len(layer.widths)], carried, strict=False)) if beside.finals else []
    return Outputs(y, tuple(b.add(Unsqueeze(1), v, hint=n) for v, n in last), more[0] if more else None)


def _step(
    layer: Recurrent,
    attend: Attend,
    b: Builder,
    state: Mapping[str, Value],
    x: Value,
    real: Value,
    looked: Looked,
) -> tuple[Value, ...]:
    """One step: the next state, the output, and the weights if they are an output. Padding keeps the state.

    With `query: previous`, attention comes before the cell's update, otherwise after it.
    """
    names = ("h", "c")[: len(layer.widths)]
    own = [state[name] for name in names]
    if attend.query == "previous":
        context, weights = attend.context(b, own[0], looked)
        x = b.add(Concat(), x, context)
    elif attend.input_feeding:
        x = b.add(Concat(), x, state["output"])
    moved = b.add_many(layer.cell(width_of(x)), x, *own, name=layer.called, hint=" ".join(names))
    if attend.query == "current":
        context, weights = attend.context(b, moved[0], looked)
    y = attend.put_out(b, moved[0], context)
    after = dict(zip(names, moved, strict=True)) | {"output": y}
    kept = [b.add(KeepAtPadding(), real, after[name], old, hint=name) for name, old in state.items()]
    return (*kept, y, *([weights] if attend.return_weights else []))
