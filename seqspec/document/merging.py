"""Merges one spec over another, for `extends` and `--set`.

    mapping over mapping, same or no kind   key by key
    mapping over mapping, other kind        replaces
    mapping over a bare word                over {kind: word}, which the word stands for
    list, number, text over anything        replaces

Values keep the place where they were written, so an error in a base file is shown there.
"""

from __future__ import annotations

from .node import Entry, Node, mapping

# Combined masks are chosen by these keys, as other parts are by `kind`.
_COMBINATORS = ("all", "any")


def merge(base: Node, over: Node) -> Node:
    """`base` with `over` merged over it. Neither is changed."""
    if not isinstance(over.value, dict):
        return over
    if isinstance(base.value, str):
        base = bare_kind(base)
    if not isinstance(base.value, dict):
        return over
    mine, theirs = _choice(base), _choice(over)
    if mine is not None and theirs is not None and mine != theirs:
        return over
    entries = dict(base.value)
    for name, entry in over.value.items():
        under = entries.get(name)
        value = entry.value if under is None else merge(under.value, entry.value)
        entries[name] = Entry(entry.key, value)
    return mapping(entries, like=over)


def bare_kind(word: Node) -> Node:
    """`rmsnorm` as `{kind: rmsnorm}`, at the place of the word."""
    key = Node("kind", word.file, word.start, word.end)
    return mapping({"kind": Entry(key, word)}, like=word)


def _choice(node: Node) -> str | None:
    kind = node.kind()
    if kind is not None or not isinstance(node.value, dict):
        return kind
    return next((name for name in _COMBINATORS if name in node.value), None)
