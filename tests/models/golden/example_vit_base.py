"""VitBase, written by seqspec.

Sizes: B batch.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def attend(q, k, v, real=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale) v over the real keys: q[B, H, T, d], k[B, G, S, d], v[B, G, S, e] -> [B, H, T, e]."""
    visible = None if real is None else real[:, None, None]
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scale, enable_gqa=gqa)


def token_positions(x, mask, past_length=0):
    """Positions of the T tokens of x, counting real ones from 0; one row [1, T] where nothing is padded."""
    length = x.size(1)
    if mask is None:
        return torch.arange(past_length, past_length + length, device=x.device)[None]
    return (mask.cumsum(1) - 1).clamp(min=0)[:, mask.size(1) - length :]


def within_table(positions, max_length):
    """The positions, checked: the error of a table names neither the position nor the limit."""
    if positions.numel() and not torch.compiler.is_compiling():
        first, last = (int(bound) for bound in positions.aminmax())
        if first < 0:
            raise IndexError(f"position {first} is negative")
        if last >= max_length:
            raise IndexError(f"position {last} is in a sequence of at least {last + 1}, but max_length is {max_length}")
    return positions


def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]


def cross_entropy(logits, labels):
    """The mean of -log softmax(logits[..., C]) at labels[...], those that are -100 left out; 0 where none is left."""
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels are {list(labels.shape)}, the logits {list(logits.shape)}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


class Attention(nn.Module):
    """x[B, 197, 768] -> [B, 197, 768]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(768, 768)
        self.k_proj = nn.Linear(768, 768)
        self.v_proj = nn.Linear(768, 768)
        self.o_proj = nn.Linear(768, 768)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (12, 64)).transpose(1, 2)  # [B, 12, 197, 64]
        k = self.k_proj(x).unflatten(-1, (12, 64)).transpose(1, 2)  # [B, 12, 197, 64]
        v = self.v_proj(x).unflatten(-1, (12, 64)).transpose(1, 2)  # [B, 12, 197, 64]
        return self.o_proj(attend(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """x[B, 197, 768] -> [B, 197, 768]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(768, 3072)
        self.down_proj = nn.Linear(3072, 768)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    """x[B, 197, 768] -> [B, 197, 768]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(768, eps=1e-12)
        self.attention = Attention()
        self.ffn_norm = nn.LayerNorm(768, eps=1e-12)
        self.ffn = FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(self.attention_norm(x))  # [B, 197, 768]
        x = x + y  # [B, 197, 768]
        return x + self.ffn(self.ffn_norm(x))


class Encoder(nn.Module):
    """pixel_values[B, 3, 224, 224] -> [B, 197, 768]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.patch_embedding = nn.Conv2d(3, 768, 16, stride=16)
        self.class_token = nn.Parameter(torch.randn(768) * 0.02)
        self.embed_positions = nn.Embedding(197, 768)
        self.layers = nn.ModuleList(Block() for _ in range(12))
        self.final_norm = nn.LayerNorm(768, eps=1e-12)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)  # [B, 196, 768]
        x = torch.cat([self.class_token.expand(x.size(0), 1, -1), x], 1)  # [B, 197, 768]
        positions = token_positions(x, None)  # [B, 197]
        x = x + self.embed_positions(within_table(positions, 197))  # [B, 197, 768]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x)  # [B, 197, 768]
        return self.final_norm(x)


class Output(NamedTuple):
    """What the model returns."""

    logits: Tensor
    loss: Tensor | None


class VitBase(nn.Module):
    """pixel_values[B, 3, 224, 224], labels[B]? -> logits[B, 1000], loss[]?"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)
        self.head = nn.Linear(768, 1000)

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> Output:
        x = self.encoder(pixel_values)  # [B, 197, 768]
        pooled = x[:, 0]  # [B, 768]
        logits = self.head(pooled)  # [B, 1000]
        loss = None if labels is None else cross_entropy(logits, labels)  # []
        return Output(logits, loss)
