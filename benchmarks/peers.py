"""A checkpoint of Hugging Face's, as files of each exporter, made in a process of its own.

    PYTHON benchmarks/peers.py EXPORTER CHECKPOINT FOLDER

CHECKPOINT holds `config.json` and `model.safetensors`, and what `seqspec.import_model` makes of them in `seqspec/`.
Prints a line of JSON: CPU seconds of the imports and of the export, and peak memory above what the imports hold. PYTHON
needs the exporter's package; seqspec's own need none of the others'.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Export = Callable[[], Any]


def seqspec(checkpoint: Path, folder: Path, **options: Any) -> Export:
    """Our own exporter, from the spec and the weights."""
    import seqspec
    import seqspec.api
    import seqspec.backends.onnx
    import seqspec.importers.arrays
    import seqspec.runtime.verify
    import seqspec.spec.dump

    spec, weights = checkpoint / "seqspec" / "spec.yaml", checkpoint / "seqspec" / "model.safetensors"
    return lambda: seqspec.to_onnx(spec, folder, weights=weights, verify=False, **options)


def genai(checkpoint: Path, folder: Path, **extra: str) -> Export:
    """The builder of onnxruntime-genai, float32 on the CPU."""
    from onnxruntime_genai.models.builder import create_model, parse_extra_options

    def export() -> None:
        options = [f"{name}={value}" for name, value in {"hf_token": "false", **extra}.items()]
        where = ("", str(checkpoint), str(folder), "fp32", "cpu", str(folder / "cache"))
        create_model(*where, **parse_extra_options(*where, options))

    return export


def mobius(checkpoint: Path, folder: Path) -> Export:
    """mobius-onnx for the CPU."""
    from mobius.__main__ import main

    def export() -> None:
        sys.argv = ["mobius", "build", "--config", str(checkpoint), str(folder), "--ep", "cpu"]
        main()

    return export


def exporters(checkpoint: Path, folder: Path) -> Export:
    """transformers.exporters: a file for the prompt and one for each token after, fused for the CPU."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    def export() -> None:
        model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
        sample = {name: torch.ones(2, 9, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
        config = OnnxConfig(dynamic=True, ort_fusions="cpu")
        OnnxExporter().export_for_generation(model, sample, config).save_pretrained(folder)

    return export


def export(checkpoint: Path, folder: Path) -> Export:
    """torch.onnx.export of transformers' module with a cache, at its default opset."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    def names(prefix: str, layers: int) -> list[str]:
        return [f"{prefix}.{layer}.{leaf}" for layer in range(layers) for leaf in ("key", "value")]

    class Flat(torch.nn.Module):
        """Pasts and presents by position."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> Any:
            cache = DynamicCache([(past[n], past[n + 1]) for n in range(0, len(past), 2)])
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache)
            present = [part for layer in cache.layers for part in (layer.keys, layer.values)]
            return out.logits, *present

    def export() -> None:
        model = AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="sdpa").eval()
        config = model.config
        count = config.num_hidden_layers
        cache = [torch.zeros(2, config.num_key_value_heads, 5, config.head_dim)] * (2 * count)
        any_ = torch.export.Dim.DYNAMIC
        program = torch.onnx.export(
            Flat(model),
            (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64), *cache),
            dynamo=True,
            dynamic_shapes=({0: any_, 1: any_}, {0: any_, 1: any_}, tuple([{0: any_, 2: any_}] * len(cache))),
            input_names=["input_ids", "attention_mask", *names("past_key_values", count)],
            output_names=["logits", *names("present", count)],
        )
        assert program is not None
        program.save(folder / "model.onnx", external_data=True)

    return export


EXPORTERS: dict[str, Callable[[Path, Path], Export]] = {
    "cpu": seqspec,
    "portable": partial(seqspec, target="portable"),
    "cpu, last": partial(seqspec, logits="last"),
    "cpu, int4": partial(seqspec, quantize="int4"),
    "genai": genai,
    "genai, last": partial(genai, prune_lm_head="true"),
    "mobius": mobius,
    "torch.onnx.export": export,
    "transformers.exporters": exporters,
}


def made(name: str, checkpoint: Path, folder: Path, python: str) -> dict[str, float] | str:
    """The cost of one export, or the last line of its error."""
    command = [python, __file__, name, str(checkpoint), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:120]
    spent: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return spent


def peak(field: str) -> int:
    """Bytes of memory, by the kernel's name for them."""
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]


def main() -> None:
    here = Path(__file__).resolve().parent
    # without this folder, wherever it stands: it has files with the names of packages
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    name, checkpoint, folder = sys.argv[1], *map(Path, sys.argv[2:])
    begun = time.process_time()
    run = EXPORTERS[name](checkpoint, folder)
    gc.collect()  # what imports leave to Python's collector is their cost
    imported, held = time.process_time(), peak("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run()
    spent = {"imports": imported - begun, "export": time.process_time() - imported, "memory": peak("VmHWM") - held}
    print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    main()
