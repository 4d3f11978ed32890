"""Other programs that should be able to run a folder: where they expect its files, and their own configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqspec.backends.onnx import data, genai, transformers_js
from seqspec.graph.ir import Graph
from seqspec.passes.options import Options


@dataclass(frozen=True)
class Programs:
    """Which programs; `eos_id` is the id that ends what they generate."""

    genai: bool = False
    transformers_js: bool = False
    eos_id: int | None = None

    @property
    def whole_caches(self) -> bool:
        """Whether one of them makes room for every layer's cache by the length of the whole text."""
        return self.genai

    def place(self, role: str, asked: Options) -> str:
        """The path of a graph's file in the folder."""
        if self.transformers_js:
            return f"{transformers_js.FOLDER}/{transformers_js.model_name(asked)}.onnx"
        return f"{role}.onnx"

    def data(self, asked: Options) -> str:
        """The path of the weights, beside the graphs."""
        return f"{self.place('', asked)}_data" if self.transformers_js else data.NAME

    def files(self, flat: Graph, facts: Mapping[str, Any], asked: Options, *, in_place: bool) -> dict[str, bytes]:
        """What they read besides the graphs, by name; a CompileError where one of them cannot drive the model."""
        made: dict[str, Any] = {}
        if self.genai:
            file = self.place("model", asked)
            made[genai.NAME] = genai.config(
                flat, facts, file=file, target=asked.target, in_place=in_place, eos_id=self.eos_id
            )
        if self.transformers_js:
            made |= transformers_js.configs(flat, facts, asked, self.eos_id)
        return {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in made.items()}
