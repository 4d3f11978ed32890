"""Imported models give what transformers gives: every family, disturbed weights, uneven sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

import seqspec
from seqspec.importers import import_model

Make = Callable[[], transformers.PreTrainedModel]
ENDS = {"bos_token_id": 1, "eos_token_id": 2}


def bert(**more: object) -> transformers.PreTrainedModel:
    sizes = {"vocab_size": 97, "hidden_size": 40, "intermediate_size": 52, "num_hidden_layers": 3}
    config = transformers.BertConfig(**sizes, num_attention_heads=4, max_position_embeddings=64, **more)
    return transformers.BertModel(config)


def gpt2(kind: type = transformers.GPT2LMHeadModel, **more: object) -> transformers.PreTrainedModel:
    sizes = {"vocab_size": 97, "n_positions": 64, "n_embd": 40, "n_layer": 3, "n_head": 4}
    return kind(transformers.GPT2Config(**sizes, **ENDS, **more))


def llama(kind: type = transformers.LlamaForCausalLM, **more: object) -> transformers.PreTrainedModel:
    sizes = {"vocab_size": 97, "hidden_size": 40, "intermediate_size": 52, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    return kind(transformers.LlamaConfig(**sizes | heads | ENDS | more))


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
MODELS: dict[str, Make] = {
    "bert": bert,
    "bert with three segments": lambda: bert(type_vocab_size=3, hidden_act="relu", layer_norm_eps=1e-3),
    "gpt2": gpt2,
    "gpt2 with its own width and table": lambda: gpt2(n_inner=52, tie_word_embeddings=False),
    "gpt2 without a head": lambda: gpt2(transformers.GPT2Model),
    "llama": llama,
    "llama with one key head": lambda: llama(num_key_value_heads=1, tie_word_embeddings=True),
    "llama with biases": lambda: llama(attention_bias=True),
    "llama with all biases": lambda: llama(attention_bias=True, mlp_bias=True, head_dim=10),
    "llama 3": lambda: llama(rope_parameters=LLAMA3),
    "llama, scaled": lambda: llama(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
    "llama without a head": lambda: llama(transformers.LlamaModel),
}


def disturbed(make: Make) -> transformers.PreTrainedModel:
    """Norms off 1 and biases off 0, so that a weight in the wrong place shows."""
    torch.manual_seed(0)
    model = make()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_numbers(name: str, tmp_path: Path) -> None:
    theirs = disturbed(MODELS[name])
    theirs.save_pretrained(tmp_path / "theirs")
    imported = import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = seqspec.to_torch(imported / "spec.yaml", weights=imported / "model.safetensors").eval()
    ids = torch.randint(3, 97, (2, 19))
    with torch.no_grad():
        expected, found = theirs(ids)[0], ours(input_ids=ids)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


POOLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cls_token": lambda x: x[:, 0],
    "mean_tokens": lambda x: x.mean(1),
    "max_tokens": lambda x: x.amax(1),
    "lasttoken": lambda x: x[:, -1],
}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", POOLS)
def test_sentence_models(mode: str, normalize: bool, tmp_path: Path) -> None:
    """The transformer in a folder of its own, as older ones have it; shorter sentences padded."""
    theirs = disturbed(bert)
    theirs.save_pretrained(tmp_path / "theirs" / "0_Transformer")
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [{"type": f"sentence_transformers.models.{k}", "path": f"{n}_{k}"} for n, k in enumerate(kinds)]
    (tmp_path / "theirs" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "theirs" / "1_Pooling").mkdir()
    (tmp_path / "theirs" / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 40} | {f"pooling_mode_{m}": m == mode for m in POOLS})
    )
    imported = import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = seqspec.to_torch(imported / "spec.yaml", weights=imported / "model.safetensors")
    ids = torch.randint(3, 97, (3, 11))
    ids[0, 4:] = 0
    with torch.no_grad():
        alone = [POOLS[mode](theirs(row[row != 0][None]).last_hidden_state)[0] for row in ids]
        found = ours.eval()(input_ids=ids).embedding
    expected = torch.stack(alone)
    expected = torch.nn.functional.normalize(expected) if normalize else expected
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_shards_and_half_precision(tmp_path: Path) -> None:
    theirs = disturbed(lambda: llama().to(torch.bfloat16))
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    imported = import_model(tmp_path / "theirs", tmp_path / "ours")
    weights = load_file(imported / "model.safetensors")
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}
    assert torch.equal(weights["decoder.layers.2.ffn.gate_proj.weight"], theirs.model.layers[2].mlp.gate_proj.weight)
    ours = seqspec.to_torch(imported / "spec.yaml", weights=imported / "model.safetensors").eval()
    # read anew: `.float()` would keep rotary frequencies that `.to(bfloat16)` has rounded
    widened = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32).eval()
    ids = torch.randint(3, 97, (2, 19))
    with torch.no_grad():
        expected, found = widened(ids)[0], ours(input_ids=ids)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
