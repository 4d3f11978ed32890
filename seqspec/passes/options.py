"""What a caller may ask of an ONNX output, besides the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from seqspec.passes.forms import Target

Logits = Literal["all", "last"]
Quantize = Literal["int8", "int4"]


@dataclass(frozen=True)
class Options:
    """`logits` at all positions, or at each row's last real one; `quantize` the weights of linear maps."""

    target: Target = "cpu"
    dtype: str = "float32"
    logits: Logits = "all"
    quantize: Quantize | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, without what is not asked."""
        return {name: value for name, value in asdict(self).items() if value is not None}
