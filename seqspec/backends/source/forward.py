"""Writes `forward`: the statements of one region, with the expressions of its ops."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from seqspec.backends.source import names
from seqspec.backends.source.carry import Carry
from seqspec.backends.source.context import File, Line, spread
from seqspec.backends.source.plan import Group, Item, Plan, Statement
from seqspec.backends.source.shapes import Letters
from seqspec.backends.source.sizes import Sizes
from seqspec.backends.source.steps import Steps
from seqspec.backends.source.variables import Variables
from seqspec.graph.dims import Size
from seqspec.graph.ir import Call, Node, Param, Region, Value, join
from seqspec.ops.base import Expr, Helper

LONGEST = 96
"""In a longer expression, the longest argument becomes a variable."""

RECOMPUTED = Helper(
    "recomputed",
    '''
def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]
''',
)


class Forward:
    """Writes the body of one function. `methods` names the regions that are methods of the same class."""

    def __init__(self, plan: Plan, file: File, arguments: Mapping[Value, str], methods: Mapping[int, str]) -> None:
        self.plan, self.file, self.arguments, self.methods = plan, file, arguments, methods
        self.letters = Letters(plan.region)
        self.variables = Variables(arguments, plan.last, file.avoid)
        self.carry = Carry(plan.entries, self.variables)
        self._sizes = Sizes(plan, self.variables, self.carry.names)
        self._inlined = dict(plan.inlined)
        self._lines: list[Line] = []
        self._depth = self.at = 0
        self._unsure: Container[Value] = plan.once

    def write(self) -> tuple[list[Line], list[str]]:
        """The lines before the return, and the expressions of the outputs."""
        once = [s for s in self.plan.statements if s.once]
        if once:
            self._write_once(once)
        self._write_all(self.plan.statements[len(once) :])
        results = [str(self.render(v)) for v in self.plan.region.outputs]
        unpacking = self.carry.unpacking()
        start = [Line(0, unpacking)] if unpacking else []
        return [*start, *self._sizes.header, *self._lines], results

    def emit(self, text: str, comment: str = "", inside: int = 0) -> None:
        """Appends a line."""
        self._lines.append(Line(self._depth + inside, text, comment))

    def shapes(self, values: Sequence[Value], targets: Sequence[str]) -> str:
        """The comment with the shapes of assigned values: `# [B, T, 512], [B, S]`."""
        shapes = [self.letters.shape(v.shape) for v, t in zip(values, targets, strict=True) if t != "_"]
        return f"# {', '.join(shapes)}" if shapes else ""

    def size(self, size: Size) -> Expr:
        """The expression for a size at this place."""
        return self._sizes.write(size, self._unsure)

    def word(self, value: Value, item: Item) -> str:
        """The word for a value: its hint, its hint in the called region, its state's name, or its part's name."""
        inner = item.region.outputs[item.outputs.index(value)].hint if isinstance(item, Call) else ""
        for word in (value.hint, inner, self.carry.word(value), item.scope.rsplit(".", 1)[-1]):
            if names.plain(word) and word != "_":
                return word
        return "y"

    # expressions

    def render(self, value: Value | None) -> Expr | None:
        """The text that reads a value."""
        if value is None:
            return None
        if isinstance(value, Param):
            return Expr(f"self.{names.path(value.name)}")
        group = self._inlined.get(value)
        return self.expression(group) if group else Expr(self.variables.names[value])

    def expression(self, group: Group) -> Expr:
        """The text of a node or a single call. Arguments that are repeated or too long become variables first."""
        while True:
            arguments = [self.render(v) for v in group.inputs]
            expr = self._apply(group, arguments)
            clumsy = None if group.loops else self._clumsy(group, arguments, expr)
            if clumsy is None:
                return expr
            self.materialise(*clumsy)

    def materialise(self, value: Value, expr: Expr) -> Expr:
        """Assigns a value, which was to be inlined, to a variable before the current statement."""
        group = self._inlined.pop(value)
        self.plan.last[value] = self.at
        name = self.variables.claim(self.word(value, group.first), value, self.at - 1)
        self.emit(f"{name} = {expr}", self.shapes([value], [name]))
        return Expr(name)

    def _apply(self, group: Group, arguments: Sequence[Expr | None]) -> Expr:
        item, pasts = group.first, self.carry.pasts(group)
        if isinstance(item, Call):
            return self.call(item.region, item.scope, arguments, *pasts)
        return item.op.torch(Face(self, group, item), *arguments, *map(Expr, pasts))

    def _clumsy(self, group: Group, arguments: Sequence[Expr | None], expr: Expr) -> tuple[Value, Expr] | None:
        # an unsure value is read in an expression that is not evaluated if there is a past
        found = [
            (value, text)
            for value, text in zip(group.inputs, arguments, strict=True)
            if value is not None and text is not None and value in self._inlined and value not in self._unsure
        ]
        for value, text in found:
            if expr.count(text) > 1 and not text.isidentifier():
                return value, text
        return max(found, key=lambda f: len(f[1])) if found and len(expr) > LONGEST else None

    def call(self, region: Region, scope: str, arguments: Sequence[Expr | None], past: str = "") -> Expr:
        """`self.attention(x, mask, past)`; a region without a scope is a method."""
        method = "" if scope else self.methods[id(region)]
        order = self.file.arguments(region) if method else self.file.classes[id(region)].arguments
        given = dict(zip(region.inputs, arguments, strict=True))
        return Expr(f"self.{method or names.path(scope)}({', '.join(spread(order, given, past))})")

    # statements

    def _write_all(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._write(statement.group)
            self.at += 1

    def _write_once(self, statements: Sequence[Statement]) -> None:
        """What only the first call computes: `x = f(y) if past is None else None`, or an `if` block."""
        start = len(self._lines)
        self._depth, self._unsure = 1, ()
        self._write_all(statements)
        self._depth, self._unsure = 0, self.plan.once
        written, self._lines = self._lines[start:], self._lines[:start]
        made = [v for s in statements for v in s.group.outputs]
        read = [v for v in made if self.variables.holds(v) and self.plan.last.get(v, -1) >= self.at]
        crossing = [self.variables.names[v] for v in read]
        if len(written) == 1 and len(made) == 1:
            self.emit(f"{written[0].text} if past is None else None", written[0].comment)
            return
        self.emit("if past is None:")
        self._lines += written
        if crossing:
            self.emit("else:")
            self.emit(f"{' = '.join(crossing)} = None", inside=1)

    def _write(self, group: Group) -> None:
        if group.run:
            self._write_run(group)
            return
        expr = self.expression(group)
        if group.loops:  # its statements are already written
            return
        targets = self._targets(group)
        comment = self.shapes(group.outputs, targets)
        if group.stateful and isinstance(group.first, Call):
            targets.append(self.carry.present_of(group))
        self.emit(f"{', '.join(targets)} = {expr}", comment)

    def _targets(self, group: Group) -> list[str]:
        return [
            self.variables.claim(self.word(value, group.items[-1]), value, self.at) if self.plan.uses[value] else "_"
            for value in group.outputs
        ]

    def _write_run(self, group: Group) -> None:
        first = group.first
        assert isinstance(first, Call)
        start, *rest = [self.render(v) for v in group.inputs]
        (x,) = self._targets(group)
        if x != start:
            self.emit(f"{x} = {start}")
        base, _, number = first.scope.rpartition(".")
        layers = f"self.{names.path(base)}{self._slice(base, int(number), len(group.items))}"
        over = self.variables.temporary(names.snake(base.rsplit(".", 1)[-1]), self.at)
        self.file.use(RECOMPUTED)
        self.emit(f"{over} = recomputed({layers}) if self.checkpoint else {layers}")
        given = dict(zip(first.region.inputs, [Expr(x), *rest], strict=True))
        layer, layer_past, present = (
            self.variables.temporary(word, self.at) for word in ("layer", "layer_past", "present")
        )
        past = layer_past if group.stateful else ""
        arguments = spread(self.file.arguments(first.region), given, past, keywords=False)
        call, comment = f"{layer}({', '.join(arguments)})", self.shapes(group.outputs, [x])
        if not group.stateful:
            self.emit(f"for {layer} in {over}:")
            self.emit(f"{x} = {call}", comment, inside=1)
            return
        (pasts,), presents = self.carry.pasts(group), self.carry.present_of(group)
        self.emit(f"{presents} = []")
        self.emit(f"for {layer}, {layer_past} in zip({over}, {pasts} or [None] * {len(group.items)}, strict=True):")
        self.emit(f"{x}, {present} = {call}", comment, inside=1)
        self.emit(f"{presents}.append({present})", inside=1)

    def _slice(self, base: str, start: int, count: int) -> str:
        """The slice of a ModuleList, `[2:8]`, or an empty text for all of it."""
        calls = {i.scope for i in self.plan.region.items if isinstance(i, Call) and i.scope.rpartition(".")[0] == base}
        total = len(calls)
        if count == total:
            return ""
        return f"[{start or ''}:{start + count if start + count < total else ''}]"


class Face:
    """Implements `ops.base.TorchWriter` for one node."""

    def __init__(self, forward: Forward, group: Group, node: Node) -> None:
        self._forward, self._group, self._node = forward, group, node
        self.node_scope = node.name
        self.module = f"self.{names.path(node.name)}" if node.name else ""

    def use(self, helper: Helper) -> str:
        return self._forward.file.use(helper)

    def param(self, leaf: str) -> str:
        return f"self.{names.path(join(self._node.name, leaf))}"

    def size(self, size: Size) -> Expr:
        return self._forward.size(size)

    def loop(self, body: Region, carried: int, scanned: int, args: tuple[Expr | None, ...]) -> Expr:
        return Steps(self._forward, self._group, self._node, body, carried, scanned, args).write()
