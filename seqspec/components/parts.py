"""The parts of layers, and what the stack around them can ask of each."""

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
        """The name of its parameters: its kind by default."""
        return self.name or self.kind

    @property
    def looks_ahead(self) -> bool:
        """Whether a position can see later ones."""
        return False

    @property
    def attends(self) -> str | None:
        """The stack that it attends to, if any."""
        return None

    @property
    def averages(self) -> str | None:
        """The stack whose mean output it starts from, if any."""
        return None

    def reads(self) -> Iterator[tuple[Path, str]]:
        """The stacks that it reads, each with the path of the field that names it."""
        yield from ()

    def check_causal(self, stack: str) -> Findings:
        """Findings about what sees later positions, in a causal stack."""
        yield from ()
