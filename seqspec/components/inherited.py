"""Settings that stacks inherit from `defaults`, and layers from their stack."""

from __future__ import annotations

from typing import Literal, NamedTuple

from seqspec.components.base import Component, Positive, Rate, Width
from seqspec.components.masks import Mask
from seqspec.components.norms import Norm
from seqspec.components.positions import Position

Placement = Literal["pre", "post", "sandwich", "none"]


class DropoutRates(Component):
    """Dropout of a stack, by place."""

    input: Rate = 0.0
    """On the embedding."""
    residual: Rate = 0.0
    """On each sublayer's output."""
    attention: Rate = 0.0
    """On attention weights."""
    inner: Rate = 0.0
    """Inside the feed-forward sublayers, on the activations."""

    @classmethod
    def of(cls, dropout: float | DropoutRates | None) -> DropoutRates:
        """The rates for a single number, for a mapping, or for nothing given."""
        if isinstance(dropout, DropoutRates):
            return dropout
        return cls.model_construct(input=dropout or 0.0, residual=dropout or 0.0)


class Inherited(Component):
    """Settings that a stack inherits from `defaults`, and layers from their stack."""

    d_model: Width | None = None
    """The width of the residual stream."""
    position: Position | None = None
    """How positions are encoded; none by default."""
    norm: Norm | None = None
    """The norm of every sublayer; layernorm by default."""
    norm_placement: Placement | None = None
    """`pre`: x + f(norm(x)), the default; `post`: norm(x + f(x)), the original; `sandwich`: both; `none`: no norms."""
    final_norm: bool | Norm | None = None
    """A norm after the last layer: true by default for pre and sandwich, false for post and none; or a norm."""
    residual_scale: Positive | None = None
    """Factor on x in x + f(x), 1 by default: DeepNorm's alpha, with `norm_placement: post`."""
    init_scale: Positive | None = None
    """Factor on the initial weights of value, output and feed-forward maps, 1 by default: DeepNorm's beta."""
    bias: bool | None = None
    """Whether linear maps have a bias; true by default, as in PyTorch."""
    dropout: Rate | DropoutRates | None = None
    """Dropout by place; a single rate p means {input: p, residual: p}."""


class Defaults(Inherited):
    """Settings of every stack that does not set its own."""


class Inheritance(NamedTuple):
    """What layers inherit from their resolved stack; each takes what it has a field for."""

    d_model: int | None
    position: Position
    mask: Mask
    causal: bool
    bias: bool
    init_scale: float | None
    rates: DropoutRates
