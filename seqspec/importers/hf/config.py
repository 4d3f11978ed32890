"""Reads a `config.json` key by key, so that no key goes unnoticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqspec.diagnostics import CompileError, quoted

MAX_BYTES = 16_000_000

# Keys that `transformers` writes into any config and that no forward pass depends on. Token ids only serve generation
# and the tokenizer; initialisation, precision and caching change no formula.
NEUTRAL = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path architectures bad_words_ids
    begin_suppress_tokens bos_token_id chunk_size_feed_forward cls_token_id decoder_start_token_id diversity_penalty
    do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_range label2id
    length_penalty max_length min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_labels
    num_return_sequences output_attentions output_hidden_states output_past output_scores pad_token_id prefix
    problem_type remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id
    suppress_tokens task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype torchscript
    transformers_version typical_p unk_token_id use_bfloat16 use_cache
    """.split()  # noqa: SIM905
)

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class Config:
    """Reads keys of a config; `close` refuses the config if it has keys that were not read.

    Old files omit keys, which then have their class's default: every reader takes that default.
    """

    def __init__(self, data: dict[str, Any], file: Path) -> None:
        self.data, self.file = data, file
        self._read = set(NEUTRAL)

    def size(self, key: str, default: int) -> int:
        """A positive whole number."""
        value = self._get(key, default)
        if type(value) is not int or value < 1:
            raise self.refuse(f"`{key}` is {quoted(value)}, not a positive whole number")
        return value

    def number(self, key: str, default: float) -> float:
        """A finite number that is not negative."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise self.refuse(f"`{key}` is {quoted(value)}, not a number from 0 up")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.refuse(f"`{key}` is {quoted(value)}, not true or false")
        return value

    def table(self, key: str) -> dict[str, Any]:
        """A mapping; empty if the key is absent."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(f"`{key}` is {quoted(value)}, not a mapping")
        return value

    def activation(self, key: str, default: str) -> str:
        """The language's name of an activation."""
        value = self._get(key, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self.refuse(f"the activation {quoted(value)} is not in the language")
        return ACTIVATIONS[value]

    def must_be(self, key: str, value: object) -> None:
        """Refuses any value but the only one that the language can express, which an absent key has too."""
        found = self._get(key, value)
        if found != value or type(found) is not type(value):
            raise self.refuse(f"`{key}` is {quoted(found)}; only {quoted(value)} can be expressed")

    def without_effect(self, *keys: str) -> None:
        """Marks keys as read that this family's forward pass does not use."""
        self._read.update(keys)

    def pad_id(self, vocab_size: int, default: int | None) -> dict[str, int]:
        """`{pad_id: …}`, or {} if padding has no id of its own (-1, outside the table, or the end of a text)."""
        value = self.data.get("pad_token_id", default)
        ends = self.data.get("eos_token_id")
        taken = [self.data.get("bos_token_id"), *(ends if isinstance(ends, list) else [ends])]
        own = type(value) is int and 0 <= value < vocab_size and value not in taken
        return {"pad_id": value} if own and value is not None else {}

    def architecture(self) -> str | None:
        """The name of the class that was saved."""
        names = self.data.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else None

    def close(self) -> None:
        """Refuses keys that were not read; a null counts as absent."""
        unread = [key for key, value in self.data.items() if key not in self._read and value is not None]
        if unread:
            shown = ", ".join(quoted(key) for key in unread[:5])
            raise self.refuse(f"{shown} may change the numbers, and this importer does not know what it means")

    def refuse(self, message: str, hint: str | None = None) -> CompileError:
        return CompileError("SEQ412", f"{self.file.name}: {message}", hint, str(self.file))

    def _get(self, key: str, default: object) -> Any:
        self._read.add(key)
        value = self.data.get(key)
        return default if value is None else value


def read_json(file: Path) -> Any:
    """Parsed JSON of a bounded size; constants that are not JSON, such as NaN, are refused."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        return json.loads(file.read_text("utf-8"), parse_constant=_no_constant)
    except FileNotFoundError:
        raise CompileError("SEQ413", f"there is no {file.name}", file=str(file)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CompileError("SEQ413", f"{file.name} cannot be read: {error}", file=str(file)) from None


def read_config(folder: Path) -> Config:
    """The folder's `config.json`."""
    file = folder / "config.json"
    data = read_json(file)
    if not isinstance(data, dict):
        raise CompileError("SEQ413", "config.json is not a mapping", file=str(file))
    return Config(data, file)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
