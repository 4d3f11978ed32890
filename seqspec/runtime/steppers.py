"""A common interface for stepping a model, in PyTorch or in onnxruntime."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from seqspec.diagnostics import RuntimeFault
from seqspec.graph.dims import TIME, dim
from seqspec.graph.signature import python_name
from seqspec.runtime.carrying import Carrying, Copying
from seqspec.runtime.facts import Facts
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

_GENERATES = "a decoder with `head: {kind: lm}` generates"


class Stepper(Protocol):
    """`step` takes inputs by name and the state that the step before returned; it returns logits and the next state.

    Logits are [B, T, V], or [B, 1, V] if a model gives only the last ones. `facts` describe inputs, as far as known.
    """

    @property
    def two_stacks(self) -> bool:
        """Whether the model has an encoder too, so that generated ids are `decoder_input_ids`."""

    @property
    def facts(self) -> Mapping[str, Facts]: ...

    def step(self, inputs: Mapping[str, Array], state: Any) -> tuple[Array, Any]: ...

    def spread(self, state: Any, count: int) -> Any:
        """The state with each row repeated `count` times, copies side by side; called once, before the second step."""

    def reorder(self, state: Any, rows: Array) -> Any:
        """The state with these rows, each of which replaces a copy of the same spread row: shared parts do not move."""

    def running(self, room: int) -> AbstractContextManager[None]:
        """A context around all steps of one generation, of at most `room` positions."""


class SessionStepper:
    """A compiled model."""

    carrying: Carrying | Copying

    def __init__(self, session: Session) -> None:
        self.session, self.facts = session, session.facts
        logits = next((p for p in session.outputs if p.name == "logits"), None)
        moving = logits is not None and logits.shape[1:2] in ((dim(TIME),), (1,)) and len(logits.shape) == 3
        if not moving or not session.state_names:
            raise _cannot(p.name for p in session.outputs)
        self.two_stacks = any(p.name == "decoder_input_ids" for p in session.inputs)

    def step(self, inputs: Mapping[str, Array], state: Any) -> tuple[Array, Any]:
        return self.carrying.step(inputs, state)

    def spread(self, state: Any, count: int) -> Any:
        return self.carrying.spread(state, count)

    def reorder(self, state: Any, rows: Array) -> Any:
        return self.carrying.reorder(state, rows)

    @contextmanager
    def running(self, room: int) -> Iterator[None]:
        # onnxruntime cannot bind arrays of bfloat16
        copying = self.session.dtype.name == "bfloat16"
        self.carrying = Copying(self.session) if copying else Carrying(self.session, room)
        yield


class TorchStepper:
    """A module that `to_torch` made, or one of an emitted file."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        first = next(module.parameters())
        self.device, self.dtype = first.device, first.dtype
        stacks = {name: found for name in ("encoder", "decoder") if (found := getattr(module, name, None)) is not None}
        self.two_stacks = len(stacks) == 2
        self.facts = _facts(stacks)
        self._held: set[str] = set()

    def step(self, inputs: Mapping[str, Array], state: Any) -> tuple[Array, Any]:
        import torch

        tensors = {python_name(name): self._tensor(name, array) for name, array in inputs.items()}
        try:
            with torch.no_grad():
                output = self.module(**tensors, state=state)
        except TypeError as error:  # a stack without a state takes no `state`, and no module takes unknown inputs
            if "'state'" in str(error):
                raise _cannot(()) from None
            raise RuntimeFault("SEQ503", f"the module does not take these inputs: {error}") from None
        except (RuntimeError, ValueError, IndexError) as error:
            raise RuntimeFault("SEQ515", f"PyTorch stopped: {error}") from error
        names = [name for name in getattr(output, "_fields", ()) if name != "state"]
        if "logits" not in names or output.logits.ndim != 3 or not getattr(output, "state", None):
            raise _cannot(names)
        # a state that is computed once leaves a step unchanged
        self._held = {n for n, x in output.state.items() if state is not None and x is state.get(n)}
        return output.logits.float().cpu().numpy(), output.state

    def spread(self, state: Any, count: int) -> dict[str, Tensor]:
        return {name: x.repeat_interleave(count, 0) for name, x in state.items()}

    def reorder(self, state: Any, rows: Array) -> dict[str, Tensor]:
        import torch

        picked = torch.as_tensor(rows, device=self.device)
        return {n: x if n in self._held else x.index_select(0, picked) for n, x in state.items()}

    @contextmanager
    def running(self, room: int) -> Iterator[None]:
        """Without dropout; afterwards in the mode that the module had."""
        training = self.module.training
        self.module.eval()
        try:
            yield
        finally:
            self.module.train(training)

    def _tensor(self, name: str, array: Array) -> Tensor:
        import torch

        tensor = torch.as_tensor(array, device=self.device)
        if tensor.is_floating_point() and tensor.dtype != self.dtype:
            wanted = str(self.dtype).removeprefix("torch.")
            text = f"`{name}` is {array.dtype}, and the model computes in {wanted}"
            raise RuntimeFault("SEQ505", text, f"give it as `.astype(numpy.{wanted})`")
        return tensor


def stepper(model: Any) -> Stepper:
    """The stepper of a Session or of a module; SEQ511 if the model cannot generate, SEQ516 for anything else."""
    if isinstance(model, Session):
        return SessionStepper(model)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        text = f"`generate` takes a Session or a module of `to_torch`, not a {type(model).__name__}"
        raise RuntimeFault("SEQ516", text, "for a folder: seqspec.Session(folder).generate(…)")
    return TorchStepper(model)


def _facts(stacks: Mapping[str, Any]) -> dict[str, Facts]:
    """Sizes of the tables, by the names that emitted files give them; a decoder may use the encoder's token table."""
    found, tokens = {}, None
    for name, stack in stacks.items():
        tokens = getattr(stack, "embed_tokens", tokens)
        sizes = [getattr(table, "num_embeddings", None) for table in (tokens, getattr(stack, "embed_positions", None))]
        port = "decoder_input_ids" if name == "decoder" and len(stacks) == 2 else "input_ids"
        found[port] = Facts(ids=sizes[0], max_length=sizes[1])
    return found


def _cannot(names: Any) -> RuntimeFault:
    has = ", ".join(f"`{name}`" for name in names)
    text = f"generation needs logits at every position and a state to carry{f'; this model gives {has}' if has else ''}"
    return RuntimeFault("SEQ511", text, _GENERATES)
