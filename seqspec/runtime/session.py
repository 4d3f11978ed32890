"""A compiled folder, ready to run in onnxruntime: NumPy in, NumPy out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from seqspec.backends.directory import MANIFEST
from seqspec.diagnostics import RuntimeFault, arguments
from seqspec.graph.dims import BATCH, TIME, evaluate, names
from seqspec.graph.signature import Carried, Port
from seqspec.runtime import providers as execution
from seqspec.runtime import state as states
from seqspec.runtime.agreement import disagreement
from seqspec.runtime.inputs import Call, check_names, past_shape
from seqspec.runtime.manifest import damaged, read
from seqspec.runtime.state import DOCUMENTS, MASK, Array, State

if TYPE_CHECKING:
    from seqspec.runtime.options import Options
    from seqspec.runtime.prompt import Ids
    from seqspec.runtime.text import Tokenizer


class Result(dict[str, Array]):
    """Outputs by name, as NumPy arrays. `state` goes into the next call; it is None if the model has no state."""

    def __init__(self, outputs: Mapping[str, Array], state: State | None) -> None:
        super().__init__(outputs)
        self.state = state


class Session:
    """Runs the folder `path`, which `compile --to onnx` or `to_onnx` wrote, in onnxruntime.

    `providers` are onnxruntime's execution providers: a name, or a list of names or (name, options) pairs. By default
    the CPU, or that of the folder's target. Everything that goes wrong is a RuntimeFault: a folder that is missing,
    changed or of another version (SEQ507, SEQ508, SEQ516), or a provider that is not available (SEQ501).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        providers: Sequence[execution.Provider] | str | None = None,
        *,
        settings: execution.Settings = execution.USUAL,
    ) -> None:
        manifest = read(arguments.path(path, code=arguments.RUNNING))
        if manifest.backend != "onnx":
            text = f"{path} is a PyTorch folder, and onnxruntime runs ONNX; only `verify` takes both"
            again = f"seqspec compile {manifest.folder / 'spec.yaml'} --to onnx -o …"
            raise RuntimeFault("SEQ516", text, f"{again}, or import {manifest.folder / 'model.py'} in Python")
        self.path, self.signature, self.facts = manifest.folder, manifest.signature, manifest.facts
        self.dtype = np.dtype(_numpy_name(manifest.dtype))
        chosen = execution.chosen(providers, manifest.target)
        self._graphs = {role: execution.open_session(f, chosen, settings) for role, f in manifest.graphs.items()}
        wrong = disagreement(manifest.signature, manifest.dtype, self._graphs)
        if wrong is not None:
            raise damaged(manifest.folder / MANIFEST, wrong)
        self._last = self._graphs[list(self._graphs)[-1]]
        self._taken = {i.name for graph in self._graphs.values() for i in graph.get_inputs()}
        self._taken |= {port.name for port in self.signature.inputs if port.starts}
        self.in_place = manifest.in_place
        self._manifest = manifest
        self._masked = any(p.looks_back for p in self.inputs if len(p.shape) == 2)

    def __repr__(self) -> str:
        takes, gives = (", ".join(port.name for port in ports) for ports in (self.inputs, self.outputs))
        return f"<Session {self.path}: {takes} -> {gives}, on {self.providers[0]}>"

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs that `run` takes."""
        return tuple(port for port in self.signature.inputs if port.name in self._taken)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs that `run` gives, besides the state."""
        return self.signature.outputs

    @property
    def roles(self) -> tuple[str, ...]:
        """`model`, or `encoder` and `decoder`."""
        return tuple(self._graphs)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names in a state."""
        return (*((MASK,) if self._masked else ()), *(s.past for s in self.signature.states))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Converts text to ids, `.encode`, and ids to text, `.decode`; an error if the spec names no tokenizer."""
        from seqspec.runtime.text import Tokenizer

        return Tokenizer(self._manifest)

    @property
    def named_ids(self) -> dict[str, int]:
        """The options of `generate` from the spec's `tokenizer`: `eos_id`, `decoder_start_id`."""
        said = self._manifest.tokenizer or {}
        names = {"eos_id": "eos_id", "start_id": "decoder_start_id"}
        return {option: said[name] for name, option in names.items() if name in said}

    @property
    def providers(self) -> list[str]:
        """The execution providers that onnxruntime uses."""
        return list(self._last.get_providers())

    def run(self, inputs: Mapping[str, npt.ArrayLike], state: Mapping[str, Array] | None = None) -> Result:
        """One call: {name: array} -> {name: array}, with `.state` for the next call.

        Shapes and dtypes are those of `inputs` and `outputs`. Optional inputs may be left out: a mask is then derived
        from `pad_id`, and token types are zeros. A mask is [B, T], or [B, P + T] with the P tokens of the past. With a
        state, inputs of the first call only may be left out and are not read. RuntimeFault for inputs or a state that
        do not fit (SEQ502 to SEQ506, SEQ509, SEQ510, SEQ512, SEQ513).
        """
        if state is not None and not self.state_names:
            raise RuntimeFault("SEQ512", "a state is given, and the model has none", "leave it out")
        if state is None:
            call = self.call(inputs)
            past = self.first(call)
        else:
            past = states.arrays(state)
            sizes = states.sizes(self.signature, past, masked=self._masked, dtype=self.dtype)
            call = self.call(inputs, sizes, past.get(MASK), past.get(DOCUMENTS))
            states.check_windows(self.signature, call.sizes, call.past_real)
        if call.sizes.get(TIME) == 0:
            return Result({port.name: self._nothing(port, call) for port in self.outputs}, self._next(call, past, None))
        feeds = call.arrays | {s.past: past[s.past] for s in self.signature.states}
        outputs = self._run(self._last, feeds)
        return Result({p.name: outputs[p.name] for p in self.outputs}, self._next(call, past, outputs))

    def generate(self, ids: Ids, **options: Unpack[Options]) -> Array:
        """ids[B, T] -> new ids [B, N], N at most `max_new_tokens`; ids[T] -> [N].

        ids                   rows of integers, also of different lengths; an encoder's inputs by name
        max_new_tokens        how many ids at most
        min_new_tokens        how many at least, before an end. 0
        eos_id                the id or ids that end a text, kept in it; the first fills it up while others go on
        stop                  rows of ids that end a text when they stand at its end; -1 fills it up, or an eos_id
        temperature           0 takes the likeliest id; above 0, ids are drawn. 0
        top_k                 draw from the k likeliest ids
        top_p                 draw from the likeliest ids that sum to p
        min_p                 draw from the ids at least p times as likely as the likeliest
        repetition_penalty    ids that were there before are less likely above 1. 1
        num_beams             texts kept in a beam search. 1, which is greedy
        length_penalty        a text's log-probability is divided by its length to this power. 1
        early_stopping        when a beam search ends: False, True at the first num_beams texts, or "never" too early
        num_return_sequences  texts for every row, [B, n, N]: drawn, or the best of num_beams. 1
        seed                  of the draws, for each row a stream of its own. 0
        attention_mask        [B, T], 0 where a padded array of ids is padding
        decoder_start_id      what a decoder behind an encoder begins with; `ids` are then the encoder's
        """
        from seqspec.runtime.generate import generate

        return generate(self, ids, **options)

    def stream(self, ids: Ids, **options: Unpack[Options]) -> Iterator[Array]:
        """The ids of `generate` as they are made, one position [B] of the whole batch at a time."""
        from seqspec.runtime.generate import stream

        return stream(self, ids, **options)

    # for `carrying`

    def call(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        sizes: Mapping[str, int] | None = None,
        past_mask: Array | None = None,
        past_documents: Array | None = None,
    ) -> Call:
        """The inputs of a call, checked and completed: the first call, or one after a past of these `sizes`."""
        check_names(self.signature, self._taken, inputs, later=sizes is not None)
        # without positions, attention kernels compute nothing, so all outputs must be empty then
        empty = bool(self.signature.states) and all(_over_time(port) for port in self.outputs)
        if sizes is None:
            return Call(self.inputs, self.facts, inputs, {}, None, self.dtype, may_be_empty=empty)
        late = [port for port in self.inputs if not port.once and not port.starts]
        past = {"past_mask": past_mask, "past_documents": past_documents}
        return Call(late, self.facts, inputs, sizes, dtype=self.dtype, may_be_empty=empty, **past)

    def binding(self) -> Any:
        """onnxruntime's IOBinding of the graph that every call runs."""
        return self._last.io_binding()

    @property
    def step_inputs(self) -> frozenset[str]:
        """The names of that graph's inputs."""
        return frozenset(i.name for i in self._last.get_inputs())

    def end_profiles(self) -> list[Path]:
        """Ends profiling; the files of a session with a `profile`, one for each graph."""
        return [Path(graph.end_profiling()) for graph in self._graphs.values()]

    def run_bound(self, binding: Any) -> None:
        """Runs that graph on the bound values."""
        self._guarded(lambda: self._last.run_with_iobinding(binding))

    def first(self, call: Call) -> dict[str, Array]:
        """The state before the first call: empty, given, learned, or computed by the encoder from its inputs."""
        early = next((graph for role, graph in self._graphs.items() if role in ("encoder", "initial")), None)
        made = {} if early is None else self._run(early, call.arrays)
        first = {s.past: made[s.present] if s.present in made else self._empty(s, call) for s in self.signature.states}
        for port in self.inputs:
            if port.starts:
                first[port.starts] = call.arrays[port.name].reshape(first[port.starts].shape)
        return first

    def _empty(self, state: Carried, call: Call) -> Array:
        dtype = self.dtype if state.dtype == "float" else np.dtype(state.dtype)
        return np.zeros(past_shape(state.shape, {BATCH: call.sizes[BATCH]}), dtype)

    def _nothing(self, port: Port, call: Call) -> Array:
        """The output of a call without positions."""
        dtype = self.dtype if port.dtype == "float" else np.dtype(port.dtype)
        return np.zeros(tuple(evaluate(size, call.sizes) for size in port.shape), dtype)

    def _next(self, call: Call, past: Mapping[str, Array], outputs: Mapping[str, Array] | None) -> State | None:
        """The state after a call, or the one before it if it had no positions."""
        if not self.state_names:
            return None
        mask = {} if call.carried is None else {MASK: call.carried}
        states = self.signature.states
        if outputs is None:
            return State(mask | {s.past: past[s.past] for s in states})
        return State(mask | {s.past: past[s.past] if s.held else outputs[s.present] for s in states})

    def _run(self, graph: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
        wanted = [o.name for o in graph.get_outputs()]
        feeds = {i.name: arrays[i.name] for i in graph.get_inputs()}
        if self.dtype.name == "bfloat16":
            from seqspec.runtime import bfloat16

            made = self._guarded(lambda: bfloat16.run(graph, wanted, feeds))
        else:
            made = self._guarded(lambda: graph.run(wanted, feeds))
        return dict(zip(wanted, made, strict=True))

    def _guarded(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Exception as error:  # onnxruntime's classes have no common base
            raise RuntimeFault("SEQ515", f"onnxruntime stopped: {execution.first_line(error)}") from error


def _over_time(port: Port) -> bool:
    return any(TIME in names(size) for size in port.shape)


def _numpy_name(dtype: str) -> Any:
    if dtype == "bfloat16":  # comes with onnx
        import ml_dtypes

        return ml_dtypes.bfloat16
    return dtype
