"""The page of all codes, docs/errors.md: `python -m seqspec.diagnostics.page > docs/errors.md`."""

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

Everything that seqspec can say, a line a code. A message names the values in question and where they stand, and says
what to write instead; here is what its code means in general. `seqspec explain SEQ201` prints one of them, `--format
json` gives codes to programs, and a number is never used again for something else.

What is marked as a warning stops nothing. Of examples, the first is the mistake and the second mends it.

This page is written by `python -m seqspec.diagnostics.page`.
"""


def markdown() -> str:
    """The page."""
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
    """An example in one cell: its lines as code, one under the other."""
    return "<br>".join(_quoted(line) for line in example.split("\n"))


def _quoted(line: str) -> str:
    """A line as code; spaces in front count, and would be lost, and so would a bar."""
    text = line.lstrip(" ")
    indent = "&nbsp;" * (len(line) - len(text))
    ticks = "``" if "`" in text else "`"
    text = text.replace("|", "\\|").replace("\t", "\\t").replace("\r", "\\r").replace("\0", "\\0")
    return f"{indent}{ticks}{text}{ticks}" if text else ""


def _cell(text: str) -> str:
    """Prose in a cell: outside of code a `<` would open a tag."""
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


if __name__ == "__main__":
    print(markdown(), end="")
