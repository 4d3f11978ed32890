"""Generates with a compiled folder through onnxruntime and NumPy alone; seqspec need not be installed.

    python run_with_onnxruntime.py OUT --ids 1,2,3 --max-new-tokens 8
    python run_with_onnxruntime.py OUT --ids 1,2,3 --decoder-start-id 1 --max-new-tokens 8    # behind an encoder

`OUT/seqspec.json` says all that is needed: the files (`graphs`), of which the last one is run for every chunk of ids,
and one before it once; what a call takes and gives; and the state, which comes out as `present` and goes in as `past`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

Array = np.ndarray[Any, Any]
PAST = "past_sequence_length"


class Model:
    """A compiled folder: its sessions, and the state that they carry."""

    def __init__(self, folder: Path) -> None:
        manifest = json.loads((folder / "seqspec.json").read_text())
        self.float = manifest["dtype"]
        self.signature = manifest["signature"]
        *self.once, self.every = (ort.InferenceSession(folder / file) for file in manifest["graphs"].values())
        self.shapes = {port["name"]: port["shape"] for port in self.signature["inputs"]}
        self.state: dict[str, Array] = {}
        self.past = 0

    def begin(self, inputs: dict[str, Array]) -> None:
        """The first past: computed by the encoder, learned, or empty."""
        made: dict[str, Array] = {}
        for session in self.once:
            made |= run(session, inputs)
        batch = len(next(iter(inputs.values())))
        for state in self.signature["states"]:
            if state["present"] in made:
                self.state[state["past"]] = made[state["present"]]
            else:
                # a name is the batch, or the length of a past: of all tokens, or those that a window shows
                named = {size: 0 for size in state["shape"] if not size.isdecimal()} | {"batch_size": batch}
                shape = [named[size] if size in named else int(size) for size in state["shape"]]
                kind = self.float if state["dtype"] == "float" else state["dtype"]
                self.state[state["past"]] = np.zeros(shape, kind)

    def step(self, ids: Array, prefix: str = "") -> Array:
        """ids[B, T] -> logits[B, T, V], or [B, 1, V]; the state goes on. All ids are real: none is padding."""
        mask = f"{prefix}attention_mask"
        feeds = {f"{prefix}input_ids": ids, **self.state}
        if mask in self.shapes:
            # for the past too, if attention looks back at it
            covered = self.past if PAST in self.shapes[mask][1] else 0
            feeds[mask] = np.ones((len(ids), covered + ids.shape[1]), np.int64)
        made = run(self.every, feeds)
        for state in self.signature["states"]:
            if not state["held"]:
                self.state[state["past"]] = made[state["present"]]
        self.past += ids.shape[1]
        return made["logits"]


def run(session: ort.InferenceSession, feeds: dict[str, Array]) -> dict[str, Array]:
    """{output: array} of a session, fed with those of the feeds that it takes."""
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()}), strict=True))


def generate(model: Model, ids: Array, count: int, start: int | None = None) -> Array:
    """ids[B, T] -> the likeliest next ids [B, count]; with `start` the ids are an encoder's."""
    model.begin({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    prefix, chunk = ("", ids) if start is None else ("decoder_", np.full((len(ids), 1), start, np.int64))
    made = []
    for _ in range(count):
        chunk = model.step(chunk, prefix)[:, -1].argmax(-1)[:, None]
        made.append(chunk)
    return np.concatenate(made, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generate with a compiled folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ids", type=lambda text: [int(n) for n in text.split(",")], required=True)
    parser.add_argument("--max-new-tokens", type=int, default=8)
    parser.add_argument("--decoder-start-id", type=int)
    given = parser.parse_args()
    found = generate(Model(given.folder), np.array([given.ids]), given.max_new_tokens, given.decoder_start_id)
    print(",".join(map(str, found[0])))
