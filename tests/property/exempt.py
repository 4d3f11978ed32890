"""What a property does not ask of some specs, each with its reason. At most five."""

from __future__ import annotations

from .strategy import Spec


def no_gradient(spec: Spec, weight: str) -> str | None:
    """Why a weight's gradient may be zero for every batch, or None."""
    return None
