"""Hugging Face directories: `config.json` and safetensors in, a spec and weights under the language's names out."""

from __future__ import annotations

from pathlib import Path

from seqspec.diagnostics import CompileError, did_you_mean, quoted
from seqspec.importers.hf import bert, gpt2, llama
from seqspec.importers.hf.config import read_config
from seqspec.importers.hf.sentence import embedding_head, transformer_folder
from seqspec.importers.imported import Imported
from seqspec.importers.weights import read_folder

FAMILIES = {"bert": bert.read, "gpt2": gpt2.read, "llama": llama.read}


def import_directory(directory: Path) -> Imported:
    """The stacks and head of the model in a directory; a CompileError for what cannot be expressed exactly."""
    if not directory.is_dir():
        text = f"there is no folder `{directory}` on this machine, and nothing is downloaded"
        raise CompileError("SEQ413", text, "give the folder that a model was downloaded to")
    folder = transformer_folder(directory)
    config = read_config(folder)
    family = config.data.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise config.refuse(f"the family {quoted(family)} is not known", did_you_mean(family, FAMILIES))
    return FAMILIES[family](config, read_folder(folder), embedding_head(directory))
