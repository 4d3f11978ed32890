"""Executes the emitted file: graph -> nn.Module."""

from __future__ import annotations

from seqspec.backends.torch.build import module
from seqspec.backends.torch.load import load, rebuild

__all__ = ["load", "module", "rebuild"]
