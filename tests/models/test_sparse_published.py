"""Windows, global tokens and blocks: transformers' Longformer and BigBird, where they mean the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import seqspec

ROOT = Path(__file__).parents[2]
WIDTH, VOCABULARY, BLOCK = 16, 61, 4
BERT = (
    (r"^embeddings\.word_embeddings", "encoder.embed_tokens"),
    (r"^embeddings\.position_embeddings", "encoder.embed_positions"),
    (r"^embeddings\.token_type_embeddings", "encoder.embed_types"),
    (r"^embeddings\.LayerNorm", "encoder.embed_norm"),
    (r"^encoder\.layer\.", "encoder.layers."),
    (r"attention\.output\.LayerNorm", "attention_norm"),
    (r"attention\.output\.dense", "attention.o_proj"),
    (r"attention\.self\.([qkv])[a-z]+\.", r"attention.\1_proj."),
    (r"intermediate\.dense", "ffn.up_proj"),
    (r"output\.dense", "ffn.down_proj"),
    (r"output\.LayerNorm", "ffn_norm"),
)
SIZES = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 24}


def renamed(name: str) -> str:
    for pattern, new in BERT:
        name = re.sub(pattern, new, name)
    return name


def disturbed(model: Any) -> Any:
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model.double()


def test_it_is_longformer_where_what_is_global_has_no_maps_of_its_own() -> None:
    """Theirs begins positions behind the pad_id, and has other queries, keys and values for what is global."""
    config = transformers.LongformerConfig(
        **SIZES,
        num_hidden_layers=2,
        attention_window=[6, 6],
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    )
    theirs = disturbed(transformers.LongformerModel(config, add_pooling_layer=False)).eval()
    weights = theirs.state_dict()
    for name, weight in weights.items():
        if "_global." in name:
            weight.copy_(weights[name.replace("_global", "")])
    known = {renamed(name): weight for name, weight in weights.items() if "_global." not in name}
    known["encoder.embed_positions.weight"] = known["encoder.embed_positions.weight"][2:]
    spec = seqspec.load(
        ROOT / "examples/longformer-base.yaml",
        [
            f"encoder.input.vocab_size={VOCABULARY}",
            "encoder.input.token_types=1",
            f"encoder.d_model={WIDTH}",
            "encoder.position.max_length=64",
            "encoder.mask.any[0].left=3",
            "encoder.mask.any[0].right=3",
            "encoder.layers[0].repeat=2",
            "encoder.layers[0].block[0].heads=2",
            "encoder.layers[0].block[1].d_ff=24",
            "head={kind: embedding, pool: none}",
        ],
    )
    ours = seqspec.to_torch(spec).double().eval()
    ours.load_state_dict({name: known[name] for name in ours.state_dict()})
    ids, real = torch.randint(3, VOCABULARY, (2, 24)), torch.ones(2, 24, dtype=torch.int64)
    real[1, 17:] = 0
    ids[1, 17:] = 1
    first = torch.zeros_like(ids)
    first[:, 0] = 1
    with torch.no_grad():
        want = theirs(ids, attention_mask=real, global_attention_mask=first).last_hidden_state
        found = ours(input_ids=ids)[0]
    # theirs has softmax in float32
    torch.testing.assert_close(found[real > 0], want[real > 0], rtol=0, atol=2e-6)


def test_it_is_big_bird_with_its_last_block_and_its_draw() -> None:
    """Theirs makes the last block global too, and draws from both sides, anew for each length and head.

    It draws in training alone; in evaluation it counts the first block twice instead.
    """
    time, blocks = 48, 12
    config = transformers.BigBirdConfig(
        **SIZES | {"num_attention_heads": 1},
        num_hidden_layers=1,
        block_size=BLOCK,
        num_random_blocks=1,
        attention_type="block_sparse",
        max_position_embeddings=64,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        sep_token_id=2,
        hidden_act="gelu",
    )
    theirs = disturbed(transformers.BigBirdModel(config, add_pooling_layer=False)).train()
    ids = torch.randint(3, VOCABULARY, (2, time))
    with torch.no_grad():
        out = theirs(ids, output_attentions=True)
    seen = (out.attentions[0][0, 0] != 0).numpy()
    i, j = np.divmod(np.arange(blocks**2), blocks)
    fixed = ((np.abs(i - j) <= 1) | (np.minimum(i, j) == 0) | (np.maximum(i, j) == blocks - 1)).reshape(blocks, blocks)
    drawn = seen & ~np.kron(fixed, np.ones((BLOCK, BLOCK), bool))
    assert (drawn.sum(1)[2 * BLOCK : -2 * BLOCK] == BLOCK).all()  # one block for each but those at the ends

    last = list(range(time - BLOCK, time))
    sparse = {"kind": "block_sparse", "block_size": BLOCK, "window_blocks": 3, "global_blocks": 1, "random_blocks": 0}
    mask = {"any": [sparse, {"kind": "global", "tokens": last}, {"kind": "given", "name": "drawn"}]}
    norm = {"kind": "layernorm", "eps": 1e-12}
    spec = {
        "seqspec": 1,
        "name": "big-bird",
        "encoder": {
            "input": {"kind": "tokens", "vocab_size": VOCABULARY, "token_types": 2, "norm": norm},
            "d_model": WIDTH,
            "position": {"kind": "learned", "max_length": 64},
            "norm": norm,
            "norm_placement": "post",
            "mask": mask,
            "layers": [{"block": [{"kind": "attention", "heads": 1}, {"kind": "ffn", "d_ff": 24}]}],
        },
    }
    ours = seqspec.to_torch(spec).double().eval()
    known = {renamed(name): weight for name, weight in theirs.state_dict().items()}
    ours.load_state_dict({name: known[name] for name in ours.state_dict()})
    with torch.no_grad():
        found = ours(input_ids=ids, drawn=torch.from_numpy(drawn).long().expand(2, -1, -1))[0]
    torch.testing.assert_close(found, out.last_hidden_state, rtol=0, atol=2e-6)
