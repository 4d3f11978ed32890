"""The table of forms: which kernel computes what, for which targets and dtypes, and what it cannot do.

A form that cannot run a node gives the reason, and the node stays what it is: plain opset 23, which always can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Target = Literal["cpu", "cuda", "portable"]


@dataclass(frozen=True)
class Limit:
    """What must hold, as text and as a question about what was matched."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Form:
    """`kernel` computes `what` in these dtypes of each target, within the limits. `condition` is asked at run time."""

    what: str
    kernel: str
    dtypes: Mapping[Target, tuple[str, ...]]
    limits: tuple[Limit, ...] = ()
    condition: str = ""

    def when(self, found: Any, target: Target, dtype: str) -> str | None:
        """The reason why it cannot compute what was matched, if there is one."""
        if target not in self.dtypes:
            return f"{target} has no {self.kernel}"
        if dtype not in self.dtypes[target]:
            return f"{self.kernel} on {target} computes in {', '.join(self.dtypes[target])}"
        return next((limit.text for limit in self.limits if not limit.holds(found)), None)
