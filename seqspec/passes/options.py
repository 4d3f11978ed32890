"""The options of an ONNX output."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from seqspec.diagnostics import CompileError, arguments, did_you_mean
from seqspec.passes.forms import Target

Logits = Literal["all", "last"]
Quantize = Literal["int8", "int4"]
DTYPES = ("float32", "float16", "bfloat16")
"""What a model can compute in."""


@dataclass(frozen=True)
class Options:
    """`logits` at all positions, or at each row's last real one; `quantize` the weights of linear maps."""

    target: Target = "cpu"
    dtype: str = "float32"
    logits: Logits = "all"
    quantize: Quantize | None = None

    def __post_init__(self) -> None:
        arguments.word(self.target, "target", get_args(Target))
        arguments.word(self.logits, "logits", get_args(Logits))
        if self.quantize is not None:
            arguments.word(self.quantize, "quantize", get_args(Quantize))
        if not isinstance(self.dtype, str) or self.dtype not in DTYPES:
            hint = did_you_mean(self.dtype, DTYPES) if isinstance(self.dtype, str) else None
            text = f"ONNX models compute in {', '.join(DTYPES)}, not {arguments.given(self.dtype)}"
            raise CompileError("SEQ411", text, hint)

    def to_json(self) -> dict[str, Any]:
        """Plain data, without options that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}
