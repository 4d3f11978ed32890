"""What a report says is kept for the gradients, against what autograd keeps of the emitted model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import seqspec
from seqspec.backends.torch.build import module
from seqspec.graph.dims import PAST, evaluate
from seqspec.reports.count import Count
from seqspec.reports.flow import Reach
from seqspec.reports.summary import summarise

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = ["gpt2", "longformer-tiny", "transformer-base", "bert-base", "alibi-decoder"]
SMALL = {PAST: 0, "sequence_length": 7, "encoder_sequence_length": 9, "batch_size": 2}


def example(name: str) -> seqspec.Graph:
    """Two layers of those that repeat, and no dropout, whose mask is bytes on a GPU and floats on a CPU."""
    path = EXAMPLES / f"{name}.yaml"
    changes = []
    for stack in seqspec.load(path).stacks:
        changes += [f"{stack}.layers[0].repeat=2", f"{stack}.dropout=0"]
    return seqspec.build(seqspec.load(path, changes))


def kept_by_torch(model: nn.Module, graph: seqspec.Graph) -> int:
    """Bytes of the floats that autograd saves, each memory once, without parameters, inputs and numbers.

    A mask that is a bool is left out too: on a CPU each attention keeps a copy of its own in floats.
    """
    inputs = {
        v.name: torch.ones(
            [evaluate(size, SMALL) for size in v.shape], dtype=torch.int64 if v.dtype == "int64" else torch.float32
        )
        for v in graph.trainable.root.inputs
        if not v.optional or v.name == "labels"
    }
    given = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *inputs.values())}
    alive: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: alive.append(x) or x, lambda x: x):
        model(**inputs)
    floats = [x for x in alive if x.is_floating_point() and x.ndim and not (x.ndim == 4 and x.shape[1] == 1)]
    found = {x.untyped_storage().data_ptr(): x for x in floats}
    return sum(x.untyped_storage().nbytes() for place, x in found.items() if place not in given)


def kept(graph: seqspec.Graph) -> int:
    root, count = graph.trainable.root, Count(SMALL, "float32")
    takes = Reach.of(graph, root).takes
    return sum(count.bytes(v) for v in count.flows.gradients.all_kept(root, takes) if "float" in v.dtype)


@pytest.mark.parametrize("name", PLAIN)
def test_autograd_keeps_what_a_report_says(name: str) -> None:
    graph = example(name)
    assert kept_by_torch(module(graph).train(), graph) == kept(graph)


def test_checkpointing_keeps_what_layers_hand_on() -> None:
    """Two layers of GPT-2 that are checkpointed keep their two inputs; a report has one layer more, made again."""
    graph = example("gpt2")
    summary = summarise(graph, batch=2, time=7)
    (layers,) = (part for part in summary.parts if part.checkpointed)
    beside = summary.kept_bytes - kept(graph)  # ids and masks
    assert layers.count == 2
    outside = kept_by_torch(module(graph, checkpoint=True).train(), graph)
    assert outside == summary.kept_bytes_checkpointed - layers.inside_bytes - beside
    assert summary.train_flops_checkpointed == summary.train_flops + 2 * layers.flops
