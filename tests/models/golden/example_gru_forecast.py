"""GruForecast, written by seqspec.

Sizes: B batch, T time.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def gru_step(x, state, weight, bias):
    """x = W x_t + b, of gates r z n; n = tanh(x + r (U h + c)), h' = (1 - z) n + z h"""
    (h,) = state
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return ((1 - z) * n + z * h,)


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


def zero_padding(x, mask):
    """x[B, T, I] with zeros where the last T columns of the mask are False."""
    return x if mask is None else x.masked_fill(~mask[:, mask.size(1) - x.size(1) :, None], 0)


def real_tokens(x, mask):
    """The mask of x[B, T, D]: real[B, T], all where it is None, else the last T columns."""
    if mask is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return mask[:, mask.size(1) - x.size(1) :]


def last_token_so_far(x, mask, past):
    """x[B, T, D] at the last real token; past[B, D], or zeros, where this chunk has none."""
    before = x.new_zeros(x.size(0), x.size(2)) if past is None else past
    real = F.pad(real_tokens(x, mask), (1, 0), value=True)
    last = torch.arange(real.size(1), device=x.device).where(real, 0).amax(1)
    return torch.cat([before[:, None], x], 1)[torch.arange(x.size(0), device=x.device), last]


def squared_error(y, labels, mask=None):
    """The mean of (y - labels)² over the last T columns of the mask; 0 where there is nothing."""
    if labels.shape != y.shape:
        raise ValueError(f"labels are {list(labels.shape)}, the output {list(y.shape)}")
    dtype = torch.promote_types(y.dtype, torch.float32)
    error = y.to(dtype) - labels.to(dtype)
    if mask is None:
        return error.square().sum() / max(error.numel(), 1)
    real = mask[:, mask.size(1) - y.size(1) :, None]
    return error.masked_fill(~real, 0).square().sum() / (real.sum() * y.size(2)).clamp(min=1)


class GruLayer(nn.Module):
    """x[B, T, 8], mask[B, T]? -> [B, T, 64]"""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 64, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, h = ragged(self.gru, gru_step, x, mask, past)  # [B, T, 64], [B, 1, 64]
        return y, h


class Encoder(nn.Module):
    """features[B, T, 8], attention_mask[B, T]? -> [B, T, 64], [B, T]?"""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GruLayer()])

    def forward(
        self, features: Tensor, attention_mask: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        mask = padding_mask(features, attention_mask, None)  # [B, T]
        x = zero_padding(features, mask)  # [B, T, 8]
        x, present = self.layers[0](x, mask, past)  # [B, T, 64]
        return x, mask, present


STATE = ("past_state.0.gru.h", "past_state.last")


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


class GruForecast(nn.Module):
    """features[B, T, 8], attention_mask[B, T]?, labels[B, 1]? -> logits[B, 1], loss[]?"""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(64, 1)

    def forward(
        self,
        features: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        past_encoder, past_last = past or (None, None)
        x, mask, present = self.encoder(features, attention_mask, past_encoder)  # [B, T, 64], [B, T]
        pooled = last_token_so_far(x, mask, past_last)  # [B, 64]
        logits = self.head(pooled)  # [B, 1]
        loss = None if labels is None else squared_error(logits, labels)  # []
        return Output(logits, loss, State(flatten(STATE, (present, pooled))))
