"""ElmanLanguageModel, written by seqspec.

Sizes: B batch, T time.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def initial_states(rnn, x, h=None, c=None):
    """[B, L * D, H] each, zeros where not given: h, as wide as what is put out, and c where there are four gates"""
    (rows, width), layers = rnn.weight_hh_l0.shape, rnn.num_layers * (2 if rnn.bidirectional else 1)
    states = [(h, width), (c, rnn.hidden_size)][: 2 if rows == 4 * rnn.hidden_size else 1]
    return tuple(x.new_zeros(x.shape[0], layers, size) if s is None else s for s, size in states)


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


class Stepwise(nn.Module):
    """Recurrent layers that torch lacks, a step at a time: `step(W x + b, states, U, c) -> states` of `gates` blocks.

    Parameters as in nn.GRU. x[B, T, I], mask[B, S] or None, states[B, L * D, H] or None -> y[B, T, D * H], states
    """

    def __init__(
        self,
        step,
        gates,
        input_size,
        hidden_size,
        num_layers=1,
        bidirectional=False,
        biases=2,
        dropout=0.0,
        peepholes=False,
        proj_size=0,
    ):
        super().__init__()
        self.step, self.hidden_size, self.num_layers = step, hidden_size, num_layers
        self.bidirectional, self.dropout = bidirectional, dropout
        directions = ("", "_reverse") if bidirectional else ("",)
        rows, width = gates * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            columns = len(directions) * width if layer else input_size
            shapes = [("weight_ih", (rows, columns)), ("weight_hh", (rows, width))]
            shapes += [("bias_ih", (rows,)), ("bias_hh", (rows,))][:biases]
            shapes += [("weight_ch", (3 * hidden_size,))] if peepholes else []
            shapes += [("weight_hr", (proj_size, hidden_size))] if proj_size else []
            for direction in directions:
                for name, shape in shapes:
                    start = torch.empty(shape).uniform_(-(hidden_size**-0.5), hidden_size**-0.5)
                    self.register_parameter(f"{name}_l{layer}{direction}", nn.Parameter(start))

    def forward(self, x, mask=None, *states):
        return stepwise(self, self.step, x, mask, *initial_states(self, x, *states))


def tanh_step(x, state, weight, bias):
    """x = W x_t + b; h' = tanh(x + U h + c)"""
    return (torch.tanh(x + F.linear(state[0], weight, bias)),)


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


class RnnLayer(nn.Module):
    """x[B, T, 64], mask[B, T]? -> [B, T, 128]"""

    def __init__(self) -> None:
        super().__init__()
        self.h0 = nn.Parameter(torch.empty(1, 128).uniform_(-0.08838834764831843, 0.08838834764831843))
        self.rnn = Stepwise(tanh_step, 1, 64, 128, biases=1)

    def forward(self, x: Tensor, mask: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        # [B, T, 128], [B, 1, 128]
        y, h = self.rnn(x, mask, self.h0.expand(x.shape[0], -1, -1) if past is None else past)
        return y, h


class LinearLayer(nn.Module):
    """x[B, T, 128] -> [B, T, 64]"""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class Decoder(nn.Module):
    """input_ids[B, T], attention_mask[B, T]? -> [B, T, 64], [B, T]?"""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(2000, 64)
        self.layers = nn.ModuleList(kind() for kind in [RnnLayer, LinearLayer])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        mask = padding_mask(input_ids, attention_mask, None)  # [B, T]
        x = self.embed_tokens(input_ids)  # [B, T, 64]
        x, present = self.layers[0](x, mask, past)  # [B, T, 128]
        x = self.layers[1](x)  # [B, T, 64]
        return x, mask, present


STATE = "past_state.0.rnn.h"


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


class ElmanLanguageModel(nn.Module):
    """input_ids[B, T], attention_mask[B, T]?, labels[B, T]? -> logits[B, T, 2000], loss[]?"""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        x, mask, present = self.decoder(input_ids, attention_mask, past)  # [B, T, 64], [B, T]
        logits = F.linear(x, self.decoder.embed_tokens.weight)  # [B, T, 2000]
        loss = None if labels is None else cross_entropy(logits, labels_ahead(labels, mask, logits.size(1)))  # []
        return Output(logits, loss, State(flatten(STATE, present)))
