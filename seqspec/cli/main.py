"""seqspec: the table of commands, and how each of them ends.

Exit codes: 0 fine, 1 findings or a failure, 2 wrong usage, 130 interrupted. A failure is one diagnostic, no traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from errno import ENOSPC
from importlib import import_module
from typing import Any, NoReturn

import click

from seqspec import __version__
from seqspec.diagnostics import SeqspecError

# {name: (module of seqspec.cli, help line)}, so that help is shown without importing any
COMMANDS = {
    "check": ("check", "Find everything that is wrong with specs, at a line and column."),
    "show": ("show", "Print a spec: as written, with every default, or as a graph."),
    "report": ("report", "Count parameters, FLOPs and memory, exactly."),
    "compile": ("compile", "Compile a spec to ONNX, PyTorch or Python source."),
    "verify": ("verify", "Compare PyTorch with onnxruntime on fresh random inputs."),
    "run": ("run", "Run a compiled model on arrays."),
    "generate": ("generate", "Generate tokens with a compiled model."),
    "bench": ("bench", "Time a compiled model, and each of its ops."),
    "import": ("import_", "Turn a Hugging Face directory into a spec and weights."),
    "diff": ("diff", "Compare two specs, defaults filled in."),
    "explain": ("explain", "Explain a code such as SEQ201."),
    "schema": ("schema", "Print the JSON Schema of specs, for editors."),
    "init": ("init", "Write a spec to start from."),
    "doctor": ("doctor", "Tell what is installed and what works."),
}


_BRIEF = frozenset({"check", "show", "report", "diff", "explain", "schema", "init"})


class Commands(click.Group):
    """A click group that imports only the command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"seqspec.cli.{COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from seqspec.diagnostics import did_you_mean

            raise click.UsageError(f"no command `{args[0]}`; {did_you_mean(args[0], COMMANDS, what='commands')}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(130)  # click would print an empty line

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="seqspec")
def seqspec() -> None:
    """Compile YAML specs of sequence models to PyTorch and ONNX."""


def main() -> NoReturn:
    """The console script: a process of its own, set up to start quickly."""
    # commands that only read specs allocate much and free nothing; garbage collection takes a fifth of their time
    brief = not sys.argv[1:] or sys.argv[1] in _BRIEF
    if brief:
        gc.disable()
    # searching for plugins of pydantic, which serve applications, reads the metadata of every installed package
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    code = run()
    if brief:
        gc.freeze()  # or Python collects garbage once more before it exits
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    try:
        code = seqspec.main(arguments, prog_name="seqspec", standalone_mode=False)
        if sys.__stdout__ is not None:  # None where whoever started it closed the stream
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        _discard_output()  # the reader has gone, as `head` does
        return 1
    except SeqspecError as error:
        _show(error)
        return 1
    except Exception as error:
        told = _of_the_machine(error)
        if told is None and os.environ.get("SEQSPEC_TRACEBACK"):
            raise
        _show(told or _bug(error))
        return 1


def _of_the_machine(error: Exception) -> SeqspecError | None:
    """What the machine lacks, and not the compiler; no more is written to a full output."""
    if isinstance(error, MemoryError):
        return SeqspecError("SEQ402", f"there is too little memory: {error}", "ask for less at a time")
    if isinstance(error, OSError) and error.errno == ENOSPC:
        _discard_output()
        return SeqspecError("SEQ404", f"standard output cannot be written: {error.strerror}")
    return None


def _discard_output() -> None:
    """Nothing more is written: a second complaint when Python closes the stream is kept away."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(error: SeqspecError) -> None:
    from seqspec.diagnostics.render.text import render_all, wants_colour

    colour = wants_colour(sys.stderr)
    text = render_all(error.diagnostics, error.sources, hidden=error.hidden, colour=colour)
    click.echo(text, err=True, nl=False, color=colour)


def _bug(error: Exception) -> SeqspecError:
    text = f"this is a bug in seqspec: {type(error).__name__}: {error}"
    return SeqspecError("SEQ304", text, "please report it with the spec; SEQSPEC_TRACEBACK=1 shows where it happened")
