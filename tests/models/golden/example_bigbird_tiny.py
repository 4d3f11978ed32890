"""BigbirdTiny, written by seqspec.

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


def drawn_block(number, near, first, part, parts, factors):
    """The block that each draws among those before it, first and near ones left out: one of a part of them, or -1."""
    a, b, c = factors
    free = (number - near - first).clamp(min=0)
    low, high = first + free * part // parts, first + free * (part + 1) // parts
    hashed = (((a * number + b) % 2147483647) ** 2 + c) % 2147483647
    return torch.where(high > low, low + hashed**2 % 2147483647 % (high - low).clamp(min=1), -1)


def block_sparse(query, key, size, near, first, draws):
    """Blocks up to `near` apart, the `first` ones with all, and each with one of those before it in every draw."""
    query, key = query.clamp(min=0) // size, key.clamp(min=0) // size
    seen = ((query - key).abs() <= near) | (query < first) | (key < first)
    for part, factors in enumerate(draws):
        seen = seen | (drawn_block(query, near, first, part, len(draws), factors) == key)
        seen = seen | (drawn_block(key, near, first, part, len(draws), factors) == query)
    return seen


def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]


def real_tokens(x, mask):
    """The mask of x[B, T, D]: real[B, T], all where it is None, else the last T columns."""
    if mask is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return mask[:, mask.size(1) - x.size(1) :]


def mean_token(x, mask):
    """The mean of x[B, T, D] over the real tokens; zeros where there is none."""
    real = real_tokens(x, mask)
    count = real.sum(1, keepdim=True).clamp(min=1)
    # a mean over all positions, made larger: the sum alone is past what half precision holds
    return x.masked_fill(~real[..., None], 0).mean(1) * (x.size(1) / count.double()).to(x.dtype)


def unit(x):
    """x / ‖x‖₂ over the last axis; a zero vector stays zero, in any dtype."""
    length = x.norm(dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0, 1)


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
        return self.down_proj(F.gelu(self.up_proj(x), approximate="tanh"))


class Block(nn.Module):
    """x[B, T, 256], mask[B, T], visible[B, 1, T, T] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.attention_norm = nn.LayerNorm(256, eps=1e-12)
        self.ffn = FeedForward()
        self.ffn_norm = nn.LayerNorm(256, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor, visible: Tensor) -> Tensor:
        y = self.attention(x, visible)  # [B, T, 256]
        x = self.attention_norm(x + y)  # [B, T, 256]
        return self.ffn_norm(x + self.ffn(x))


class Encoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, position_ids[B, T]? -> [B, T, 256], [B, T]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(50358, 256)
        self.embed_positions = nn.Embedding(4096, 256)
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        mask = padding_mask(input_ids, attention_mask, input_ids != 0)  # [B, T]
        positions = token_positions(input_ids, mask) if position_ids is None else position_ids  # [B, T]
        x = self.embed_tokens(input_ids) + self.embed_positions(within_table(positions, 4096))  # [B, T, 256]
        query, key = query_and_key(token_places(input_ids, mask), input_ids)  # [B, 1, T, 1], [B, 1, 1, T]
        visible = visible_pairs(
            block_sparse(
                query,
                key,
                64,
                1,
                1,
                [
                    (221336802, 327006439, 970373847),
                    (346156176, 1859695770, 1624320889),
                    (934233835, 126983043, 988825343),
                ],
            ),
            mask,
        )  # [B, 1, T, T]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x, mask, visible)  # [B, T, 256]
        return x, mask


class Output(NamedTuple):
    """What the model returns."""

    embedding: Tensor


class BigbirdTiny(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, position_ids[B, T]? -> embedding[B, 256]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        x, mask = self.encoder(input_ids, attention_mask, position_ids)  # [B, T, 256], [B, T]
        pooled = mean_token(x, mask)  # [B, 256]
        return Output(unit(pooled))
