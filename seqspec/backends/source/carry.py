"""The past and present states in one function: `past_key, past_value = past or (None, None)`, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence

from seqspec.backends.source.plan import Entry, Group
from seqspec.backends.source.variables import Variables
from seqspec.graph.ir import Value


class Carry:
    """`names` are the variables of the past, one per entry. Presents that calls return have variables as well."""

    def __init__(self, entries: Sequence[Entry], variables: Variables) -> None:
        self._entries, self._variables = entries, variables
        words = _words(entries)
        calls = sum(entry.state is None for entry in entries)
        self.names = ["past"] if len(entries) == 1 else [variables.reserve(f"past_{word}") for word in words]
        self._presents: dict[int, str] = {}
        for entry, word in zip(entries, words, strict=True):
            if entry.state is None:
                plain = "presents" if entry.group.run else "present"
                self._presents[id(entry.group)] = variables.reserve(plain if calls == 1 else f"{plain}_{word}")

    def unpacking(self) -> str:
        """The statement that unpacks the past, or an empty text if there is nothing to unpack."""
        if len(self.names) < 2:
            return ""
        nothing = "(None, None)" if len(self.names) == 2 else f"(None,) * {len(self.names)}"
        return f"{', '.join(self.names)} = past or {nothing}"

    def pasts(self, group: Group) -> list[str]:
        """The variables that hold the past of a group."""
        return [past for entry, past in zip(self._entries, self.names, strict=True) if entry.group is group]

    def present_of(self, group: Group) -> str:
        """The variable of the present that a call or run returns."""
        return self._presents[id(group)]

    def present(self) -> str:
        """The expression of the present, nested as the past is; an empty text without a state."""
        parts = []
        for entry in self._entries:
            kept = entry.kept
            parts.append(self._presents[id(entry.group)] if kept is None else self._variables.names[kept])
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})" if parts else ""

    def word(self, value: Value) -> str:
        """The name of the state whose present this value is, or an empty text."""
        words = [e.path for e in self._entries if e.kept is value]
        return words[0].rsplit(".", 1)[-1] if words else ""


def _words(entries: Sequence[Entry]) -> list[str]:
    """A word per entry: `key`, or `attention_key` if several would be `key`; a numbered layer is `layers_0`."""
    leaves = [entry.path.rsplit(".", 1)[-1] for entry in entries]
    whole = [entry.path.replace(".", "_") for entry in entries]
    return [w if leaves.count(leaf) > 1 or leaf.isdecimal() else leaf for leaf, w in zip(leaves, whole, strict=True)]
