"""The emitted module beside transformers' and torch's own: CPU time of one thread, and memory.

    python benchmarks/torch.py [--only WORK …] [--compile] [--pairs 15]

LLaMA and BERT with the same weights as transformers (SDPA), forward and a training step; recurrent layers against
nn.LSTM and nn.GRU on batches packed as torch's users pack them. Printed are medians of ratios with their 95 % interval,
and the ratio of peak memory, each side in a process of its own. `--compile` puts both sides through torch.compile.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# without this folder, wherever it stands: it has files with the names of packages
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import seqspec
from benchmarks import checkpoints, specs
from benchmarks.pairs import Run, environment, paired, shown, table
from benchmarks.works import RAGGED, WORDS


@dataclass(frozen=True)
class Work:
    """One pass of a model, with gradients where it trains: eight rows of different lengths, or one that is full."""

    kind: str
    train: bool
    padded: bool

    @property
    def name(self) -> str:
        batch, what = "8x128 padded" if self.padded else "1x512", "training step" if self.train else "forward"
        return f"{self.kind} {batch}, {what}"

    @property
    def mask(self) -> torch.Tensor:
        lengths = torch.tensor(RAGGED if self.padded else [512])
        return (torch.arange(128 if self.padded else 512) < lengths[:, None]).long()


WORKS = [Work(k, t, p) for k in ("decoder", "encoder", "lstm", "gru") for t in (False, True) for p in (True, False)]


def builders(kind: str, folder: Path) -> dict[str, Callable[[], nn.Module]]:
    """How either side makes the module, from the weights of `folder`."""
    if kind in ("lstm", "gru"):
        theirs = getattr(nn, kind.upper())
        made = lambda: theirs(256, 256, num_layers=2, bidirectional=True, batch_first=True)  # noqa: E731
        return {"ours": lambda: seqspec.to_torch(specs.LAYERS.format(kind=kind)), "theirs": made}
    import transformers

    spec, weights = folder / "seqspec" / "spec.yaml", folder / "seqspec" / "model.safetensors"
    family = transformers.LlamaForCausalLM if kind == "decoder" else transformers.BertModel
    return {
        "ours": lambda: seqspec.to_torch(spec, weights=weights),
        "theirs": lambda: family.from_pretrained(folder, attn_implementation="sdpa"),
    }


def call(work: Work, side: str, module: nn.Module) -> Callable[[], torch.Tensor]:
    """A forward pass; of torch's layers packed, as its users do."""
    mask = work.mask
    if work.kind in ("lstm", "gru"):
        x, lengths = torch.randn(*mask.shape, 256), mask.sum(1)

        def packed() -> torch.Tensor:
            y, _ = module(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            return pad_packed_sequence(y, batch_first=True, total_length=mask.shape[1])[0]

        return packed if side == "theirs" else lambda: _first(module(features=x, attention_mask=mask))
    ids = torch.randint(4, WORDS, mask.shape)
    given = {"input_ids": ids} | ({} if mask.all() else {"attention_mask": mask})
    return lambda: _first(module(**given))


def _first(output: Any) -> torch.Tensor:
    """Logits, or the hidden states."""
    return next(v for v in (output.values() if hasattr(output, "values") else output) if torch.is_tensor(v))


def run(forward: Callable[[], torch.Tensor], module: nn.Module, train: bool) -> Run:
    """The forward pass; or that, a loss of its outputs, and their gradients."""
    module.train(train)
    if not train:
        return torch.inference_mode()(forward)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        forward().square().mean().backward()

    return step


def sides(work: Work, folder: Path, compiled: bool) -> dict[str, Run]:
    """Either side's pass, ready to be timed."""
    made = {}
    for side, build in builders(work.kind, folder).items():
        module = build()
        forward = call(work, side, torch.compile(module) if compiled else module)  # type: ignore[arg-type]
        made[side] = run(forward, module, work.train)
    return made


def peak(work: Work, folder: Path, side: str) -> int:
    """Bytes above the module's own, of a process that does it three times; the median of three such."""
    command = [sys.executable, __file__, "--peak", side, str(WORKS.index(work)), str(folder)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(3)]
    return statistics.median(int(run.stdout) for run in runs)


def _measure(side: str, number: str, folder: str) -> None:
    torch.set_num_threads(1)
    work = WORKS[int(number)]
    module = builders(work.kind, Path(folder))[side]()
    once = run(call(work, side, module), module, work.train)
    held = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    for _ in range(3):
        once()
    print(_status("VmHWM") - held)


def _status(field: str) -> int:
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]


def built(kind: str, folder: Path) -> str:
    """CPU time to make the module, ours over theirs; the first of each is not counted."""

    def once(build: Callable[[], nn.Module]) -> float:
        begun = time.process_time()
        build()
        return time.process_time() - begun

    both = builders(kind, folder)
    for build in both.values():
        build()
    return shown([once(both["ours"]) / once(both["theirs"]) for _ in range(7)])


def row(work: Work, folder: Path, asked: Any) -> list[str]:
    """What one work costs us, over what it costs them."""
    both = sides(work, folder, asked.compile)
    ratios = paired(both["theirs"], {"ours": lambda: both["ours"]}, asked.pairs, openings=1)["ours"]
    ours, theirs = (peak(work, folder, side) for side in ("ours", "theirs"))
    return [work.name, shown(ratios), f"{ours / theirs:.2f}", built(work.kind, folder)]


def main() -> None:
    if sys.argv[1:2] == ["--peak"]:
        _measure(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORK", help="works whose name has this in it")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--pairs", type=int, default=15)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    works = [w for w in WORKS if any(part in w.name for part in asked.only)]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for kind in {w.kind for w in works} & {"decoder", "encoder"}:
            getattr(checkpoints, kind)(Path(place, kind))
        for work in works:
            rows.append(row(work, Path(place, work.kind), asked))
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(environment())
    print(table(["ours over theirs", "CPU time", "peak memory", "CPU time to build"], rows))


if __name__ == "__main__":
    main()
