"""Heads: what stands under a mask, against transformers' BERT; several heads at once, each as if it were alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

import seqspec

EXAMPLE = Path(__file__).parents[2] / "examples/bert-base.yaml"
SMALL = [
    "encoder.d_model=24",
    "encoder.input.vocab_size=61",
    "encoder.position.max_length=19",
    "encoder.layers[0].repeat=2",
    "encoder.layers[0].block[0].heads=3",
    "encoder.layers[0].block[1].d_ff=40",
]
RENAMED = (
    (r"^bert\.embeddings\.word_embeddings", "encoder.embed_tokens"),
    (r"^bert\.embeddings\.position_embeddings", "encoder.embed_positions"),
    (r"^bert\.embeddings\.token_type_embeddings", "encoder.embed_types"),
    (r"^bert\.embeddings\.LayerNorm", "encoder.embed_norm"),
    (r"^bert\.encoder\.layer\.", "encoder.layers."),
    (r"attention\.self\.(query|key|value)", lambda m: f"attention.{m[1][0]}_proj"),
    (r"attention\.output\.dense", "attention.o_proj"),
    (r"attention\.output\.LayerNorm", "attention_norm"),
    (r"intermediate\.dense", "ffn.up_proj"),
    (r"output\.dense", "ffn.down_proj"),
    (r"output\.LayerNorm", "ffn_norm"),
    (r"^cls\.predictions\.transform\.dense", "head_transform"),
    (r"^cls\.predictions\.transform\.LayerNorm", "head_norm"),
    (r"^cls\.predictions\.bias", "head.bias"),
)


@pytest.fixture(scope="module")
def bert() -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=61,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=19,
    )
    model = BertForMaskedLM(config).double().eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False).add_(torch.randn_like(parameter) * 0.1)
    return model


def weights(bert: BertForMaskedLM) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in bert.state_dict().items():
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        found[name] = tensor
    return {name: tensor for name, tensor in found.items() if not name.startswith("cls.predictions.decoder")}


def test_it_is_bert(bert: BertForMaskedLM, tmp_path: Path) -> None:
    spec, known = seqspec.load(EXAMPLE, SMALL), weights(bert)
    model = seqspec.to_torch(spec).double().eval()
    model.load_state_dict(known)
    ids = torch.tensor([[5, 9, 60, 3, 2], [7, 1, 4, 0, 0]])
    types = torch.tensor([[0, 0, 1, 1, 1]] * 2)
    given = {"input_ids": ids, "attention_mask": (ids != 0).long(), "token_type_ids": types}
    labels = torch.tensor([[-100, 4, -100, 7, -100], [9, -100, -100, -100, -100]])
    with torch.no_grad():
        want, got = bert(**given, labels=labels), model(**given, labels=labels)
    real = ids != 0
    torch.testing.assert_close(got.logits[real], want.logits[real], atol=1e-10, rtol=0)
    torch.testing.assert_close(got.loss, want.loss, atol=1e-10, rtol=0)

    single = {name: tensor.float().numpy() for name, tensor in known.items()}
    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=single))
    made = session.run({name: tensor.numpy() for name, tensor in given.items()})["logits"]
    limit = 4e-6 * float(want.logits.abs().max())
    np.testing.assert_allclose(made[real.numpy()], want.logits[real].numpy(), atol=limit)


# ---- several heads ---------------------------------------------------------------------------------------------------


HEADS: dict[str, dict[str, Any]] = {
    "tags": {"kind": "classifier", "classes": 3, "pool": "none"},
    "topic": {"kind": "classifier", "classes": 2, "pool": "mean"},
    "score": {"kind": "regression", "size": 1, "pool": "mean", "bias": False},
    "vector": {"kind": "embedding", "pool": "mean", "normalize": True},
    "state": {"kind": "embedding", "pool": "final_state"},
    "words": {"kind": "masked_lm", "tied": True, "activation": "tanh"},
    "alone": {"kind": "masked_lm", "vocab_size": 4, "bias": False},
    "next": {"kind": "lm", "bias": True},
}
STACK = {
    "input": {"kind": "tokens", "vocab_size": 9, "pad_id": 0, "d_model": 6},
    "layers": [{"kind": "gru", "hidden_size": 6}],
}


def model(**heads: Any) -> dict[str, Any]:
    return {"seqspec": 1, "name": "several", "encoder": STACK, **heads}


def test_each_head_says_what_it_says_alone(tmp_path: Path) -> None:
    heads = {name if name != "state" else "final": head for name, head in HEADS.items()}
    spec = model(outputs=heads)
    together = seqspec.to_torch(spec, seed=3).double().eval()
    ids = torch.tensor([[1, 5, 8, 2], [0, 3, 0, 7]])
    with torch.no_grad():
        out = together(input_ids=ids)
    assert list(out._fields[: len(heads)]) == sorted(heads)
    known = together.state_dict()
    for name, head in heads.items():
        alone = seqspec.to_torch(model(head=head)).double().eval()
        own = {new: known[new.replace("head", f"{name}_head", 1)] for new in alone.state_dict() if "head" in new}
        alone.load_state_dict({k: v for k, v in known.items() if k.startswith("encoder.")} | own)
        with torch.no_grad():
            torch.testing.assert_close(alone(input_ids=ids)[0], getattr(out, name), atol=0, rtol=0)

    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=together.float().state_dict()))
    made = session.run({"input_ids": ids.numpy()})
    assert list(made) == sorted(heads)
    for name in heads:
        np.testing.assert_allclose(made[name], getattr(out, name).numpy(), atol=1e-5)


def test_outputs_come_in_the_order_of_their_names() -> None:
    """The order of the keys of a map says nothing, and changes no byte."""
    heads = {name if name != "state" else "final": head for name, head in HEADS.items()}
    turned = dict(reversed(heads.items()))
    assert seqspec.to_source(model(outputs=turned)) == seqspec.to_source(model(outputs=heads))
    assert list(seqspec.load(model(outputs=turned)).resolved().outputs) == sorted(heads)


def test_several_heads_are_run_in_chunks(tmp_path: Path) -> None:
    last = {name: {"kind": "classifier", "classes": 2, "pool": "last"} for name in ("first", "second")}
    spec = model(outputs=last | {"tokens": {"kind": "lm"}})
    spec["encoder"] = STACK | {"causal": True}
    module = seqspec.to_torch(spec, seed=1).eval()
    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=module.state_dict()))
    ids = np.array([[1, 5, 8, 2, 0], [3, 3, 4, 7, 1]])
    whole = session.run({"input_ids": ids})
    begun = session.run({"input_ids": ids[:, :2]})
    rest = session.run({"input_ids": ids[:, 2:]}, begun.state)
    for name in last:
        np.testing.assert_allclose(rest[name], whole[name], atol=1e-6)
    np.testing.assert_allclose(np.concatenate([begun["tokens"], rest["tokens"]], 1), whole["tokens"], atol=1e-6)


@pytest.mark.parametrize(
    ("heads", "code"),
    [
        ({"outputs": {"a": "lm"}, "head": "lm"}, "SEQ110"),
        ({"outputs": {"input_ids": "lm"}}, "SEQ223"),
        ({"outputs": {"loss": "lm"}}, "SEQ223"),
        ({"outputs": {"attentions_0": "lm"}}, "SEQ223"),
        ({"outputs": {"_a": "lm"}}, "SEQ107"),
        ({"outputs": {"class": "lm"}}, "SEQ107"),
        ({"outputs": {}}, "SEQ109"),
        ({"outputs": {"a": {"kind": "ctc", "vocab_size": 3, "blank_id": 3}}}, "SEQ229"),
        ({"outputs": {"a": {"kind": "classifier", "classes": 2, "pool": "last"}}}, None),
    ],
)
def test_what_outputs_may_be_called(heads: dict[str, Any], code: str | None) -> None:
    assert [found.code for found in seqspec.check(model(**heads))] == ([code] if code else [])


def test_labels_may_be_called_like_a_function_of_the_emitted_file() -> None:
    """`real_labels` says which labels count."""
    ids = torch.tensor([[1, 5, 8]])
    out = seqspec.to_torch(model(outputs={"real": "lm"}), seed=1)(ids, real_labels=ids)
    torch.testing.assert_close(out.real_loss, torch.nn.functional.cross_entropy(out.real[0, :-1], ids[0, 1:]))


@pytest.mark.parametrize("kind", ["masked_lm", "ctc"])
def test_some_heads_read_an_encoder(kind: str) -> None:
    spec = {"seqspec": 1, "name": "x", "decoder": STACK, "head": {"kind": kind, "vocab_size": 5}}
    assert [found.code for found in seqspec.check(spec)] == ["SEQ227"]


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_scaled_and_then_capped(tied: bool, tmp_path: Path) -> None:
    """c tanh(scale · W x / c)"""
    head = {"kind": "lm", "tied": tied, "scale": 1.5, "softcap": 0.7}
    decoder = {
        "input": {"kind": "tokens", "vocab_size": 9},
        "d_model": 6,
        "layers": [{"kind": "gru", "hidden_size": 6}],
    }
    spec = {"seqspec": 1, "name": "capped", "decoder": decoder}
    model, bare = seqspec.to_torch(spec | {"head": head}, seed=1).double(), seqspec.to_torch(spec).double()
    known = model.state_dict()
    bare.load_state_dict({name: known[name] for name in bare.state_dict()})
    ids = torch.tensor([[1, 7, 3], [8, 0, 2]])
    with torch.no_grad():
        x, logits = bare(ids).last_hidden_state.numpy(), model(ids).logits.numpy()
    table = known["decoder.embed_tokens.weight" if tied else "head.weight"].numpy()
    want = 0.7 * np.tanh(1.5 * x @ table.T / 0.7)
    np.testing.assert_allclose(logits, want, rtol=0, atol=1e-10)
    session = seqspec.Session(
        seqspec.to_onnx(spec | {"head": head}, tmp_path / "out", weights=model.float().state_dict())
    )
    np.testing.assert_allclose(session.run({"input_ids": ids.numpy()})["logits"], want, rtol=0, atol=2e-6)
