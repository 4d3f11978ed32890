"""onnxruntime sessions on exactly the execution providers that were asked for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqspec.diagnostics import CompileError, RuntimeFault, arguments

Provider = str | tuple[str, dict[str, Any]]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_OF_TARGET = {"cuda": CUDA}
_FATAL = 4
_SHORT = {"cpu": CPU, "cuda": CUDA}
_BUILT_FOR_CUDA = (CUDA, "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")
_PROVIDERS = "names of onnxruntime's providers, or pairs of a name and a mapping of options"
_DOCTOR = "`seqspec doctor` shows which providers work here"


@dataclass(frozen=True)
class Settings:
    """`threads` that an op may use, by default one per core. `profile` is the prefix of the files to which onnxruntime
    writes the time of each op."""

    threads: int | None = None
    profile: Path | None = None


USUAL = Settings()


def runtime() -> Any:
    """onnxruntime, or the error that says how to get it."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        text = f"onnxruntime is needed for this and cannot be imported: {error}"
        raise CompileError("SEQ401", text, "pip install 'seqspec-compiler[onnx]'") from None
    if not hasattr(onnxruntime, "InferenceSession"):
        text = "onnxruntime is an empty folder: two of its distributions were installed, and one of them removed"
        hint = "uninstall onnxruntime and onnxruntime-gpu, then pip install 'seqspec-compiler[onnx]'"
        raise CompileError("SEQ401", text, hint)
    return onnxruntime


def chosen(given: Any, target: str) -> list[Provider]:
    """The providers that a caller wants, one or several, by onnxruntime's names; by default those of `target`."""
    listed = [given] if isinstance(given, str) else given
    if listed is None:
        return of_target(target)
    if not isinstance(listed, list | tuple):
        raise arguments.refused("providers", _PROVIDERS, given, code=arguments.RUNNING)
    return [_full(provider) for provider in listed] or of_target(target)


def of_target(target: str) -> list[Provider]:
    """The providers for files compiled for `target`."""
    return [_OF_TARGET.get(target, CPU)]


def _full(provider: Any) -> Provider:
    """onnxruntime's name of a provider, of which `cuda` is a short form in any case; options are kept."""
    match provider:
        case str(name):
            options = None
        case (str(name), dict(options)):
            pass
        case _:
            raise arguments.refused("providers", _PROVIDERS, provider, code=arguments.RUNNING)
    name = _SHORT.get(name.casefold(), name)
    return name if options is None else (name, options)


def open_session(file: Path, providers: Sequence[Provider], settings: Settings = USUAL) -> Any:
    """An InferenceSession on all of `providers`, or SEQ501; onnxruntime by itself would fall back silently."""
    ort = runtime()
    asked = [p if isinstance(p, str) else p[0] for p in providers]
    built = ort.get_available_providers()
    for name in asked:
        if name not in built:
            text = f"{name} is not in the installed onnxruntime {ort.__version__}, which has {', '.join(built)}"
            raise RuntimeFault("SEQ501", text, _DOCTOR)
    missing = preload(ort) if any(name in _BUILT_FOR_CUDA for name in asked) else ""
    options = ort.SessionOptions()
    # fatal only: other messages for the terminal are in what it raises, or are found out below
    options.log_severity_level = _FATAL
    if settings.threads is not None:
        options.intra_op_num_threads = settings.threads
    if settings.profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, f"{settings.profile}{file.stem}"
    ort.set_default_logger_severity(_FATAL)
    try:
        session = ort.InferenceSession(str(file), options, providers=list(providers), enable_fallback=0)
    except Exception as error:  # onnxruntime has a dozen classes of its own, and no common base
        raise RuntimeFault("SEQ501", f"onnxruntime cannot open {file.name}: {first_line(error)}", _DOCTOR) from error
    session.disable_fallback()
    dropped = [name for name in asked if name not in session.get_providers()]
    if dropped:
        why = missing or "a driver or a library is missing"
        text = f"{dropped[0]} is in this onnxruntime but does not start: {why}"
        raise RuntimeFault("SEQ501", text, _DOCTOR)
    return session


def preload(ort: Any) -> str:
    """Loads torch's CUDA libraries, since onnxruntime-gpu has none of its own; the first message if one fails."""
    with suppress(ImportError):
        import torch  # noqa: F401  # preload_dlls looks for libraries beside the imported torch
    said = io.StringIO()
    if hasattr(ort, "preload_dlls"):
        with redirect_stdout(said):
            ort.preload_dlls()
    return said.getvalue().partition("\n")[0]


def first_line(error: Exception) -> str:
    """The first line of an error of onnxruntime."""
    return str(error).strip().partition("\n")[0]
