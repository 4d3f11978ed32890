"""The functions and modules of the emitted file that recurrent layers and cells use."""

from __future__ import annotations

from seqspec.ops.base import Helper

INITIAL_STATES = Helper(
    "initial_states",
    '''
def initial_states(rnn, x, h=None, c=None):
    """[B, L * D, H] each, zeros where not given: h, as wide as what is put out, and c where there are four gates"""
    (rows, width), layers = rnn.weight_hh_l0.shape, rnn.num_layers * (2 if rnn.bidirectional else 1)
    states = [(h, width), (c, rnn.hidden_size)][: 2 if rows == 4 * rnn.hidden_size else 1]
    return tuple(x.new_zeros(x.shape[0], layers, size) if s is None else s for s, size in states)
''',
)

RUN_LAYERS = Helper(
    "run_layers",
    '''
def run_layers(rnn, x, states):
    """Torch's own module on x[B, T, I] or a packed sequence, states[B, L * D, H] -> y, states"""
    first, *more = (s.transpose(0, 1).contiguous() for s in states)
    y, last = rnn(x, (first, *more) if more else first)
    return y, tuple(s.transpose(0, 1) for s in (last if more else (last,)))
''',
)

RECURRENT = Helper(
    "recurrent",
    '''
def recurrent(rnn, x, *states):
    """x[B, T, I], states[B, L * D, H] or None -> y[B, T, D * H], states; nothing is padding, and T may be 0"""
    states = initial_states(rnn, x, *states)
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0], 0, states[0].shape[-1] * (2 if rnn.bidirectional else 1)), *states
    y, states = run_layers(rnn, x, states)
    return y, *states
''',
    (INITIAL_STATES, RUN_LAYERS),
)

STEPWISE = Helper(
    "stepwise",
    '''
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
''',
)

RAGGED = Helper(
    "ragged",
    '''
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
''',
    (RECURRENT, STEPWISE),
)

STEPWISE_LAYERS = Helper(
    "Stepwise",
    '''
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
''',
    (INITIAL_STATES, STEPWISE),
)

STEPWISE_CELL = Helper(
    "StepwiseCell",
    '''
class StepwiseCell(nn.Module):
    """A cell that torch lacks: `step(W x + b, states, U, c) -> states` of `gates` blocks; named as in nn.GRUCell"""

    def __init__(self, step, gates, input_size, hidden_size, biases=2, peepholes=False, proj_size=0):
        super().__init__()
        self.step, rows = step, gates * hidden_size
        shapes = [("weight_ih", (rows, input_size)), ("weight_hh", (rows, proj_size or hidden_size))]
        shapes += [("bias_ih", (rows,) if biases else None), ("bias_hh", (rows,) if biases > 1 else None)]
        shapes += [("weight_ch", (3 * hidden_size,))] if peepholes else []
        shapes += [("weight_hr", (proj_size, hidden_size))] if proj_size else []
        for name, shape in shapes:
            start = torch.empty(shape or 0).uniform_(-(hidden_size**-0.5), hidden_size**-0.5)
            self.register_parameter(name, nn.Parameter(start) if shape else None)

    def forward(self, x, *states):
        more = [getattr(self, name) for name in ("weight_ch", "weight_hr") if hasattr(self, name)]
        states = self.step(F.linear(x, self.weight_ih, self.bias_ih), states, self.weight_hh, self.bias_hh, *more)
        return states if len(states) > 1 else states[0]
''',
)
