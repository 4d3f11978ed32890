"""Llama321b, written by seqspec.

Sizes: B batch, T time, S time with the past.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def rotate_half_split(x, cos, sin):
    """Turns the channel pairs (i, i + width/2) of x[B, H, T, d] by the angles of cos, sin [B, T, width/2]."""
    cos, sin = cos[:, None], sin[:, None]
    half = cos.size(-1)
    a, b, rest = x.tensor_split((half, 2 * half), -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def append(past, x):
    """Joins x[B, G, T, d] to what came before it, if anything did."""
    return x if past is None else torch.cat([past, x], 2)


def visible_keys(q, k, real, left, right):
    """The keys that each query sees, [B or 1, 1, T, S]: real ones, from `left` before it to `right` after.

    Query i sits at key S - T + i. Distances count real tokens, so that padding anywhere changes nothing.
    """
    queries, keys = q.size(2), k.size(2)
    place = torch.arange(keys, device=q.device)[None] if real is None else real.cumsum(1) - 1
    key, query = place[:, None, :], place[:, keys - queries :, None]
    visible = torch.ones_like(key, dtype=torch.bool) if real is None else real[:, None, :]
    if left is not None:
        visible = visible & (key >= query - left)
    if right is not None:
        visible = visible & (key <= query + right)
    return visible[:, None]


def attend_band(q, k, v, real=None, left=None, right=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale) v over the real keys from `left` before a query to `right` after it, None having no bound.

    q[B, H, T, d], k[B, G, S, d], v[B, G, S, e] -> [B, H, T, e]; query i sits at key S - T + i: right=0 is causal.
    """
    queries, keys = q.size(2), k.size(2)
    visible, causal = None, False
    if real is not None or left is not None or right != 0 or queries not in (1, keys):
        visible = visible_keys(q, k, real, left, right)
    elif queries > 1:
        causal = True  # the kernel's own flag, and no mask at all; one query at the end sees every key
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, visible, dropout, causal, scale=scale, enable_gqa=gqa)


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


def rope_frequencies(width, theta, device):
    """theta^(-2i/width) for each of width/2 pairs, in float64."""
    return theta ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


def llama3_scaled(frequencies, factor, low_freq_factor, high_freq_factor, original_max_length):
    """Frequencies of over `high` turns in the original length are kept, of under `low` turns divided by factor."""
    turns = original_max_length * frequencies / (2 * torch.pi)
    kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)


def rope_tables(positions, frequencies, dtype):
    """cos, sin [B, T, width/2] of position · frequency: float64 angles, rounded once."""
    angles = positions[..., None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


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


class Attention(nn.Module):
    """x[B, T, 2048], cos[B, T, 32], sin[B, T, 32], mask[B, S]? -> [B, T, 2048]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(2048, 2048, bias=False)
        self.k_proj = nn.Linear(2048, 512, bias=False)
        self.v_proj = nn.Linear(2048, 512, bias=False)
        self.o_proj = nn.Linear(2048, 2048, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None, past: tuple | None = None
    ) -> tuple[Tensor, tuple]:
        past_key, past_value = past or (None, None)
        q = self.q_proj(x).unflatten(-1, (32, 64)).transpose(1, 2)  # [B, 32, T, 64]
        k = self.k_proj(x).unflatten(-1, (8, 64)).transpose(1, 2)  # [B, 8, T, 64]
        v = self.v_proj(x).unflatten(-1, (8, 64)).transpose(1, 2)  # [B, 8, T, 64]
        q = rotate_half_split(q, cos, sin)  # [B, 32, T, 64]
        k = rotate_half_split(k, cos, sin)  # [B, 8, T, 64]
        k = append(past_key, k)  # [B, 8, S, 64]
        v = append(past_value, v)  # [B, 8, S, 64]
        return self.o_proj(attend_band(q, k, v, mask, right=0).transpose(1, 2).flatten(2)), (k, v)


class FeedForward(nn.Module):
    """x[B, T, 2048] -> [B, T, 2048]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(2048, 8192, bias=False)
        self.gate_proj = nn.Linear(2048, 8192, bias=False)
        self.down_proj = nn.Linear(8192, 2048, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """x[B, T, 2048], cos[B, T, 32], sin[B, T, 32], mask[B, S]? -> [B, T, 2048]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(2048, eps=1e-05)
        self.attention = Attention()
        self.ffn_norm = nn.RMSNorm(2048, eps=1e-05)
        self.ffn = FeedForward()

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None, past: tuple | None = None
    ) -> tuple[Tensor, tuple]:
        y, present = self.attention(self.attention_norm(x), cos, sin, mask, past)  # [B, T, 2048]
        x = x + y  # [B, T, 2048]
        x = x + self.ffn(self.ffn_norm(x))  # [B, T, 2048]
        return x, present


class Decoder(nn.Module):
    """input_ids[B, T], attention_mask[B, S]?, position_ids[B, T]? -> [B, T, 2048], [B, S]?"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(128256, 2048)
        self.layers = nn.ModuleList(Block() for _ in range(16))
        self.final_norm = nn.RMSNorm(2048, eps=1e-05)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past: tuple | None = None,
    ) -> tuple[Tensor, Tensor | None, tuple]:
        past_attention_mask, past_layers = past or (None, None)
        past_length = 0 if past is None else past_layers[0][0].shape[2]
        mask = padding_mask(input_ids, attention_mask, None, past_attention_mask, past_length)  # [B, S]
        positions = token_positions(input_ids, mask, past_length) if position_ids is None else position_ids  # [B, T]
        x = self.embed_tokens(input_ids)  # [B, T, 2048]
        cos, sin = rope_tables(
            positions, llama3_scaled(rope_frequencies(64, 500000.0, x.device), 32.0, 1.0, 4.0, 8192), x.dtype
        )  # [B, T, 32], [B, T, 32]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        presents = []
        for layer, layer_past in zip(layers, past_layers or [None] * 16, strict=True):
            x, present = layer(x, cos, sin, mask, layer_past)  # [B, T, 2048]
            presents.append(present)
        return self.final_norm(x), mask, (mask, presents)


STATE = ("past_state.attention_mask", [(f"past_key_values.{n}.key", f"past_key_values.{n}.value") for n in range(16)])


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


class Llama321b(nn.Module):
    """input_ids[B, T], attention_mask[B, S]?, position_ids[B, T]?, labels[B, T]? -> logits[B, T, 128256], loss[]?"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.decoder = Decoder(checkpoint)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        x, mask, present = self.decoder(input_ids, attention_mask, position_ids, past)  # [B, T, 2048], [B, S]
        logits = F.linear(x, self.decoder.embed_tokens.weight)  # [B, T, 128256]
        loss = None if labels is None else cross_entropy(logits, labels_ahead(labels, mask, logits.size(1)))  # []
        return Output(logits, loss, State(flatten(STATE, present)))
