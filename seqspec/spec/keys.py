"""Explains what is wrong with the keys of a mapping: unknown, missing, misplaced or exclusive keys, and `kind`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from seqspec.components.base import Component
from seqspec.diagnostics import Diagnostic, did_you_mean, quoted, suggest
from seqspec.document import Document
from seqspec.spec.fields import (
    Kind,
    alternatives_at,
    choose,
    fields,
    keys_instead,
    kind_of,
    kinds,
    leaves,
    reachable,
    words,
)
from seqspec.spec.wording import describe, expected

if TYPE_CHECKING:
    from seqspec.spec.findings import Fault, Path

# Keys reserved for later versions of the language, by the class that will have them.
RESERVED = {
    "Model": ("heads", "stacks"),
    "Stack": ("inputs",),
    "SelfAttention": ("kv_from",),
    "Block": ("overrides", "share"),
    "Pattern": ("overrides", "share"),
    "LSTM": ("overrides", "share"),
    "GRU": ("overrides", "share"),
    "RNN": ("overrides", "share"),
}
# what there is already in the place of a reserved key
_MEANWHILE = {("Model", "heads"): "several heads are written under `outputs`, by name"}
_STACKS = frozenset({"encoder", "decoder"})
_WRITE_A_STACK = "write `encoder` or `decoder`: a stack, which holds an `input` and `layers`"


def explain(root: type[Component], document: Document, owner: Path, faults: Sequence[Fault]) -> Iterator[Diagnostic]:
    """Findings about unknown and missing keys of the mapping at `owner`. A misspelt required key is one finding."""
    missing = [str(fault.rest[-1]) for fault in faults if fault.type == "missing"]
    unknown = [str(fault.path[-1]) for fault in faults if fault.type == "extra_forbidden"]
    alternatives = alternatives_at(root, document.data, owner)
    cls = choose(alternatives, _value(document, owner))
    for key in unknown:
        meant = suggest(key, missing)
        if meant is not None:
            missing.remove(meant)
        yield _unknown(root, document, owner, key, meant, cls, alternatives)
    for name in missing:
        yield _missing(document, owner, name, cls)


def _missing(document: Document, owner: Path, name: str, cls: Kind | None) -> Diagnostic:
    of = f" of `{kind}`" if cls and (kind := kind_of(cls)) else ""
    choices = words(leaves(fields(cls)[name].annotation)) if cls and name in fields(cls) else []
    hint = f"write one of {', '.join(map(quoted, choices))}" if choices else None
    if (owner, name) == ((), "seqspec"):
        hint = "write `seqspec: 1`, the version of the language"
    return document.diagnostic("SEQ102", f"missing field `{name}`{of}", owner, hint=hint)


def _unknown(
    root: type[Component],
    document: Document,
    owner: Path,
    key: str,
    meant: str | None,
    cls: Kind | None,
    alternatives: Sequence[object],
) -> Diagnostic:
    path, known = (*owner, key), fields(cls) if cls else {}
    of = f" of `{kind}`" if cls and (kind := kind_of(cls)) else ""
    if cls and key in RESERVED.get(cls.__name__, ()):
        text = f"{quoted(key)} is reserved for a later version of the language"
        return document.diagnostic("SEQ114", text, path, key=True, hint=_MEANWHILE.get((cls.__name__, key)))
    rival = {"kind": None, **keys_instead(alternatives)}
    if cls and key in rival and rival[key] is not cls:
        mine = next((name for name, other in keys_instead(alternatives).items() if other is cls), "kind")
        text, other = f"{quoted(key)} and `{mine}` exclude each other", ("the other one", (*owner, mine))
        return document.diagnostic("SEQ110", text, path, key=True, hint="keep one of them", related=[other])
    given = _value(document, owner)
    free = [name for name in known if not isinstance(given, dict) or name not in given]
    guess = meant or suggest(key, free)
    stackless = owner == () and isinstance(given, dict) and not given.keys() & _STACKS
    if guess is None and (elsewhere := _elsewhere(root, key)):
        text = f"{quoted(key)} is no field of {_called(cls)}"
        where = _WRITE_A_STACK if stackless else f"it is a field of {elsewhere}"
        return document.diagnostic("SEQ113", text, path, key=True, hint=where)
    hint = f"did you mean `{guess}`?" if guess else _WRITE_A_STACK if stackless else _hint(root, key, known)
    text = f"unknown field {quoted(key)}{of}"
    return document.diagnostic("SEQ101", text, path, key=True, hint=hint, replacement=guess)


def _hint(root: Kind, key: str, known: Iterable[str]) -> str | None:
    """The hint for a key that resembles none here: a similar field of another part, else the list of fields here."""
    everywhere = {name for cls in reachable(root) for name in fields(cls)}
    guess = suggest(key, sorted(everywhere))
    if guess is not None and (owners := _elsewhere(root, guess)):
        return f"did you mean `{guess}`? It is a field of {owners}"
    return did_you_mean("", known, what="fields here")


def _elsewhere(root: type[Component], key: str) -> str:
    """The parts that have a field of this name, for a message."""
    owners = {_called(cls) for cls in reachable(root) if key in fields(cls) and key != "kind"}
    return ", ".join(sorted(owners, key=lambda name: (name.startswith("`"), name))[:6])  # the widest first


def _called(cls: Kind | None) -> str:
    """What a message calls a class: its kind, if it has one."""
    if cls is None:
        return "this"
    if kind := kind_of(cls):
        return f"`{kind}`"
    words = {"Model": "the root", "Stack": "a stack", "Block": "a block", "Pattern": "a pattern"}
    return words.get(cls.__name__, f"`{cls.__name__.lower()}`")


def explain_kind(document: Document, fault: Fault) -> Diagnostic:
    """The finding about a `kind` that is missing, unknown or not text."""
    value, known, others = fault.value, kinds(fault.alternatives), keys_instead(fault.alternatives)
    if isinstance(value, str):
        text = f"{fault.where} cannot be {quoted(value)}"
        return document.diagnostic("SEQ103", text, fault.path, hint=_kind_hint(value, fault))
    if not isinstance(value, dict):
        text = f"{fault.where} must be {expected(fault.alternatives)}, not {describe(value)}"
        return document.diagnostic("SEQ104", text, fault.path)
    if "kind" not in value:
        return _no_kind(document, fault, [*known], [*others])
    kind, at = value["kind"], (*fault.path, "kind")
    if not isinstance(kind, str):
        return document.diagnostic("SEQ104", f"`kind` must be a word, not {describe(kind)}", at)
    guess, hint = suggest(kind, known), _kind_hint(kind, fault)
    return document.diagnostic("SEQ103", f"unknown kind {quoted(kind)}", at, hint=hint, replacement=guess)


def _kind_hint(kind: str, fault: Fault) -> str | None:
    """The hint for an unknown kind: a similar one, or the key, such as `block`, whose list takes it."""
    for key, cls in keys_instead(fault.alternatives).items():
        within = [leaf for part in leaves(fields(cls)[key].annotation) for leaf in leaves(get_args(part)[0])]
        if kind in kinds(within):
            return f"put it in `{key}`, a list: `{key}: [{{kind: {kind}, …}}]`"
    return did_you_mean(kind, kinds(fault.alternatives), what="kinds")


def _no_kind(document: Document, fault: Fault, known: Sequence[str], others: Sequence[str]) -> Diagnostic:
    choosing = ["kind", *others]
    for key in fault.value:
        guess = suggest(key, choosing)
        if guess is not None:
            text, hint = f"unknown field {quoted(key)}", f"did you mean `{guess}`?"
            return document.diagnostic("SEQ101", text, (*fault.path, key), key=True, hint=hint, replacement=guess)
    *early, last = (f"`{key}`" for key in choosing)
    needed = f"{', '.join(early)} or {last}" if early else last
    hint = f"kinds: {', '.join(f'`{kind}`' for kind in known)}"
    return document.diagnostic("SEQ108", f"{fault.where} does not say its {needed}", fault.path, hint=hint)


def _value(document: Document, path: Path) -> object:
    value: object = document.data
    for part in path:
        if isinstance(value, dict | list):
            value = value[part]  # type: ignore[index]
    return value
