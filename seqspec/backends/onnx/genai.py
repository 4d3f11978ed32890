"""genai_config.json: what onnxruntime-genai must be told to generate with a file of ours.

It needs no tokenizer: ids go in and come out. Its type `decoder` is any decoder whose names the file gives.
"""

from __future__ import annotations

from typing import Any

from seqspec.backends.onnx.decoder import Decoder, cannot_drive, decoder, origin
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature

NAME = "genai_config.json"
PROGRAM = "onnxruntime-genai"
_NO_LIMIT = 2**31 - 1
_USUAL = 2048
_NO_ID = -1


def config(flat: Graph, facts: Any, *, file: str, target: str, in_place: bool, eos_id: int | None) -> dict[str, Any]:
    """The configuration. Buffers of `search.max_length` positions are shared by past and present where kernels can.

    Every generation ends at some id: without `eos_id` at the one of padding, and where there is none at 0.
    """
    found = decoder(flat, facts, PROGRAM, eos_id)
    _check_widths(flat, found)
    end = eos_id if eos_id is not None else found.pad_id or 0
    context = found.max_length or _NO_LIMIT
    model = {
        "type": "decoder",
        "vocab_size": found.vocab_size,
        "context_length": context,
        "eos_token_id": [end],
        # no id is padding: what is -1 matches none, and 0 would cut prompts that end with it
        "pad_token_id": _NO_ID if found.pad_id is None else found.pad_id,
        "decoder": _decoder(found, file, target),
    }
    search = {"max_length": min(context, _USUAL), "do_sample": False, "num_beams": 1}
    return {"model": model, "search": search | {"past_present_share_buffer": in_place}}


def _decoder(found: Decoder, file: str, target: str) -> dict[str, Any]:
    keys, _ = next(iter(found.caches.values()))
    providers: list[dict[str, Any]] = [{"cuda": {}}] if target == "cuda" else []
    past, present = ({part: f"{way}.%d.{part}" for part in ("key", "value")} for way in ("past_key_values", "present"))
    return {
        "filename": file,
        "session_options": {"provider_options": providers},
        "num_hidden_layers": found.layers,
        "num_key_value_heads": keys[1],
        "head_size": keys[3],
        "inputs": {name: name for name in found.inputs}
        | {"past_key_names": past["key"], "past_value_names": past["value"]},
        "outputs": {
            "logits": "logits",
            "present_key_names": present["key"],
            "present_value_names": present["value"],
        },
    }


def _check_widths(flat: Graph, found: Decoder) -> None:
    """It makes room for values as it does for keys."""
    states = {s.past: s.path for s in signature(flat).states}
    for number, (keys, values) in found.caches.items():
        if keys != values:
            path = origin(flat, states[f"past_key_values.{number}.value"])
            raise cannot_drive(PROGRAM, f"its values are {values[3]} wide, and its keys {keys[3]}", path)
