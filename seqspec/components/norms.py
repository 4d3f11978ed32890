"""Norms over the last axis, computed in at least float32."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from seqspec.components.base import Positive
from seqspec.components.family import Family
from seqspec.ops.base import Op
from seqspec.ops.norm import LayerNorm as LayerNormOp
from seqspec.ops.norm import OffsetRMSNorm
from seqspec.ops.norm import RMSNorm as RMSNormOp


class Norm(Family):
    """A norm over the last axis."""

    kinds: ClassVar = {"layernorm": "norms:LayerNorm", "rmsnorm": "norms:RMSNorm"}

    @abstractmethod
    def op(self, width: int) -> Op:
        """The norm op for vectors of `width` channels."""


class LayerNorm(Norm):
    """(x - mean) / sqrt(variance + eps) · weight + bias, over the last axis."""

    kind: Literal["layernorm"]
    eps: Positive = 1e-5
    """Added to the variance. PyTorch and GPT-2 use 1e-5, BERT 1e-12."""
    bias: bool = True
    """Whether there is a learned shift."""

    def op(self, width: int) -> Op:
        return LayerNormOp(width, self.eps, self.bias)


class RMSNorm(Norm):
    """x / sqrt(mean(x²) + eps) · (offset + weight), over the last axis."""

    kind: Literal["rmsnorm"]
    eps: Positive = 1e-6
    """Added to the mean square. LLaMA 2 and 3 use 1e-5."""
    offset: float = 0.0
    """Added to the weight in float32; the weight starts at 1 − offset. Gemma's offset is 1."""

    def op(self, width: int) -> Op:
        return OffsetRMSNorm(width, self.eps, self.offset) if self.offset else RMSNormOp(width, self.eps)
