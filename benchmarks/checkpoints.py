"""Models of transformers' with random weights, saved as every exporter reads them, and as spec and weights of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models

import seqspec

transformers.utils.logging.disable_progress_bar()


def decoder(
    folder: Path, layers: int = 8, width: int = 512, heads: int = 8, feed: int = 1408, words: int = 8192
) -> Any:
    """LLaMA with four queries a key; the default has 31 M parameters."""
    config = transformers.LlamaConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads // 4, head_dim=width // heads, intermediate_size=feed, rms_norm_eps=1e-5,
        max_position_embeddings=4096, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return _saved(transformers.LlamaForCausalLM, config, folder)


def encoder(folder: Path, layers: int = 4) -> Any:
    """BERT-base at a third of its depth."""
    config = transformers.BertConfig(vocab_size=8192, num_hidden_layers=layers, pad_token_id=0)
    return _saved(transformers.BertModel, config, folder)


def _saved(kind: Any, config: Any, folder: Path) -> Any:
    torch.manual_seed(0)
    model = kind(config).eval()
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))  # the genai builder loads one
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    seqspec.import_model(folder, folder / "seqspec")
    return model
