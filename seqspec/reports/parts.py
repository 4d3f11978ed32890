"""The parts of a model: what is called or applied at its root and in its stacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from seqspec.graph.ir import Call, Node, Region, Value, join
from seqspec.ops.gradients import Takes
from seqspec.ops.pool import Pool
from seqspec.reports.count import Count
from seqspec.reports.flow import Reach
from seqspec.reports.live import Live


class Growth(NamedTuple):
    """How a part's FLOPs, the values that its backward pass reads again, and its state grow: `n² d + n d²`."""

    flops: str = ""
    kept: str = ""
    state: str = ""


@dataclass(frozen=True)
class Part:
    """One line: a named part, or `count` equal layers in a row, each with these numbers.

    `train_flops` are those of a forward and a backward pass. `kept_bytes` are read again by the backward pass; of them
    a `checkpointed` layer, one among equal layers in a row, computes `inside_bytes` again. `working_bytes` are alive at
    once in a forward pass.
    """

    name: str
    what: str
    count: int
    parameters: int
    flops: int
    train_flops: int
    state_bytes: int
    kept_bytes: int
    inside_bytes: int
    working_bytes: int
    checkpointed: bool
    once: bool  # runs on the first call only
    growth: Growth


class Place(NamedTuple):
    """An item of the root or of a stack, with its place in the model."""

    name: str
    item: Node | Call
    reach: Reach
    kept: list[Value]  # its outputs that are kept, without values kept inside a call
    is_loss: bool

    def part(self, count: Count, live: Live, growth: Growth, checkpointed: bool) -> Part:
        """The numbers of this place."""
        cost, takes = count.cost(self.item, self.reach), self.reach.takes
        what = self.item.region.name if isinstance(self.item, Call) else type(self.item.op).__name__
        if isinstance(self.item, Node) and isinstance(self.item.op, Pool):
            what += f" ({self.item.op.kind})"
        return Part(
            name=self.name,
            what=what,
            count=1,
            parameters=count.params(self.item)[0],
            flops=0 if self.is_loss else cost.total,
            train_flops=cost.total + cost.backward,
            state_bytes=count.states(self.item)[0],
            kept_bytes=sum(map(count.bytes, self.kept)) + _inside(count, self.item, takes),
            inside_bytes=_made_inside(count, self.item, takes),
            working_bytes=live.peak(self.item),
            checkpointed=checkpointed,
            once=bool(cost.once and not cost.every),
            growth=growth,
        )


def places(count: Count, root: Region, reach: Reach, losses: int) -> Iterator[Place]:
    """All items of the root and of the stacks; those of the root from number `losses` on only serve training."""
    yield from _places(count, root, reach, "", {}, losses)


def parts(count: Count, found: Iterable[Place], growth: Iterable[Growth]) -> Iterator[Part]:
    """The parts that own, compute or keep something. Successive calls of one region are one: `decoder.layers.0-11`."""
    live, found = Live(count), list(found)
    regions = [id(place.item.region) if isinstance(place.item, Call) else 0 for place in found]
    run: list[Part] = []
    before = 0
    for number, (place, grows, region) in enumerate(zip(found, growth, regions, strict=True)):
        beside = region and region in (*regions[number - 1 : number], *regions[number + 1 : number + 2])
        part = place.part(count, live, grows, bool(beside))
        if not (part.parameters or part.train_flops or part.kept_bytes or part.state_bytes or "Pool" in part.what):
            continue
        if run and (region != before or not region or replace(part, name=run[0].name) != run[0]):
            yield _joined(run)
            run = []
        run.append(part)
        before = region
    if run:
        yield _joined(run)


def _places(
    count: Count, region: Region, reach: Reach, scope: str, also: Mapping[str, Value], losses: int
) -> Iterator[Place]:
    """All places below a region. `also` are its outputs that the caller keeps, by their names in the region."""
    flow = count.flows.inside(region, reach)
    kept = _kept(count, region, reach.takes, also)
    for number, item in enumerate(region.items):
        inner = count.flows.of(item, flow)
        if isinstance(item, Call) and not scope:
            outputs = dict(zip((v.name for v in item.outputs), (v.name for v in item.region.outputs), strict=True))
            handed = {outputs[value.name]: value for value in kept[number]}
            yield from _places(count, item.region, inner, item.scope, handed, len(item.region.items))
        else:
            yield Place(join(scope, item.scope) or "head", item, inner, kept[number], number >= losses)


def _kept(count: Count, region: Region, takes: Takes, also: Mapping[str, Value]) -> list[list[Value]]:
    """For each item of a region, its outputs that are kept."""
    found: list[list[Value]] = [[] for _ in region.items]
    for number, value in count.flows.gradients.kept(region, takes).values:
        found[number].append(value)
    makers = {v.name: number for number, item in enumerate(region.items) for v in item.outputs}
    for name, value in also.items():
        found[makers[name]].append(replace(value, name=name))
    return found


def _inside(count: Count, item: Node | Call, takes: Takes) -> int:
    return count.kept(item.region, takes) if isinstance(item, Call) else 0


def _made_inside(count: Count, item: Node | Call, takes: Takes) -> int:
    """Bytes that a call keeps inside, without its outputs."""
    if isinstance(item, Node):
        return 0
    outputs = count.flows.gradients.kept(item.region, takes).outputs
    return count.kept(item.region, takes) - sum(count.bytes(item.region.outputs[n]) for n in outputs)


def _joined(run: list[Part]) -> Part:
    first, last = run[0], run[-1]
    name = first.name if len(run) == 1 else f"{first.name}-{last.name.rsplit('.', 1)[-1]}"
    return replace(first, name=name, count=len(run))
