"""FLOPs of a report against what torch counts when the emitted model runs, forward and backward, on the meta device.

torch.utils.flop_counter counts products of matrices, convolutions and attention, and nothing else: no norm, activation,
sum, dropout, softmax, rotation, position or loss. Of attention it counts every pair, of a causal linear attention what
the chunks of 64 look at, of a convolution over time one step more, which the file needs; where torch counts nothing a
report counts what the op says, by hand in test_flops.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import seqspec
from seqspec.backends.source import write
from seqspec.backends.torch.load import load
from seqspec.graph.dims import ENCODER_TIME, LABELS, evaluate
from seqspec.ops import attention, bias, biases, ctc, dropout, elementwise, loss, norm, normalize, pool, positions, rope
from seqspec.ops.linear_attention import CHUNK, LinearAttention
from seqspec.ops.time_conv import TimeConv
from seqspec.reports.summary import summarise
from seqspec.spec.dump import plain

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/cold/fixtures/specs/valid"
SPECS = sorted((ROOT / "examples").rglob("*.yaml"))
SPECS += [FIXTURES / f"{name}.yaml" for name in ("masks-and-biases", "blocks", "rnn-decoder", "bridges", "outputs")]
UNCOUNTED = [
    *(elementwise.Unary, elementwise.Add, elementwise.Multiply, elementwise.Scale, dropout.Dropout, bias.Bias),
    *(norm.LayerNorm, norm.RMSNorm, norm.OffsetRMSNorm, normalize.Normalize, pool.Pool, rope.Rope, rope.RopeTables),
    *(positions.SinusoidalPositions, biases.AlibiBias, loss.CrossEntropy, loss.MeanSquaredError, ctc.CtcLoss),
]


class Unread(TorchFunctionMode):
    """Where the emitted file looks at data: nothing on the meta device is out of range, and nothing is padding."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = (torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.__int__)
        if function in reads and args[0].is_meta:
            return 0 if function is torch.Tensor.__int__ else False
        if function is torch.Tensor.cpu:
            return torch.ones_like(args[0], device="cpu")
        return function(*args, **(kwargs or {}))


def chunks(op: LinearAttention, q: Any, k: Any, v: Any, *_: Any) -> int:
    """φ(k) [v, 1]ᵀ, φ(q) times that, and inside of chunks φ(q) φ(k)ᵀ and that times [v, 1]."""
    batch, heads, time, width = q.shape
    columns, groups, chunk = v.shape[3] + 1, k.shape[1], CHUNK if time > 1 else 1
    if not op.causal:
        return 2 * batch * time * width * columns * (groups + heads)
    padded = -(-time // chunk) * chunk
    return 2 * batch * padded * (width * columns * (groups + heads) + heads * chunk * (width + columns))


def one_step_more(op: TimeConv, x: Any, *_: Any) -> int:
    """Of a convolution over time, which the file slides over T + 1 steps."""
    return 2 * x.shape[0] * (x.shape[1] + 1) * op.outputs * op.inputs * op.kernel


@pytest.fixture
def as_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops say what torch says of them."""
    for op in UNCOUNTED:
        monkeypatch.setattr(op, "flops", lambda *_: 0)
    monkeypatch.setattr(attention, "pairs", lambda mask, queries, keys: queries * keys)
    monkeypatch.setattr(TimeConv, "flops", one_step_more)
    monkeypatch.setattr(LinearAttention, "flops", chunks)
    monkeypatch.setattr(LinearAttention, "backward", lambda op, takes, *inputs: 2 * chunks(op, *inputs))


def counted(graph: seqspec.Graph, sizes: dict[str, int]) -> tuple[int, int]:
    """What torch counts of a forward pass, and of one with its gradients."""
    source = write(graph)
    with torch.device("meta"):
        model = getattr(load(source.text), source.model)()
    # there is no CTC on the meta device
    wanted = [v for v in graph.trainable.root.inputs if not v.optional or (v.name == "labels" and LABELS not in sizes)]
    inputs = {
        v.name: torch.empty(
            [evaluate(size, sizes) for size in v.shape],
            dtype=torch.int64 if v.dtype == "int64" else torch.float32,
            device="meta",
        )
        for v in wanted
    }
    with Unread(), FlopCounterMode(display=False) as counter:
        outputs = model(**inputs)
        forward = counter.get_total_flops()
        made = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
        sum(x.sum() for x in made).backward()
    return forward, counter.get_total_flops()


def short(value: Any) -> Any:
    """A spec whose layers are there twice at most: what one more costs is the report's to multiply."""
    if isinstance(value, list):
        return [short(item) for item in value]
    if isinstance(value, dict):
        return {key: min(item, 2) if key == "repeat" else short(item) for key, item in value.items()}
    return value


@pytest.mark.usefixtures("as_torch_counts")
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_report_counts_what_torch_counts(path: Path) -> None:
    graph = seqspec.build(seqspec.load(short(plain(seqspec.load(path).model_copy(update={"tokenizer": None})))))
    summary = summarise(graph, batch=2, time=7, source_time=5)
    sizes = {ENCODER_TIME: 5, **summary.sizes}
    assert (summary.flops, summary.train_flops) == counted(graph, sizes)
