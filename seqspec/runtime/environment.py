"""What is installed and works, for `seqspec doctor`. Packages that may be missing are imported in functions only."""

from __future__ import annotations

import importlib
import io
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

DISTRIBUTION = "seqspec-compiler"
EXTRAS = {
    "torch": ("torch", "numpy", "safetensors"),
    "onnx": ("onnx", "onnx-ir", "numpy", "safetensors", "onnxruntime"),
    "text": ("tokenizers",),
}
_CPU = "CPUExecutionProvider"
_LIBRARY = re.compile(r"lib[\w+-]+\.so[.\d]*|[\w+-]+\.dll")
_SHORT = 80
_NO_RUNTIME = ("onnxruntime-extensions", "onnxruntime-genai", "onnxruntime-tools")
_AGAIN = "pip uninstall {names}, then pip install 'seqspec-compiler[onnx]'"
# y = x + x, opset 23, IR 10: bytes made by onnx.helper, since onnx itself may be missing
_TINY = bytes.fromhex(
    "080a3a350a0e0a01780a017812017922034164641201675a0f0a0178120a0a08080112040a020801620f0a0179120a0a08080112040a02080142040a001017"
)


@dataclass(frozen=True)
class Finding:
    """One line: the subject, what was found, whether that is fine, and what to do if not."""

    subject: str
    text: str
    fine: bool = True
    hint: str = ""


def examine() -> Iterator[Finding]:
    """All findings, the most important first."""
    yield Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()} ({sys.prefix})")
    yield from _seqspec()
    for name in ("pydantic", "PyYAML", "networkx", "click", "numpy", "safetensors", "onnx", "onnx-ir"):
        if (found := version(name)) is not None:
            yield Finding(name, found)
    yield from _torch()
    yield from _onnxruntime()
    yield from _extras()


def version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _seqspec() -> Iterator[Finding]:
    own = version(DISTRIBUTION)
    if own is None:
        yield Finding(DISTRIBUTION, "not installed as a package", False, f"pip install {DISTRIBUTION}")
    else:
        yield Finding(DISTRIBUTION, own)
    other = version("seqspec")
    if other is not None:
        text = f"{other}: the sequencing-assay format, which has the same import name; the two overwrite each other"
        hint = f"an environment for each; here: pip uninstall seqspec; pip install --force-reinstall {DISTRIBUTION}"
        yield Finding("seqspec (the other)", text, False, hint)


def _torch() -> Iterator[Finding]:
    if version("torch") is None:
        return
    try:
        torch: Any = importlib.import_module("torch")
    except Exception as error:  # a broken install fails in many ways
        yield Finding("torch", f"{version('torch')}, but cannot be imported: {_line(error)}", False, "install it again")
        return
    built = torch.version.cuda
    if built is None:
        yield Finding("torch", f"{torch.__version__}, built without CUDA")
    elif torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        yield Finding("torch", f"{torch.__version__}, CUDA {built} on {', '.join(names)}")
    else:
        yield Finding("torch", f"{torch.__version__}, built for CUDA {built}; no GPU is found")


def _onnxruntime() -> Iterator[Finding]:
    found = runtimes()
    listed = " and ".join(f"{name} {number}" for name, number in found.items())
    again = _AGAIN.format(names=" ".join(found) or "onnxruntime")
    if len(found) > 1:
        yield Finding("onnxruntime", f"{listed}: they overwrite each other's files", False, again)
    spec = find_spec("onnxruntime")
    if spec is None:
        if found:
            yield Finding("onnxruntime", f"{listed} is listed, but its files are gone", False, again)
        return
    if spec.origin is None:
        text = "an empty folder: two distributions were installed and one of them removed"
        yield Finding("onnxruntime", text, False, again)
        return
    try:
        ort: Any = importlib.import_module("onnxruntime")
        built = ort.get_available_providers()
        ort.set_default_logger_severity(4)  # its long messages only say what is found out here
    except Exception as error:
        yield Finding("onnxruntime", f"{listed}, but cannot be imported: {_line(error)}", False, again)
        return
    if len(found) < 2:
        yield Finding("onnxruntime", listed or f"{ort.__version__}, not installed as a package")
    for name in built:
        yield _provider(ort, name)


def runtimes() -> dict[str, str]:
    """Every installed distribution that provides the module onnxruntime."""
    found = {}
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith("onnxruntime") and name not in _NO_RUNTIME and not name.startswith("onnxruntime-genai"):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def _provider(ort: Any, name: str) -> Finding:
    """Whether a tiny model really runs on a provider; that it is built in says little."""
    problem = _try(ort, name)
    if problem is None:
        return Finding(name, "works")
    if name == _CPU:
        return Finding(name, f"built in, but does not work here: {problem}", False)
    # a wheel is built for many kinds of machines: only the CPU has to work
    return Finding(name, f"does not work here ({_plain(problem)}); that is fine where only the CPU is used")


def _plain(problem: str) -> str:
    """onnxruntime's message about a library, in few words."""
    library = _LIBRARY.search(problem)
    if library:
        return f"the library {library[0]} is missing"
    if "TensorRT" in problem:
        return "TensorRT is not installed"
    return problem if len(problem) <= _SHORT else f"{problem[:_SHORT]}…"


def _try(ort: Any, name: str) -> str | None:
    missing = "a driver or a library is missing"
    if name not in (_CPU, "AzureExecutionProvider"):
        said = io.StringIO()
        with suppress(Exception), redirect_stdout(said):
            importlib.import_module("torch")
            ort.preload_dlls()
        missing = said.getvalue().partition("\n")[0] or missing
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(_TINY, options, providers=[name], enable_fallback=0)
        if name not in session.get_providers():
            return missing
        import numpy

        (doubled,) = session.run(None, {"x": numpy.ones(1, numpy.float32)})
        return None if float(doubled[0]) == 2 else f"1 + 1 is {doubled[0]}"
    except Exception as error:
        return _line(error)


def _extras() -> Iterator[Finding]:
    for extra, needs in EXTRAS.items():
        missing = [name for name in needs if (not runtimes() if name == "onnxruntime" else version(name) is None)]
        if missing:
            hint = f"pip install '{DISTRIBUTION}[{extra}]'"
            yield Finding(f"extra `{extra}`", f"{', '.join(missing)} missing", True, hint)
        else:
            yield Finding(f"extra `{extra}`", "complete")


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
