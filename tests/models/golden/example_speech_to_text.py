"""SpeechToText, written by seqspec.

Sizes: B batch, T time, S time with the past, E the encoder's time.
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


def within_table(positions, max_length):
    """The positions, checked: the error of a table names neither the position nor the limit."""
    if positions.numel() and not torch.compiler.is_compiling():
        first, last = (int(bound) for bound in positions.aminmax())
        if first < 0:
            raise IndexError(f"position {first} is negative")
        if last >= max_length:
            raise IndexError(f"position {last} is in a sequence of at least {last + 1}, but max_length is {max_length}")
    return positions


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


class EncoderAttention(nn.Module):
    """x[B, ceil(T / 2), 384], mask[B, ceil(T / 2)]? -> [B, ceil(T / 2), 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(384, 384)
        self.k_proj = nn.Linear(384, 384, bias=False)
        self.v_proj = nn.Linear(384, 384)
        self.o_proj = nn.Linear(384, 384)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, ceil(T / 2), 64]
        k = self.k_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, ceil(T / 2), 64]
        v = self.v_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, ceil(T / 2), 64]
        return self.o_proj(attend(q, k, v, mask).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """x[B, ceil(T / 2), 384] -> [B, ceil(T / 2), 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(384, 1536)
        self.down_proj = nn.Linear(1536, 384)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class EncoderBlock(nn.Module):
    """x[B, ceil(T / 2), 384], mask[B, ceil(T / 2)]? -> [B, ceil(T / 2), 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(384, eps=1e-05)
        self.attention = EncoderAttention()
        self.ffn_norm = nn.LayerNorm(384, eps=1e-05)
        self.ffn = FeedForward()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.attention(self.attention_norm(x), mask)  # [B, ceil(T / 2), 384]
        x = x + y  # [B, ceil(T / 2), 384]
        return x + self.ffn(self.ffn_norm(x))


class Encoder(nn.Module):
    """input_features[B, 80, T], attention_mask[B, T]?, position_ids[B, ceil(T / 2)]?
    -> [B, ceil(T / 2), 384], [B, ceil(T / 2)]?
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.convolutions = nn.ModuleList(
            [nn.Conv1d(80, 384, 3, padding=1), nn.Conv1d(384, 384, 3, stride=2, padding=1)]
        )
        self.layers = nn.ModuleList(EncoderBlock() for _ in range(4))
        self.final_norm = nn.LayerNorm(384, eps=1e-05)

    def forward(
        self, input_features: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        frames = input_features.transpose(1, 2)  # [B, T, 80]
        mask = padding_mask(frames, attention_mask, None)  # [B, T]
        x, mask = real_first(frames, mask)  # [B, T, 80], [B, T]
        x = F.gelu(self.convolutions[0](x.transpose(1, 2)).transpose(1, 2))  # [B, T, 384]
        x = F.gelu(self.convolutions[1](zero_padding(x, mask).transpose(1, 2)).transpose(1, 2))  # [B, ceil(T / 2), 384]
        mask = None if mask is None else mask[:, ::2]  # [B, ceil(T / 2)]
        positions = token_positions(x, mask) if position_ids is None else position_ids  # [B, ceil(T / 2)]
        x = x + half_split_sinusoids(positions, 384, 10000.0, x.dtype)  # [B, ceil(T / 2), 384]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x, mask)  # [B, ceil(T / 2), 384]
        return self.final_norm(x), mask


class DecoderAttention(nn.Module):
    """x[B, T, 384], mask[B, S]? -> [B, T, 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(384, 384)
        self.k_proj = nn.Linear(384, 384, bias=False)
        self.v_proj = nn.Linear(384, 384)
        self.o_proj = nn.Linear(384, 384)

    def forward(self, x: Tensor, mask: Tensor | None = None, past: tuple | None = None) -> tuple[Tensor, tuple]:
        past_key, past_value = past or (None, None)
        q = self.q_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        k = self.k_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        v = self.v_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        k = append(past_key, k)  # [B, 6, S, 64]
        v = append(past_value, v)  # [B, 6, S, 64]
        return self.o_proj(attend_band(q, k, v, mask, right=0).transpose(1, 2).flatten(2)), (k, v)


class CrossAttention(nn.Module):
    """x[B, T, 384], memory[B, ceil(E / 2), 384], memory_mask[B, ceil(E / 2)]? -> [B, T, 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(384, 384)
        self.k_proj = nn.Linear(384, 384, bias=False)
        self.v_proj = nn.Linear(384, 384)
        self.o_proj = nn.Linear(384, 384)

    def forward(
        self, x: Tensor, memory: Tensor | None, memory_mask: Tensor | None = None, past: tuple | None = None
    ) -> tuple[Tensor, tuple]:
        past_key, past_value = past or (None, None)
        # [B, 6, ceil(E / 2), 64]
        k = self.k_proj(memory).unflatten(-1, (6, 64)).transpose(1, 2) if past_key is None else past_key
        # [B, 6, ceil(E / 2), 64]
        v = self.v_proj(memory).unflatten(-1, (6, 64)).transpose(1, 2) if past_value is None else past_value
        y = attend(self.q_proj(x).unflatten(-1, (6, 64)).transpose(1, 2), k, v, memory_mask)  # [B, 6, T, 64]
        return self.o_proj(y.transpose(1, 2).flatten(2)), (k, v)


class FeedForward2(nn.Module):
    """x[B, T, 384] -> [B, T, 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(384, 1536)
        self.down_proj = nn.Linear(1536, 384)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class DecoderBlock(nn.Module):
    """x[B, T, 384], memory[B, ceil(E / 2), 384], mask[B, S]?, memory_mask[B, ceil(E / 2)]? -> [B, T, 384]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(384, eps=1e-05)
        self.attention = DecoderAttention()
        self.cross_attention_norm = nn.LayerNorm(384, eps=1e-05)
        self.cross_attention = CrossAttention()
        self.ffn_norm = nn.LayerNorm(384, eps=1e-05)
        self.ffn = FeedForward2()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        past: tuple | None = None,
    ) -> tuple[Tensor, tuple]:
        past_attention, past_cross_attention = past or (None, None)
        y, present_attention = self.attention(self.attention_norm(x), mask, past_attention)  # [B, T, 384]
        x = x + y  # [B, T, 384]
        y, present_cross_attention = self.cross_attention(
            self.cross_attention_norm(x), memory, memory_mask, past_cross_attention
        )  # [B, T, 384]
        x = x + y  # [B, T, 384]
        x = x + self.ffn(self.ffn_norm(x))  # [B, T, 384]
        return x, (present_attention, present_cross_attention)


class Decoder(nn.Module):
    """input_ids[B, T], memory[B, ceil(E / 2), 384], attention_mask[B, S]?, position_ids[B, T]?,
    memory_mask[B, ceil(E / 2)]? -> [B, T, 384], [B, S]?
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(51865, 384)
        self.embed_positions = nn.Embedding(448, 384)
        self.layers = nn.ModuleList(DecoderBlock() for _ in range(4))
        self.final_norm = nn.LayerNorm(384, eps=1e-05)

    def forward(
        self,
        input_ids: Tensor,
        memory: Tensor | None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        memory_mask: Tensor | None = None,
        past: tuple | None = None,
    ) -> tuple[Tensor, Tensor | None, tuple]:
        past_attention_mask, past_encoder_attention_mask, past_layers = past or (None,) * 3
        past_length = 0 if past is None else past_layers[0][0][0].shape[2]
        mask = padding_mask(input_ids, attention_mask, None, past_attention_mask, past_length)  # [B, S]
        positions = token_positions(input_ids, mask, past_length) if position_ids is None else position_ids  # [B, T]
        x = self.embed_tokens(input_ids) + self.embed_positions(within_table(positions, 448))  # [B, T, 384]
        # [B, ceil(E / 2)]
        memory_mask = memory_mask if past_encoder_attention_mask is None else past_encoder_attention_mask
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        presents = []
        for layer, layer_past in zip(layers, past_layers or [None] * 4, strict=True):
            x, present = layer(x, memory, mask, memory_mask, layer_past)  # [B, T, 384]
            presents.append(present)
        return self.final_norm(x), mask, (mask, memory_mask, presents)


STATE = (
    "past_state.attention_mask",
    "encoder_attention_mask",
    [
        (
            (f"past_key_values.{n}.decoder.key", f"past_key_values.{n}.decoder.value"),
            (f"past_key_values.{n}.encoder.key", f"past_key_values.{n}.encoder.value"),
        )
        for n in range(4)
    ],
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


class SpeechToText(nn.Module):
    """decoder_input_ids[B, T], input_features[B, 80, E], attention_mask[B, E]?, position_ids[B, ceil(E / 2)]?,
    decoder_attention_mask[B, S]?, decoder_position_ids[B, T]?, labels[B, T]? -> logits[B, T, 51865], loss[]?

    Read on the first call only, when there is no state yet: input_features, attention_mask, position_ids.
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)
        self.decoder = Decoder(checkpoint)

    def forward(
        self,
        decoder_input_ids: Tensor,
        input_features: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        if past is None:
            # [B, ceil(E / 2), 384], [B, ceil(E / 2)]
            memory, mask = self.encoder(input_features, attention_mask, position_ids)
        else:
            memory = mask = None
        x, mask, present = self.decoder(
            decoder_input_ids, memory, decoder_attention_mask, decoder_position_ids, mask, past
        )  # [B, T, 384], [B, S]
        logits = F.linear(x, self.decoder.embed_tokens.weight)  # [B, T, 51865]
        loss = None if labels is None else cross_entropy(logits, labels_ahead(labels, mask, logits.size(1)))  # []
        return Output(logits, loss, State(flatten(STATE, present)))
