"""Rewrites the regions that ops run inside themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from seqspec.graph.ir import Region
from seqspec.ops.base import Op


def with_bodies(op: Op, rewrite: Callable[[Region], Region]) -> Op:
    """`op` with `rewrite` applied to the regions it runs."""
    changed = {f.name: rewrite(v) for f in fields(op) if isinstance(v := getattr(op, f.name), Region)}
    return replace(op, **changed) if changed else op
