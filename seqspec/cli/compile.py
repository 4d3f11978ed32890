"""seqspec compile"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqspec.checking import placing
from seqspec.cli.interrupt import interruptible
from seqspec.cli.spec import checked, overridable
from seqspec.cli.word import Word

if TYPE_CHECKING:
    from seqspec.runtime.compare import Verification

PATH = click.Path(path_type=Path)
_ONNX_ONLY = ("target", "dtype", "logits", "quantize", "genai", "transformers_js", "eos_id")
_NOT_PYTHON = ("weights", "seed", "no_verify")


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--to", "kind", type=Word(["onnx", "torch", "python"]), required=True, help="What to make of it.")
@click.option("-o", "--output", type=PATH, required=True, metavar="OUT", help="A folder, or a .py file; `-` prints it.")
@click.option("--target", type=Word(["cpu", "cuda", "portable"]), help="Which kernels may be used. [cpu]")
@click.option("--dtype", metavar="D", help="What the model computes in: float32, float16, bfloat16. [float32]")
@click.option("--logits", type=Word(["all", "last"]), help="At all positions, or the last real ones. [all]")
@click.option("--quantize", type=Word(["int8", "int4"]), help="The weights of linear maps, in blocks of 32.")
@click.option("--genai", is_flag=True, help="Also for onnxruntime-genai: a decoder with genai_config.json.")
@click.option("--transformers-js", is_flag=True, help="Also for Transformers.js: a decoder with config.json.")
@click.option("--eos-id", type=click.IntRange(0), metavar="ID", help="The id at which those programs end a text.")
@click.option("--weights", type=PATH, metavar="F", help="A safetensors file.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Random weights, where none are given. [0]")
@click.option("--no-verify", is_flag=True, help="Do not compare the result with PyTorch.")
@overridable
def command(spec: str, kind: str, output: Path, overrides: tuple[str, ...], **options: Any) -> None:
    """Compile SPEC to an ONNX folder, a PyTorch folder or one Python file, complete and verified or not at all."""
    given = {name: value for name, value in options.items() if value not in (None, False)}
    _refuse_unused(kind, given)
    printed = str(output) == "-"
    if printed and kind != "python":
        raise click.UsageError(f"--to {kind} writes a folder, which cannot be printed")
    from seqspec import api

    verify = not given.pop("no_verify", False)
    with interruptible():
        found = checked(spec, overrides)
        assert found.model is not None
        model = found.model
        results: list[Verification] = []
        if printed:
            click.echo(api.to_source(model), nl=False)
            return
        if kind == "python":
            api.write_source(model, output)
        elif kind == "torch":
            api.write_torch(model, output, verify=verify, told=results.append, **given)
        else:
            with placing(found.document):
                api.to_onnx(model, output, verify=verify, told=results.append, **given)
        click.echo(_success(output, results, kind))


def _success(output: Path, results: list[Verification], kind: str) -> str:
    """Prints what was written, and how well it agrees with PyTorch."""
    if kind == "python":
        return f"wrote {output}"
    names = sorted(f.relative_to(output).as_posix() for f in output.rglob("*") if f.is_file())
    files = f"wrote {output}: {', '.join(names)}"
    if not results:
        return f"{files}; not verified"
    (result,) = results
    worst = max((difference.relative for difference in result.differences), default=None)
    said = [files]
    said += [] if worst is None else [f"agrees with {result.judge} to {_power(worst)}"]
    said += [f"fewer bits change {name} by {_power(cost)} of its largest value" for name, cost in result.cost.items()]
    return "; ".join(filter(None, [*said, result.note]))


def _power(number: float) -> str:
    """3e-7"""
    return f"{number:.0e}".replace("e-0", "e-")


def _refuse_unused(kind: str, given: dict[str, Any]) -> None:
    """Refuses options that would change nothing."""
    unused = [name for name in _ONNX_ONLY if kind != "onnx" and name in given]
    unused += [name for name in _NOT_PYTHON if kind == "python" and name in given]
    if unused:
        raise click.UsageError(f"--{unused[0].replace('_', '-')} does not go with --to {kind}")
    if "weights" in given and "seed" in given:
        raise click.UsageError("--seed draws random weights, and --weights gives others: leave one of them out")
    if "eos_id" in given and not given.keys() & {"genai", "transformers_js"}:
        raise click.UsageError("--eos-id goes with --genai or --transformers-js; `generate` takes its own")
