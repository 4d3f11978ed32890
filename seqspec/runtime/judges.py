"""Runners for verification, the judges and what is judged: each runs calls one after another on arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Graph
from seqspec.graph.signature import Signature, python_name, signature
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array

Answer = tuple[dict[str, Array], dict[str, Array]]
"""Outputs by name, and the state by the names of the past."""


class Runner(Protocol):
    """`name` is for people; `run` takes the state of the previous call."""

    name: str

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Array] | None) -> Answer: ...


class OnnxRunner:
    """A session, which is judged."""

    name = "onnxruntime"

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Array] | None) -> Answer:
        result = self.session.run(inputs, state)
        return dict(result), dict(result.state or {})


class LastLogits:
    """A runner of whole sequences of which only the last logits count, [B, 1, V]."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.name = runner, runner.name

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Array] | None) -> Answer:
        outputs, left = self.runner.run(inputs, state)
        return outputs | {"logits": outputs["logits"][:, -1:]}, left


class TorchRunner:
    """A module, moved to `dtype`: in float64 the judge, in float32 the measure of that precision's error."""

    def __init__(self, module: Any, dtype: str, signature: Signature) -> None:
        import torch

        self.outputs = {port.python: port.name for port in signature.outputs}
        self.name = f"PyTorch in {dtype}"
        self.module, self.dtype = module.to(getattr(torch, dtype)).eval(), getattr(torch, dtype)

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Array] | None) -> Answer:
        import torch

        carried = {} if state is None else {"state": {name: torch.from_numpy(a) for name, a in state.items()}}
        with torch.no_grad():
            given = {python_name(name): self._tensor(a) for name, a in inputs.items()}
            output = self.module(**given, **carried)
        made = {name: getattr(output, field).numpy() for field, name in self.outputs.items()}
        return made, {k: v.numpy() for k, v in getattr(output, "state", {}).items()}

    def _tensor(self, array: Array) -> Any:
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor


class ReferenceRunner:
    """The NumPy reference of every op: the judge without torch, and the judge of torch itself."""

    def __init__(self, graph: Graph, weights: Mapping[str, Array], dtype: str = "float64") -> None:
        self.name, self.dtype = f"the NumPy reference in {dtype}", np.dtype(dtype)
        self.graph, self.signature = graph, signature(graph)
        self.weights = {name: np.asarray(array, dtype) for name, array in weights.items()}

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Array] | None) -> Answer:
        given = [self._array(inputs.get(port.name)) for port in self.signature.inputs]
        past = None if state is None else {s.path: state[s.past] for s in self.signature.states if s.past in state}
        outputs, present = interpret(self.graph.root, np, self.weights, given, past)
        made = {port.name: out for port, out in zip(self.signature.outputs, outputs, strict=True) if out is not None}
        left = {s.past: array for s in self.signature.states if (array := present[s.path]) is not None}
        return made, left

    def _array(self, array: Array | None) -> Array | None:
        return array.astype(self.dtype) if array is not None and array.dtype.kind == "f" else array
