"""Writes the page of all codes: `python -m seqspec.diagnostics.page > docs/errors.md`."""

from __future__ import annotations

from collections.abc import Iterator

from .codes import CODES, Code

GROUPS = {
    "SEQ0": "The file and its YAML",
    "SEQ1": "The shape of the spec",
    "SEQ2": "What the spec means",
    "SEQ3": "Graph and shapes",
    "SEQ4": "Compiling, importing, verifying",
    "SEQ5": "Running a compiled model",
}
_HEAD = """# Errors

Every diagnostic of seqspec, one row per code. A message names the values in question and where they are, and says what
to write instead; this page says what its code means in general. `seqspec explain SEQ201` prints one entry, `--format
json` gives codes to programs, and a number is never reused for something else.

A code marked as a warning stops nothing. Examples show the mistake first, then the fix.

This page is written by `python -m seqspec.diagnostics.page`.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_tables()])


def _tables() -> Iterator[str]:
    for beginning, title in GROUPS.items():
        yield f"## {title}\n"
        yield "| code | what it means | what to do | example |"
        yield "|---|---|---|---|"
        yield from (_row(number, code) for number, code in CODES.items() if number.startswith(beginning))
        yield ""


def _row(number: str, code: Code) -> str:
    name = f'<a id="{number.lower()}"></a>{number} `{code.slug}`' + (" (warning)" if code.severity == "warning" else "")
    examples = " → ".join(_inline(example) for example in (code.bad, code.good) if example)
    return f"| {name} | {_cell(code.title)} | {_cell(code.explanation)} | {examples} |"


def _inline(example: str) -> str:
    """An example in a table cell: each of its lines as code, joined by line breaks."""
    return "<br>".join(_quoted(line) for line in example.split("\n"))


def _quoted(line: str) -> str:
    """A line as code. Markdown would drop leading spaces and end the cell at a bar, so both are escaped."""
    text = line.lstrip(" ")
    indent = "&nbsp;" * (len(line) - len(text))
    ticks = "``" if "`" in text else "`"
    text = text.replace("|", "\\|").replace("\t", "\\t").replace("\r", "\\r").replace("\0", "\\0")
    return f"{indent}{ticks}{text}{ticks}" if text else ""


def _cell(text: str) -> str:
    """Prose in a table cell: outside of code, a `<` would open a tag."""
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


if __name__ == "__main__":
    print(markdown(), end="")
