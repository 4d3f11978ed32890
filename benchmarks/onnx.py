"""How long compiled models run beside PyTorch, in CPU time of one thread: the table of works and columns.

    python benchmarks/onnx.py [--quick] [--only WORK] [--pairs 15] [--export] [--peer NAME=FILE …]

Every column computes the same, from the same weights. Columns run in turn within a process, each against PyTorch eager
in pairs; what is printed is the median of the ratios and its 95 % interval. Sessions are opened anew several times,
since where their memory lies moves a ratio by several percent. `--export` adds torch.onnx.export, which takes minutes.
`--peer` adds a decoder of another exporter, with the usual names of inputs; `benchmarks/peers.py` makes some.
"""

from __future__ import annotations

import argparse
import os
import sys

sys.path.pop(0)  # the folder of this file, whose name is that of the package
os.environ["OMP_NUM_THREADS"] = "1"

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

import seqspec

torch.set_num_threads(1)
VOCABULARY, HEADS, WIDTH, ROOM = 8192, 2, 64, 2048
DECODER = f"""
seqspec: 1
name: bench-decoder
decoder:
  input: {{kind: tokens, vocab_size: {VOCABULARY}}}
  d_model: 512
  bias: false
  position: {{kind: rope, theta: 10000}}
  norm: {{kind: rmsnorm, eps: 1.0e-5}}
  norm_placement: pre
  layers:
    - repeat: 8
      block:
        - {{kind: attention, heads: 8, kv_heads: {HEADS}, head_dim: {WIDTH}}}
        - {{kind: ffn, d_ff: 1408, activation: silu, gated: true}}
head: {{kind: lm}}
"""
ENCODER = """
seqspec: 1
name: bench-encoder
encoder:
  input: {kind: tokens, vocab_size: 8192, pad_id: 0, token_types: 2, norm: {kind: layernorm, eps: 1.0e-12}}
  d_model: 768
  position: {kind: learned, max_length: 512}
  norm: {kind: layernorm, eps: 1.0e-12}
  norm_placement: post
  layers: [{repeat: 4, block: [{kind: attention, heads: 12}, {kind: ffn, d_ff: 3072, activation: gelu}]}]
head: {kind: embedding, pool: mean}
"""
Run = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """`lengths` are what is real of each row's `time` positions, after `past` cached ones."""

    name: str
    lengths: tuple[int, ...]
    time: int
    past: int = 0
    encoder: bool = False

    @property
    def mask(self) -> np.ndarray:
        return (np.arange(self.past + self.time) < self.past + np.array(self.lengths)[:, None]).astype(np.int64)

    @property
    def ids(self) -> np.ndarray:
        return np.random.default_rng(0).integers(1, VOCABULARY, (len(self.lengths), self.time))


WORKS = (
    Work("prefill 1x512", (512,), 512),
    Work("prefill 1x1536", (1536,), 1536),
    Work("prefill 8x128, padded", (128, 17, 90, 64, 128, 33, 101, 77), 128),
    Work("decode, past 512", (1,), 1, 512),
    Work("decode, past 1900", (1,), 1, 1900),
    Work("decode 8, past 256", (1,) * 8, 1, 256),
    Work("encoder 1x512, a quarter", (128,), 512, encoder=True),
    Work("encoder 8x128, padded", (128, 17, 90, 64, 128, 33, 101, 77), 128, encoder=True),
)
QUICK = ("prefill 1x512", "decode, past 512", "encoder 1x512, a quarter")


def eager(module: torch.nn.Module, work: Work) -> Run:
    """The emitted module: a mask only where something is padded, as its users would."""
    inputs = {"input_ids": torch.from_numpy(work.ids)}
    if not work.mask.all():
        inputs["attention_mask"] = torch.from_numpy(work.mask)
    state = None
    if work.past:
        before = torch.randint(1, VOCABULARY, (len(work.lengths), work.past))
        with torch.inference_mode():
            state = module(input_ids=before).state

    def run() -> Any:
        with torch.inference_mode():
            return module(**inputs, state=state) if work.past else module(**inputs)

    return run


def bound(file: Path, work: Work) -> Run:
    """A session on bound values; its cache in one buffer where the graph's kernel writes in place."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    binding, batch = session.io_binding(), len(work.lengths)
    positions = np.tile(np.arange(work.past, work.past + work.time), (batch, 1))
    given = {"input_ids": work.ids, "attention_mask": work.mask, "position_ids": positions}
    given["token_type_ids"] = np.zeros_like(work.ids)
    in_place = bool(work.past) and b"GroupQueryAttention" in file.read_bytes()
    held: list[Any] = []
    for value in session.get_inputs():
        if value.name in given:
            held.append(np.ascontiguousarray(given[value.name]))
            binding.bind_cpu_input(value.name, held[-1])
            continue
        cache = np.zeros((batch, HEADS, ROOM if in_place else work.past, WIDTH), np.float32)
        cache[:, :, : work.past] = np.random.default_rng(1).standard_normal((batch, HEADS, work.past, WIDTH))
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


def exported(module: torch.nn.Module, folder: Path) -> Path:
    """torch.onnx.export of the same module, with a cache, opset 20."""
    names = [f"past_key_values.{n}.{leaf}" for n in range(8) for leaf in ("key", "value")]

    class Flat(torch.nn.Module):
        """Pasts and presents by position."""

        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> Any:
            before = attention_mask[:, : past[0].shape[2]].bool()
            state = dict(zip(names, past, strict=True)) | {"past_state.attention_mask": before}
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, state=state)
            return out.logits, *(out.state[name] for name in names)

    cache = torch.zeros(2, HEADS, 5, WIDTH)
    batch, time, past = (torch.export.Dim(n, min=1, max=4096) for n in ("batch", "time", "past"))
    arguments = (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64), *[cache] * 16)
    shapes = ({0: batch, 1: time}, {0: batch, 1: past + time}, *[{0: batch, 2: past}] * 16)
    program = torch.onnx.export(
        Flat().eval(),
        arguments,
        dynamo=True,
        opset_version=20,
        dynamic_shapes=(shapes[0], shapes[1], tuple(shapes[2:])),
        input_names=["input_ids", "attention_mask", *names],
        output_names=["logits", *(n.replace("past_key_values", "present") for n in names)],
    )
    assert program is not None
    program.save(folder / "export.onnx")
    return folder / "export.onnx"


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median, and the order statistics between which it lies with at least 95 %."""
    ordered, count = sorted(ratios), len(ratios)
    tail, low = 0.0, 0
    while low < count // 2 and tail + comb(count, low) / 2**count <= 0.025:
        tail += comb(count, low) / 2**count
        low += 1
    low = max(low - 1, 0)
    return statistics.median(ordered), ordered[low], ordered[count - 1 - low]


def seconds(run: Run, repeats: int) -> float:
    begun = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - begun) / repeats


def measured(
    base: Run, columns: dict[str, Path], work: Work, pairs: int, sessions: int
) -> Iterator[tuple[str, list[float]]]:
    """Ratios to `base`, column by column, over sessions opened anew."""
    ratios: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(sessions):
        opened = {name: bound(file, work) for name, file in columns.items()}
        for run in (base, *opened.values()):
            run()
        repeats = max(1, int(0.05 / seconds(base, 1)))
        for turn in range(-(-pairs // sessions)):
            for name in list(opened)[:: 1 if turn % 2 else -1]:
                first, second = seconds(opened[name], repeats), seconds(base, repeats)
                ratios[name].append(first / second)
    yield from ratios.items()


def files(folder: Path, spec: str, weights: dict[str, Any], encoder: bool) -> dict[str, Path]:
    """What we compile, by column."""
    wanted: dict[str, dict[str, Any]] = {"cpu": {}, "portable": {"target": "portable"}}
    if not encoder:
        wanted |= {"cpu, last logits": {"logits": "last"}, "cpu, int4": {"quantize": "int4"}}
    (folder / "spec.yaml").write_text(spec)
    made = {}
    for name, options in wanted.items():
        path = seqspec.to_onnx(folder / "spec.yaml", folder / name, weights=weights, verify=False, **options)
        made[name] = path / "model.onnx"
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three works, five pairs")
    parser.add_argument("--only", default="", help="works whose name has this in it")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--export", action="store_true", help="torch.onnx.export, too")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FILE")
    asked = parser.parse_args()
    works = [w for w in WORKS if asked.only in w.name and (not asked.quick or w.name in QUICK)]
    print(f"{'CPU time over PyTorch eager, one thread':42} median  95 % interval")
    with tempfile.TemporaryDirectory() as place:
        for encoder, spec in ((False, DECODER), (True, ENCODER)):
            chosen = [work for work in works if work.encoder == encoder]
            if not chosen:
                continue
            folder = Path(place, "encoder" if encoder else "decoder")
            folder.mkdir()
            (folder / "spec.yaml").write_text(spec)
            module = seqspec.to_torch(folder / "spec.yaml", seed=0).eval()
            columns = files(folder, spec, module.state_dict(), encoder)
            if not encoder:
                columns |= {name: Path(file) for name, _, file in (peer.partition("=") for peer in asked.peer)}
                columns |= {"torch.onnx.export": exported(module, folder)} if asked.export else {}
            for work in chosen:
                pairs, sessions = (5, 1) if asked.quick else (asked.pairs, asked.sessions)
                for name, ratios in measured(eager(module, work), columns, work, pairs, sessions):
                    middle, low, high = interval(ratios)
                    print(f"{work.name:24} {name:17} {middle:6.3f}  {low:.3f} … {high:.3f}", flush=True)


if __name__ == "__main__":
    main()
