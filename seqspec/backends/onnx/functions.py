"""Model-local functions: what a contributed op means, in plain opset 23, for runtimes that have no kernel for it."""

from __future__ import annotations

import onnx_ir as ir


class Functions:
    """The functions of one model, equal ones once."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], ir.Function] = {}

    def all(self) -> list[ir.Function]:
        """In the order of their first use."""
        return list(self._made.values())
