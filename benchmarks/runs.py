"""The works as calls, ready to be timed: of any of the modules, of a Session, of any ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

from benchmarks.bahdanau import Translator
from benchmarks.pairs import Run
from benchmarks.works import WORDS, Work
from seqspec.runtime.generate import generate
from seqspec.runtime.session import Session

HEADS, WIDTH, ROOM = 2, 64, 2304  # of the decoder's cache; positions that a shared one has
_START = 2  # the id that greedy decoding begins with


def eager(module: torch.nn.Module, work: Work) -> Run:
    """A module of ours."""
    if work.greedy:
        return lambda: _spoken(module, work)
    inputs = {name: torch.from_numpy(array) for name, array in work.inputs.items()}
    state = _prompted(module, work).state if work.past else None

    def run() -> Any:
        with torch.inference_mode():
            return module(**inputs, **({"state": state} if work.past else {}))

    return run


def plain(module: Translator, work: Work) -> Run:
    """The encoder-decoder that is written by hand."""
    ids, given = (torch.from_numpy(work.inputs[name]) for name in ("input_ids", "decoder_input_ids"))

    def run() -> Any:
        with torch.inference_mode():
            return module.greedy(ids, _START, work.time) if work.greedy else module.forced(ids, given)

    return run


def agreeing(run: Run, base: Run) -> Run:
    """`run`, which gives the same ids as `base`, or the same logits: an AssertionError otherwise."""
    found, wanted = _answer(run()), _answer(base())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
    return run


def _answer(result: Any) -> np.ndarray:
    """The ids or logits among what a run gives."""
    if isinstance(result, Mapping):
        return np.asarray(result["logits"])
    return np.asarray(getattr(result, "logits", result))


def of_transformers(module: torch.nn.Module, work: Work) -> Run:
    """A module of transformers', with a new cache for each call, since a call appends to it."""
    from transformers import DynamicCache

    inputs = {name: torch.from_numpy(array) for name, array in work.inputs.items()}
    cached = [(k.keys, k.values) for k in _prompted(module, work).cache.layers] if work.past else None

    def run() -> Any:
        with torch.inference_mode():
            return module(**inputs, **({"cache": DynamicCache(cached)} if work.model == "decoder" else {}))

    return run


class OneThread(ort.SessionOptions):  # type: ignore[misc]
    """The options of every session in this process: onnxruntime's own threads spin while they wait."""

    def __init__(self) -> None:
        super().__init__()
        self.intra_op_num_threads = 1


ort.SessionOptions = OneThread


def of_session(folder: Path, work: Work) -> Run:
    """Our Session."""
    session = Session(folder)
    inputs = work.inputs
    return (lambda: _spoken(session, work)) if work.greedy else (lambda: session.run(inputs))


def of_file(file: Path, work: Work, kept: int | None = None) -> Run:
    """A file on bound values; its cache in one buffer where the graph's kernel writes in place.

    `kept`: how many positions of the past its caches have, if these are not all.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    binding, batch = session.io_binding(), len(work.lengths)
    given = {
        **work.inputs,
        "attention_mask": work.mask,
        "position_ids": np.tile(np.arange(work.past, work.past + work.time), (batch, 1)),
        "token_type_ids": np.zeros((batch, work.time), np.int64),
    }
    in_place = bool(work.past) and b"GroupQueryAttention" in file.read_bytes()
    held: list[Any] = []  # onnxruntime keeps no references to its inputs
    for value in session.get_inputs():
        if value.name in given:
            held.append(np.ascontiguousarray(given[value.name]))
            binding.bind_cpu_input(value.name, held[-1])
            continue
        past = work.past if kept is None else kept
        cache = np.zeros((batch, HEADS, ROOM if in_place else past, WIDTH), np.float32)
        cache[:, :, :past] = np.random.default_rng(1).standard_normal((batch, HEADS, past, WIDTH))
        held.append(ort.OrtValue.ortvalue_from_numpy(cache))
        binding.bind_ortvalue_input(value.name, held[-1])
        if in_place:
            binding.bind_ortvalue_output(value.name.replace("past_key_values", "present"), held[-1])
    for value in session.get_outputs():
        if not (in_place and value.name.startswith("present")):
            binding.bind_output(value.name)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return held

    return run


def _prompted(module: torch.nn.Module, work: Work) -> Any:
    with torch.inference_mode():
        return module(input_ids=torch.randint(4, WORDS, (len(work.lengths), work.past)))


def _spoken(model: Any, work: Work) -> Any:
    return generate(model, work.ids, max_new_tokens=work.time, decoder_start_id=_START)
