"""NmtLuong, written by seqspec.

Sizes: B batch, T time, S time with the past, E the encoder's time.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def lstm_step(x, state, weight, bias):
    """x = W x_t + b, of gates i f g o; c' = f c + i g, h' = o tanh(c')"""
    h, c = state
    i, f, g, o = (x + F.linear(h, weight, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def initial_states(rnn, x, h=None, c=None):
    """[B, L * D, H] each, zeros where not given: h, as wide as what is put out, and c where there are four gates"""
    (rows, width), layers = rnn.weight_hh_l0.shape, rnn.num_layers * (2 if rnn.bidirectional else 1)
    states = [(h, width), (c, rnn.hidden_size)][: 2 if rows == 4 * rnn.hidden_size else 1]
    return tuple(x.new_zeros(x.shape[0], layers, size) if s is None else s for s, size in states)


def run_layers(rnn, x, states):
    """Torch's own module on x[B, T, I] or a packed sequence, states[B, L * D, H] -> y, states"""
    first, *more = (s.transpose(0, 1).contiguous() for s in states)
    y, last = rnn(x, (first, *more) if more else first)
    return y, tuple(s.transpose(0, 1) for s in (last if more else (last,)))


def recurrent(rnn, x, *states):
    """x[B, T, I], states[B, L * D, H] or None -> y[B, T, D * H], states; nothing is padding, and T may be 0"""
    states = initial_states(rnn, x, *states)
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0], 0, states[0].shape[-1] * (2 if rnn.bidirectional else 1)), *states
    y, states = run_layers(rnn, x, states)
    return y, *states


def stepwise(rnn, step, x, mask, *states):
    """x[B, T, I], mask[B, S] or None, states[B, L * D, H] -> y[B, T, D * H], states; a state stands still at padding"""
    real = None if mask is None else mask[:, mask.shape[1] - x.shape[1] :, None]
    last = []
    for layer in range(rnn.num_layers):
        inputs = F.dropout(x, rnn.dropout, rnn.training) if layer else x
        outputs = []
        for suffix in (f"_l{layer}", f"_l{layer}_reverse")[: 2 if rnn.bidirectional else 1]:
            y, state = one_direction(rnn, step, inputs, real, tuple(s[:, len(last)] for s in states), suffix)
            outputs.append(y)
            last.append(state)
        x = torch.cat(outputs, -1)
    return x, *(torch.stack(s, 1) for s in zip(*last, strict=True))


def one_direction(rnn, step, x, real, state, suffix):
    """x[B, T, I], real[B, T, 1] or None, state[B, H] each -> y[B, T, H], state"""
    bias_ih, bias_hh = getattr(rnn, "bias_ih" + suffix, None), getattr(rnn, "bias_hh" + suffix, None)
    weight_hh, times = getattr(rnn, "weight_hh" + suffix), range(x.shape[1])
    more = [getattr(rnn, name + suffix) for name in ("weight_ch", "weight_hr") if hasattr(rnn, name + suffix)]
    x = F.linear(x, getattr(rnn, "weight_ih" + suffix), bias_ih)
    outputs = []
    for t in reversed(times) if suffix.endswith("_reverse") else times:
        new = step(x[:, t], state, weight_hh, bias_hh, *more)
        state = new if real is None else tuple(torch.where(real[:, t], n, s) for n, s in zip(new, state, strict=True))
        outputs.append(new[0])
    if suffix.endswith("_reverse"):
        outputs.reverse()
    y = torch.stack(outputs, 1) if outputs else x.new_zeros(x.shape[0], 0, state[0].shape[-1])
    return y if real is None else y.masked_fill(~real, 0), state


def ragged(rnn, step, x, mask, *states):
    """x[B, T, I], mask[B, S] or None (True = real), states[B, L * D, H] or None -> y[B, T, D * H], states

    Padding is skipped wherever it lies: its outputs are zeros, and a row without a real step keeps its states.
    Packing depends on the data, so that an export runs `step`, the same equation, over time instead.
    """
    if mask is None or x.shape[1] == 0:
        return recurrent(rnn, x, *states)
    states = initial_states(rnn, x, *states)
    if torch.compiler.is_exporting():
        return stepwise(rnn, step, x, mask, *states)
    mask = mask[:, mask.shape[1] - x.shape[1] :].cpu()
    if mask.all():
        return recurrent(rnn, x, *states)
    order = None
    if (mask[:, 1:] & ~mask[:, :-1]).any():  # something real follows padding: the real steps move to the left
        order = mask.int().argsort(dim=1, descending=True, stable=True)[..., None].to(x.device)
        x = x.gather(1, order.expand_as(x))
    lengths = mask.sum(1)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
    y, last = run_layers(rnn, packed, states)
    y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
    if lengths.min() == 0:
        some = (lengths > 0)[:, None, None].to(x.device)
        y, last = y.where(some, 0), tuple(n.where(some, s) for n, s in zip(last, states, strict=True))
    return y if order is None else torch.zeros_like(y).scatter(1, order.expand_as(y), y), *last


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


def masked_softmax(scores, mask):
    """scores[B, S], mask[B, S] or None -> softmax over what is True; an empty row gives zeros, and finite gradients"""
    if mask is None:
        return scores.softmax(-1)
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return scores.softmax(-1).masked_fill(~mask, 0.0)


def real_steps(mask, x):
    """The last T columns of mask[B, S] for x[B, T, ...]; all real where there is no mask."""
    length = x.size(1)
    return x.new_ones(x.size(0), length, dtype=torch.bool) if mask is None else mask[:, mask.size(1) - length :]


def stack_steps(steps, x, *shape):
    """steps [B, *shape], one for each column of x[B, T, ...] -> [B, T, *shape], T = 0 included"""
    return torch.stack(steps, 1) if steps else x.new_zeros(x.shape[0], 0, *shape)


def zero_padding(x, mask):
    """x[B, T, I] with zeros where the last T columns of the mask are False."""
    return x if mask is None else x.masked_fill(~mask[:, mask.size(1) - x.size(1) :, None], 0)


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


class LstmLayer(nn.Module):
    """x[B, T, 256], mask[B, T] -> [B, T, 256], [B, 1, 256], [B, 1, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(256, 256, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, h, c = ragged(self.lstm, lstm_step, x, mask)  # [B, T, 256], [B, 1, 256], [B, 1, 256]
        return y, h, c


class Encoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]? -> [B, T, 256], [B, T], [B, 1, 256], [B, 1, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(8000, 256)
        self.layers = nn.ModuleList([LstmLayer()])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mask = padding_mask(input_ids, attention_mask, input_ids != 0)  # [B, T]
        x = self.embed_tokens(input_ids)  # [B, T, 256]
        x, h_0, c_0 = self.layers[0](x, mask)  # [B, T, 256], [B, 1, 256], [B, 1, 256]
        return x, mask, h_0, c_0


class LstmStep(nn.Module):
    """h[B, 256], c[B, 256], output[B, 256], x[B, 256], real[B], keys[B, T, 256], memory[B, T, 256], mask[B, T]
    -> [B, 256], [B, 256], [B, 256], [B, 256]
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(512, 256)
        self.output_proj = nn.Linear(512, 256, bias=False)

    def forward(
        self, h: Tensor, c: Tensor, output: Tensor, x: Tensor, real: Tensor, keys: Tensor, memory: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h_2, c_2 = self.lstm(torch.cat([x, output], -1), (h, c))  # [B, 256], [B, 256]
        scores = (keys @ h_2.unsqueeze(-1)).squeeze(-1)  # [B, T]
        weights = masked_softmax(scores, mask)  # [B, T]
        context = (weights.unsqueeze(1) @ memory).squeeze(1)  # [B, 256]
        y = torch.tanh(self.output_proj(torch.cat([context, h_2], -1)))  # [B, 256]
        h = torch.where(real[:, None], h_2, h)  # [B, 256]
        c = torch.where(real[:, None], c_2, c)  # [B, 256]
        output = torch.where(real[:, None], y, output)  # [B, 256]
        return h, c, output, y


class LstmLayer2(nn.Module):
    """x[B, T, 256], mask[B, S], h_0[B, 1, 256], c_0[B, 1, 256], memory[B, E, 256], memory_mask[B, E]
    -> [B, T, 256]
    """

    def __init__(self) -> None:
        super().__init__()
        self.key_proj = nn.Linear(256, 256, bias=False)
        self.step = LstmStep()

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        h_0: Tensor | None,
        c_0: Tensor | None,
        memory: Tensor | None,
        memory_mask: Tensor,
        past: tuple | None = None,
    ) -> tuple[Tensor, tuple]:
        past_keys, past_memory, past_h, past_c, past_output = past or (None,) * 5
        keys = self.key_proj(memory) if past_keys is None else past_keys  # [B, E, 256]
        memory = memory if past_memory is None else past_memory  # [B, E, 256]
        real = real_steps(mask, x)  # [B, T]
        h = h_0[:, 0] if past_h is None else past_h  # [B, 256]
        c = c_0[:, 0] if past_c is None else past_c  # [B, 256]
        output = x.new_zeros(x.shape[0], 256) if past_output is None else past_output  # [B, 256]
        y_steps = []
        for t in range(x.shape[1]):
            # [B, 256], [B, 256], [B, 256], [B, 256]
            h, c, output, y_t = self.step(h, c, output, x[:, t], real[:, t], keys, memory, memory_mask)
            y_steps.append(y_t)
        y = stack_steps(y_steps, x, 256)  # [B, T, 256]
        y = zero_padding(y, mask)  # [B, T, 256]
        return y, (keys, memory, h, c, output)


class Decoder(nn.Module):
    """input_ids[B, T], memory[B, E, 256], memory_mask[B, E], h_0[B, 1, 256], c_0[B, 1, 256], attention_mask[B, S]?
    -> [B, T, 256], [B, S]
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(8000, 256)
        self.layers = nn.ModuleList([LstmLayer2()])

    def forward(
        self,
        input_ids: Tensor,
        memory: Tensor | None,
        memory_mask: Tensor | None,
        h_0: Tensor | None,
        c_0: Tensor | None,
        attention_mask: Tensor | None = None,
        past: tuple | None = None,
    ) -> tuple[Tensor, Tensor, tuple]:
        past_attention_mask, past_encoder_attention_mask, past_layers_0 = past or (None,) * 3
        past_length = 0 if past is None else past_attention_mask.shape[1]
        mask = padding_mask(
            input_ids, attention_mask, real_ids(input_ids, 0, past_length), past_attention_mask, past_length
        )  # [B, S]
        x = self.embed_tokens(input_ids)  # [B, T, 256]
        memory_mask = memory_mask if past_encoder_attention_mask is None else past_encoder_attention_mask  # [B, E]
        x, present = self.layers[0](x, mask, h_0, c_0, memory, memory_mask, past_layers_0)  # [B, T, 256]
        return x, mask, (mask, memory_mask, present)


STATE = (
    "past_state.attention_mask",
    "encoder_attention_mask",
    (
        "past_state.0.keys",
        "past_state.0.memory",
        "past_state.0.step.h",
        "past_state.0.step.c",
        "past_state.0.step.output",
    ),
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


class NmtLuong(nn.Module):
    """decoder_input_ids[B, T], input_ids[B, E], attention_mask[B, E]?, decoder_attention_mask[B, S]?,
    labels[B, T]? -> logits[B, T, 8000], loss[]?

    Read on the first call only, when there is no state yet: input_ids, attention_mask.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.head = nn.Linear(256, 8000, bias=False)

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
            # [B, E, 256], [B, E], [B, 1, 256], [B, 1, 256]
            memory, mask, h_0, c_0 = self.encoder(input_ids, attention_mask)
        else:
            memory = mask = h_0 = c_0 = None
        # [B, T, 256], [B, S]
        x, mask, present = self.decoder(decoder_input_ids, memory, mask, h_0, c_0, decoder_attention_mask, past)
        logits = self.head(x)  # [B, T, 8000]
        loss = None if labels is None else cross_entropy(logits, labels_ahead(labels, mask, logits.size(1)))  # []
        return Output(logits, loss, State(flatten(STATE, present)))
