"""LongformerTiny, written by seqspec.

Sizes: B batch, T time.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def attend_visible(q, k, v, visible, bias=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale + bias) v over the visible keys [B or 1, 1, T, S].

    q[B, H, T, d], k[B, G, S, d], v[B, G, S, e], bias[B or 1, H, T, S] -> [B, H, T, e]
    """
    mask = visible if bias is None else bias.masked_fill(~visible, -torch.inf)
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale, enable_gqa=gqa)


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


def token_places(x, mask, past_length=0):
    """Places [B or 1, S] of all tokens, the past's included, counting real ones from 0."""
    if mask is None:
        return torch.arange(past_length + x.size(1), device=x.device)[None]
    return mask.cumsum(1) - 1


def query_and_key(row, x):
    """row[B, S] -> its last T entries [B, 1, T, 1] for queries, all [B, 1, 1, S] for keys; T is the length of x."""
    return row[:, None, row.size(1) - x.size(1) :, None], row[:, None, None]


def visible_pairs(allowed, real):
    """allowed[B or 1, 1, T, S] without the keys that are padding."""
    return allowed if real is None else allowed & real[:, None, None]


def some(allowed, *more):
    """The pairs that some mask allows."""
    for other in more:
        allowed = allowed | other
    return allowed


def within_band(query, key, left, right):
    """From `left` before the query to `right` after it, None having no bound."""
    inside = torch.ones_like(key, dtype=torch.bool)
    if left is not None:
        inside = inside & (key >= query - left)
    if right is not None:
        inside = inside & (key <= query + right)
    return inside


def with_token(query, key, tokens):
    """The pairs with one of these positions in it."""
    found = torch.zeros_like(key, dtype=torch.bool)
    for token in tokens:
        found = found | (query == token) | (key == token)
    return found


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
    """x[B, T, 256], visible[B, 1, T, T] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(256, 256)
        self.k_proj = nn.Linear(256, 256)
        self.v_proj = nn.Linear(256, 256)
        self.o_proj = nn.Linear(256, 256)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (4, 64)).transpose(1, 2)  # [B, 4, T, 64]
        k = self.k_proj(x).unflatten(-1, (4, 64)).transpose(1, 2)  # [B, 4, T, 64]
        v = self.v_proj(x).unflatten(-1, (4, 64)).transpose(1, 2)  # [B, 4, T, 64]
        return self.o_proj(attend_visible(q, k, v, visible).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """x[B, T, 256] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(256, 1024)
        self.down_proj = nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    """x[B, T, 256], mask[B, T], visible[B, 1, T, T] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.attention_norm = nn.LayerNorm(256, eps=1e-05)
        self.ffn = FeedForward()
        self.ffn_norm = nn.LayerNorm(256, eps=1e-05)

    def forward(self, x: Tensor, mask: Tensor, visible: Tensor) -> Tensor:
        y = self.attention(x, visible)  # [B, T, 256]
        x = self.attention_norm(x + y)  # [B, T, 256]
        return self.ffn_norm(x + self.ffn(x))


class Encoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, position_ids[B, T]? -> [B, T, 256], [B, T]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(30522, 256)
        self.embed_positions = nn.Embedding(4096, 256)
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        mask = padding_mask(input_ids, attention_mask, input_ids != 0)  # [B, T]
        positions = token_positions(input_ids, mask) if position_ids is None else position_ids  # [B, T]
        x = self.embed_tokens(input_ids) + self.embed_positions(within_table(positions, 4096))  # [B, T, 256]
        query, key = query_and_key(token_places(input_ids, mask), input_ids)  # [B, 1, T, 1], [B, 1, 1, T]
        # [B, 1, T, T]
        visible = visible_pairs(some(within_band(query, key, 127, 127), with_token(query, key, [0])), mask)
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x, mask, visible)  # [B, T, 256]
        return x, mask


class Output(NamedTuple):
    """What the model returns."""

    logits: Tensor
    loss: Tensor | None


class LongformerTiny(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, position_ids[B, T]?, labels[B, T]? -> logits[B, T, 9], loss[]?"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)
        self.head = nn.Linear(256, 9)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Output:
        x, mask = self.encoder(input_ids, attention_mask, position_ids)  # [B, T, 256], [B, T]
        logits = self.head(x)  # [B, T, 9]
        loss = None if labels is None else cross_entropy(logits, real_labels(labels, mask))  # []
        return Output(logits, loss)
