"""Fuses projections, rotation, cache and attention into onnxruntime's GroupQueryAttention with one packed projection.

What the kernel cannot handle at run time (padding before or between tokens, a batched chunk after a past) is computed
by the nodes that it replaces; see `ops.grouped_query`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from seqspec.graph.ir import Graph, Node, Param, Region, Value, join
from seqspec.ops.attention import Attention
from seqspec.ops.cache import Append
from seqspec.ops.grouped_query import GroupQueryAttention
from seqspec.ops.linear import Linear
from seqspec.ops.masks import Band
from seqspec.ops.packed import PackedLinear, Part, Split
from seqspec.ops.positions import Positions
from seqspec.ops.rope import Rope, RopeTables
from seqspec.ops.rope_scaling import ByLength
from seqspec.ops.shape import MergeHeads, SplitHeads
from seqspec.passes.forms import Form, Limit, Target
from seqspec.passes.rewrite import nodes


@dataclass(frozen=True)
class Way:
    """How q, k or v reaches attention: projected, split into heads, perhaps rotated, perhaps appended to a past."""

    projection: Node
    heads: Node
    rotation: Node | None
    append: Node | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes, in order."""
        return tuple(n for n in (self.projection, self.heads, self.rotation, self.append) if n is not None)


@dataclass(frozen=True)
class Found:
    """An attention, with everything else that the kernel computes."""

    attention: Node
    merge: Node
    ways: tuple[Way, Way, Way]
    tables: RopeTables | None

    @property
    def op(self) -> Attention:
        assert isinstance(self.attention.op, Attention)
        return self.attention.op

    @property
    def width(self) -> int:
        return _heads(self.ways[0]).width

    @property
    def causal(self) -> bool:
        return self.op.band is not None and self.op.band.right == 0

    @property
    def rotation(self) -> Rope | None:
        node = self.ways[0].rotation
        return node.op if node is not None and isinstance(node.op, Rope) else None

    @property
    def turns_evenly(self) -> bool:
        return self.tables is None or self.width % 16 == self.tables.width % 16 == 0

    @property
    def by_length(self) -> bool:
        return self.tables is not None and isinstance(self.tables.scaling, ByLength)


_LIMITS = (
    Limit("the mask is causal, a causal window, or none", lambda f: f.causal or f.op.band == Band()),
    Limit("the width of a head is a multiple of 8", lambda f: f.width % 8 == 0),
    Limit("keys and values are as wide as queries", lambda f: _heads(f.ways[2]).width == f.width),
    Limit("of heads that are rotated, the width and the part that turns are multiples of 16", lambda f: f.turns_evenly),
    Limit("rotary frequencies do not depend on the length", lambda f: not f.by_length),
    Limit("a past is carried only where attention is causal", lambda f: f.causal or f.ways[1].append is None),
    Limit("attention puts out no weights", lambda f: not f.op.weights),
)
FORM = Form(
    "self-attention, with the projections, rotation and cache before it",
    ("GroupQueryAttention",),
    {"cpu": ("float32", "float16"), "cuda": ("float16", "bfloat16")},
    "Attention",
    _LIMITS,
    "padding only behind a row's tokens; after a past none, and one row or one new token a row",
)


def fuse_attention(graph: Graph, target: Target, dtype: str) -> Graph:
    """Every attention that the kernel can compute, fused at the place of its last node."""
    fusing = _Fusing(graph.root)
    for node in nodes(graph.root):
        found = fusing.match(node)
        if isinstance(found, Found) and FORM.when(found, target, dtype) is None:
            fusing.fuse(found)
    return replace(graph, root=fusing.region())


def declined(graph: Graph, target: Target, dtype: str) -> list[str]:
    """The reason for each attention that was not fused."""
    matching = _Fusing(graph.root)
    found = (matching.match(node) for node in nodes(graph.root))
    return [f if isinstance(f, str) else FORM.when(f, target, dtype) or "" for f in found if f is not None]


class _Fusing:
    """One flat region while it is fused: makers and readers of each value, and replacements of nodes."""

    def __init__(self, region: Region) -> None:
        self.root, self.items = region, nodes(region)
        self.makers = {v.name: node for node in self.items for v in node.outputs}
        self.readers: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.items:
            for value in node.inputs:
                if value is not None and not isinstance(value, Param):
                    self.readers[value.name].append(node)
        self.public = {v.name for v in region.outputs}
        self.gone: set[int] = set()
        self.placed: dict[int, tuple[Node, ...]] = {}
        self.made: dict[tuple[object, ...], GroupQueryAttention] = {}

    def region(self) -> Region:
        items = [new for n in self.items for new in self.placed.get(id(n), () if id(n) in self.gone else (n,))]
        return Region(self.root.name, self.root.inputs, tuple(items), self.root.outputs)

    # finding

    def match(self, node: Node) -> Found | str | None:
        """The pattern around an attention node that the kernel computes, or why it does not match; None elsewhere."""
        if not isinstance(node.op, Attention):
            return None
        if len(node.inputs) > 4:
            return "scores have a bias"
        if node.inputs[3] is None:
            return "no mask says what is padding"
        ways = [self._way(value) for value in node.inputs[:3]]
        if any(isinstance(way, str) for way in ways):
            return next(way for way in ways if isinstance(way, str))
        q, k, v = (way for way in ways if isinstance(way, Way))
        merge = self.readers[node.outputs[0].name]
        if len(merge) != 1 or not isinstance(merge[0].op, MergeHeads) or node.outputs[0].name in self.public:
            return "heads are not merged at once"
        wrong = self._apart(q, k, v)
        if wrong is not None:
            return wrong
        tables = self._tables(q, k, node.inputs[3])
        return tables if isinstance(tables, str) else Found(node, merge[0], (q, k, v), tables)

    def _way(self, value: Value | None) -> Way | str:
        """The nodes from the projection to an input of attention, or why they do not match."""
        node, append, rotation = self._maker(value), None, None
        if node is not None and isinstance(node.op, Append):
            append, node = node, self._maker(node.inputs[0])
        if node is not None and isinstance(node.op, Rope):
            rotation, node = node, self._maker(node.inputs[0])
        heads = node
        if heads is None:
            return "keys and values are given, not projected here"
        if not isinstance(heads.op, SplitHeads):
            return f"{_called(heads)} stands between a projection and attention"
        projection = self._maker(heads.inputs[0])
        if projection is None or not isinstance(projection.op, Linear):
            return f"{_called(projection)} stands between a projection and attention"
        way = Way(projection, heads, rotation, append)
        # the cache is an output and may be read elsewhere; nothing else may
        inside = [n.outputs[0].name for n in way.nodes if n is not append]
        if any(len(self.readers[name]) != 1 or name in self.public for name in inside):
            return "a projection is read elsewhere too"
        return way

    def _maker(self, value: Value | None) -> Node | None:
        return None if value is None or isinstance(value, Param) else self.makers.get(value.name)

    def _apart(self, q: Way, k: Way, v: Way) -> str | None:
        """Why the three cannot be one projection and one cache."""
        if len({way.projection.inputs[0] for way in (q, k, v)}) > 1:
            return "queries, keys and values are not read off one input"
        if len({way.projection.name.rpartition(".")[0] for way in (q, k, v)}) > 1:
            return "the projections do not stand together"
        cached, rotated = {way.append is None for way in (k, v)}, {way.rotation is None for way in (q, k)}
        if q.append or v.rotation or len(cached) > 1 or len(rotated) > 1:
            return "queries, keys and values do not come by the kernel's ways"
        return None

    def _tables(self, q: Way, k: Way, mask: Value | None) -> RopeTables | str | None:
        """The tables of both rotations, which must count the real tokens of the same mask."""
        if q.rotation is None or k.rotation is None:
            return None
        if q.rotation.inputs[1:] != k.rotation.inputs[1:] or q.rotation.op != k.rotation.op:
            return "queries and keys are rotated in different ways"
        tables = self._maker(q.rotation.inputs[1])
        if tables is None or not isinstance(tables.op, RopeTables):
            return "the rotary tables are not made here"
        positions = self._maker(tables.inputs[0])
        if positions is None or not isinstance(positions.op, Positions) or positions.inputs[1:] != (mask, None):
            return "positions are not counted in the mask of attention"
        return tables.op

    # fusing

    def fuse(self, found: Found) -> None:
        """Replaces what was found by the packed projection and the fused op."""
        scope = found.ways[0].projection.name.rpartition(".")[0]
        packed = self._packed(found, scope)
        caches = [way.append.outputs[0] for way in found.ways if way.append is not None]
        tables = () if found.ways[0].rotation is None else found.ways[0].rotation.inputs[1:]
        inputs = (packed.outputs[0], found.attention.inputs[3], *tables)
        op = self._op(found, inputs)
        node = Node(op, inputs, (found.merge.outputs[0], *caches), scope, found.attention.origin)
        self.gone |= {id(n) for way in found.ways for n in way.nodes} | {id(found.attention)}
        self.placed[id(found.merge)] = (packed, node)

    def _packed(self, found: Found, scope: str) -> Node:
        maps = [way.projection for way in found.ways]
        first = _linear(found.ways[0])
        parts = tuple(
            Part(n.name.removeprefix(f"{scope}."), _linear(way).outputs, _linear(way).bias)
            for n, way in zip(maps, found.ways, strict=True)
        )
        op = PackedLinear(first.inputs, parts)
        x = maps[0].inputs[0]
        assert x is not None
        (type_,) = op.infer(x)
        output = Value(join(maps[0].outputs[0].name, "packed"), type_.shape, type_.dtype)
        return Node(op, (x,), (output,), scope, maps[0].origin)

    def _op(self, found: Found, inputs: tuple[Value | None, ...]) -> GroupQueryAttention:
        ops = tuple(n.op for way in found.ways for n in way.nodes[1:])
        key = (ops, found.op, found.tables, tuple(v and (v.shape, v.dtype) for v in inputs))
        if key not in self.made:
            self.made[key] = _fused(found, inputs)
        return self.made[key]


def _fused(found: Found, inputs: tuple[Value | None, ...]) -> GroupQueryAttention:
    """The fused op. Its body has the nodes that it replaces, under names of its own."""
    names = ("qkv", "mask", "cos", "sin")
    entries = tuple(Value(n, v.shape, v.dtype) for n, v in zip(names, inputs, strict=False) if v is not None)
    sizes = tuple(_linear(way).outputs for way in found.ways)
    parts = tuple(Value(n, (*entries[0].shape[:2], s), entries[0].dtype) for n, s in zip("qkv", sizes, strict=True))
    items = [Node(Split(sizes), entries[:1], parts)]
    ready, caches = [], []
    for part, way in zip(parts, found.ways, strict=True):
        value = part
        for node in way.nodes[1:]:
            more = entries[2:] if isinstance(node.op, Rope) else ()
            made = Value(f"{value.name}_{type(node.op).__name__.lower()}", node.outputs[0].shape, node.outputs[0].dtype)
            items.append(Node(node.op, (value, *more), (made,)))
            value = made
        ready.append(value)
        if way.append is not None:
            caches.append(value)
    y = replace(found.attention.outputs[0], name="y", hint="")
    joined = replace(found.merge.outputs[0], name="output", hint="")
    items.append(Node(found.op, (*ready, entries[1]), (y,)))
    items.append(Node(found.merge.op, (y,), (joined,)))
    name = "GroupQueryAttention"
    body = Region(name, entries, tuple(items), (joined, *caches))
    slots = tuple(range(1 + len(caches)))
    return GroupQueryAttention(name, body, _attributes(found), (), slots, len(slots), tables=found.tables)


def _attributes(found: Found) -> tuple[tuple[str, int | float], ...]:
    op, rotation, band = found.op, found.rotation, found.op.band
    given: dict[str, int | float | None] = {
        "num_heads": _heads(found.ways[0]).heads,
        "kv_num_heads": _heads(found.ways[1]).heads,
        "do_rotary": 1 if rotation is not None else None,
        "rotary_interleaved": 1 if rotation is not None and rotation.layout == "interleaved" else None,
        "local_window_size": band.left + 1 if band is not None and band.left is not None else None,
        "causal": None if found.causal else 0,
        "scale": op.scale,
        "softcap": op.softcap,
    }
    return tuple((name, value) for name, value in given.items() if value is not None)


def _heads(way: Way) -> SplitHeads:
    assert isinstance(way.heads.op, SplitHeads)
    return way.heads.op


def _linear(way: Way) -> Linear:
    assert isinstance(way.projection.op, Linear)
    return way.projection.op


def _called(node: Node | None) -> str:
    return "an input" if node is None else type(node.op).__name__
