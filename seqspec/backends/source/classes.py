"""Writes one class: docstring, `__init__`, `forward`, and a method for each part without a name of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqspec.backends.source import names
from seqspec.backends.source.context import Class, File, Line
from seqspec.backends.source.declare import Declarations
from seqspec.backends.source.forward import Forward
from seqspec.backends.source.plan import Entry, Group, Plan, entries, groups
from seqspec.backends.source.root import Root
from seqspec.backends.source.wrap import split, statement
from seqspec.graph.ir import Call, Node, Region, Value
from seqspec.graph.reserved import MODULE_ATTRIBUTES
from seqspec.graph.signature import python_name


class Method(NamedTuple):
    """A `def` line and its body."""

    signature: str
    lines: tuple[Line, ...]


class Body(NamedTuple):
    """A class without its name. Equal bodies become one class."""

    doc: str
    methods: tuple[Method, ...]

    def print(self, title: str, titles: Mapping[str, str]) -> str:
        """The text of the class. `titles` has the names of other classes; long lines are broken."""

        def named(text: str) -> str:
            return names.replace_tokens(text, titles)

        lines = [f"class {title}(nn.Module):", *_docstring(self.doc)]
        for method in self.methods:
            lines += ["", *statement(method.signature, 4)]
            for line in method.lines:
                lines += statement(named(line.text), 8 + 4 * line.depth, line.comment)
        return "\n".join(lines)


@dataclass(eq=False)
class Written:
    """A written class: its body, what its callers see, and the letters that its shapes use."""

    body: Body
    arguments: Mapping[Value, str]
    checkpoint: bool
    letters: set[str]

    def as_class(self, name: str) -> Class:
        """What callers see of it, under this name."""
        return Class(name, self.arguments, self.checkpoint)


class ClassWriter:
    """Writes the class of one region, or the model's own class if `root` is given."""

    def __init__(self, region: Region, file: File, once: Mapping[int, frozenset[Value]], root: Root | None) -> None:
        self._region, self._file, self._once, self._root = region, file, once, root
        self._declared = Declarations()
        self._methods: dict[int, str] = {}
        self._inner: list[Region] = []
        self._runs = self._passes_on = False

    def write(self) -> Written:
        """Everything but the class's name."""
        plan = self._plan(self._region)
        self._declare(plan.groups)
        self._name_methods()
        arguments = self._public_arguments() if self._root else self._file.arguments(self._region)
        forward = Forward(plan, self._file, arguments, self._methods)
        lines, results = forward.write()
        returned = self._root.returns(results, forward.carry.present()) if self._root else _returned(forward, results)
        start = [Line(0, "past = past_from(state)")] if self._root and plan.entries else []
        init = self._init()
        methods = [*init, Method(self._signature("forward", forward), (*start, *lines, Line(0, f"return {returned}")))]
        methods += [self._method(inner) for inner in self._inner]
        body = Body(self._doc(forward), tuple(methods))
        return Written(body, arguments, self._runs or self._passes_on, forward.letters.used)

    def _plan(self, region: Region) -> Plan:
        return Plan(region, self._once[id(region)])

    # parts

    def _declare(self, found: Sequence[Group]) -> None:
        for group in found:
            self._runs = self._runs or group.run
            for item in group.items:
                if isinstance(item, Call):
                    self._declare_region(item.region, item.scope)
                else:
                    self._declare_node(item)

    def _declare_node(self, node: Node) -> None:
        body = next(iter(node.op.bodies()), None)
        if body is not None:
            self._declare_region(body, node.name)
            return
        constructor = node.op.declare()
        if constructor is None:
            self._declared.params(node.name, node.op)
            return
        for helper in node.op.helpers():
            self._file.use(helper)
        names.path(node.name)  # raises if it cannot be an attribute
        self._declared.module(node.name, self._file.renamed(constructor))

    def _declare_region(self, region: Region, scope: str) -> None:
        if scope:
            part = self._file.classes[id(region)]
            is_layer = scope.rpartition(".")[2].isdecimal()  # a layer is checkpointed as a whole
            passes_on = part.checkpoint and not is_layer
            self._passes_on = self._passes_on or passes_on
            constructor = f"{part.name}({'checkpoint' if passes_on else ''})"
            self._declared.module(scope, constructor, shared=not region.states)  # called twice, it shares parameters
        elif not any(inner is region for inner in self._inner):
            self._inner.append(region)
            self._declare(groups(region))

    def _name_methods(self) -> None:
        taken = {*self._declared.names, *MODULE_ATTRIBUTES}
        for region in self._inner:
            self._methods[id(region)] = names.fresh(names.snake(names.class_name(region.name)), taken)
            taken.add(self._methods[id(region)])

    def _init(self) -> list[Method]:
        declared = self._declared.lines()
        flag = ", checkpoint: bool = False" if self._runs or self._passes_on else ""
        lines = ["super().__init__()", *(["self.checkpoint = checkpoint"] if self._runs else []), *declared]
        method = Method(f"def __init__(self{flag}) -> None:", tuple(Line(0, text) for text in lines))
        return [method] if declared else []

    # functions

    def _method(self, region: Region) -> Method:
        forward = Forward(self._plan(region), self._file, self._file.arguments(region), self._methods)
        lines, results = forward.write()
        doc = Line(0, f'"""{_types(forward)} -> {_outputs(forward)}"""')
        returned = Line(0, f"return {_returned(forward, results)}")
        return Method(self._signature(self._methods[id(region)], forward), (doc, *lines, returned))

    def _public_arguments(self) -> dict[Value, str]:
        once = self._once[id(self._region)]
        inputs = sorted(self._region.inputs, key=lambda v: v.optional or v in once)
        return {value: names.argument(python_name(value.name), self._file.avoid) for value in inputs}

    def _signature(self, name: str, forward: Forward) -> str:
        region, once = forward.plan.region, self._once[id(forward.plan.region)]
        texts = ["self"]
        for value, argument in forward.arguments.items():
            absent = value.optional or value in once
            default = " = None" if value.optional or (absent and self._root) else ""
            texts.append(f"{argument}: Tensor{' | None' if absent else ''}{default}")
        present = _present(forward.plan.entries)
        if self._root and name == "forward":
            texts += ["state: dict[str, Tensor] | None = None"] if present else []
            return f"def {name}({', '.join(texts)}) -> Output:"
        texts += [f"past: {present} | None = None"] if present else []
        results = ["Tensor | None" if v.optional else "Tensor" for v in region.outputs] + ([present] if present else [])
        answer = results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"
        return f"def {name}({', '.join(texts)}) -> {answer}:"

    def _doc(self, forward: Forward) -> str:
        if not self._root:
            return f"{_types(forward)} -> {_outputs(forward)}"
        ports = self._root.signature.outputs
        outputs = zip(self._region.outputs, ports, strict=True)
        shown = [forward.letters.value(v, p.python) + "?" * v.optional for v, p in outputs]
        doc = f"{_types(forward)} -> {', '.join(shown)}"
        once = [a for v, a in forward.arguments.items() if v in self._once[id(self._region)]]
        return f"{doc}\n\nRead on the first call only, when there is no state yet: {', '.join(once)}." if once else doc


def _returned(forward: Forward, results: Sequence[str]) -> str:
    present = forward.carry.present()
    return ", ".join([*results, present] if present else results)


def _types(forward: Forward) -> str:
    return ", ".join(forward.letters.value(v, a) + "?" * v.optional for v, a in forward.arguments.items())


def _outputs(forward: Forward) -> str:
    return ", ".join(forward.letters.shape(v.shape) + "?" * v.optional for v in forward.plan.region.outputs)


def _present(found: Sequence[Entry]) -> str:
    """The Python type of the state that a region carries."""
    if len(found) != 1:
        return "tuple" if found else ""
    (entry,) = found
    if entry.group.run:
        return "list"
    first = entry.group.first
    return _present(entries(first.region, groups(first.region))) if isinstance(first, Call) else "Tensor"


def _docstring(doc: str) -> list[str]:
    """The docstring: on one line if it fits, else broken between arguments."""
    first, *rest = doc.split("\n")
    lines = [*_filled(first), *rest]
    if len(lines) == 1:
        return [f'    """{lines[0]}"""']
    return [f'    """{lines[0]}', *(f"    {line}".rstrip() for line in lines[1:]), '    """']


def _filled(text: str, width: int = 108) -> Iterator[str]:
    taken, _, given = text.partition(" -> ")
    *most, last = split(taken) or [""]
    line = ""
    for part in (*(f"{argument}," for argument in most), last, f"-> {given}"):
        if line and len(line) + 1 + len(part) > width:
            yield line
            line = part
        else:
            line = f"{line} {part}".strip()
    yield line
