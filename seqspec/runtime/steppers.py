"""One way to step a model, whether it runs in PyTorch or in onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from seqspec.diagnostics import RuntimeFault
from seqspec.graph.dims import TIME, dim
from seqspec.graph.signature import python_name
from seqspec.runtime.carrying import Carrying
from seqspec.runtime.facts import Facts
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array

if TYPE_CHECKING:
    from torch import nn

START_ID = "give `decoder_start_id`, on the command line `--decoder-start-id`: the id of the token that opens a text"


class Stepper(Protocol):
    """`step` takes inputs by name and what it returned before as `state`; it returns logits and the state.

    Logits are [B, T, V], or [B, 1, V] where a model gives the last ones only. `max_length` is how many positions there
    may be, where that is known.
    """

    @property
    def max_length(self) -> int | None: ...

    def step(self, inputs: Mapping[str, Array], state: Any) -> tuple[Array, Any]: ...

    def running(self) -> AbstractContextManager[None]:
        """Around all steps of one generation."""


class SessionStepper:
    """A compiled model."""

    def __init__(self, session: Session, room: int) -> None:
        self.session = session
        # onnxruntime binds no arrays of bfloat16
        self.carrying = None if session.dtype.name == "bfloat16" else Carrying(session, room)
        logits = next((p for p in session.outputs if p.name == "logits"), None)
        moving = logits is not None and logits.shape[1:2] in ((dim(TIME),), (1,)) and len(logits.shape) == 3
        if not moving or not session.signature.states:
            has = ", ".join(f"`{p.name}`" for p in session.outputs)
            text = f"generation needs logits at every position and a state to carry; this model gives {has}"
            raise RuntimeFault("SEQ511", text, "a decoder with `head: {kind: lm}` generates")
        prefix = "decoder_" if any(p.name == "decoder_input_ids" for p in session.inputs) else ""
        self.max_length = session.facts.get(f"{prefix}input_ids", Facts()).max_length

    def step(self, inputs: Mapping[str, Array], state: Any) -> tuple[Array, Any]:
        if state is None and "decoder_input_ids" not in inputs and "encoder" in self.session.roles:
            raise RuntimeFault("SEQ511", "the model's decoder needs an id to begin with", START_ID)
        if self.carrying is not None:
            return self.carrying.step(inputs, state)
        result = self.session.run(inputs, state)
        return result["logits"], result.state

    @contextmanager
    def running(self) -> Iterator[None]:
        yield


class TorchStepper:
    """A module that `to_torch` made, or one of an emitted file."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = next(module.parameters()).device
        self.max_length = None  # a module says so itself, when it comes to it

    def step(self, inputs: Mapping[str, Array], state: Any) -> tuple[Array, Any]:
        import torch

        tensors = {python_name(name): torch.as_tensor(array, device=self.device) for name, array in inputs.items()}
        with torch.no_grad():
            output = self.module(**tensors, state=state)
        return output.logits.float().cpu().numpy(), output.state

    @contextmanager
    def running(self) -> Iterator[None]:
        """Without dropout, and back in training mode afterwards where it was."""
        training = self.module.training
        self.module.eval()
        try:
            yield
        finally:
            self.module.train(training)


def stepper(model: Any, room: int) -> Stepper:
    """The stepper of a Session or of a module, for at most `room` positions."""
    return SessionStepper(model, room) if isinstance(model, Session) else TorchStepper(model)
