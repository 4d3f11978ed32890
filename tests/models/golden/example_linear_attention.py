"""LinearAttention, written by seqspec.

Sizes: B batch, T time, S time with the past.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def linear_features(q, k, v, real):
    """elu + 1 of q [B, G, H/G, T, d] and k [B, G, T, d], 0 at padding; v with a column of ones to count with."""
    q, k = F.elu(q.unflatten(1, (k.size(1), -1))) + 1, F.elu(k) + 1
    if real is not None:
        k = k.masked_fill(~real[:, None, real.size(1) - k.size(2) :, None], 0)
    return q, k, F.pad(v, (0, 1), value=1.0)


def counted_mean(sums):
    """sums[B, G, H/G, T, e + 1] -> [B, H, T, e]: divided by the last column, zeros where that is 0."""
    y, total = sums[..., :-1], sums[..., -1:]
    return (y / total.masked_fill(total == 0, 1)).flatten(1, 2)


def causal_linear_attention(q, k, v, real=None, kv_sum=None, key_sum=None, chunk=64):
    """The same over the real j up to i: pairs inside a chunk, sums of φ(k) vᵀ over the chunks before it.

    -> y [B, H, T, e], and the sums Σ φ(k) vᵀ [B, G, d, e], Σ φ(k) [B, G, d] to go on from.
    """
    q, k, v = linear_features(q, k, v, real)
    length = k.size(2)
    chunk = 1 if length == 1 else chunk
    count = -(-length // chunk)
    q, k, v = (F.pad(x, (0, 0, 0, count * chunk - length)).unflatten(-2, (count, chunk)) for x in (q, k, v))
    sums = k.transpose(-1, -2) @ v
    start = torch.zeros_like(sums.sum(2)) if kv_sum is None else torch.cat([kv_sum, key_sum[..., None]], -1)
    sums = torch.cat([start[:, :, None], sums], 2).cumsum(2)
    k, v, before, last = k[:, :, None], v[:, :, None], sums[:, :, None, :-1], sums[:, :, -1]
    y = q @ before + (q @ k.transpose(-1, -2)).tril() @ v
    return counted_mean(y.flatten(-3, -2)[..., :length, :]), last[..., :-1], last[..., -1]


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


def interleaved_sinusoids(positions, width, base, dtype):
    """Channel i is the sine (even) or cosine (odd) of position · base^(-2⌊i/2⌋/width); float64 angles, rounded once."""
    channel = torch.arange(width, device=positions.device)
    angles = positions[..., None] * base ** (-2.0 * (channel // 2).double() / width)
    return torch.where(channel % 2 == 0, angles.sin(), angles.cos()).to(dtype)


def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]


def labels_ahead(labels, mask, length):
    """labels[B, T] -> [B, T], at every real token the label of the next one; -100 at the last, and at padding.

    With labels[B, T + 1] the last column is what follows this chunk.
    """
    if labels.size(1) not in (length, length + 1):
        raise ValueError(f"labels have {labels.size(1)} columns, {length} positions {length} or {length + 1}")
    labels = F.pad(labels, (0, length + 1 - labels.size(1)), value=-100)
    if mask is None:
        return labels[:, 1:]
    real = mask[:, mask.size(1) - length :]
    place = torch.arange(length + 1, device=labels.device).where(F.pad(real, (0, 1), value=True), length)
    following = place.flip(1).cummin(1).values.flip(1)[:, 1:]
    return labels.gather(1, following).masked_fill(~real, -100)


def cross_entropy(logits, labels):
    """The mean of -log softmax(logits[..., C]) at labels[...], those that are -100 left out; 0 where none is left."""
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels are {list(labels.shape)}, the logits {list(logits.shape)}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


class LinearAttention2(nn.Module):
    """x[B, T, 256], mask[B, S] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(256, 256)
        self.k_proj = nn.Linear(256, 256)
        self.v_proj = nn.Linear(256, 256)
        self.o_proj = nn.Linear(256, 256)

    def forward(self, x: Tensor, mask: Tensor, past: tuple | None = None) -> tuple[Tensor, tuple]:
        past_kv_sum, past_key_sum = past or (None, None)
        q = self.q_proj(x).unflatten(-1, (8, 32)).transpose(1, 2)  # [B, 8, T, 32]
        k = self.k_proj(x).unflatten(-1, (8, 32)).transpose(1, 2)  # [B, 8, T, 32]
        v = self.v_proj(x).unflatten(-1, (8, 32)).transpose(1, 2)  # [B, 8, T, 32]
        # [B, 8, T, 32], [B, 8, 32, 32], [B, 8, 32]
        y, kv_sum, key_sum = causal_linear_attention(q, k, v, mask, past_kv_sum, past_key_sum)
        return self.o_proj(y.transpose(1, 2).flatten(2)), (kv_sum, key_sum)


class FeedForward(nn.Module):
    """x[B, T, 256] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(256, 1024)
        self.down_proj = nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    """x[B, T, 256], mask[B, S] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.linear_attention_norm = nn.LayerNorm(256, eps=1e-05)
        self.linear_attention = LinearAttention2()
        self.ffn_norm = nn.LayerNorm(256, eps=1e-05)
        self.ffn = FeedForward()

    def forward(self, x: Tensor, mask: Tensor, past: tuple | None = None) -> tuple[Tensor, tuple]:
        y, present = self.linear_attention(self.linear_attention_norm(x), mask, past)  # [B, T, 256]
        x = x + y  # [B, T, 256]
        x = x + self.ffn(self.ffn_norm(x))  # [B, T, 256]
        return x, present


class Decoder(nn.Module):
    """input_ids[B, T], attention_mask[B, S]?, position_ids[B, T]? -> [B, T, 256], [B, S]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(256, 256)
        self.layers = nn.ModuleList(Block() for _ in range(8))
        self.final_norm = nn.LayerNorm(256, eps=1e-05)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past: tuple | None = None,
    ) -> tuple[Tensor, Tensor, tuple]:
        past_attention_mask, past_layers = past or (None, None)
        past_length = 0 if past is None else past_attention_mask.shape[1]
        mask = padding_mask(
            input_ids,
            attention_mask,
            torch.ones(input_ids.shape[:2], dtype=torch.bool, device=input_ids.device),
            past_attention_mask,
            past_length,
        )  # [B, S]
        positions = token_positions(input_ids, mask, past_length) if position_ids is None else position_ids  # [B, T]
        embed_tokens = self.embed_tokens(input_ids)  # [B, T, 256]
        x = embed_tokens + interleaved_sinusoids(positions, 256, 10000.0, embed_tokens.dtype)  # [B, T, 256]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        presents = []
        for layer, layer_past in zip(layers, past_layers or [None] * 8, strict=True):
            x, present = layer(x, mask, layer_past)  # [B, T, 256]
            presents.append(present)
        return self.final_norm(x), mask, (mask, presents)


STATE = (
    "past_state.attention_mask",
    [(f"past_state.{n}.linear_attention.kv_sum", f"past_state.{n}.linear_attention.key_sum") for n in range(8)],
)


def nest(names, state):
    """The tensors of `state`, nested as `names` are; None for a name it does not have."""
    return state.get(names) if isinstance(names, str) else [nest(inner, state) for inner in names]


def flatten(names, present):
    """The way back: {name: tensor}, without the tensors that are None."""
    if isinstance(names, str):
        return {} if present is None else {names: present}
    return {k: x for inner, part in zip(names, present, strict=True) for k, x in flatten(inner, part).items()}


def past_from(state):
    """The tensors of `state`, nested as STATE is; None where there is no state yet."""
    if state is None:
        return None
    unknown = sorted(state.keys() - flatten(STATE, STATE).keys())
    if unknown:
        raise KeyError(f"the model has no state called {', '.join(unknown)}")
    return nest(STATE, state)


class State(dict):
    """What one call leaves for the next: tensors by name, batch first. Pass it back as `state`."""

    def detach(self) -> "State":
        """Cut off from the gradient, for truncated backpropagation through time."""
        return State({name: x.detach() for name, x in self.items()})

    def reorder(self, rows: Tensor) -> "State":
        """The given rows of the batch, as a beam search picks them."""
        return State({name: x.index_select(0, rows) for name, x in self.items()})


# lets torch.export and torch.func see the tensors
torch.utils._pytree.register_pytree_node(
    State,
    lambda state: (list(state.values()), list(state)),
    lambda tensors, keys: State(zip(keys, tensors, strict=True)),
    serialized_type_name=f"{__name__}.State",
)


class Output(NamedTuple):
    """What the model returns."""

    logits: Tensor
    loss: Tensor | None
    state: State


class LinearAttention(nn.Module):
    """input_ids[B, T], attention_mask[B, S]?, position_ids[B, T]?, labels[B, T]? -> logits[B, T, 256], loss[]?"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.decoder = Decoder(checkpoint)
        self.head = nn.Linear(256, 256, bias=False)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        x, mask, present = self.decoder(input_ids, attention_mask, position_ids, past)  # [B, T, 256], [B, S]
        logits = self.head(x)  # [B, T, 256]
        loss = None if labels is None else cross_entropy(logits, labels_ahead(labels, mask, logits.size(1)))  # []
        return Output(logits, loss, State(flatten(STATE, present)))
