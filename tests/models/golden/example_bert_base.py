"""BertBase, written by seqspec.

Sizes: B batch, T time.
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


def padding_mask(x, given, own, past=None, past_length=0):
    """mask[B, P + T], True = real, or None where nothing says that anything is padding.

    `given` covers past and chunk, or the chunk alone; where it is None, `own`, what the chunk says of itself, counts.
    A side of which nothing is known is real.
    """
    batch, length = x.shape[:2]
    if given is not None:
        if given.is_floating_point():
            raise TypeError("attention_mask is 1 for real tokens and 0 for padding: booleans or integers, not floats")
        if given.shape not in ((batch, length), (batch, past_length + length)):
            shape = [batch, length]
            raise ValueError(f"attention_mask is {list(given.shape)}, the input {shape} after a past of {past_length}")
    mask = own if given is None else given.bool()
    if mask is None and past is None:
        return None
    if mask is None:
        mask = past.new_ones(batch, length)
    if mask.size(1) == past_length + length:
        return mask
    return torch.cat([mask.new_ones(batch, past_length) if past is None else past, mask], 1)


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


def real_labels(labels, mask):
    """labels[B, T] with -100 where the last T columns of the mask are False."""
    return labels if mask is None else labels.masked_fill(~mask[:, mask.size(1) - labels.size(1) :], -100)


def cross_entropy(logits, labels):
    """The mean of -log softmax(logits[..., C]) at labels[...], those that are -100 left out; 0 where none is left."""
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels are {list(labels.shape)}, the logits {list(logits.shape)}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


class Attention(nn.Module):
    """x[B, T, 768], mask[B, T] -> [B, T, 768]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(768, 768)
        self.k_proj = nn.Linear(768, 768)
        self.v_proj = nn.Linear(768, 768)
        self.o_proj = nn.Linear(768, 768)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (12, 64)).transpose(1, 2)  # [B, 12, T, 64]
        k = self.k_proj(x).unflatten(-1, (12, 64)).transpose(1, 2)  # [B, 12, T, 64]
        v = self.v_proj(x).unflatten(-1, (12, 64)).transpose(1, 2)  # [B, 12, T, 64]
        y = attend(q, k, v, mask, dropout=0.1 if self.training else 0.0).transpose(1, 2).flatten(2)  # [B, T, 768]
        return self.o_proj(y)


class FeedForward(nn.Module):
    """x[B, T, 768] -> [B, T, 768]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(768, 3072)
        self.down_proj = nn.Linear(3072, 768)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    """x[B, T, 768], mask[B, T] -> [B, T, 768]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.attention_norm = nn.LayerNorm(768, eps=1e-12)
        self.ffn = FeedForward()
        self.ffn_norm = nn.LayerNorm(768, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.attention(x, mask)  # [B, T, 768]
        x = self.attention_norm(x + F.dropout(y, 0.1, self.training))  # [B, T, 768]
        return self.ffn_norm(x + F.dropout(self.ffn(x), 0.1, self.training))


class Encoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, position_ids[B, T]?, token_type_ids[B, T]? -> [B, T, 768], [B, T]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(30522, 768)
        self.embed_types = nn.Embedding(2, 768)
        self.embed_positions = nn.Embedding(512, 768)
        self.embed_norm = nn.LayerNorm(768, eps=1e-12)
        self.layers = nn.ModuleList(Block() for _ in range(12))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        mask = padding_mask(input_ids, attention_mask, input_ids != 0)  # [B, T]
        positions = token_positions(input_ids, mask) if position_ids is None else position_ids  # [B, T]
        # [B, T, 768]
        embed_types = self.embed_types(torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids)
        embed_positions = self.embed_positions(within_table(positions, 512))  # [B, T, 768]
        embed_norm = self.embed_norm((self.embed_tokens(input_ids) + embed_types) + embed_positions)  # [B, T, 768]
        x = F.dropout(embed_norm, 0.1, self.training)  # [B, T, 768]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x, mask)  # [B, T, 768]
        return x, mask


class Output(NamedTuple):
    """What the model returns."""

    logits: Tensor
    loss: Tensor | None


class BertBase(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, position_ids[B, T]?, token_type_ids[B, T]?, labels[B, T]?
    -> logits[B, T, 30522], loss[]?
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)
        self.head_transform = nn.Linear(768, 768)
        self.head_norm = nn.LayerNorm(768, eps=1e-12)
        self.head = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(30522))})

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Output:
        x, mask = self.encoder(input_ids, attention_mask, position_ids, token_type_ids)  # [B, T, 768], [B, T]
        x = self.head_norm(F.gelu(self.head_transform(x)))  # [B, T, 768]
        logits = F.linear(x, self.encoder.embed_tokens.weight)  # [B, T, 30522]
        logits = logits + self.head.bias  # [B, T, 30522]
        loss = None if labels is None else cross_entropy(logits, real_labels(labels, mask))  # []
        return Output(logits, loss)
