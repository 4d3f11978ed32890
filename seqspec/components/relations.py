"""Positions, masks and biases that the layers of a stack share, each built once.

Ops are imported where they are used, so that checking a model without them does not pay for them.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from seqspec.components.inputs import Declare
from seqspec.components.sublayers import Single
from seqspec.graph.builder import Builder
from seqspec.graph.dims import PAST, Shape, Size, dim
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.base import Op
from seqspec.ops.positions import Positions
from seqspec.ops.shape import Squeeze


class Relations:
    """Builds them on demand in a stack's region. `data` is what the stack reads, [B, T] or [B, T, I]."""

    def __init__(
        self,
        b: Builder,
        data: Value,
        mask: Value | None,
        looks_back: bool,
        declare: Declare,
        attentions: list[Single],
    ) -> None:
        self.b, self.data, self.mask, self.looks_back, self.declare = b, data, mask, looks_back, declare
        atoms = (atom for s in attentions for atom in masks.atoms(s.allowed))
        self.documented = any(isinstance(atom, masks.Documents) for atom in atoms)

    # ---- positions -----------------------------------------------------------------------------------------------

    def positions(self) -> Value:
        """The position of each token, [B, T]: the number of real tokens before it, in its document if there are any."""
        if self.documented:
            return self.b.add(Squeeze(-1), self.b.add(Squeeze(1), self.own_pairs[0]), hint="positions")
        # an image has no mask, and its positions are always known
        position_ids = self.declare("position_ids", self.data.shape[:2]) if self.mask else None
        return self.b.add(Positions(self.looks_back), self.data, self.mask, position_ids, hint="positions")

    @cached_property
    def pairs(self) -> tuple[Value, Value]:
        """Positions in the row, of queries and of keys."""
        from seqspec.ops.places import Places

        return self._apart(self.b.add(Places(self.looks_back), self.data, self.mask), "query key")

    @cached_property
    def own_pairs(self) -> tuple[Value, Value]:
        """Positions in their documents, of queries and of keys."""
        from seqspec.ops.places import DocumentPlaces

        places = self.b.add(DocumentPlaces(self.looks_back), self.data, self.documents, self.mask)
        return self._apart(places, "own_query own_key")

    def _apart(self, row: Value, hint: str) -> tuple[Value, Value]:
        from seqspec.ops.places import QueryAndKey

        query, key = self.b.add_many(QueryAndKey(), row, self.data, hint=hint)
        return query, key

    # ---- what is given at run time -------------------------------------------------------------------------------

    @cached_property
    def documents(self) -> Value:
        """The document of each token, [B, S]."""
        from seqspec.ops.places import DocumentIds

        given = self.declare("document_ids", self.data.shape[:2])
        return self.b.add(DocumentIds(self.looks_back), self.data, given, hint="documents")

    @cached_property
    def prefix(self) -> Value:
        """The length of the prefix of each row, [B]."""
        from seqspec.ops.places import PrefixLength

        given = self.declare("prefix_length", self.data.shape[:1])
        return self.b.add(PrefixLength(self.looks_back), self.data, given, hint="prefix")

    def given(self, name: str) -> Value:
        """The mask that the input `name` gives, [B, T, S] bool."""
        if name not in self._given:
            from seqspec.ops.to_bool import ToBool

            shape: Shape = (*self.data.shape[:2], self._total)
            self._given[name] = self.b.add(ToBool(), self.declare(name, shape, optional=False), hint=name)
        return self._given[name]

    @cached_property
    def _given(self) -> dict[str, Value]:
        return {}

    @property
    def _total(self) -> Size:
        time = self.data.shape[1]
        return dim(PAST) + time if self.looks_back else time

    # ---- what layers read ----------------------------------------------------------------------------------------

    def visible(self, mask: masks.Mask, hint: str) -> Value:
        """A mask that is more than a band, [B, 1, T, S]."""
        from seqspec.ops.visible import Visible

        op = Visible(mask)
        data = [self.documents, *self.own_pairs] if op.has_documents else []
        data += [self.prefix] if op.has_prefix else []
        return self.b.add(op, *self.pairs, self.mask, *data, *map(self.given, op.given), hint=hint)

    def shared(self, attentions: list[Single], x: Value, positions: Value | None) -> Shared:
        """What these layers ask for: the names by key, and the values by name."""
        names: dict[object, tuple[str, ...]] = {}
        values: dict[str, Value] = {}
        count: Counter[str] = Counter()
        for key in (key for a in attentions for key in (a.tables_key, a.mask_key, a.bias_key)):
            if key is None or key in names:
                continue
            wanted = _NAMES.get(type(key).__name__, "visible")
            count[wanted] += 1
            suffix = f"_{count[wanted]}" if count[wanted] > 1 else ""
            names[key] = tuple(f"{name}{suffix}" for name in wanted.split())
            values.update(zip(names[key], self._make(key, names[key], x, positions), strict=True))
        return names, values

    def _make(
        self, key: Op | masks.Mask, names: tuple[str, ...], x: Value, positions: Value | None
    ) -> tuple[Value, ...]:
        hint = " ".join(names)
        if not isinstance(key, Op):
            return (self.visible(key, hint),)
        match type(key).__name__:
            case "RopeTables":
                return self.b.add_many(key, positions, x, hint=hint)
            case "AlibiBias":
                return self.b.add_many(key, *self.pairs, x, hint=hint)
            case _:
                return self.b.add_many(key, *self.pairs, name=f"embed_{hint}", hint=hint)


_NAMES = {"RopeTables": "cos sin", "AlibiBias": "alibi", "RelativeBias": "relative"}
Shared = tuple[dict[object, tuple[str, ...]], dict[str, Value]]
