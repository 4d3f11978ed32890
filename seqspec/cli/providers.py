"""`--provider`, for the commands that run a compiled model."""

from __future__ import annotations

import click

PROVIDER = click.option(
    "--provider", "providers", multiple=True, metavar="NAME", help="cpu, cuda, or onnxruntime's name; repeat it."
)
