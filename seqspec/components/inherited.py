"""What `defaults` says for every stack, and a stack for its layers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from seqspec.components.base import Component, Positive, Rate, Width
from seqspec.components.masks import Mask
from seqspec.components.norms import Norm
from seqspec.components.positions import Position

Placement = Literal["pre", "post", "sandwich", "none"]


class DropoutRates(Component):
    """Where a stack drops: behind the embedding, on each sublayer's output, on attention weights, inside the ffn."""

    input: Rate = 0.0
    residual: Rate = 0.0
    attention: Rate = 0.0
    inner: Rate = 0.0

    @classmethod
    def of(cls, dropout: float | DropoutRates | None) -> DropoutRates:
        """What a rate stands for, or nothing written."""
        if isinstance(dropout, DropoutRates):
            return dropout
        return cls.model_construct(input=dropout or 0.0, residual=dropout or 0.0)


class Inherited(Component):
    """What `defaults` says for every stack, and a stack for its layers."""

    d_model: Width | None = None
    """The residual width."""
    position: Position | None = None
    """How positions are told; none by default."""
    norm: Norm | None = None
    """The norm of every sublayer; layernorm by default."""
    norm_placement: Placement | None = None
    """`pre`: x + f(norm(x)), the default; `post`: norm(x + f(x)), the original; `sandwich`: both; `none`: neither."""
    final_norm: bool | Norm | None = None
    """A norm behind the last layer: true for pre and sandwich, false for post and none, or a norm."""
    residual_scale: Positive | None = None
    """What x is multiplied with in x + f(x), 1 by default: the alpha of DeepNorm, with `norm_placement: post`."""
    init_scale: Positive | None = None
    """What values, attention outputs and feed-forwards start multiplied with, 1 by default: the beta of DeepNorm."""
    bias: bool | None = None
    """Whether linear maps have a bias; true by default, as in PyTorch."""
    dropout: Rate | DropoutRates | None = None
    """A rate p means {input: p, residual: p}."""


class Defaults(Inherited):
    """For every stack that does not say otherwise."""


class Inheritance(NamedTuple):
    """What a resolved stack says for its layers, each of which takes what it has a field for."""

    d_model: int | None
    position: Position
    mask: Mask
    causal: bool
    bias: bool
    init_scale: float | None
    rates: DropoutRates
