"""One class: docstring, `__init__`, `forward`, and a method for each part that has no name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seqspec.backends.source import names
from seqspec.backends.source.declare import Declarations
from seqspec.backends.source.forward import Class, File, Forward, Line, ordered
from seqspec.backends.source.plan import Group, Plan
from seqspec.backends.source.root import Root
from seqspec.backends.source.wrap import statement
from seqspec.graph.ir import Call, Node, Region, Value


@dataclass(eq=False)
class Written:
    """A class ready to be printed. `key` is all that matters to a machine: equal keys are one class."""

    key: tuple[object, ...]
    doc: str
    methods: list[tuple[str, list[Line]]]
    letters: set[str]
    arguments: Mapping[Value, str]
    checkpoint: bool
    title: str = ""

    def as_class(self, title: str) -> Class:
        """What callers need to know."""
        return Class(title, self.arguments, self.checkpoint)

    def text(self) -> str:
        """The class, lines broken where they have to be."""
        lines = [f"class {self.title}(nn.Module):", *_docstring(self.doc)]
        for signature, body in self.methods:
            lines += ["", *statement(signature, 4)]
            for line in body:
                lines += statement(line.text, 8 + 4 * line.indent, line.comment)
        return "\n".join(lines)


class ClassWriter:
    """Writes the class of one region; as the model itself where `root` is given."""

    def __init__(self, region: Region, file: File, once: Mapping[int, frozenset[Value]], root: Root | None = None) -> None:
        self.region, self.file, self.once, self.root = region, file, once, root
        self.declared = Declarations()
        self.methods: dict[int, str] = {}
        self.runs = self.passes_on = False

    def write(self) -> Written:
        """Everything but the class's final name."""
        plan = Plan(self.region, self.once.get(id(self.region), frozenset()))
        inner = self._declare(plan)
        forward, lines = self._forward(plan)
        methods = [self._method(region, name) for region, name in inner]
        init = self._init()
        signature = self._signature("forward", plan, forward)
        parts = [*([init] if init else []), (signature, lines), *methods]
        key = tuple((s, tuple((line.indent, line.text) for line in body)) for s, body in parts)
        doc = self._doc(forward, plan)
        checkpoint = self.runs or self.passes_on
        return Written(key, doc, parts, forward.letters.used, forward.arguments, checkpoint)

    def _declare(self, plan: Plan) -> list[tuple[Region, str]]:
        """Declares the parts; gives the regions that are methods of this class, with their names."""
        inner: list[tuple[Region, str]] = []
        for group in plan.groups:
            self.runs = self.runs or group.run
            for item in group.items:
                inner += self._declare_call(item) if isinstance(item, Call) else self._declare_node(item)
        return inner

    def _declare_node(self, node: Node) -> list[tuple[Region, str]]:
        body = next(iter(node.op.bodies()), None)
        if body is not None:
            return self._declare_region(body, node.name)
        constructor = node.op.declare()
        if constructor is None:
            self.declared.params(node.name, node.op)
        else:
            for helper in node.op.helpers():
                self.file.use(helper)
            self.declared.module(names.attribute(node.name), constructor)
        return []

    def _declare_call(self, call: Call) -> list[tuple[Region, str]]:
        return self._declare_region(call.region, call.scope)

    def _declare_region(self, region: Region, scope: str) -> list[tuple[Region, str]]:
        if not scope:
            if id(region) in self.methods:
                return []
            name = names.fresh(names.snake(names.class_name(region.name)), self.declared.names | names.MODULE_ATTRIBUTES)
            self.methods[id(region)] = name
            return [(region, name), *self._declare(Plan(region, frozenset()))]
        kind = self.file.classes[id(region)]
        passes_on = kind.checkpoint and not scope.rpartition(".")[2].isdecimal()
        self.passes_on = self.passes_on or passes_on
        if not (self.declared.has(scope) and not region.states):  # a part called twice shares its parameters
            self.declared.module(scope, f"{kind.name}({'checkpoint' if passes_on else ''})")
        return []

    def _forward(self, plan: Plan) -> tuple[Forward, list[Line]]:
        arguments = self._arguments(self.region)
        forward = Forward(self.region, plan, self.file, arguments, self.methods)
        lines = forward.write()
        results, present = forward.results(), forward.present()
        lines = [*lines[: len(lines) - len(forward.lines)], *forward.lines]
        if self.root:
            start = [Line(0, "past = None if state is None else nest(STATE, state)")] if present else []
            return forward, [*start, *lines, Line(0, f"return {self.root.returns(results, present)}")]
        return forward, [*lines, Line(0, f"return {', '.join([*results, present] if present else results)}")]

    def _method(self, region: Region, name: str) -> tuple[str, list[Line]]:
        plan = Plan(region, frozenset())
        forward = Forward(region, plan, self.file, self._arguments(region), self.methods)
        body = forward.write()
        results, present = forward.results(), forward.present()
        doc = Line(0, f'"""{_types(forward)} -> {_outputs(forward)}"""')
        returned = Line(0, f"return {', '.join([*results, present] if present else results)}")
        return self._signature(name, plan, forward), [doc, *body, returned]

    def _arguments(self, region: Region) -> dict[Value, str]:
        if self.root and region is self.region:
            inputs = sorted(region.inputs, key=lambda v: v.optional or v in self.once[id(region)])
            return {value: names.argument(value.name) for value in inputs}
        found: dict[Value, str] = {}
        for value in ordered(region):
            word = value.name if names.plain(value.name) else "x"
            found[value] = names.fresh(word, {*found.values(), *self.file.avoid})
        return found

    def _signature(self, name: str, plan: Plan, forward: Forward) -> str:
        once = self.once.get(id(plan.region), frozenset())
        texts = ["self"]
        for value, argument in forward.arguments.items():
            none = " | None" if value.optional or value in once else ""
            default = " = None" if value.optional or (none and self.root) else ""
            texts.append(f"{argument}: Tensor{none}{default}")
        present = _present_type(plan)
        if self.root:
            texts += ["state: dict[str, Tensor] | None = None"] if present else []
            return f"def {name}({', '.join(texts)}) -> Output:"
        texts += [f"past: {present} | None = None"] if present else []
        results = ["Tensor"] * len(plan.region.outputs) + ([present] if present else [])
        answer = results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"
        return f"def {name}({', '.join(texts)}) -> {answer}:"

    def _init(self) -> tuple[str, list[Line]] | None:
        declared = self.declared.lines()
        if not declared:
            return None
        flag = ", checkpoint: bool = False" if self.runs or self.passes_on else ""
        lines = ["super().__init__()", *(["self.checkpoint = checkpoint"] if self.runs else []), *declared]
        return f"def __init__(self{flag}) -> None:", [Line(0, text) for text in lines]

    def _doc(self, forward: Forward, plan: Plan) -> str:
        if not self.root:
            return f"{_types(forward)} -> {_outputs(forward)}"
        shown = ", ".join(
            forward.letters.value(v, p.name) for v, p in zip(self.region.outputs, self.root.signature.outputs, strict=True)
        )
        doc = f"{_types(forward)} -> {shown}"
        once = [p.name for p in self.root.signature.inputs if p.once]
        if once:
            doc += f"\n\n{', '.join(once)}: read on the first call only, when there is no state yet."
        return doc


def _types(forward: Forward) -> str:
    return ", ".join(forward.letters.value(v, a) + "?" * v.optional for v, a in forward.arguments.items())


def _outputs(forward: Forward) -> str:
    return ", ".join(forward.letters.shape(v.shape) for v in forward.region.outputs)


def _present_type(plan: Plan) -> str:
    """The type of what a region carries."""
    if not plan.entries:
        return ""
    if len(plan.entries) > 1:
        return "tuple"
    group: Group = plan.entries[0].group
    if group.run:
        return "list"
    return "Tensor" if plan.entries[0].state else _present_type(Plan(group.first.region, frozenset()))  # type: ignore[union-attr]


def _docstring(doc: str) -> list[str]:
    """One line where it fits, else broken between the arguments."""
    first, *rest = doc.split("\n")
    lines = [""]
    for word in first.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if len(longer) > 106:
            lines.append(word)
        else:
            lines[-1] = longer
    lines += rest
    if len(lines) == 1:
        return [f'    """{lines[0]}"""']
    return [f'    """{lines[0]}', *(f"    {line}".rstrip() for line in lines[1:]), '    """']
