"""Renderers: `render(report, sources) -> str`, one per format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from seqspec.diagnostics.report import Report

from . import github, json, text

Renderer = Callable[[Report, Mapping[str, str]], str]

FORMATS: dict[str, Renderer] = {
    "text": text.render,
    "json": json.render,
    "github": github.render,
}
