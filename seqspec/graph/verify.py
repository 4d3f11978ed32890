"""The invariants of the graph, listed for each stage. Tests check them between passes; a violation is a seqspec bug.

built       as the builder leaves it
flat        after `inline`: no calls
inference   for ONNX: also no dropout, and nothing optional
part        the encoder or decoder of such a graph, where a tied weight may belong to the other part
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from seqspec.diagnostics import SeqspecError
from seqspec.graph.dims import grown, show
from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value, join
from seqspec.graph.types import ShapeError

if TYPE_CHECKING:
    from seqspec.ops.base import Op

Stage = Literal["built", "flat", "inference", "part"]
Invariant = Callable[[Graph], Iterator[str]]


def verify(graph: Graph, stage: Stage = "built") -> None:
    """Raises SEQ304 with every violation of the stage's invariants."""
    found = [violation for invariant in INVARIANTS[stage] for violation in invariant(graph)]
    if found:
        raise SeqspecError("SEQ304", "; ".join(found))


def defined_before_use(graph: Graph) -> Iterator[str]:
    """Every value is an input or an output of an earlier item, and is made once."""
    for region in graph.regions():
        known: set[str] = set()
        for value in region.inputs:
            yield from _define(region, value, known)
        for item in region.items:
            for read in item.inputs:
                if read is not None and not isinstance(read, Param) and read.name not in known:
                    yield f"{region.name}: {read.name} is read before it is made"
            for value in item.outputs:
                yield from _define(region, value, known)
        yield from (
            f"{region.name}: the output {v.name} is never made"
            for v in region.outputs
            if not isinstance(v, Param) and v.name not in known
        )


def _define(region: Region, value: Value, known: set[str]) -> Iterator[str]:
    if value.name in known:
        yield f"{region.name}: {value.name} is made twice"
    known.add(value.name)


def reads_agree(graph: Graph) -> Iterator[str]:
    """A value has one type wherever it is read."""
    for region in graph.regions():
        types = {v.name: v for v in region.inputs}
        for item in region.items:
            types |= {v.name: v for v in item.outputs}
        reads = [v for item in region.items for v in item.inputs] + list(region.outputs)
        for read in reads:
            made = None if read is None or isinstance(read, Param) else types.get(read.name)
            if read is not None and made is not None and read != made:
                yield f"{region.name}: {read.name} is made as {_type(made)} and read as {_type(read)}"


def types_follow(graph: Graph) -> Iterator[str]:
    """The outputs of a node have the types that its op infers; those of a call, and its inputs, have its region's."""
    for region in graph.regions():
        for item in region.items:
            where = f"{region.name}.{item.scope or ', '.join(v.name for v in item.outputs)}"
            if isinstance(item, Call):
                yield from _arguments(where, item)
                wanted = [(v.shape, v.dtype, v.optional) for v in item.region.outputs]
            else:
                try:
                    wanted = [(t.shape, t.dtype, t.optional) for t in item.op.infer(*item.inputs)]
                except ShapeError as error:
                    yield f"{where}: {error}"
                    continue
            found = [(v.shape, v.dtype, v.optional) for v in item.outputs]
            if found != wanted:
                yield f"{where}: its outputs are declared {found}, and follow as {wanted}"


def _arguments(where: str, call: Call) -> Iterator[str]:
    if len(call.inputs) != len(call.region.inputs):
        yield f"{where}: {len(call.inputs)} arguments for {len(call.region.inputs)} inputs"
        return
    for want, got in zip(call.region.inputs, call.inputs, strict=True):
        if got is None and not want.optional:
            yield f"{where}: {want.name} is missing"
        if got is not None and (got.shape, got.dtype) != (want.shape, want.dtype):
            yield f"{where}: {want.name} is {_type(want)} and gets {_type(got)}"


def names_are_unique(graph: Graph) -> Iterator[str]:
    """No two parts own a parameter or state of the same name, unless they are one part called twice."""
    for region in graph.regions():
        owners: dict[str, object] = {}
        for item in region.items:
            part: Op | int = id(item.region) if isinstance(item, Call) else item.op
            for param in item.params:
                if owners.setdefault(param.name, part) != part:
                    yield f"{region.name}: two parts own {param.name}"
        counts = Counter(s.name for s in region.states)
        yield from (f"{region.name}: two states are called {name}" for name, n in counts.items() if n > 1)


def ties_resolve(graph: Graph) -> Iterator[str]:
    """A tied weight names a parameter of the same shape that something in the same region owns."""
    for region in graph.regions():
        owned = {p.name: p for p in region.params}
        for item in region.items:
            for tie in item.inputs:
                if isinstance(tie, Param) and (tie.name not in owned or owned[tie.name].shape != tie.shape):
                    yield f"{region.name}: nothing owns the tie {tie.name}{show(tie.shape)}"


def presents_fit(graph: Graph) -> Iterator[str]:
    """A state's present is an output of its op, of the past's type, where P past positions became P + T."""
    for region in graph.regions():
        for node in _nodes(region):
            for state in node.op.states(*node.inputs):
                where = f"{region.name}.{join(node.name, state.name)}"
                if not 0 <= state.output < len(node.outputs):
                    yield f"{where}: there is no output {state.output}"
                    continue
                present = node.outputs[state.output]
                if (present.shape, present.dtype) != (grown(state.shape), state.dtype):
                    yield f"{where}: the past is {state.dtype}{show(state.shape)}, the present {_type(present)}"


def bodies_carry_nothing(graph: Graph) -> Iterator[str]:
    """A region that an op runs inside itself has no states but the op's own."""
    for region in graph.regions():
        for node in _nodes(region):
            own = {state.name for state in node.op.states(*node.inputs)}
            for body in node.op.bodies():
                carried = [state.name for state in body.states if state.name not in own]
                if carried:
                    yield f"{body.name}: the body of a loop carries {carried[0]}"


def no_calls(graph: Graph) -> Iterator[str]:
    """All calls are inlined."""
    for region in graph.regions():
        yield from (f"{region.name}: {i.scope} is a call" for i in region.items if isinstance(i, Call))


def no_dropout(graph: Graph) -> Iterator[str]:
    """Nothing is random: there is no Dropout, and no op with a `dropout`."""
    for region in graph.regions():
        for node in _nodes(region):
            if type(node.op).__name__ == "Dropout" or getattr(node.op, "dropout", False):
                yield f"{region.name}: dropout is left at {node.outputs[0].name}"


def nothing_optional(graph: Graph) -> Iterator[str]:
    """No input of the root is optional."""
    yield from (f"the input {v.name} is optional" for v in graph.root.inputs if v.optional)


def once_is_held(graph: Graph) -> Iterator[str]:
    """What is computed once reaches later calls only through a held state or as a state's initial value."""
    once = {v.name for v in graph.root.inputs if v.name in graph.once}
    late = {v.name for v in graph.root.inputs if v.name not in graph.once}
    for node in _nodes(graph.root):
        states = node.op.states(*node.inputs)
        starts = {(s.shape, s.dtype) for s in states}  # an initial value has the type of its state
        values = [v for v in node.inputs if v is not None and not isinstance(v, Param)]
        read = {v.name for v in values if (v.shape, v.dtype) not in starts}
        held = any(s.held for s in states)
        runs_late = bool(states) or not read.isdisjoint(late)
        if runs_late and not held and not read.isdisjoint(once):
            yield f"{node.name or node.outputs[0].name} reads {min(read & once)} on every call, which is there once"
        made = {v.name for v in node.outputs}
        if runs_late or held:
            late |= made
        elif not read.isdisjoint(once):
            once |= made


def _nodes(region: Region) -> Iterator[Node]:
    return (item for item in region.items if isinstance(item, Node))


def _type(value: Value) -> str:
    return f"{value.dtype}{show(value.shape)}{'?' if value.optional else ''}"


_ALWAYS: tuple[Invariant, ...] = (
    defined_before_use,
    reads_agree,
    types_follow,
    names_are_unique,
    presents_fit,
    bodies_carry_nothing,
)
_INFERENCE: tuple[Invariant, ...] = (no_calls, no_dropout, nothing_optional)
INVARIANTS: dict[Stage, tuple[Invariant, ...]] = {
    "built": (*_ALWAYS, ties_resolve),
    "flat": (*_ALWAYS, ties_resolve, no_calls, once_is_held),
    "inference": (*_ALWAYS, ties_resolve, once_is_held, *_INFERENCE),
    "part": (*_ALWAYS, *_INFERENCE),
}
