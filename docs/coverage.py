"""Which mechanism has which example, tests and section: `python docs/coverage.py > docs/coverage.md`.

`coverage.yaml` says it, and `tests/cold/test_docs.py` holds that to what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Claim:
    """A row: its examples, each with what it must say; tests as `file::function`; sections as `page#heading`."""

    what: str
    examples: dict[str, str] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    docs: list[str] = field(default_factory=list)
    lacks: str = ""


_INTRO = """\
# Coverage

This page is written by `python docs/coverage.py` from `coverage.yaml`, and a test holds that to what is there. A row is
done when it has an example, a test against a reference written from the equation, and a section with the equation and
the smallest YAML. What a row lacks stands in its last column.
"""


def claims() -> dict[str, list[Claim]]:
    """Part -> its rows."""
    parts = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return {title: [Claim(**row) for row in rows] for title, rows in parts.items()}


def markdown() -> str:
    """The page as it is stored in `docs/coverage.md`."""
    return _INTRO + "".join(f"\n## {title}\n\n" + "\n".join(_table(rows)) + "\n" for title, rows in claims().items())


def _table(rows: list[Claim]) -> Iterator[str]:
    yield "| what | example | tests | docs | lacks |"
    yield "|---|---|---|---|---|"
    for claim in rows:
        examples = [_link(Path(file).name, f"../{file}") for file in claim.examples]
        tests = dict.fromkeys(test.partition("::")[0] for test in claim.tests)
        sections = [_link(section.partition("#")[2].replace("-", " "), section) for section in claim.docs]
        cells = examples, [_link(test, f"../tests/{test}") for test in tests], sections, [claim.lacks]
        yield f"| {claim.what} | {' | '.join(', '.join(cell) for cell in cells)} |"


def _link(text: str, target: str) -> str:
    return f"[{text}]({target})"


if __name__ == "__main__":
    print(markdown(), end="")
