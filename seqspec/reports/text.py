"""A report as tables for people, 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator

from seqspec.reports.parts import Part
from seqspec.reports.summary import Summary

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_LETTERS = {
    "n": "positions",
    "m": "positions of the encoder",
    "d": "widths",
    "h": "heads",
    "w": "a window",
    "g": "global tokens",
    "b": "blocks",
    "p": "a prefix",
    "k": "projected length",
    "s": "the side of an image",
    "V": "vocabulary",
}


def render(summary: Summary) -> str:
    """Totals, then the numbers of each part with all its layers, then those of a single layer and their growth."""
    sizes = ", ".join(f"{name} {number:,}" for name, number in summary.sizes.items())
    lines = [summary.name, f"  {summary.dtype}; {sizes}", ""]
    width = max(len(name) for name, _ in _totals(summary))
    lines += [f"  {name:<{width}}  {value}" for name, value in _totals(summary)]
    lines += ["", *_aligned(list(_counted(summary)), range(2, 5))]
    if summary.flops_first != summary.flops and any(part.once for part in summary.parts):
        lines.append("  * on the first call only")
    lines += ["", *_aligned(list(_grown(summary)), range(1, 3))]
    return "\n".join([*lines, *_legend(summary)]) + "\n"


def _totals(summary: Summary) -> Iterator[tuple[str, str]]:
    grows = summary.growth
    yield "parameters", _of(summary.parameters)
    yield "weights", _in_bytes(summary.weight_bytes)
    yield "FLOPs of this call", _of(summary.flops) + _order(grows.flops)
    if summary.flops_first != summary.flops:
        yield "  of a first call", _of(summary.flops_first)
    yield "  of a train step", _of(summary.train_flops)
    saved = summary.kept_bytes_checkpointed < summary.kept_bytes
    if saved:
        yield "  checkpointed", _of(summary.train_flops_checkpointed)
    yield "state carried on", _in_bytes(summary.state_bytes) + _order(grows.state)
    if summary.held_bytes:
        yield "  of it held", _in_bytes(summary.held_bytes)
    yield "alive at once", _in_bytes(summary.working_bytes)
    yield "kept for gradients", _in_bytes(summary.kept_bytes) + _order(grows.kept)
    if saved:
        yield "  checkpointed", _in_bytes(summary.kept_bytes_checkpointed)


def _counted(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Numbers of all layers of a part together, so that columns add up."""
    split = summary.flops_first != summary.flops
    yield "part", "what", "parameters", "FLOPs", "train step"
    for part in summary.parts:
        numbers = (part.count * number for number in (part.parameters, part.flops, part.train_flops))
        yield _named(part), part.what + " *" * (part.once and split), *(f"{number:,}" for number in numbers)
    yield "in all", "", *(f"{n:,}" for n in (summary.parameters, summary.flops_first, summary.train_flops))


def _grown(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Numbers of one layer, without parts in which nothing grows."""
    yield "of one", "kept", "state", "FLOPs grow as", "kept", "state"
    for part in summary.parts:
        if part.train_flops or part.kept_bytes or part.state_bytes:
            numbers = (part.kept_bytes, part.state_bytes)
            orders = (order if order != "0" else "" for order in part.growth)
            yield _named(part), *(_short(number, "B") for number in numbers), *orders


def _legend(summary: Summary) -> Iterator[str]:
    used = {letter for part in summary.parts for order in part.growth for letter in order}
    said = [f"{letter} {text}" for letter, text in _LETTERS.items() if letter in used]
    if said:
        yield f"  {', '.join(said)}"


def _aligned(rows: list[tuple[str, ...]], numbers: range) -> Iterator[str]:
    """Numbers aligned to the right, words to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if n in numbers else f"{cell:<{width}}"
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _named(part: Part) -> str:
    return f"{part.name} × {part.count}" if part.count > 1 else part.name


def _of(number: int) -> str:
    return f"{number:,}{_about(number)}"


def _in_bytes(number: int) -> str:
    return f"{number:,} bytes{_about(number, 'B')}"


def _order(order: str) -> str:
    return f"  O({order})" if order not in ("", "0") else ""


def _about(number: int, unit: str = "") -> str:
    """` (1.24 G)`: three digits, in steps of a thousand."""
    return f" ({_short(number, unit)})" if number >= 10_000 else ""


def _short(number: int, unit: str = "") -> str:
    step = (len(str(number)) - 1) // 3
    if step >= len(_PREFIXES):
        digits = str(number)
        return f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}{unit and ' ' + unit}"
    return f"{number / 1000**step:.3g}{' ' * bool(step or unit)}{_PREFIXES[step]}{unit}"
