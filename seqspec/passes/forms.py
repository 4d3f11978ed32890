"""Forms: which kernel computes what, for which targets and dtypes, and within which limits.

A form that cannot compute a node gives the reason, and the node stays in plain opset 23, which can compute everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Target = Literal["cpu", "cuda", "portable"]


@dataclass(frozen=True)
class Limit:
    """A condition of a form, as text and as a predicate of what was matched."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Form:
    """`kernels` compute `what` in these dtypes of each target, within the limits; otherwise `otherwise` does.

    `condition` is tested at run time, and `otherwise` runs where it does not hold.
    """

    what: str
    kernels: tuple[str, ...]
    dtypes: Mapping[Target, tuple[str, ...]]
    otherwise: str
    limits: tuple[Limit, ...] = ()
    condition: str = ""

    def when(self, found: Any, target: Target, dtype: str) -> str | None:
        """The reason why it cannot compute what was matched, or None if it can."""
        if dtype not in self.dtypes.get(target, ()):
            return f"{' and '.join(self.kernels)} on {target} is for {', '.join(self.dtypes.get(target, ('nothing',)))}"
        return next((f"not so: {limit.text}" for limit in self.limits if not limit.holds(found)), None)
