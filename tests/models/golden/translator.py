"""TinyTranslator, written by seqspec.

Sizes: B batch, T time, E the encoder's time.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


def stack_steps(steps, x, *shape):
    """steps [B, *shape], one for each column of x[B, T, ...] -> [B, T, *shape], T = 0 included"""
    return torch.stack(steps, 1) if steps else x.new_zeros(x.shape[0], 0, *shape)


class Encoder(nn.Module):
    """input_ids[B, T] -> [B, T, 8]"""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(19, 8)
        self.proj = nn.Linear(8, 8)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)  # [B, T, 8]
        return torch.tanh(self.proj(x))


class DecoderStep(nn.Module):
    """h[B, 8], x[B, 8], keys[B, T, 8], memory[B, T, 8] -> [B, 8], [B, 8]"""

    def __init__(self) -> None:
        super().__init__()
        self.query_proj = nn.Linear(8, 8, bias=False)
        self.score_proj = nn.Linear(8, 1, bias=False)
        self.gru = nn.GRUCell(16, 8)

    def forward(self, h: Tensor, x: Tensor, keys: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.sigmoid(self.score_proj(torch.tanh(self.query_proj(h).unsqueeze(1) + keys)))  # [B, T, 1]
        context = (scores * memory)[:, 0].unsqueeze(1).squeeze(1)  # [B, 8]
        h = self.gru(torch.cat([x, context], -1), h)  # [B, 8]
        return h, h + context


class Decoder(nn.Module):
    """input_ids[B, T], memory[B, E, 8], first[B, 8] -> [B, T, 8]"""

    def __init__(self) -> None:
        super().__init__()
        self.key_proj = nn.Linear(8, 8, bias=False)
        self.bridge = nn.Linear(8, 8)
        self.embed_tokens = nn.Embedding(19, 8)
        self.step = DecoderStep()

    def forward(
        self, input_ids: Tensor, memory: Tensor | None, first: Tensor | None, past: tuple | None = None
    ) -> tuple[Tensor, tuple]:
        past_keys, past_memory, past_h = past or (None,) * 3
        doubled = memory * 2.0 if past is None else None  # [B, E, 8]
        keys = self.key_proj(doubled) if past_keys is None else past_keys  # [B, E, 8]
        memory = doubled if past_memory is None else past_memory  # [B, E, 8]
        embed_tokens = self.embed_tokens(input_ids)  # [B, T, 8]
        h = torch.tanh(self.bridge(first)) if past_h is None else past_h  # [B, 8]
        y_steps = []
        for t in range(embed_tokens.shape[1]):
            h, y_t = self.step(h, embed_tokens[:, t], keys, memory)  # [B, 8], [B, 8]
            y_steps.append(y_t)
        y = stack_steps(y_steps, embed_tokens, 8)  # [B, T, 8]
        return y, (keys, memory, h)


STATE = ("keys", "memory", "past_state.h")


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
    state: State


class TinyTranslator(nn.Module):
    """decoder_input_ids[B, T], input_ids[B, E], shift[B, 8] -> logits[B, T, 19]

    Read on the first call only, when there is no state yet: input_ids, shift.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.head = nn.Linear(8, 19)

    def forward(
        self,
        decoder_input_ids: Tensor,
        input_ids: Tensor | None = None,
        shift: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
    ) -> Output:
        past = past_from(state)
        if past is None:
            memory = self.encoder(input_ids)  # [B, E, 8]
            first = shift + (shift * 0.5)  # [B, 8]
        else:
            memory = first = None
        y, present = self.decoder(decoder_input_ids, memory, first, past)  # [B, T, 8]
        logits = self.head(y)  # [B, T, 19]
        return Output(logits, State(flatten(STATE, present)))
