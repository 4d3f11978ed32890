"""Sentence embeddings: all-MiniLM-L6-v2 imported, through torch and ONNX, against transformers on the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import BertModel

import seqspec
from seqspec.importers import import_model

SENTENCES = [
    "The cat sits outside.",
    "A kitten rests outdoors.",
    "Shares fell sharply on Monday after the company published, a week late, its accounts for the third quarter.",
    "",
]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def imported(minilm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_model(minilm_folder, tmp_path_factory.mktemp("imported") / "minilm")


@pytest.fixture(scope="module")
def tokenizer(minilm_folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(minilm_folder / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer


@pytest.fixture(scope="module")
def expected(minilm_folder: Path, tokenizer: Tokenizer) -> np.ndarray:
    """Mean over tokens, then length 1: each sentence alone, so that no mask is needed."""
    bert = BertModel.from_pretrained(minilm_folder, local_files_only=True).eval()
    with torch.no_grad():
        rows = [bert(torch.tensor([ids(tokenizer, s)])).last_hidden_state.mean(1)[0] for s in SENTENCES]
    return torch.nn.functional.normalize(torch.stack(rows)).numpy()


@pytest.fixture(scope="module")
def session(imported: Path, tmp_path_factory: pytest.TempPathFactory) -> seqspec.Session:
    out = tmp_path_factory.mktemp("minilm") / "out"
    seqspec.to_onnx(imported / "spec.yaml", out, weights=imported / "model.safetensors")
    return seqspec.Session(out)


def ids(tokenizer: Tokenizer, sentence: str) -> list[int]:
    return tokenizer.encode(sentence).ids


def padded(tokenizer: Tokenizer, *, left: bool) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask of all sentences in one batch."""
    rows = [ids(tokenizer, s) for s in SENTENCES]
    longest = max(map(len, rows))
    table = np.zeros((len(rows), longest), np.int64)
    mask = np.zeros_like(table)
    for n, row in enumerate(rows):
        place = slice(longest - len(row), None) if left else slice(0, len(row))
        table[n, place], mask[n, place] = row, 1
    return table, mask


def test_the_spec_is_the_one_people_would_write(imported: Path) -> None:
    assert (imported / "spec.yaml").read_text() == (
        "# Imported by `seqspec import`; the weights are in model.safetensors.\n"
        "# The pooler (a dense layer over the first token) is left out: it is read by classifiers alone.\n"
        "seqspec: 1\n"
        "name: minilm\n"
        "encoder:\n"
        "  input: {kind: tokens, vocab_size: 30522, pad_id: 0, token_types: 2, norm: {kind: layernorm, eps: 1e-12}}\n"
        "  d_model: 384\n"
        "  position: {kind: learned, max_length: 512}\n"
        "  norm: {kind: layernorm, eps: 1e-12}\n"
        "  norm_placement: post\n"
        "  dropout: {input: 0.1, residual: 0.1, attention: 0.1}\n"
        "  layers:\n"
        "    - repeat: 6\n"
        "      block:\n"
        "        - {kind: attention, heads: 12}\n"
        "        - {kind: ffn, d_ff: 1536, activation: gelu}\n"
        "head: {kind: embedding, pool: mean, normalize: true}\n"
    )


def test_cosine_of_the_two_cats(expected: np.ndarray) -> None:
    assert round(float(expected[0] @ expected[1]), 4) == 0.7144


def test_torch(imported: Path, tokenizer: Tokenizer, expected: np.ndarray) -> None:
    model = seqspec.to_torch(imported / "spec.yaml", weights=imported / "model.safetensors").eval()
    table, mask = map(torch.from_numpy, padded(tokenizer, left=False))
    with torch.no_grad():
        found = model(input_ids=table, attention_mask=mask).embedding.numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("left", [False, True])
def test_onnx_in_a_batch(session: seqspec.Session, tokenizer: Tokenizer, expected: np.ndarray, left: bool) -> None:
    table, mask = padded(tokenizer, left=left)
    found = session.run({"input_ids": table, "attention_mask": mask})["embedding"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert round(float(found[0] @ found[1]), 4) == 0.7144


def test_onnx_finds_the_padding_itself(session: seqspec.Session, tokenizer: Tokenizer, expected: np.ndarray) -> None:
    found = session.run({"input_ids": padded(tokenizer, left=False)[0]})["embedding"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("number", range(len(SENTENCES)))
def test_onnx_one_by_one(session: seqspec.Session, tokenizer: Tokenizer, expected: np.ndarray, number: int) -> None:
    found = session.run({"input_ids": np.array([ids(tokenizer, SENTENCES[number])])})["embedding"]
    np.testing.assert_allclose(found[0], expected[number], rtol=0, atol=TOLERANCE)
