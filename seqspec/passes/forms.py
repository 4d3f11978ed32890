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
    """`kernels` compute `what` in these dtypes of each target, within the limits; elsewhere `otherwise` does.

    `condition` is asked at run time, and where it does not hold, `otherwise` runs.
    """

    what: str
    kernels: tuple[str, ...]
    dtypes: Mapping[Target, tuple[str, ...]]
    otherwise: str
    limits: tuple[Limit, ...] = ()
    condition: str = ""

    def when(self, found: Any, target: Target, dtype: str) -> str | None:
        """The reason why it cannot compute what was matched, if there is one."""
        if dtype not in self.dtypes.get(target, ()):
            return f"{' and '.join(self.kernels)} on {target} is for {', '.join(self.dtypes.get(target, ('nothing',)))}"
        return next((f"not so: {limit.text}" for limit in self.limits if not limit.holds(found)), None)
