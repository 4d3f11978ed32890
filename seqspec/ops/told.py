"""What a mask that is more than a band is told, in whatever a face computes with."""

from __future__ import annotations

from typing import Any, NamedTuple


class Told(NamedTuple):
    """What a mask is told about the pairs: places on the row and in documents, and what was given."""

    query: Any
    key: Any
    own_query: Any
    own_key: Any
    documents: Any
    prefix: Any
    given: dict[str, Any]
