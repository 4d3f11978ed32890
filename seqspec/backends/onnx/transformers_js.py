"""config.json and generation_config.json: what Transformers.js must be told to generate with a file of ours.

It reads from these how a model is driven, and the architecture from the file: the type `llama` stands for every decoder
with `past_key_values.N.key` and `.value`.
"""

from __future__ import annotations

from typing import Any

from seqspec.backends.onnx.decoder import decoder
from seqspec.diagnostics import CompileError
from seqspec.graph.ir import Graph
from seqspec.passes.options import Options

PROGRAM = "Transformers.js"
FOLDER = "onnx"
_TYPES = {
    ("float32", None): "fp32",
    ("float16", None): "fp16",
    ("float32", "int8"): "int8",
    ("float16", "int8"): "int8",
    ("float32", "int4"): "q4",
    ("float16", "int4"): "q4f16",
}


def model_name(asked: Options) -> str:
    """The name of the file without its ending, as the library makes it of its own names of types."""
    kind = _kind(asked)
    return "model" if kind == "fp32" else f"model_{kind}"


def configs(flat: Graph, facts: Any, asked: Options, eos_id: int | None) -> dict[str, dict[str, Any]]:
    """The two files by name. Without `eos_id` a generation ends at its length alone."""
    found = decoder(flat, facts, PROGRAM, eos_id)
    keys, _ = next(iter(found.caches.values()))
    length = {} if found.max_length is None else {"max_position_embeddings": found.max_length}
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": found.vocab_size,
        "num_hidden_layers": found.layers,
        "num_key_value_heads": keys[1],
        "head_dim": keys[3],
        **length,
        "transformers.js_config": {"dtype": _kind(asked), "use_external_data_format": True},
    }
    ids = {"pad_token_id": found.pad_id, "eos_token_id": eos_id}
    return {"config.json": config, "generation_config.json": {k: v for k, v in ids.items() if v is not None}}


def _kind(asked: Options) -> str:
    kind = _TYPES.get((asked.dtype, asked.quantize))
    if kind is None:
        raise CompileError("SEQ411", f"JavaScript has no arrays of {asked.dtype}", "choose float32 or float16")
    return kind
