"""A report as a table for people."""

from __future__ import annotations

from collections.abc import Iterator

from seqspec.reports.summary import Summary

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def render(summary: Summary) -> str:
    """Totals, then a line a part."""
    sizes = ", ".join(f"{name} {number:,}" for name, number in summary.sizes.items())
    lines = [f"{summary.name}  ({summary.dtype}; {sizes})", ""]
    width = max(len(name) for name, _ in _totals(summary))
    lines += [f"  {name:<{width}}  {value}" for name, value in _totals(summary)]
    return "\n".join([*lines, "", *_table(summary)]) + "\n"


def _totals(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "parameters", f"{summary.parameters:,}{_about(summary.parameters, '')}"
    yield "weights", f"{summary.weight_bytes:,} bytes{_about(summary.weight_bytes, 'B')}"
    yield "FLOPs of this call", f"{summary.flops:,}{_about(summary.flops, '')}"
    if summary.flops_first != summary.flops:
        yield "FLOPs of a first call", f"{summary.flops_first:,}{_about(summary.flops_first, '')}"
    yield "state carried on", f"{summary.state_bytes:,} bytes{_about(summary.state_bytes, 'B')}"
    if summary.held_bytes:
        yield "  of it held", f"{summary.held_bytes:,} bytes{_about(summary.held_bytes, 'B')}"


def _table(summary: Summary) -> Iterator[str]:
    """What a part has and does in all its layers, so that columns add up, and before it what one layer does."""
    split = summary.flops_first != summary.flops
    rows: list[tuple[str, ...]] = [("part", "what", "parameters", "FLOPs", "")]
    for part in summary.parts:
        parameters, flops = _in_all(part.parameters, part.count), _in_all(part.flops, part.count)
        rows.append((part.name, part.what, parameters, flops, "first call only" if part.once and split else ""))
    last = "first call" if split else ""
    rows.append(("in all", "", f"{summary.parameters:,}", f"{summary.flops_first:,}", last))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    for name, what, parameters, flops, note in rows:
        left = f"  {name:<{widths[0]}}  {what:<{widths[1]}}"
        yield f"{left}  {parameters:>{widths[2]}}  {flops:>{widths[3]}}  {note}".rstrip()


def _in_all(number: int, count: int) -> str:
    return f"{number:,} × {count} = {number * count:,}" if count > 1 and number else f"{number:,}"


def _about(number: int, unit: str) -> str:
    """` (1.24 G)`: three digits, in steps of a thousand."""
    if number < 10_000:
        return ""
    step = (len(str(number)) - 1) // 3
    if step >= len(_PREFIXES):
        digits = str(number)
        return f" ({digits[0]}.{digits[1:3]}e{len(digits) - 1}{unit and ' ' + unit})"
    return f" ({number / 1000**step:.3g} {_PREFIXES[step]}{unit})"
