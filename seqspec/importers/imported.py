"""The result of an importer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqspec.importers.weights import Tensor


@dataclass(frozen=True)
class Imported:
    """A spec as plain data, its weights under the language's names, and notes about both for the user."""

    spec: dict[str, Any]
    weights: dict[str, Tensor]
    notes: tuple[str, ...] = ()
