"""Writes `for t in range(…)`: a region run once per time step. `ops.loop` says what is written, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqspec.backends.source.plan import Group
from seqspec.graph.ir import Node, Param, Region, Value
from seqspec.ops.base import Expr
from seqspec.ops.loop import STACK_STEPS

if TYPE_CHECKING:
    from seqspec.backends.source.forward import Forward


class Steps:
    """One loop. `args` are initial values, scanned inputs, invariants, pasts."""

    def __init__(
        self,
        forward: Forward,
        group: Group,
        node: Node,
        body: Region,
        carried: int,
        scanned: int,
        args: Sequence[Expr | None],
    ) -> None:
        self._forward, self._node, self._body = forward, node, body
        self._carried, self._scanned = carried, scanned
        count = len(group.inputs)
        self._initial, self._pasts = args[:carried], args[count:] or [None] * carried
        self._given = [self._named(v, a) for v, a in zip(group.inputs[carried:], args[carried:count], strict=True)]

    def write(self) -> Expr:
        """Writes the statements; returns the names of the carried values and of the ys."""
        forward, outputs = self._forward, self._node.outputs
        words = [forward.word(v, self._node) for v in outputs]
        claimed = [forward.variables.claim(w, v, forward.at) for w, v in zip(words, outputs, strict=True)]
        finals, ys = claimed[: self._carried], claimed[self._carried :]
        for name, value, start, past in zip(finals, self._body.inputs, self._initial, self._pasts, strict=False):
            self._write_start(name, value, start, past)
        steps = [forward.variables.temporary(f"{y}_steps", forward.at) for y in ys]
        for name in steps:
            forward.emit(f"{name} = []")
        self._write_loop(finals, ys, steps)
        for y, name, value, step in zip(ys, steps, outputs[self._carried :], self._step_outputs, strict=True):
            sizes = "".join(f", {forward.size(s)}" for s in step.shape[1:])
            text = f"{forward.file.use(STACK_STEPS)}({name}, {self._given[0]}{sizes})"
            forward.emit(f"{y} = {text}", forward.shapes([value], [y]))
        return Expr(", ".join(claimed))

    @property
    def _step_outputs(self) -> tuple[Value, ...]:
        return self._body.outputs[self._carried :]

    def _named(self, value: Value | None, expr: Expr | None) -> Expr | None:
        """What every step reads, bound to a variable if it is not one yet."""
        if value is None or expr is None or isinstance(value, Param) or expr.isidentifier():
            return expr
        return self._forward.materialise(value, expr)

    def _write_start(self, name: str, value: Value, start: Expr | None, past: Expr | None) -> None:
        if start is None:
            inputs = zip(self._body.inputs[self._carried :], self._given, strict=True)
            like = next(given for inner, given in inputs if inner.dtype == "float" and given is not None)
            start = Expr(f"{like}.new_zeros({', '.join(self._forward.size(s) for s in value.shape)})")
        text = start if past is None else f"{start.tight} if {past} is None else {past}"
        if text != name:
            self._forward.emit(f"{name} = {text}", self._forward.shapes([value], [name]))

    def _write_loop(self, finals: Sequence[str], ys: Sequence[str], steps: Sequence[str]) -> None:
        forward = self._forward
        t = forward.variables.temporary("t", forward.at)
        made = [*finals, *(forward.variables.temporary(f"{y}_t", forward.at) for y in ys)]
        scanned = [Expr(f"{x}[:, {t}]") for x in self._given[: self._scanned]]
        arguments = [*map(Expr, finals), *scanned, *self._given[self._scanned :]]
        step = forward.call(self._body, self._node.name, arguments)
        forward.emit(f"for {t} in range({self._given[0]}.shape[1]):")
        forward.emit(f"{', '.join(made)} = {step}", forward.shapes(self._body.outputs, made), inside=1)
        for name, y in zip(steps, made[len(finals) :], strict=True):
            forward.emit(f"{name}.append({y})", inside=1)
