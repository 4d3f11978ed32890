"""Breaks long lines where `ruff format` would."""

from __future__ import annotations

WIDTH = 120
_OPEN, _CLOSE = "([{", ")]}"


def statement(text: str, indent: int, comment: str = "") -> list[str]:
    """One statement as lines, broken inside its last brackets if it is too long, with the comment where it fits."""
    margin = " " * indent
    if len(margin + text) > WIDTH:
        lines = _broken(text, indent)
        if comment and len(lines[-1]) + 2 + len(comment) <= WIDTH:
            return [*lines[:-1], f"{lines[-1]}  {comment}"]
        return [margin + comment, *lines] if comment else lines
    if not comment:
        return [margin + text]
    whole = f"{margin}{text}  {comment}"
    return [whole] if len(whole) <= WIDTH else [margin + comment, margin + text]


def split(text: str, separator: str = ",") -> list[str]:
    """The parts of `text` between separators outside brackets and strings."""
    parts, start, last = [], 0, 0
    for position, depth in _depths(text):
        if depth == 0 and text.startswith(separator, position) and position >= last:
            parts.append(text[start:position].strip())
            start = last = position + len(separator)
    return [p for p in (*parts, text[start:].strip()) if p]


def _broken(text: str, indent: int) -> list[str]:
    margin, inner = " " * indent, indent + 4
    opened = _bracket(text)
    if opened is None:
        return [margin + text]
    head, body, tail = text[: opened[0] + 1], text[opened[0] + 1 : opened[1]], text[opened[1] :]
    if inner + len(body) <= WIDTH:
        return [margin + head, " " * inner + body, margin + tail]
    clauses = split(body, " for ")
    if len(clauses) > 1:
        rows = [statement(f"for {part}" if k else part, inner) for k, part in enumerate(clauses)]
    else:
        rows = [statement(f"{item},", inner) for item in split(body)]
    return [margin + head, *(line for row in rows for line in row), margin + tail]


def _bracket(text: str) -> tuple[int, int] | None:
    """Where the outermost brackets to break in open and close: the last non-empty ones, or a function's first."""
    found, start, before = None, 0, 0
    for position, depth in _depths(text):
        if depth == 1 and before == 0:
            start = position
        if depth == 0 and before == 1 and position > start + 1:
            found = (start, position)
            if text.startswith("def "):
                break
        before = depth
    return found


def _depths(text: str) -> list[tuple[int, int]]:
    """Every position outside strings with its bracket depth, after the character there."""
    found, depth, quote = [], 0, ""
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in _OPEN) - (letter in _CLOSE)
            found.append((position, depth))
    return found
