"""Writes the support matrix, which kernels are used for which targets, from the table of forms.

python -m seqspec.passes.support > docs/support.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from seqspec.passes import fuse_attention, fuse_skip_norm, quantize, scan_recurrent
from seqspec.passes.forms import Form, Target

FORMS: tuple[Form, ...] = (
    fuse_attention.FORM,
    fuse_skip_norm.FORM,
    quantize.FORM,
    scan_recurrent.PACKED,
    scan_recurrent.STEPPED,
    scan_recurrent.ROUNDED,
)
_HEAD = """\
# Which kernels are used

An ONNX file of seqspec is plain opset 23. For the targets `cpu` and `cuda` some nodes are joined into one of
onnxruntime's own (domain `com.microsoft`); with it goes a function that says the same in plain opset 23, so that the
file runs in any runtime. `portable` has none of them. What a kernel cannot compute stays in plain opset 23. A recurrent
layer may be a Scan, a loop in plain opset 23, in place of ONNX's own op. The manifest, `seqspec.json`, says under
`forms` what was chosen, how often, and why.

This page is written by `python -m seqspec.passes.support`.

"""


def matrix() -> str:
    """The page, in Markdown."""
    return _HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "| what | kernel | cpu | cuda | portable | elsewhere |"
    yield "|---|---|---|---|---|---|"
    for form in FORMS:
        kernels = ", ".join(f"`{kernel}`" for kernel in form.kernels)
        dtypes = (", ".join(form.dtypes.get(target, ("–",))) for target in get_args(Target))
        yield f"| {form.what} | {kernels} | {' | '.join(dtypes)} | {form.otherwise} |"
    yield "| everything else | plain opset 23 | all | all | all | |"
    for form in FORMS:
        shared = sum(other.kernels == form.kernels for other in FORMS) > 1
        if form.limits or form.condition:
            yield f"\n## {', '.join(form.kernels)}{f' for {form.what}' if shared else ''}"
        if form.limits:
            yield f"\nUsed where all of this is so, and else {form.otherwise}:\n"
            yield from (f"- {limit.text}" for limit in form.limits)
        if form.condition:
            yield f"\nAt run time the file takes it where this is so, and else {form.otherwise}: {form.condition}."


if __name__ == "__main__":
    print(matrix(), end="")
