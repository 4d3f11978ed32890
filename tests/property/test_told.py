"""What masks are told at run time has a value for each position: of tokens, vectors, patches, and of a sound."""

from __future__ import annotations

from typing import Any

import pytest

from . import batches, of_compile, of_loss, of_onnx, of_torch
from .batches import Kind, Side
from .case import Case
from .strategy import Spec

CHECKS = (
    *of_torch.OF_EVERY_SPEC,
    of_loss.is_its_reference,
    of_loss.padding_changes_nothing,
    *(prop.check for prop in of_onnx.PROPERTIES),
)


def sound(*strides: int) -> dict[str, Any]:
    front = [{"channels": 4, "kernel": 3, "stride": stride} for stride in strides]
    return {"kind": "audio", "mel_bins": 2, "convolutions": front}


def image(**more: Any) -> dict[str, Any]:
    return {"kind": "image", "size": 6, "patch": 2, "channels": 1, **more}


SOURCES = {
    "tokens": {"kind": "tokens", "vocab_size": 9, "pad_id": 0},
    "features": {"kind": "features", "size": 3},
    "frames": sound(1),
    "halved frames": sound(2),
    "a third of the frames": sound(3, 1),
    "a quarter of the frames": sound(2, 2),
    "patches": image(),
    "patches and a token": image(class_token=True),
}
MASKS = {
    "documents": "documents",
    "given": {"kind": "given", "name": "seen"},
    "prefix": {"any": [{"kind": "window", "left": 1, "right": 0}, "prefix"]},
    "all": {"all": ["documents", {"any": [{"kind": "given", "name": "seen"}, "prefix"]}]},
}
PADDINGS: tuple[Kind, ...] = ("left", "holes")


STACKS = [(source, "all") for source in SOURCES] + [("halved frames", mask) for mask in MASKS if mask != "all"]


@pytest.mark.parametrize("told", [True, False], ids=["told", "left out"])
@pytest.mark.parametrize(("source", "mask"), STACKS)
def test_it_holds_of_a_stack(source: str, mask: str, told: bool) -> None:
    """With a table of positions, which documents count anew, behind a layer that is given its initial state."""
    layers: list[Any] = [{"kind": "gru", "hidden_size": 4, "initial_state": "given"}]
    layers.append({"block": [{"kind": "attention", "heads": 2}]})
    stack = {"input": SOURCES[source], "d_model": 4, "position": "rope", "mask": MASKS[mask], "layers": layers}
    head = {"kind": "regression", "size": 2, "pool": "none"}
    holds(Spec({"seqspec": 1, "name": "m", "decoder": {"causal": False, **stack}, "head": head}), told)


@pytest.mark.parametrize("source", SOURCES)
def test_it_holds_of_an_encoder_and_its_decoder(source: str) -> None:
    """Masks of the decoder are told of the whole past; those of the encoder on the first call alone."""
    learned = {"kind": "learned", "max_length": 17}
    encoder = {"input": SOURCES[source], "d_model": 4, "position": learned, "mask": MASKS["all"]}
    encoder |= {"layers": [{"block": [{"kind": "attention", "heads": 2}]}]}
    if "patches" in source:
        encoder["position"] = learned | {"max_length": 9 + ("token" in source)}
    attentions = [{"kind": "attention", "heads": 2}, {"kind": "cross_attention", "heads": 2, "from": "encoder"}]
    layers = [{"kind": "lstm", "hidden_size": 4, "initial_state": "given"}, {"block": attentions}]
    decoder = {"input": SOURCES["tokens"], "d_model": 4, "position": learned, "layers": layers}
    decoder |= {"mask": {"all": ["causal", MASKS["documents"], MASKS["given"]]}}
    holds(Spec({"seqspec": 1, "name": "m", "encoder": encoder, "decoder": decoder, "head": {"kind": "lm"}}), True)


def holds(spec: Spec, told: bool) -> None:
    prefixes = ["", "decoder_"][: len(spec.model.stacks)]
    for padding in PADDINGS:
        lengths = (7, 5)[-len(prefixes) :]
        sides = tuple(
            Side(prefix, length, padding, by_ids=False, placed=False, typed=True, started=told, told=told)
            for prefix, length in zip(prefixes, lengths, strict=True)
        )
        case = Case(spec, batches.fill(spec, 3, sides, (2, 0, 1, lengths[-1] - 3), seed=5))
        for check in CHECKS:
            check(case)
    of_compile.a_session_is_torch(case)
