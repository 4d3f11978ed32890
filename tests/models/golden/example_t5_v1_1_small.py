"""T5V11Small, written by seqspec.

Sizes: B batch, T time, S time with the past, E the encoder's time.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


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


def token_places(x, mask, past_length=0):
    """Places [B or 1, S] of all tokens, the past's included, counting real ones from 0."""
    if mask is None:
        return torch.arange(past_length + x.size(1), device=x.device)[None]
    return mask.cumsum(1) - 1


def query_and_key(row, x):
    """row[B, S] -> its last T entries [B, 1, T, 1] for queries, all [B, 1, 1, S] for keys; T is the length of x."""
    return row[:, None, row.size(1) - x.size(1) :, None], row[:, None, None]


def relative_bias(query, key, table, starts, bidirectional):
    """table[bucket, head] for the bucket of each way key - query, -> [B, H, T, S].

    Bucket n + 1 begins at `starts[n]` tokens; keys behind the query have buckets of their own, or none if not so.
    """
    way = key - query
    length = way.abs() if bidirectional else (-way).clamp(min=0)
    bucket = torch.bucketize(length, torch.tensor(starts, device=key.device), right=True)
    if bidirectional:
        bucket = bucket + (way > 0) * (len(starts) + 1)
    return table[bucket.squeeze(1)].permute(0, 3, 1, 2)


def recomputed(layers):
    """The layers, with what they compute inside worked out again in the backward pass instead of kept."""
    return [functools.partial(checkpoint, layer, use_reentrant=False) for layer in layers]


def append(past, x):
    """Joins x[B, G, T, d] to what came before it, if anything did."""
    return x if past is None else torch.cat([past, x], 2)


def attend(q, k, v, real=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale) v over the real keys: q[B, H, T, d], k[B, G, S, d], v[B, G, S, e] -> [B, H, T, e]."""
    visible = None if real is None else real[:, None, None]
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scale, enable_gqa=gqa)


def real_ids(ids, pad_id, past_length):
    """True where an id is not padding; the very first of a sequence is real whatever it is."""
    real = ids != pad_id
    if past_length == 0:
        real[:, :1] = True
    return real


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
    """x[B, T, 512], mask[B, T], relative[B, 6, T, T] -> [B, T, 512]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(512, 384, bias=False)
        self.k_proj = nn.Linear(512, 384, bias=False)
        self.v_proj = nn.Linear(512, 384, bias=False)
        self.o_proj = nn.Linear(384, 512, bias=False)

    def forward(self, x: Tensor, mask: Tensor, relative: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        k = self.k_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        v = self.v_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        y = attend_visible(
            q,
            k,
            v,
            visible_keys(q, k, mask, None, None),
            bias=relative,
            scale=1.0,
            dropout=0.1 if self.training else 0.0,
        )  # [B, 6, T, 64]
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """x[B, T, 512] -> [B, T, 512]"""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(512, 1024, bias=False)
        self.gate_proj = nn.Linear(512, 1024, bias=False)
        self.down_proj = nn.Linear(1024, 512, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # [B, T, 1024]
        y = F.dropout(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x), 0.1, self.training)
        return self.down_proj(y)


class EncoderBlock(nn.Module):
    """x[B, T, 512], mask[B, T], relative[B, 6, T, T] -> [B, T, 512]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(512, eps=1e-06)
        self.attention = EncoderAttention()
        self.ffn_norm = nn.RMSNorm(512, eps=1e-06)
        self.ffn = FeedForward()

    def forward(self, x: Tensor, mask: Tensor, relative: Tensor) -> Tensor:
        y = self.attention(self.attention_norm(x), mask, relative)  # [B, T, 512]
        x = x + F.dropout(y, 0.1, self.training)  # [B, T, 512]
        return x + F.dropout(self.ffn(self.ffn_norm(x)), 0.1, self.training)


class Encoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]? -> [B, T, 512], [B, T]"""

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_tokens = nn.Embedding(32128, 512)
        self.embed_relative = nn.Embedding(32, 6)
        self.layers = nn.ModuleList(EncoderBlock() for _ in range(8))
        self.final_norm = nn.RMSNorm(512, eps=1e-06)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mask = padding_mask(input_ids, attention_mask, input_ids != 0)  # [B, T]
        x = F.dropout(self.embed_tokens(input_ids), 0.1, self.training)  # [B, T, 512]
        query, key = query_and_key(token_places(input_ids, mask), input_ids)  # [B, 1, T, 1], [B, 1, 1, T]
        relative = relative_bias(
            query, key, self.embed_relative.weight, [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91], True
        )  # [B, 6, T, T]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        for layer in layers:
            x = layer(x, mask, relative)  # [B, T, 512]
        return self.final_norm(x), mask


class DecoderAttention(nn.Module):
    """x[B, T, 512], mask[B, S], relative[B, 6, T, S] -> [B, T, 512]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(512, 384, bias=False)
        self.k_proj = nn.Linear(512, 384, bias=False)
        self.v_proj = nn.Linear(512, 384, bias=False)
        self.o_proj = nn.Linear(384, 512, bias=False)

    def forward(self, x: Tensor, mask: Tensor, relative: Tensor, past: tuple | None = None) -> tuple[Tensor, tuple]:
        past_key, past_value = past or (None, None)
        q = self.q_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        k = self.k_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        v = self.v_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        k = append(past_key, k)  # [B, 6, S, 64]
        v = append(past_value, v)  # [B, 6, S, 64]
        y = attend_visible(
            q, k, v, visible_keys(q, k, mask, None, 0), bias=relative, scale=1.0, dropout=0.1 if self.training else 0.0
        )  # [B, 6, T, 64]
        return self.o_proj(y.transpose(1, 2).flatten(2)), (k, v)


class CrossAttention(nn.Module):
    """x[B, T, 512], memory[B, E, 512], memory_mask[B, E] -> [B, T, 512]"""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(512, 384, bias=False)
        self.k_proj = nn.Linear(512, 384, bias=False)
        self.v_proj = nn.Linear(512, 384, bias=False)
        self.o_proj = nn.Linear(384, 512, bias=False)

    def forward(
        self, x: Tensor, memory: Tensor | None, memory_mask: Tensor, past: tuple | None = None
    ) -> tuple[Tensor, tuple]:
        past_key, past_value = past or (None, None)
        # [B, 6, E, 64]
        k = self.k_proj(memory).unflatten(-1, (6, 64)).transpose(1, 2) if past_key is None else past_key
        # [B, 6, E, 64]
        v = self.v_proj(memory).unflatten(-1, (6, 64)).transpose(1, 2) if past_value is None else past_value
        y = self.q_proj(x).unflatten(-1, (6, 64)).transpose(1, 2)  # [B, 6, T, 64]
        y_2 = attend(y, k, v, memory_mask, scale=1.0, dropout=0.1 if self.training else 0.0)  # [B, 6, T, 64]
        return self.o_proj(y_2.transpose(1, 2).flatten(2)), (k, v)


class DecoderBlock(nn.Module):
    """x[B, T, 512], mask[B, S], relative[B, 6, T, S], memory[B, E, 512], memory_mask[B, E] -> [B, T, 512]"""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(512, eps=1e-06)
        self.attention = DecoderAttention()
        self.cross_attention_norm = nn.RMSNorm(512, eps=1e-06)
        self.cross_attention = CrossAttention()
        self.ffn_norm = nn.RMSNorm(512, eps=1e-06)
        self.ffn = FeedForward()

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        relative: Tensor,
        memory: Tensor | None,
        memory_mask: Tensor,
        past: tuple | None = None,
    ) -> tuple[Tensor, tuple]:
        past_attention, past_cross_attention = past or (None, None)
        y, present_attention = self.attention(self.attention_norm(x), mask, relative, past_attention)  # [B, T, 512]
        x = x + F.dropout(y, 0.1, self.training)  # [B, T, 512]
        y, present_cross_attention = self.cross_attention(
            self.cross_attention_norm(x), memory, memory_mask, past_cross_attention
        )  # [B, T, 512]
        x = x + F.dropout(y, 0.1, self.training)  # [B, T, 512]
        x = x + F.dropout(self.ffn(self.ffn_norm(x)), 0.1, self.training)  # [B, T, 512]
        return x, (present_attention, present_cross_attention)


class Decoder(nn.Module):
    """input_ids[B, T], tokens_table[32128, 512], memory[B, E, 512], memory_mask[B, E], attention_mask[B, S]?
    -> [B, T, 512], [B, S]
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.embed_relative = nn.Embedding(32, 6)
        self.layers = nn.ModuleList(DecoderBlock() for _ in range(8))
        self.final_norm = nn.RMSNorm(512, eps=1e-06)

    def forward(
        self,
        input_ids: Tensor,
        tokens_table: Tensor,
        memory: Tensor | None,
        memory_mask: Tensor | None,
        attention_mask: Tensor | None = None,
        past: tuple | None = None,
    ) -> tuple[Tensor, Tensor, tuple]:
        past_attention_mask, past_encoder_attention_mask, past_layers = past or (None,) * 3
        past_length = 0 if past is None else past_layers[0][0][0].shape[2]
        mask = padding_mask(
            input_ids, attention_mask, real_ids(input_ids, 0, past_length), past_attention_mask, past_length
        )  # [B, S]
        x = F.dropout(F.embedding(input_ids, tokens_table), 0.1, self.training)  # [B, T, 512]
        memory_mask = memory_mask if past_encoder_attention_mask is None else past_encoder_attention_mask  # [B, E]
        query, key = query_and_key(token_places(input_ids, mask, past_length), input_ids)  # [B, 1, T, 1], [B, 1, 1, S]
        relative = relative_bias(
            query,
            key,
            self.embed_relative.weight,
            [
                1,
                2,
                3,
                4,
                5,
                6,
                7,
                8,
                9,
                10,
                11,
                12,
                13,
                14,
                15,
                16,
                19,
                21,
                24,
                27,
                31,
                35,
                40,
                46,
                52,
                59,
                67,
                77,
                87,
                99,
                113,
            ],
            False,
        )  # [B, 6, T, S]
        layers = recomputed(self.layers) if self.checkpoint else self.layers
        presents = []
        for layer, layer_past in zip(layers, past_layers or [None] * 8, strict=True):
            x, present = layer(x, mask, relative, memory, memory_mask, layer_past)  # [B, T, 512]
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
        for n in range(8)
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


class T5V11Small(nn.Module):
    """decoder_input_ids[B, T], input_ids[B, E], attention_mask[B, E]?, decoder_attention_mask[B, S]?,
    labels[B, T]? -> logits[B, T, 32128], loss[]?

    Read on the first call only, when there is no state yet: input_ids, attention_mask.
    """

    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.encoder = Encoder(checkpoint)
        self.decoder = Decoder(checkpoint)
        self.head = nn.Linear(512, 32128, bias=False)

    def forward(
        self,
        decoder_input_ids: Tensor,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        if past is None:
            memory, mask = self.encoder(input_ids, attention_mask)  # [B, E, 512], [B, E]
        else:
            memory = mask = None
        x, mask, present = self.decoder(
            decoder_input_ids, self.encoder.embed_tokens.weight, memory, mask, decoder_attention_mask, past
        )  # [B, T, 512], [B, S]
        logits = self.head(x)  # [B, T, 32128]
        loss = None if labels is None else cross_entropy(logits, labels_ahead(labels, mask, logits.size(1)))  # []
        return Output(logits, loss, State(flatten(STATE, present)))
