"""Line breaks, where `ruff format` would put them."""

from __future__ import annotations

WIDTH = 120
_OPEN, _CLOSE = "([{", ")]}"


def statement(text: str, indent: int, comment: str = "") -> list[str]:
    """One statement as lines: whole if it fits, else broken inside its last brackets. The comment goes where it fits."""
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
    margin = " " * indent
    opened = _last_bracket(text)
    if opened is None:
        return [margin + text]
    head, body, tail = text[: opened[0] + 1], text[opened[0] + 1 : opened[1]], text[opened[1] :]
    inner = indent + 4
    single = " " * inner + body
    items = split(body)
    if len(single) <= WIDTH and not (len(items) == 1 and head.startswith("def ")):
        return [margin + head, single, margin + tail]
    if len(items) == 1 and " for " in body:
        parts = split(body.replace(" for ", "\0for "), "\0")
        return [margin + head, *(line for part in parts for line in statement(part, inner)), margin + tail]
    rows = [_item(item, inner) for item in items]
    return [margin + head, *(line for row in rows for line in row), margin + tail]


def _item(text: str, indent: int) -> list[str]:
    return statement(text, indent)[:-1] + [statement(text, indent)[-1] + ","]


def _last_bracket(text: str) -> tuple[int, int] | None:
    """Where the last outermost brackets that hold something open and close."""
    found, start = None, 0
    depth_before = 0
    for position, depth in _depths(text):
        if depth == 1 and depth_before == 0:
            start = position
        if depth == 0 and depth_before == 1 and position > start + 1:
            found = (start, position)
        depth_before = depth
    return found


def _depths(text: str) -> list[tuple[int, int]]:
    """Every position outside strings with its bracket depth; an opening bracket is inside, a closing one outside."""
    found, depth, quote = [], 0, ""
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
            continue
        if letter in "\"'":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        found.append((position, depth))
    return found
