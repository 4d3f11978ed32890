"""What an importer cannot express exactly it refuses, with a code and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seqspec.diagnostics import CompileError
from seqspec.importers import import_model
from seqspec.importers.hf import import_directory

BERT = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_attention_heads": 2}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_head": 2, "n_layer": 1}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_attention_heads": 2}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model directory: a config, weights with the given names, and other files."""

    def make(config: Any, *names: str, dtype: torch.dtype = torch.float32, **files: Any) -> Path:
        (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        save_file({n: torch.zeros(2, dtype=dtype) for n in names}, tmp_path / "model.safetensors")
        for name, content in files.items():
            file = tmp_path / name.replace("__", "/").replace("_json", ".json")
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(content))
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "bart"}, "bart.*not known"),
        ({"model_type": "berd"}, "did you mean `bert`"),
        ({"model_type": ["bert"]}, "not known"),
        ({}, "not known"),
        (BERT | {"hidden_act": "quick_gelu"}, "quick_gelu"),
        (BERT | {"hidden_act": ["gelu"]}, "not in the language"),
        (BERT | {"position_embedding_type": "relative_key"}, "relative_key"),
        (BERT | {"is_decoder": True}, "is_decoder"),
        (BERT | {"architectures": ["BertForMaskedLM"]}, "save the encoder alone"),
        (BERT | {"some_new_option": 3}, "some_new_option"),
        (BERT | {"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        (BERT | {"quantization_config": {"bits": 4}}, "quantization_config"),
        (BERT | {"hidden_size": "8"}, "hidden_size"),
        (BERT | {"hidden_size": True}, "hidden_size"),
        (BERT | {"layer_norm_eps": -1}, "layer_norm_eps"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        (GPT2 | {"architectures": ["GPT2ForSequenceClassification"]}, "GPT2ForSequenceClassification"),
        (LLAMA | {"attention_bias": 1}, "attention_bias"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        (LLAMA | {"rope_scaling": {"type": "linear"}}, "lacks `factor`"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0, "beta": 1}}, "has `beta`"),
        (LLAMA | {"rope_parameters": "linear"}, "not a mapping"),
    ],
)
def test_configs(write: Callable[..., Path], config: dict[str, Any], says: str) -> None:
    with pytest.raises(CompileError, match=says) as caught:
        import_directory(write(config))
    assert caught.value.code == "SEQ412"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": NaN}', "[" * 100_000])
def test_configs_that_are_none(write: Callable[..., Path], text: str) -> None:
    with pytest.raises(CompileError, match="SEQ413"):
        import_directory(write(text))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="SEQ413"):
        import_directory(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["encoder.layer.0.attention.self.distance_embedding.weight"], "no place"),
        (["cls.predictions.bias"], "no place"),
        (["embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"], "twice"),
    ],
)
def test_weights(write: Callable[..., Path], names: list[str], says: str) -> None:
    with pytest.raises(CompileError, match=says) as caught:
        import_directory(write(BERT, *names))
    assert caught.value.code == "SEQ412"


def test_quantised_weights(write: Callable[..., Path]) -> None:
    with pytest.raises(CompileError, match="I8"):
        import_directory(write(BERT, "embeddings.word_embeddings.weight", dtype=torch.int8))


POOLING = "sentence_transformers.models.Pooling"
TRANSFORMER = "sentence_transformers.models.Transformer"


@pytest.mark.parametrize(
    ("modules", "pooling", "code"),
    [
        ([TRANSFORMER], {}, "SEQ412"),
        ([TRANSFORMER, POOLING], {}, "SEQ412"),
        ([TRANSFORMER, POOLING], {"pooling_mode_mean_sqrt_len_tokens": True}, "SEQ412"),
        ([TRANSFORMER, POOLING], {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "SEQ412"),
        ([TRANSFORMER, POOLING, "sentence_transformers.models.Dense"], {"pooling_mode_mean_tokens": True}, "SEQ412"),
    ],
)
def test_sentence_models(write: Callable[..., Path], modules: list[str], pooling: Any, code: str) -> None:
    listed = [{"type": m, "path": "1_Pooling" if m == POOLING else ""} for m in modules]
    with pytest.raises(CompileError, match=code):
        import_directory(write(BERT, modules_json=listed, **{"1_Pooling__config_json": pooling}))


@pytest.mark.parametrize("path", ["../other", "/etc", ".."])
def test_modules_cannot_lead_outside(write: Callable[..., Path], path: str) -> None:
    with pytest.raises(CompileError, match=r"SEQ413.*outside"):
        import_directory(write(BERT, modules_json=[{"type": TRANSFORMER, "path": path}]))


def test_an_output_that_holds_something_is_left_as_it_is(write: Callable[..., Path], tmp_path: Path) -> None:
    folder = write(BERT)
    before = {p: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(CompileError, match="SEQ403"):
        import_model(folder, folder)
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


def test_a_failed_import_leaves_nothing(write: Callable[..., Path], tmp_path: Path) -> None:
    folder = write(BERT | {"some_new_option": 3})
    with pytest.raises(CompileError):
        import_model(folder, tmp_path / "out" / "model")
    assert not (tmp_path / "out").exists()
