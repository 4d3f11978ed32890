"""sentence-transformers: `modules.json` lists what follows the transformer, and becomes the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqspec.diagnostics import CompileError, quoted
from seqspec.importers.hf.config import read_json
from seqspec.importers.weights import is_bare

POOLS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


def transformer_folder(folder: Path) -> Path:
    """The folder of a sentence model's transformer: the given folder itself, or one inside it."""
    modules = _modules(folder)
    return _inside(folder, modules[0]) if modules else folder


def embedding_head(folder: Path) -> dict[str, Any] | None:
    """`{kind: embedding, pool, normalize}`, or None for a folder that is not a sentence model."""
    modules = _modules(folder)
    if not modules:
        return None
    kinds = [str(m.get("type", "")).rsplit(".", 1)[-1] for m in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _refuse(folder, f"modules.json lists {', '.join(map(quoted, kinds))}")
    pool = _pool(_inside(folder, modules[1]))
    return {"kind": "embedding", "pool": pool} | ({"normalize": True} if "Normalize" in kinds else {})


def _modules(folder: Path) -> list[dict[str, Any]]:
    file = folder / "modules.json"
    if not file.is_file():
        return []
    modules = read_json(file)
    if not isinstance(modules, list) or not modules or not all(isinstance(m, dict) for m in modules):
        raise CompileError("SEQ413", "modules.json is not a list of modules", file=str(file))
    return modules


def _pool(folder: Path) -> str:
    config = read_json(folder / "config.json")
    modes = [k for k, v in config.items() if k.startswith("pooling_mode_") and v] if isinstance(config, dict) else []
    if len(modes) != 1 or modes[0] not in POOLS:
        raise _refuse(folder, f"its pooling is {', '.join(map(quoted, modes)) or 'not given'}")
    return POOLS[modes[0]]


def _inside(folder: Path, module: dict[str, Any]) -> Path:
    path = str(module.get("path", ""))
    if path and not is_bare(path):
        raise CompileError("SEQ413", f"modules.json leads outside its folder: {quoted(path)}", file=str(folder))
    return folder / path


def _refuse(folder: Path, message: str) -> CompileError:
    hint = "a transformer, one pooling (first, last, mean or max) and a normalisation can be expressed"
    return CompileError("SEQ412", message, hint, str(folder))
