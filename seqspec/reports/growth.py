"""How costs grow: `n² d + n d²`. Every op's cost is counted again with one size at a time enlarged, and the factor by
which the cost grows gives the power of that size.

In a graph sizes are numbers, and 64 may be a width or a number of classes. So sizes are enlarged in the spec, where
they have names: n and m are the lengths, d is every width (of a model, a feed-forward layer, a state), h the heads at
equal widths, V the vocabulary, s the side of an image, k the keys that are left in low-rank attention. Sizes without a
letter stay as they are. All are huge, so that the power of a sum is that of its largest term. Masks themselves tell
what a query sees: everything, a window w, global tokens g, blocks b, a prefix p.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log2
from typing import NamedTuple

from seqspec.build import build
from seqspec.graph.dims import BATCH, ENCODER_TIME, LABELS, PAST, TIME
from seqspec.graph.ir import Call, Graph, Node, Region
from seqspec.ops.attention import Attention
from seqspec.ops.gradients import Takes
from seqspec.ops.loop import Loop
from seqspec.ops.masks import EVERYTHING, Band
from seqspec.ops.pairs import reach
from seqspec.reports.count import Count
from seqspec.reports.flow import Reach
from seqspec.reports.parts import Growth, Place, places
from seqspec.reports.scaled import letters, scaled
from seqspec.reports.terms import Term, shown
from seqspec.spec.model import Model

_STEP = 10
_LARGE = {"d": 2**20, "V": 2**20, "s": 2**20, "k": 2**20}
_LENGTHS = {TIME: "n", LABELS: "n", ENCODER_TIME: "m"}
_ITSELF = Band(0, 0)


class Leaf(NamedTuple):
    """A number that is a single product of sizes, at least nearly, and the letters of its mask."""

    number: int
    seen: frozenset[str] = frozenset()


class Leaves(NamedTuple):
    """The numbers of one place: FLOPs of its ops, kept bytes, bytes of state."""

    flops: list[Leaf]
    kept: list[Leaf]
    state: list[Leaf]


class Grown(NamedTuple):
    """The growth of every place of a model, in order, and that of the whole model."""

    places: list[Growth]
    whole: Growth


def growth(model: Model) -> Grown:
    """The growth of a model's costs, place by place and in total."""
    resolved = model.resolved()
    found = letters(resolved)
    large = {letter: _LARGE.get(letter, 1) for letter in found}

    def measure(letter: str = "") -> list[Leaves]:
        factors = {name: size << (_STEP * (name == letter)) for name, size in large.items()}
        sizes = {size: 2**40 << (_STEP * (name == letter)) for size, name in _LENGTHS.items()}
        return _Measure(Count({BATCH: 1, PAST: 0, **sizes}, "float32")).places(build(scaled(resolved, factors)))

    start = measure()
    grown = {letter: measure(letter) for letter in sorted(found | set(_LENGTHS.values()))}
    terms = [
        [set(_terms(leaves[k], {letter: more[n][k] for letter, more in grown.items()})) for k in range(len(leaves))]
        for n, leaves in enumerate(start)
    ]
    whole = [set().union(*kind) for kind in zip(*terms, strict=True)]
    return Grown([_said(*kinds) for kinds in terms], _said(*whole))


def _said(flops: set[Term], kept: set[Term], state: set[Term]) -> Growth:
    # FLOPs of linear attention are shown beside those of its maps, although they are fewer
    return Growth(shown(flops, heads=True), shown(kept), shown(state))


def _terms(leaves: list[Leaf], grown: Mapping[str, list[Leaf]]) -> Iterator[Term]:
    for number, leaf in enumerate(leaves):
        if leaf.number:
            powers = {x: round(log2(more[number].number / leaf.number) / _STEP) for x, more in grown.items()}
            for letter in leaf.seen or [""]:
                yield Term.of(powers | ({letter: 1} if letter else {}))


class _Measure:
    """Numbers of every op; those of a region are computed once."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self._flops: dict[int, list[Leaf]] = {}
        self._kept: dict[tuple[int, Takes], list[Leaf]] = {}

    def places(self, graph: Graph) -> list[Leaves]:
        root, training = graph.root, graph.trainable.root
        found = places(self.count, training, Reach.of(graph, training), len(root.items))
        return [self._leaves(place) for place in found]

    def _leaves(self, place: Place) -> Leaves:
        item, count = place.item, self.count
        kept = [Leaf(count.bytes(value)) for value in place.kept]
        if isinstance(item, Call):
            kept += self._kept_inside(item.region, place.reach.takes)
        return Leaves(self._flops_of(item), kept, [Leaf(count.state(state)) for state in item.states])

    def _flops_of(self, item: Node | Call) -> list[Leaf]:
        if isinstance(item, Call):
            return self._flops_inside(item.region)
        op = item.op
        if isinstance(op, Loop):
            first = item.inputs[op.carried]
            steps = self.count.size(first.shape[1]) if first else 0
            return [Leaf(steps * leaf.number, leaf.seen) for leaf in self._flops_inside(op.body)]
        seen: frozenset[str] = frozenset()
        if isinstance(op, Attention):
            everything = "n" in reach(op.mask)
            seen = frozenset() if everything else reach(op.mask)
            item = replace(item, op=replace(op, mask=EVERYTHING if everything else _ITSELF))
        return [Leaf(self.count.forward(item), seen)]

    def _flops_inside(self, region: Region) -> list[Leaf]:
        if id(region) not in self._flops:
            self._flops[id(region)] = [leaf for item in region.items for leaf in self._flops_of(item)]
        return self._flops[id(region)]

    def _kept_inside(self, region: Region, takes: Takes) -> list[Leaf]:
        if (id(region), takes) not in self._kept:
            values = self.count.flows.gradients.all_kept(region, takes)
            self._kept[id(region), takes] = [Leaf(self.count.bytes(value)) for value in values]
        return self._kept[id(region), takes]
