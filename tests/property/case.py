"""A spec and a batch, with their results by the reference, PyTorch and ONNX, each computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import torch
from hypothesis import note
from hypothesis import strategies as st

from seqspec.backends.onnx.export import export
from seqspec.backends.torch import module
from seqspec.graph.dims import ENCODER_TIME, TIME, Shape, evaluate, names
from seqspec.graph.interpret import interpret
from seqspec.graph.signature import Carried

from . import batches
from .batches import Array, Batch
from .strategy import Spec, specs

Arrays = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Case:
    spec: Spec
    batch: Batch

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text that hypothesis prints for a failure."""
        printer.text(f"\n\n{self.spec.text}\n{self.batch}\n")

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        return {port.name: port.shape for port in self.spec.signature.inputs}

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Random weights that hide no error: no bias is zero, no norm's weight one."""
        random = np.random.default_rng(7)
        found = {}
        for param in self.spec.graph.root.params:
            shape = tuple(int(str(size)) for size in param.shape)
            values = random.standard_normal(shape)
            values = values * 0.3 + 0.5 if len(shape) == 1 else values / shape[-1] ** 0.5
            found[param.name] = values.astype(np.float32)
        return found

    @cached_property
    def single(self) -> torch.nn.Module:
        """The model in float32."""
        return module(self.spec.graph, self.weights).eval()

    @cached_property
    def double(self) -> torch.nn.Module:
        return module(self.spec.graph, self.weights).double().eval()

    @cached_property
    def whole(self) -> dict[str, Array]:
        """Outputs of the float64 model on the batch."""
        return self.run(self.batch)

    @cached_property
    def whole_single(self) -> dict[str, Array]:
        return self.run(self.batch, self.single)

    def run(self, batch: Batch, model: torch.nn.Module | None = None) -> dict[str, Array]:
        """Outputs by name, without the state."""
        return self.step(batch.inputs, None, model)[0]

    def costs(self, batch: Batch) -> dict[str, float]:
        """The float32 error of each output, in models whose weights are the float32 neighbours of this one's."""
        random, found = np.random.default_rng(3), dict[str, float]()
        for _ in range(8):
            ends = {n: np.where(random.random(w.shape) < 0.5, -np.inf, np.inf) for n, w in self.weights.items()}
            beside = {n: np.nextafter(w, ends[n].astype(np.float32)) for n, w in self.weights.items()}
            model = module(self.spec.graph, beside).eval()
            single = self.run(batch, model)
            double = self.run(batch, model.double())
            gaps = {name: float(np.abs(single[name] - double[name]).max(initial=0)) for name in single}
            found = {name: max(gap, found.get(name, 0.0)) for name, gap in gaps.items()}
        return found

    def step(self, inputs: Arrays, state: Any, model: torch.nn.Module | None = None) -> tuple[dict[str, Array], Any]:
        model = model or self.double
        with torch.no_grad():
            out = model(**tensors(inputs, next(model.parameters(), torch.zeros(())).dtype), **state_of(state))
        return self.named(out), getattr(out, "state", None)

    def named(self, out: Any) -> dict[str, Array]:
        """A model's outputs under their public names."""
        found = [v.detach().numpy() for v in out if isinstance(v, torch.Tensor)]
        return dict(zip([port.name for port in self.spec.signature.outputs], found, strict=True))

    @cached_property
    def timed(self) -> frozenset[str]:
        """The outputs that have a vector for every position."""
        ports = self.spec.signature.outputs
        return frozenset(p.name for p in ports if len(p.shape) == 3 and {TIME, ENCODER_TIME} & names(p.shape[1]))

    def chunk(self, batch: Batch, start: int, stop: int, state: object) -> dict[str, Array]:
        """The inputs of a call for these positions, after `state` if there is one."""
        return batches.chunk(batch, self.shapes, start, stop, not state)

    @cached_property
    def reference(self) -> dict[str, Array]:
        """The same from the NumPy face of every op, in float64."""
        weights = {name: array.astype(np.float64) for name, array in self.weights.items()}
        root = self.spec.graph.root
        given = [self.batch.inputs.get(value.name) for value in root.inputs]
        values, _ = interpret(root, np, weights, given)
        return {port.name: v for port, v in zip(self.spec.signature.outputs, values, strict=True)}

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The ONNX models by role."""
        models = export(self.spec.graph, self.weights)
        return {role: onnx_ir.to_proto(m).SerializeToString(deterministic=True) for role, m in models.items()}

    @cached_property
    def plain(self) -> Onnx:
        return Onnx(self, optimised=False)

    @cached_property
    def optimised(self) -> Onnx:
        return Onnx(self, optimised=True)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    spec = draw(specs())
    note(spec.text)
    return Case(spec, draw(batches.inputs(spec)))


def tensors(inputs: Arrays, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Inputs as PyTorch takes them: `initial_state.0.h` is `initial_state_0_h` there."""
    made = {name.replace(".", "_"): torch.from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()}
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in made.items()}


def state_of(state: Any) -> dict[str, Any]:
    """A model without a state takes none."""
    return {} if state is None else {"state": state}


class Onnx:
    """The exported files in onnxruntime, driven independently of seqspec's Session."""

    def __init__(self, case: Case, *, optimised: bool) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        level = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        self.case = case
        self.sessions = {
            role: onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
            for role, file in case.files.items()
        }

    def run(self, batch: Batch) -> dict[str, Array]:
        return self.step(batch, 0, batch.last.length, {})[0]

    def step(self, batch: Batch, start: int, stop: int, state: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
        """Positions `start` to `stop` of the last stack, after `state`, which is empty at the start."""
        states = {s.present: s for s in self.case.spec.signature.states}
        feeds = narrow(self.case.chunk(batch.masked(), start, stop, state))
        state = dict(state)
        early = next((role for role in ("encoder", "initial") if role in self.sessions), None)
        known = batches.sizes(batch, start) | {TIME: stop - start}
        if early and not state:
            made = self._call(early, feeds, known)
            state |= {states[name].past if name in states else name: array for name, array in made.items()}
        role = "decoder" if "encoder" in self.sessions else "model"
        for carried in states.values():
            if carried.past not in state and not carried.held:
                state[carried.past] = self._empty(carried, batch)
        made = self._call(role, feeds | state, known)
        after = {states[name].past: array for name, array in made.items() if name in states}
        return {k: v for k, v in made.items() if k not in states}, state | after

    def _empty(self, carried: Carried, batch: Batch) -> Array:
        """The first past: the given initial states, else zeros."""
        known = batches.sizes(batch, past=0)
        kind = np.float32 if carried.dtype == "float" else np.dtype(carried.dtype)
        shape = [evaluate(size, known) for size in carried.shape]
        place = carried.past.split(".")
        given = batch.inputs.get(f"{batch.last.prefix}initial_state.{place[1]}.{place[-1]}")
        return np.zeros(shape, kind) if given is None else given.reshape(shape).astype(kind)

    def _call(self, role: str, feeds: Arrays, known: Mapping[str, int]) -> dict[str, Array]:
        """Outputs by name. What may be left out and is not there is zeros of the sizes that are `known`."""
        session = self.sessions[role]
        wanted = {i.name for i in session.get_inputs()}
        given = {name: array for name, array in feeds.items() if name in wanted}
        for port in self.case.spec.signature.inputs:
            if port.optional and port.name in wanted - given.keys():
                shape = [evaluate(size, known) for size in port.shape]
                given[port.name] = np.zeros(shape, np.float32 if port.dtype == "float" else np.int64)
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))


def narrow(arrays: Arrays) -> dict[str, Array]:
    """The same, float64 as float32."""
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in arrays.items()}
