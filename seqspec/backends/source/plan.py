"""Plans one region's `forward`: groups of items, what is inlined, when values are last read, what runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from seqspec.graph.ir import Call, Graph, Node, Param, Region, State, Value

Item = Node | Call


@dataclass(frozen=True, eq=False)
class Group:
    """Items written together: one node, one call, or a run of calls chained on their first input."""

    items: tuple[Item, ...]

    @property
    def first(self) -> Item:
        """Its first item."""
        return self.items[0]

    @property
    def run(self) -> bool:
        """Whether it is a run of calls."""
        return len(self.items) > 1

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """What it reads; a run shares all but the first input."""
        return self.first.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs of its last item."""
        return self.items[-1].outputs

    @property
    def stateful(self) -> bool:
        """Whether it carries a state."""
        return is_stateful(self.first)

    @property
    def loops(self) -> bool:
        """Whether it is written as a loop, which reads its inputs repeatedly."""
        return self.run or bodies(self.first)


@dataclass(frozen=True)
class Entry:
    """One entry of a region's past: a tensor (`state`), the past of a call, or for a run a list of these."""

    path: str
    group: Group
    state: State | None = None

    @property
    def kept(self) -> Value | None:
        """The value that is the state's present."""
        return None if self.state is None else self.group.first.outputs[self.state.output]


@dataclass(eq=False)
class Statement:
    """A group that gets a line of its own; `once`: it runs on the first call only."""

    group: Group
    once: bool
    reads: set[Value] = field(default_factory=set)


def is_stateful(item: Item) -> bool:
    """Whether an item carries a state from call to call."""
    return bool(item.region.states) if isinstance(item, Call) else bool(item.op.states(*item.inputs))


def bodies(item: Item) -> bool:
    """Whether an item is an op that runs a region."""
    return isinstance(item, Node) and any(True for _ in item.op.bodies())


def flows(item: Item) -> Iterator[Value]:
    """The values that an item reads, without tied weights and absent inputs."""
    return (v for v in item.inputs if v is not None and not isinstance(v, Param))


def groups(region: Region) -> list[Group]:
    """The items of a region, with neighbouring calls `layers.3`, `layers.4`, … joined into runs."""
    uses = _uses(region)
    found: list[list[Item]] = []
    for item in region.items:
        if found and _continues(found[-1][-1], item, uses):
            found[-1].append(item)
        else:
            found.append([item])
    return [Group(tuple(items)) for items in found]


def _continues(before: Item, item: Item, uses: Mapping[Value, int]) -> bool:
    if not (isinstance(before, Call) and isinstance(item, Call)):
        return False
    base, _, number = before.scope.rpartition(".")
    return (
        bool(base)
        and number.isdecimal()
        and item.scope == f"{base}.{int(number) + 1}"
        and len(before.outputs) == len(item.outputs) == 1
        and item.inputs[:1] == before.outputs
        and item.inputs[1:] == before.inputs[1:]
        and uses[before.outputs[0]] == 1
        and is_stateful(before) == is_stateful(item)
        and [v.optional for v in before.region.inputs] == [v.optional for v in item.region.inputs]
    )


def entries(region: Region, found: list[Group]) -> list[Entry]:
    """The entries of a region's past, in order."""
    result: list[Entry] = []
    for group in found:
        first = group.first
        if isinstance(first, Call):
            if first.region.states:
                path = first.scope.rpartition(".")[0] if group.run else first.scope
                result.append(Entry(path, group))
        else:
            result += [Entry(state.name, group, state) for state in first.states]
    return result


def once_inputs(graph: Graph) -> dict[int, frozenset[Value]]:
    """For every region (by id) the inputs that may be None after the first call: an encoder's, and what depends on it.

    A model without a state has no first call.
    """
    found: dict[int, set[Value]] = {id(r): set() for r in graph.regions()}
    if graph.root.states:
        found[id(graph.root)] = {v for v in graph.root.inputs if v.name in graph.once}
    for region in reversed(graph.regions()):
        once = once_values(region, found[id(region)])
        for item in region.items:
            if isinstance(item, Call) and item.region.states:
                pairs = zip(item.region.inputs, item.inputs, strict=True)
                found[id(item.region)] |= {inner for inner, outer in pairs if outer in once}
    return {key: frozenset(values) for key, values in found.items()}


def once_values(region: Region, inputs: set[Value] | frozenset[Value]) -> set[Value]:
    """`inputs` and everything computed from them alone, up to where a state keeps it."""
    once = set(inputs)
    for item in region.items if once else ():
        read = set(flows(item))
        if read and read <= once and not is_stateful(item):
            once.update(item.outputs)
    return once


class Plan:
    """The statements of one region in order, and which values are inlined in the expression that reads them."""

    def __init__(self, region: Region, once: frozenset[Value]) -> None:
        self.region = region
        self.groups = groups(region)
        self.entries = entries(region, self.groups)
        self.once = once_values(region, once)
        self.uses = _uses(region)
        self._readers = {v: g for g in self.groups for v in flows(g.first)}
        self.inlined = {g.outputs[0]: g for g in self.groups if self._inlines(g)}
        self.statements = self._statements()
        self.last = self._last_reads()

    def _inlines(self, group: Group) -> bool:
        if group.loops or group.stateful or len(group.outputs) != 1:
            return False
        value = group.outputs[0]
        if self.uses[value] != 1:
            return False
        reader = self._readers.get(value)
        if reader is None:
            # `x = f(x); return x` says no more than `return f(x)`
            return not value.hint or (len(self.region.outputs) == 1 and not self.entries)
        if value.hint or not _reads_lazily(reader, value):
            return False
        if value in self.once:
            return isinstance(reader.first, Node) if reader.stateful else reader.outputs[0] in self.once
        return True

    def _statements(self) -> list[Statement]:
        result = []
        for group in self.groups:
            needed = group.stateful or any(self.uses[v] for v in group.outputs)
            if needed and group.outputs[0] not in self.inlined:
                reads = {leaf for v in flows(group.first) for leaf in self._leaves(v)}
                result.append(Statement(group, group.outputs[0] in self.once, reads))
        return sorted(result, key=lambda s: not s.once)

    def _leaves(self, value: Value) -> set[Value]:
        group = self.inlined.get(value)
        return {leaf for v in flows(group.first) for leaf in self._leaves(v)} if group else {value}

    def _last_reads(self) -> dict[Value, float]:
        last: dict[Value, float] = {}
        for number, statement in enumerate(self.statements):
            # what a loop reads in every iteration must outlive its first assignment
            chained = self._chained(statement.group)
            for value in statement.reads:
                last[value] = number + (0.5 if statement.group.loops and value not in chained else 0)
        end = len(self.statements)
        for value in (*self.region.outputs, *(e.kept for e in self.entries if e.kept)):
            last.update(dict.fromkeys(self._leaves(value), end))
        return last

    def _chained(self, group: Group) -> set[Value]:
        """The values that only start a run, whose variables it may overwrite."""
        first = group.inputs[0] if group.run else None
        if first is None or isinstance(first, Param) or first in group.inputs[1:]:
            return set()
        return self._leaves(first)


def _reads_lazily(reader: Group, value: Value) -> bool:
    """Whether the reader's statement evaluates the argument at most once."""
    if not reader.loops:
        return True
    starts = len(reader.first.states) if isinstance(reader.first, Node) else 1
    return value in reader.inputs[:starts] and value not in reader.inputs[starts:]


def _uses(region: Region) -> Counter[Value]:
    """How often each value is read. The present of a state is read once more, by the return."""
    uses: Counter[Value] = Counter(region.outputs)
    for item in region.items:
        uses.update(flows(item))
        if isinstance(item, Node):
            uses.update(item.outputs[s.output] for s in item.op.states(*item.inputs))
    return uses
