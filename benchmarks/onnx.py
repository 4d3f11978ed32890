"""How long compiled models run beside PyTorch, in CPU time of one thread: a table of works and columns.

    python benchmarks/onnx.py [--only WORK …] [--columns COLUMN …] [--slow] [--pairs 15] [--peers PYTHON]

Every column computes the same, from the same weights, in one process on one core. Columns run in turn, each against
PyTorch, eager: the emitted module, or for the encoder-decoder one written by hand (`bahdanau.py`), whose outputs every
column must give. What is printed is the median of the ratios and its 95 % interval. Files are opened anew several
times, since where their memory lies moves a ratio by several percent.

`--slow` adds the columns that take minutes: torch.compile, torch.onnx.export and transformers.exporters. PYTHON is an
interpreter that has the other exporters' packages: onnxruntime-genai, mobius-onnx, onnxscript. A column that cannot be
made is said to be missing, with the reason. An empty cell is a work that a column does not do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# without this folder, wherever it stands: it has files with the names of packages
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]
os.environ["OMP_NUM_THREADS"] = "1"

import torch

import seqspec
from benchmarks import bahdanau, checkpoints, specs
from benchmarks.pairs import Run, environment, paired, shown, table
from benchmarks.peers import made
from benchmarks.runs import agreeing, eager, of_file, of_session, of_transformers, plain
from benchmarks.works import WORKS, Work

OURS = ("cpu", "portable", "cpu, last", "cpu, int4")
OTHERS = ("transformers eager", "emitted module", "genai", "genai, last", "mobius")
SLOW = ("torch.compile", "torch.onnx.export", "transformers.exporters")
FILES = ("cpu, last", "cpu, int4", "genai", "genai, last", "mobius", "torch.onnx.export", "transformers.exporters")
Open = Callable[[Work], Run]
Columns = Mapping[str, Open]


def transformer(kind: str, folder: Path, asked: Any, said: dict[str, str]) -> tuple[Open, Columns]:
    """The emitted module and the columns of a model that transformers has, too."""
    reference = getattr(checkpoints, kind)(folder / "checkpoint")
    spec, weights = folder / "checkpoint/seqspec/spec.yaml", folder / "checkpoint/seqspec/model.safetensors"
    module = seqspec.to_torch(spec, weights=weights).eval()
    columns: dict[str, Open] = {"transformers eager": lambda work: of_transformers(reference, work)}
    if "torch.compile" in asked.columns:
        columns["torch.compile"] = lambda work: eager(torch.compile(module), work)  # type: ignore[arg-type]
    for name in (n for n in asked.columns if n in ("cpu", "portable") or (n in FILES and kind == "decoder")):
        found = made(name, folder / "checkpoint", folder / name, asked.peers)
        if isinstance(found, str):
            said[name] = found
        else:
            columns[name] = lambda work, name=name: of_file(_file(folder / name, work), work)  # type: ignore[misc]
    return (lambda work: eager(module, work)), columns


def alone(kind: str, folder: Path, asked: Any, said: dict[str, str]) -> tuple[Open, Columns]:
    """The emitted module and our own columns: no other exporter takes these models."""
    spec = specs.SENTENCES if kind == "sentences" else specs.LAYERS.format(kind=kind)
    module, columns = _ours(spec, folder, asked)
    return (lambda work: eager(module, work)), columns


def attending(kind: str, folder: Path, asked: Any, said: dict[str, str]) -> tuple[Open, Columns]:
    """The encoder-decoder written by hand, and our own columns, the emitted module among them."""
    module, columns = _ours(specs.BAHDANAU, folder, asked)
    by_hand = bahdanau.translator(module.state_dict())
    columns = {"emitted module": lambda work: eager(module, work), **columns}

    def checked(open_: Open) -> Open:
        return lambda work: agreeing(open_(work), plain(by_hand, work))

    return (lambda work: plain(by_hand, work)), {name: checked(open_) for name, open_ in columns.items()}


def _ours(spec: str, folder: Path, asked: Any) -> tuple[torch.nn.Module, Columns]:
    """The emitted module, and the columns of its files."""
    columns: dict[str, Open] = {}
    for target in (n for n in asked.columns if n in ("cpu", "portable")):
        path = seqspec.to_onnx(spec, folder / target, target=target, verify=False)
        columns[target] = lambda work, path=path: of_session(path, work)  # type: ignore[misc]
    return seqspec.to_torch(spec, seed=0).eval(), columns


def _file(folder: Path, work: Work) -> Path:
    """transformers.exporters has one file for prompts and one for what follows."""
    parts = folder / ("decode.onnx" if work.past else "prefill.onnx")
    return parts if parts.exists() else folder / "model.onnx"


_MADE = {"decoder": transformer, "encoder": transformer, "bahdanau": attending}


def rows(works: list[Work], asked: Any, said: dict[str, str]) -> Iterator[list[str]]:
    """A row for each work, printed as it is measured."""
    with tempfile.TemporaryDirectory() as place:
        for kind in dict.fromkeys(work.model for work in works):
            folder = Path(place, kind)
            folder.mkdir()
            base, columns = _MADE.get(kind, alone)(kind, folder, asked, said)
            wanted = {name: open_ for name, open_ in columns.items() if name in asked.columns}
            for work in (w for w in works if w.model == kind):
                yield [work.name, *_cells(base, wanted, work, asked)]


def _does(column: str, work: Work) -> bool:
    """Whether that is another thing to measure: of one new token the last logits are all."""
    return not (work.past and "last" in column)


def _cells(base: Open, columns: Columns, work: Work, asked: Any) -> list[str]:
    able = {name: (lambda open_=open_: open_(work)) for name, open_ in columns.items() if _does(name, work)}
    ratios = paired(base(work), able, asked.pairs, asked.openings)
    for name, found in ratios.items():
        print(f"{work.name:28} {name:24} {shown(found)}", file=sys.stderr, flush=True)
    return [shown(ratios[name]) if name in ratios else "" for name in asked.columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORK", help="works whose name has this in it")
    parser.add_argument("--columns", nargs="+", choices=(*OURS, *OTHERS, *SLOW), metavar="COLUMN")
    parser.add_argument("--slow", action="store_true", help="with the columns that take minutes")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--openings", type=int, default=3, help="how often each file is opened anew")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    asked = parser.parse_args()
    asked.columns = asked.columns or [*OURS, *OTHERS, *(SLOW if asked.slow else ())]
    works = [work for work in WORKS if any(part in work.name for part in asked.only)]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    said: dict[str, str] = {}
    found = list(rows(works, asked, said))
    print(environment())
    print(table(["over PyTorch eager", *asked.columns], found))
    for name, reason in said.items():
        print(f"\n{name} is missing: {reason}")


if __name__ == "__main__":
    main()
