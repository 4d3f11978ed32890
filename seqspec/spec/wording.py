"""Words what is wrong with one value: code, message and hint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

from seqspec.diagnostics import did_you_mean, quoted
from seqspec.spec.fields import components, keys_instead, kinds, words

if TYPE_CHECKING:
    from seqspec.spec.findings import Fault


class Said(NamedTuple):
    """The words of a diagnostic."""

    code: str
    message: str
    hint: str | None = None


_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}
_BOOLEAN = {"yes": True, "on": True, "true": True, "y": True, "no": False, "off": False, "false": False, "n": False}
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}
# common names for a word of the language, and what it takes besides
_ELSEWHERE = {
    "swish": ("silu", ""),
    "gelu_new": ("gelu_tanh", ""),
    "gelu_pytorch_tanh": ("gelu_tanh", ""),
    "swiglu": ("silu", " with `gated: true`"),
    "geglu": ("gelu", " with `gated: true`"),
    "reglu": ("relu", " with `gated: true`"),
}
_DIGITS = re.compile(r"([-+]?[0-9][0-9_, ]*)([kKmMbB]?)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def say(fault: Fault) -> Said:
    """The words for a fault that concerns a value."""
    where, value = fault.where, fault.value
    if fault.type in _BOUNDS:
        name, word = _BOUNDS[fault.type]
        return Said("SEQ106", f"{where} must be {word} {fault.context[name]:g}, not {quoted(value)}")
    if fault.type == "finite_number":
        return Said("SEQ106", f"{where} must be a finite number, not {quoted(value)}")
    if fault.path == ("seqspec",):
        return Said("SEQ111", f"language version {describe(value)} is not supported", "write `seqspec: 1`")
    if fault.type == "literal_error":
        known = words(fault.alternatives)
        if not isinstance(value, str):
            text = f"{where} must be one of {_listed(known)}, not {describe(value)}"
            return Said("SEQ104", text, _boolean_word(value, known))
        return Said("SEQ105", f"{where} cannot be {quoted(value)}", _choice(value, known))
    if fault.type == "string_pattern_mismatch":
        return _bad_name(fault)
    if fault.type == "reserved_name":
        name = fault.context["name"]
        return Said("SEQ107", f"{quoted(name)} means something of its own in PyTorch", "choose another name")
    if fault.type == "too_short":
        least = fault.context["min_length"]
        text = f"{where} has too few items" if value else f"{where} is empty"
        return Said("SEQ109", text, f"it needs at least {'one item' if least == 1 else f'{least} items'}")
    return _wrong_type(fault)


def _wrong_type(fault: Fault) -> Said:
    where, value = fault.where, fault.value
    wanted = expected(fault.alternatives)
    numbers = {int, float} & set(fault.alternatives)
    if numbers and isinstance(value, str) and (number := _number(value, float in numbers)) is not None:
        return Said("SEQ115", f"{where} is the text {quoted(value)}, not a number", f"write {number}")
    text = f"{where} must be {wanted}, not {describe(value)}"
    if bool in fault.alternatives and isinstance(value, str) and (meant := boolean(value)) is not None:
        return Said("SEQ104", text, f"write `{str(meant).lower()}`")
    if bool in fault.alternatives and value in (0, 1) and not isinstance(value, float):
        return Said("SEQ104", text, f"write `{str(bool(value)).lower()}`")
    if int in numbers and isinstance(value, float) and value.is_integer():
        return Said("SEQ104", text, f"write {int(value)}")
    if any(get_origin(leaf) is list for leaf in fault.alternatives):
        return Said("SEQ104", text, "a list has its items in `[…]`, or on lines that begin with `- `")
    return Said("SEQ104", text, None)


def _bad_name(fault: Fault) -> Said:
    on_key = "[key]" in fault.rest
    name = str(fault.path[-1]) if on_key else fault.value
    text = f"{quoted(name)} is not a name"
    more, limit = (", `.` and `-`", 128) if fault.path == ("name",) else ("", 64)
    return Said("SEQ107", text, f"letters, digits, `_`{more}, at most {limit}; the first is a letter or `_`")


def expected(alternatives: Sequence[Any]) -> str:
    """What is expected, for a message: `a number or a mapping`."""
    parts = [_PLAIN[leaf] for leaf in alternatives if leaf in _PLAIN]
    parts += ["a list" for leaf in alternatives if get_origin(leaf) is list]
    parts += ["a mapping" for leaf in alternatives if get_origin(leaf) is dict]
    if known := kinds(alternatives):
        instead = "".join(f", or a mapping with `{key}`" for key in keys_instead(alternatives))
        parts.append(f"a kind ({_listed(known)}){instead}")
    elif components(alternatives):
        parts.append("a mapping")
    return " or ".join(dict.fromkeys(parts)) or "something else"


def describe(value: Any) -> str:
    """What a message calls a value."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"the text {quoted(value)}" if isinstance(value, str) else quoted(value)


def _choice(value: str, known: Sequence[str]) -> str | None:
    word, beside = _ELSEWHERE.get(value.casefold(), ("", ""))
    return f"write `{word}`{beside}" if word in known else did_you_mean(value, known, what="choices")


def boolean(text: str) -> bool | None:
    """The boolean that `yes`, `off` and the like mean; None for other text."""
    return _BOOLEAN.get(text.casefold())


def _boolean_word(value: Any, known: Sequence[str]) -> str | None:
    """The hint for a number or boolean where a word is expected."""
    return f"choices: {_listed(known)}" if isinstance(value, (bool, int, float)) else None


def _number(text: str, fractions: bool) -> str | None:
    """The number that a text seems to mean, such as `32_000`, `32,000`, `4k` or `"8"`."""
    match = _DIGITS.fullmatch(text.strip())
    if match and len(text) < 40:
        digits = re.sub("[_, ]", "", match[1])
        return str(int(digits) * _THOUSANDS[match[2].lower()])
    if fractions and _FLOAT.fullmatch(text.strip()):
        return text.strip().replace("_", "")
    return None


def _listed(known: Any) -> str:
    return ", ".join(f"`{word}`" for word in known)
