"""Parts: what layers are made of, and what they tell of themselves to the stack around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqspec.components.base import Findings, Path
from seqspec.components.family import Family


class Part(Family):
    """A sublayer of a block, or a layer without one."""

    if TYPE_CHECKING:
        name: str | None

    @property
    def called(self) -> str:
        """What its parameters are named by: its kind by default."""
        return self.name or self.kind

    @property
    def looks_ahead(self) -> bool:
        """Whether a position reads what comes behind it."""
        return False

    @property
    def attends(self) -> str | None:
        """The stack that it attends to."""
        return None

    @property
    def averages(self) -> str | None:
        """The stack whose mean output it starts from."""
        return None

    def reads(self) -> Iterator[tuple[Path, str]]:
        """The stacks that it reads, and where it says so."""
        yield from ()

    def check_causal(self, stack: str) -> Findings:
        """What reads the future in a stack that must not."""
        yield from ()
