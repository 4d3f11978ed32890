"""`forward`: the statements of one region, with the expressions that the ops write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seqspec.backends.source import names
from seqspec.backends.source.past import find
from seqspec.backends.source.plan import Entry, Group, Plan, Statement
from seqspec.backends.source.shapes import Letters
from seqspec.diagnostics import SeqspecError
from seqspec.graph.dims import PAST, Size, dim
from seqspec.graph.ir import Call, Node, Param, Region, Value, join
from seqspec.ops.base import Expr, Helper
from seqspec.ops.loop import STACK_STEPS

LONGEST_INLINED = 84
"""An argument longer than this becomes a variable."""


class Line(NamedTuple):
    """A statement and what is said beside it."""

    indent: int
    text: str
    comment: str = ""


@dataclass(eq=False)
class Class:
    """An emitted class: its name, the arguments of its `forward` in order, and whether it takes `checkpoint`."""

    name: str
    arguments: Mapping[Value, str]
    checkpoint: bool = False


@dataclass(eq=False)
class File:
    """What the classes of one file share: the classes so far, helpers in use, names that variables must leave alone."""

    classes: dict[int, Class] = field(default_factory=dict)
    helpers: dict[str, Helper] = field(default_factory=dict)
    avoid: frozenset[str] = names.LOCAL_NAMES

    def use(self, helper: Helper) -> str:
        """Takes a helper into the file, after those it needs."""
        for needed in helper.needs:
            self.use(needed)
        if self.helpers.setdefault(helper.name, helper).text != helper.text:
            raise SeqspecError("SEQ304", f"two helpers are called {helper.name}")
        return helper.name


class Forward:
    """Writes the body of one region's `forward`. `methods` names the regions that are methods of the same class."""

    def __init__(self, region: Region, plan: Plan, file: File, arguments: Mapping[Value, str], methods: dict[int, str]):
        self.region, self.plan, self.file, self.methods = region, plan, file, methods
        self.letters = Letters(region)
        self.arguments = arguments
        self.names: dict[Value, str] = dict(arguments)
        self.bound: dict[str, Value] = {name: value for value, name in arguments.items()}
        self.inlined = dict(plan.inlined)
        self.lines: list[Line] = []
        self.header: list[Line] = []
        self.presents: dict[int, str] = {}
        self.depth = self.at = 0
        self._fixed: dict[str, str] = {}
        self._name_entries()

    def write(self) -> list[Line]:
        """All lines up to the return."""
        once = [s for s in self.plan.statements if s.once]
        if once:
            self._write_once(once)
        for statement in self.plan.statements[len(once) :]:
            self._write(statement)
            self.at += 1
        start = [Line(0, self._unpack())] if len(self.plan.entries) > 1 else []
        return [*start, *self.header, *self.lines]

    def results(self) -> list[str]:
        """What the region returns, without the present."""
        return [str(self.render(v)) for v in self.region.outputs]

    def present(self) -> str:
        """What it carries to the next call, shaped as `past`; nothing where it has no state."""
        parts = []
        for entry in self.plan.entries:
            first = entry.group.first
            parts.append(self.names[first.outputs[entry.state.output]] if entry.state else self.presents[id(first)])
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})" if parts else ""

    # names

    def _name_entries(self) -> None:
        entries = self.plan.entries
        leaves = [e.path.rsplit(".", 1)[-1] for e in entries]
        for entry, leaf in zip(entries, leaves, strict=True):
            suffix = leaf if leaves.count(leaf) == 1 else entry.path.replace(".", "_")
            past = "past" if len(entries) == 1 else names.fresh(f"past_{suffix}", self.bound)
            self._fixed[past] = entry.path
            if entry.state is None:
                calls = sum(e.state is None for e in entries)
                word = "presents" if entry.group.run else "present"
                present = word if calls == 1 else f"{word}_{suffix}"
                self._fixed[present] = entry.path
                self.presents[id(entry.group.first)] = present
        self._pasts = dict(zip([(id(e.group.first), e.path) for e in entries], self._past_names(), strict=True))

    def _past_names(self) -> list[str]:
        return [name for name in self._fixed if not name.startswith("present")]

    def _past(self, group: Group) -> list[str]:
        """The variables that hold the pasts of a group."""
        return [name for (key, _), name in self._pasts.items() if key == id(group.first)]

    def _unpack(self) -> str:
        past = self._past_names()
        nothing = "(None, None)" if len(past) == 2 else f"(None,) * {len(past)}"
        return f"{', '.join(past)} = past or {nothing}"

    def _taken(self, name: str) -> bool:
        if name in self.file.avoid or name in self._fixed or name in self.methods.values():
            return True
        return name in self.bound and self.plan.last.get(self.bound[name], -1) > self.at

    def _variable(self, name: str, value: Value | None = None) -> str:
        """`name`, numbered if a value still to be read holds it."""
        number, wanted = 1, name
        while self._taken(name):
            number += 1
            name = f"{wanted}_{number}"
        if value is not None:
            self.names[value] = name
            self.bound[name] = value
        else:
            self._fixed[name] = ""
        return name

    def _wanted(self, value: Value, group: Group) -> str:
        """The hint; else the state, the part or the op that it comes from."""
        first = group.first
        kept = [e.path for e in self.plan.entries if e.state and first.outputs[e.state.output] is value]
        source = kept[0] if kept and e_is(group, kept[0]) else first.scope
        word = value.hint or source.rsplit(".", 1)[-1]
        if not names.plain(word) or word == "_":
            word = names.snake(first.region.name if isinstance(first, Call) else type(first.op).__name__)
        return word if names.plain(word) else "y"

    def _targets(self, group: Group) -> list[str]:
        kept = {id(group.first.outputs[e.state.output]) for e in self.plan.entries if e.state and e.group is group}
        found = []
        for value in group.outputs:
            used = self.plan.uses[value] or id(value) in kept
            found.append(self._variable(self._wanted(value, group), value) if used else "_")
        return found

    def emit(self, text: str, comment: str = "") -> None:
        """One more line."""
        self.lines.append(Line(self.depth, text, comment))

    def _shapes(self, values: Sequence[Value], targets: Sequence[str]) -> str:
        shapes = [self.letters.shape(v.shape) for v, t in zip(values, targets, strict=True) if t != "_"]
        return f"# {', '.join(shapes)}" if shapes else ""

    # expressions

    def render(self, value: Value | None, group: Group | None = None) -> Expr | None:
        """The text that reads a value; `group` is the reader."""
        if value is None:
            return None
        if isinstance(value, Param):
            return Expr(f"self.{names.path(value.name)}")
        if value not in self.inlined:
            return Expr(self.names[value])
        expr = self.expression(self.inlined[value])
        lazy = value in self.plan.once and group is not None and group.stateful
        if len(expr) > LONGEST_INLINED and group is not None and not lazy:
            return self._materialise(value, expr)
        return expr

    def _materialise(self, value: Value, expr: Expr) -> Expr:
        """A variable for a value that was to be written inside another expression."""
        group = self.inlined.pop(value)
        self.plan.last[value] = self.at
        name = self._variable_now(self._wanted(value, group), value)
        self.emit(f"{name} = {expr}", self._shapes([value], [name]))
        return Expr(name)

    def _variable_now(self, name: str, value: Value) -> str:
        """A variable set before the statement in hand, which may still read what ends with it."""
        self.at -= 1
        try:
            return self._variable(name, value)
        finally:
            self.at += 1

    def expression(self, group: Group) -> Expr:
        """The text of a node or of a single call."""
        item = group.first
        if isinstance(item, Call):
            return self._call(item, [self.render(v, group) for v in item.inputs], *self._past(group))
        face = Face(self, item)
        pasts = [Expr(name) for name in self._past(group)]
        arguments = [self.render(v, group) for v in item.inputs]
        expr = item.op.torch(face, *arguments, *pasts)
        if group.loops:
            return expr
        # what an op mentions twice must not be computed twice
        twice = [
            (v, a)
            for v, a in zip(item.inputs, arguments, strict=True)
            if v is not None and a is not None and v in self.inlined and not a.isidentifier() and expr.count(a) > 1
        ]
        for value, argument in twice:
            self._materialise(value, argument)
        return item.op.torch(face, *(self.render(v, group) for v in item.inputs), *pasts) if twice else expr

    def _call(self, call: Call, arguments: Sequence[Expr | None], past: str = "") -> Expr:
        region = call.region
        method = self.methods.get(id(region)) if not call.scope else None
        callee = f"self.{method or names.path(call.scope)}"
        order = self.file.classes[id(region)].arguments if method is None else ordered(region)
        given = dict(zip(region.inputs, arguments, strict=True))
        return Expr(f"{callee}({', '.join(spread(order, given, past))})")

    # statements

    def _write_once(self, statements: Sequence[Statement]) -> None:
        self.emit("if past is None:")
        self.depth = 1
        for statement in statements:
            self._write(statement)
            self.at += 1
        self.depth = 0
        crossing = [v for s in statements for v in s.group.outputs if self.plan.last.get(v, -1) >= self.at]
        later = [self.names[v] for v in crossing if self.bound.get(self.names[v]) is v]
        if later:
            self.emit("else:")
            self.depth = 1
            self.emit(f"{' = '.join(later)} = None")
            self.depth = 0

    def _write(self, statement: Statement) -> None:
        group = statement.group
        if group.run:
            self._write_run(group)
            return
        if group.loops:
            self._write_loop(group)
            return
        expr = self.expression(group)
        targets = self._targets(group)
        comment = self._shapes(group.outputs, targets)
        if group.stateful and isinstance(group.first, Call):
            targets.append(self.presents[id(group.first)])
        self.emit(f"{', '.join(targets)} = {expr}", comment)

    def _write_loop(self, group: Group) -> None:
        expr = self.expression(group)
        targets = [self.names.get(v, "_") for v in group.outputs]
        if expr != ", ".join(targets):
            self.emit(f"{', '.join(targets)} = {expr}")

    def _write_run(self, group: Group) -> None:
        first = group.first
        assert isinstance(first, Call)
        start, *rest = [self.render(v, group) for v in group.inputs]
        (x,) = self._targets(group)
        if x != start:
            self.emit(f"{x} = {start}")
        base, _, number = first.scope.rpartition(".")
        layers = f"self.{names.path(base)}" + self._slice(base, int(number), len(group.items))
        over = self._variable(names.snake(base.rsplit(".", 1)[-1]))
        self.emit(f"{over} = recomputed({layers}) if self.checkpoint else {layers}")
        self.file.use(RECOMPUTED)
        given = dict(zip(first.region.inputs, [Expr(x), *rest], strict=True))
        arguments = spread(ordered(first.region), given, "layer_past" if group.stateful else "", keywords=False)
        call = f"layer({', '.join(arguments)})"
        comment = self._shapes(group.outputs, [x])
        if not group.stateful:
            self.emit(f"for layer in {over}:")
            self.lines.append(Line(self.depth + 1, f"{x} = {call}", comment))
            return
        presents, (past,) = self.presents[id(first)], self._past(group)
        self.emit(f"{presents} = []")
        self.emit(f"for layer, layer_past in zip({over}, {past} or [None] * {len(group.items)}, strict=True):")
        self.lines.append(Line(self.depth + 1, f"{x}, present = {call}", comment))
        self.lines.append(Line(self.depth + 1, f"{presents}.append(present)"))

    def _slice(self, base: str, start: int, count: int) -> str:
        total = sum(isinstance(i, Call) and i.scope.rpartition(".")[0] == base for i in self.region.items)
        if count == total:
            return ""
        return f"[{start or ''}:{start + count if start + count < total else ''}]"

    # what the faces ask for

    def size(self, size: Size) -> Expr:
        """A size, read off an argument, another variable or the past."""
        if isinstance(size, int):
            return Expr(str(size))
        found = self._measure(size)
        if found:
            return Expr(found)
        if len(size.terms) == 1 and len(size.terms[0][0]) < 2:
            raise SeqspecError("SEQ304", f"{self.region.name} cannot read the size {size} off anything")
        parts = []
        for atoms, factor in size.terms:
            texts = [str(self.size(dim(a)) if isinstance(a, str) else self._quotient(a.numerator, a.denominator, a.ceil)) for a in atoms]
            parts.append(" * ".join([str(factor)] * (factor != 1 or not atoms) + texts))
        return Expr.infix(" + ".join(parts))

    def _quotient(self, numerator: Size, denominator: int, ceil: bool) -> str:
        text = self.size(numerator).tight
        return f"(({text} + {denominator - 1}) // {denominator})" if ceil else f"({text} // {denominator})"

    def _measure(self, size: Size) -> str:
        if size != dim(PAST):
            present = [*self.arguments, *self.bound.values()]
            for value in present:
                name = self.names[value]
                sure = not value.optional and value not in self.plan.once and self.bound.get(name) is value
                if sure and size in value.shape:
                    return f"{name}.shape[{value.shape.index(size)}]"
        found = find(self.plan.entries, size)
        return self._past_size(found, size) if found else ""

    def _past_size(self, found: tuple[str, int], size: Size) -> str:
        key = f"past_length {size}"
        for name, meaning in self._fixed.items():
            if meaning == key:
                return name
        name = self._variable("past_length" if size == dim(PAST) else "length")
        self._fixed[name] = key
        self.header.append(Line(0, f"{name} = 0 if past is None else past{found[0]}.shape[{found[1]}]"))
        return name

    def loop(self, node: Node, body: Region, carried: int, scanned: int, args: Sequence[Expr | None]) -> Expr:
        """`for t in range(…)` over a region; see `ops.loop`."""
        values = node.inputs
        initial, given, pasts = args[:carried], list(args[carried : len(values)]), args[len(values) :]
        group = next(g for g in self.plan.groups if g.first is node)
        for k, (expr, value) in enumerate(zip(given, values[carried:], strict=True)):
            if expr is not None and value is not None and not (expr.isidentifier() or isinstance(value, Param)):
                given[k] = self._materialise(value, expr)
        wanted = [self._wanted(v, group) for v in node.outputs]
        finals = [self._variable(w, v) for w, v in zip(wanted, node.outputs[:carried], strict=False)]
        self._write_starts(body, finals, initial, given, pasts, node)
        return self._write_steps(node, body, scanned, finals, wanted[carried:], given)

    def _write_starts(self, body, finals, initial, given, pasts, node) -> None:  # type: ignore[no-untyped-def]
        for name, start, past, value in zip(finals, initial, pasts or [None] * len(finals), body.inputs, strict=False):
            if start is None:
                like = next(str(g) for g, v in zip(given, body.inputs[len(finals) :], strict=True) if g and v.dtype == "float")
                start = Expr(f"{like}.new_zeros({', '.join(str(self.size(s)) for s in value.shape)})")
            text = start if past is None else f"{start.tight} if {past} is None else {past}"
            if text != name:
                self.emit(f"{name} = {text}", f"# {self.letters.shape(value.shape)}")

    def _write_steps(self, node, body, scanned, finals, wanted, given) -> Expr:  # type: ignore[no-untyped-def]
        ys = [self._variable(w, v) for w, v in zip(wanted, node.outputs[len(finals) :], strict=True)]
        steps = [self._variable(f"{y}_steps") for y in ys]
        at = [self._variable(f"{y}_t") for y in ys]
        t = self._variable("t")
        for name in steps:
            self.emit(f"{name} = []")
        self.emit(f"for {t} in range({given[0]}.shape[1]):")
        taken = [f"{x}[:, {t}]" for x in given[:scanned]]
        arguments = dict(zip(body.inputs, map(_maybe, [*finals, *taken, *given[scanned:]]), strict=True))
        method = self.methods.get(id(body)) if not node.name else None
        order = ordered(body) if method else self.file.classes[id(body)].arguments
        callee = f"self.{method or names.attribute(node.name)}"
        self.depth += 1
        comment = self._shapes(body.outputs, [*finals, *at])
        self.emit(f"{', '.join([*finals, *at])} = {callee}({', '.join(spread(order, arguments))})", comment)
        for name, value in zip(steps, at, strict=True):
            self.emit(f"{name}.append({value})")
        self.depth -= 1
        for y, name, value, step in zip(ys, steps, node.outputs[len(finals) :], body.outputs[len(finals) :], strict=True):
            sizes = "".join(f", {self.size(s)}" for s in step.shape[1:])
            self.emit(f"{y} = {self.file.use(STACK_STEPS)}({name}, {given[0]}{sizes})", self._shapes([value], [y]))
        return Expr(", ".join([*finals, *ys]))


RECOMPUTED = Helper(
    "recomputed",
    '''
def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]
''',
)


class Face:
    """What one node's torch face sees of its surroundings."""

    def __init__(self, forward: Forward, node: Node) -> None:
        self._forward, self._node = forward, node
        self.node_scope = node.name

    @property
    def module(self) -> str:
        """`self.q_proj`"""
        return f"self.{names.attribute(self._node.name)}"

    def use(self, helper: Helper) -> str:
        return self._forward.file.use(helper)

    def param(self, leaf: str) -> str:
        return f"self.{names.path(join(self._node.name, leaf))}"

    def size(self, size: Size) -> str:
        return self._forward.size(size)

    def loop(self, body: Region, carried: int, scanned: int, args: tuple[Expr | None, ...]) -> Expr:
        return self._forward.loop(self._node, body, carried, scanned, args)


def ordered(region: Region) -> list[Value]:
    """The inputs as arguments: what may be left out comes last."""
    return sorted(region.inputs, key=lambda v: v.optional)


def spread(
    order: Sequence[Value] | Mapping[Value, str], given: Mapping[Value, Expr | None], past: str = "", keywords: bool = True
) -> list[str]:
    """Arguments in order; after one that is left out the rest are passed by name, or None is written."""
    texts: list[str] = []
    last = max((k for k, v in enumerate(order) if given[v] is not None), default=-1)
    gap = False
    for k, value in enumerate(order):
        expr = given[value]
        name = order[value] if isinstance(order, Mapping) else value.name
        if expr is None:
            gap = gap or keywords
            texts += ["None"] if not keywords and (k < last or past) else []
        else:
            texts.append(f"{name}={expr}" if gap else str(expr))
    if past:
        texts.append(f"past={past}" if gap else past)
    return texts


def _maybe(text: str | None) -> Expr | None:
    return None if text is None else Expr(text)


def e_is(group: Group, path: str) -> bool:
    """Whether a state of this path is the group's own."""
    return any(s.name == path for s in group.first.states)


__all__ = ["Class", "Entry", "Face", "File", "Forward", "Line", "ordered", "spread"]
