"""A type of options that takes one of a few words, and suggests the closest one for any other."""

from __future__ import annotations

from typing import Any

import click

from seqspec.diagnostics import did_you_mean, escape


class Word(click.Choice[str]):
    """An unknown word such as `--target gpuu` is answered with all words, or with the closest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return str(value)
        hint = did_you_mean(value, self.choices) or ""
        near = f" {hint[0].upper()}{hint[1:]}" if hint.startswith("did") else ""
        text = f"`{escape(str(value))}` is not one of {', '.join(self.choices)}.{near}"
        raise click.BadParameter(text, ctx, param)
