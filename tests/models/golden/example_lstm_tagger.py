"""LstmTagger, written by seqspec.

Sizes: B batch, T time.
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


class LstmLayer(nn.Module):
    """x[B, T, 100], mask[B, T] -> [B, T, 256]"""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(100, 128, num_layers=2, batch_first=True, bidirectional=True, dropout=0.5)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y, _, _ = ragged(self.lstm, lstm_step, x, mask)  # [B, T, 256]
        return y


class Encoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]? -> [B, T, 256], [B, T]"""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(20000, 100)
        self.layers = nn.ModuleList([LstmLayer()])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mask = padding_mask(input_ids, attention_mask, input_ids != 0)  # [B, T]
        x = self.embed_tokens(input_ids)  # [B, T, 100]
        x = self.layers[0](x, mask)  # [B, T, 256]
        return x, mask


class Output(NamedTuple):
    """What the model returns."""

    logits: Tensor
    loss: Tensor | None


class LstmTagger(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, labels[B, T]? -> logits[B, T, 17], loss[]?"""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(256, 17)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Output:
        x, mask = self.encoder(input_ids, attention_mask)  # [B, T, 256], [B, T]
        logits = self.head(x)  # [B, T, 17]
        loss = None if labels is None else cross_entropy(logits, real_labels(labels, mask))  # []
        return Output(logits, loss)
