"""Odds, written by seqspec.

Sizes: B batch, T time.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]


class Part(nn.Module):
    """x[B, T, 6] -> [B, T, 6]"""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.proj(x))


class Part2(nn.Module):
    """x[B, T, 6] -> [B, T, 6]"""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(6, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.proj(x))


class Forked(nn.Module):
    """x[B, T, 6] -> [B, T, 6], [B, T, 6]"""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(6, 6)
        self.right = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.left(x), self.right(x)


class Tail(nn.Module):
    """x[B, T, 6] -> [B, T, 6]"""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.proj(x))


class Output(NamedTuple):
    """What the model returns."""

    joined: Tensor
    doubled: Tensor


class Odds(nn.Module):
    """x[B, T, 6] -> joined[B, T, 18], doubled[B, T, 18]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.proj = nn.Linear(6, 6)
        self.gain = nn.Parameter(torch.full((6,), 0.5))
        self.outer = nn.ModuleDict({"inner": Part(), "other": Part2()})
        self.scaled = nn.ParameterDict({"gain": nn.Parameter(torch.full((6,), 0.5))})
        self.layers = nn.ModuleList(kind() for kind in [Forked, Part, Part, Tail])
        self.shared = Part()

    def forward(self, x: Tensor) -> Output:
        x = self.gained(x)  # [B, T, 6]
        x = self.outer.inner(x)  # [B, T, 6]
        x = self.outer.other(x)  # [B, T, 6]
        x = self.scaled.gain * x  # [B, T, 6]
        x, kept = self.layers[0](x)  # [B, T, 6], [B, T, 6]
        layers = recomputed(self.layers[1:3]) if self.checkpoint else self.layers[1:3]
        for layer in layers:
            x = layer(x)  # [B, T, 6]
        append = self.layers[3](kept)  # [B, T, 6]
        y = append + x  # [B, T, 6]
        x = self.shared(y)  # [B, T, 6]
        x = self.shared(x)  # [B, T, 6]
        joined = torch.cat([x, y, kept], -1)  # [B, T, 18]
        doubled = joined + joined  # [B, T, 18]
        return Output(joined, doubled)

    def gained(self, x: Tensor) -> Tensor:
        """x[B, T, 6] -> [B, T, 6]"""
        return self.gain * self.proj(x)
