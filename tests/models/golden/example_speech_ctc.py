"""SpeechCtc, written by seqspec.

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


def real_first(x, mask):
    """x[B, T, I] with the real frames of each row in front, in their order, and zeros behind them; and that mask."""
    if mask is None:
        return x, None
    order = (~mask).byte().argsort(dim=1, stable=True)
    mask = mask.gather(1, order)
    return x.gather(1, order[..., None].expand_as(x)).masked_fill(~mask[..., None], 0), mask


def zero_padding(x, mask):
    """x[B, T, I] with zeros where the last T columns of the mask are False."""
    return x if mask is None else x.masked_fill(~mask[:, mask.size(1) - x.size(1) :, None], 0)


def token_positions(x, mask, past_length=0):
    """Positions of the T tokens of x, counting real ones from 0; one row [1, T] where nothing is padded."""
    length = x.size(1)
    if mask is None:
        return torch.arange(past_length, past_length + length, device=x.device)[None]
    return (mask.cumsum(1) - 1).clamp(min=0)[:, mask.size(1) - length :]


def half_split_sinusoids(positions, width, base, dtype):
    """n = ⌊width/2⌋ sines of position · base^(-j/(n-1)), then n cosines; float64 angles, rounded once."""
    half = width // 2
    channel = torch.arange(half, dtype=torch.float64, device=positions.device)
    angles = positions[..., None] * base ** (-channel / max(half - 1, 1))
    return F.pad(torch.cat([angles.sin(), angles.cos()], -1), (0, width % 2)).to(dtype)


def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]


def ctc_loss(logits, labels, mask, blank_id):
    """-log of the probability of labels[B, L], over its length, at the real frames of logits[B, T, V]: the mean.

    Those are in the last T columns of mask[B, S]. Labels that are -100 are left out. A row that is too short for its
    labels counts as 0.
    """
    if labels.dim() != 2 or len(labels) != len(logits):
        raise ValueError(f"labels are {list(labels.shape)}, one row for each of the {len(logits)} of the logits")
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    lengths = torch.full((len(scores),), scores.size(1), device=scores.device)
    if mask is not None:
        mask = mask[:, mask.size(1) - scores.size(1) :]
        order = (~mask).byte().argsort(dim=1, stable=True)
        scores, lengths = scores.gather(1, order[..., None].expand_as(scores)), mask.sum(1)
    counts = labels != -100
    labels = labels.gather(1, (~counts).byte().argsort(dim=1, stable=True)).clamp(min=0)
    return F.ctc_loss(scores.transpose(0, 1), labels, lengths, counts.sum(1), blank_id, zero_infinity=True)


class Attention(nn.Module):
    """x[B, ceil(T / 2), 256], mask[B, ceil(T / 2)]? -> [B, ceil(T / 2), 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(256, 256)
        self.k_proj = nn.Linear(256, 256)
        self.v_proj = nn.Linear(256, 256)
        self.o_proj = nn.Linear(256, 256)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (4, 64)).transpose(1, 2)  # [B, 4, ceil(T / 2), 64]
        k = self.k_proj(x).unflatten(-1, (4, 64)).transpose(1, 2)  # [B, 4, ceil(T / 2), 64]
        v = self.v_proj(x).unflatten(-1, (4, 64)).transpose(1, 2)  # [B, 4, ceil(T / 2), 64]
        return self.o_proj(attend(q, k, v, mask).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """x[B, ceil(T / 2), 256] -> [B, ceil(T / 2), 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(256, 1024)
        self.down_proj = nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    """x[B, ceil(T / 2), 256], mask[B, ceil(T / 2)]? -> [B, ceil(T / 2), 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(256, eps=1e-05)
        self.attention = Attention()
        self.ffn_norm = nn.LayerNorm(256, eps=1e-05)
        self.ffn = FeedForward()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.attention(self.attention_norm(x), mask)  # [B, ceil(T / 2), 256]
        x = x + y  # [B, ceil(T / 2), 256]
        return x + self.ffn(self.ffn_norm(x))


class Encoder(nn.Module):
    """input_features[B, 80, T], attention_mask[B, T]?, position_ids[B, ceil(T / 2)]?
    -> [B, ceil(T / 2), 256], [B, ceil(T / 2)]?
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.convolutions = nn.ModuleList(
            [nn.Conv1d(80, 256, 3, padding=1), nn.Conv1d(256, 256, 3, stride=2, padding=1)]
        )
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.final_norm = nn.LayerNorm(256, eps=1e-05)

    def forward(
        self, input_features: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        frames = input_features.transpose(1, 2)  # [B, T, 80]
        mask = padding_mask(frames, attention_mask, None)  # [B, T]
        x, mask = real_first(frames, mask)  # [B, T, 80], [B, T]
        x = F.gelu(self.convolutions[0](x.transpose(1, 2)).transpose(1, 2))  # [B, T, 256]
        x = F.gelu(self.convolutions[1](zero_padding(x, mask).transpose(1, 2)).transpose(1, 2))  # [B, ceil(T / 2), 256]
        mask = None if mask is None else mask[:, ::2]  # [B, ceil(T / 2)]
        positions = token_positions(x, mask) if position_ids is None else position_ids  # [B, ceil(T / 2)]
        x = x + half_split_sinusoids(positions, 256, 10000.0, x.dtype)  # [B, ceil(T / 2), 256]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x, mask)  # [B, ceil(T / 2), 256]
        return self.final_norm(x), mask


class Output(NamedTuple):
    """What the model returns."""

    logits: Tensor
    loss: Tensor | None


class SpeechCtc(nn.Module):
    """input_features[B, 80, T], attention_mask[B, T]?, position_ids[B, ceil(T / 2)]?, labels[B, label_length]?
    -> logits[B, ceil(T / 2), 32], loss[]?
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)
        self.head = nn.Linear(256, 32)

    def forward(
        self,
        input_features: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Output:
        x, mask = self.encoder(input_features, attention_mask, position_ids)  # [B, ceil(T / 2), 256], [B, ceil(T / 2)]
        logits = self.head(x)  # [B, ceil(T / 2), 32]
        loss = None if labels is None else ctc_loss(logits, labels, mask, 0)  # []
        return Output(logits, loss)
