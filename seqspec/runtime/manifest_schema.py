"""The schema of `seqspec.json`: no unknown keys, no conversions, and every name must refer to something."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from seqspec.diagnostics import format_path
from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, names, parse, windows
from seqspec.graph.dims import Size as Parsed
from seqspec.graph.types import DType
from seqspec.passes.forms import Target
from seqspec.passes.options import Logits, Quantize

_LONGEST_SIZE = 200
_NAMES = {BATCH, TIME, PAST, ENCODER_TIME}
_ROLES = ({"model"}, {"encoder", "decoder"}, {"initial", "model"})


def _size(text: str) -> str:
    """A size, if it is written as `str` writes it; ValueError otherwise."""
    try:
        size = parse(text) if len(text) <= _LONGEST_SIZE else None
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        size = None
    if size is None or str(size) != text or (isinstance(size, int) and size < 0) or not _known(size):
        raise ValueError(f"{text[:_LONGEST_SIZE]!r} is no size")
    return text


def _known(size: Parsed) -> bool:
    """Whether all names in a size are ours."""
    return names(size) <= _NAMES | windows((size,)).keys()


def _inside(path: str) -> str:
    """The path, if it stays in the folder; ValueError otherwise."""
    if PurePosixPath(path).is_absolute() or {".", "..", ""} & set(path.split("/")) or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} is no file of this folder")
    return path


Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
File = Annotated[str, AfterValidator(_inside)]
Size = Annotated[str, AfterValidator(_size)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Port(_Entry):
    name: Name
    shape: list[Size]
    dtype: DType
    optional: bool = False
    once: bool = False
    starts: str = ""

    @property
    def sizes(self) -> set[str]:
        """The named sizes in its shape."""
        return set().union(*(names(parse(size)) for size in self.shape))


class _State(_Entry):
    past: Name
    present: Name
    shape: list[Size]
    dtype: DType
    held: bool


class _Signature(_Entry):
    inputs: list[_Port]
    outputs: list[_Port]
    states: list[_State]


class _Facts(_Entry):
    ids: Count | None = None
    pad_id: Annotated[int, Field(ge=0)] | None = None
    first_is_real: bool = False
    max_length: Count | None = None
    same_in_steps: Count | None = None
    mask: Name | None = None
    documents: Name | None = None


class _Form(_Entry):
    graph: Name
    form: Name
    count: Count
    reason: Name
    condition: Name | None = None


class _Record(_Entry):
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class _Tokenizer(_Entry):
    file: File
    eos_id: Annotated[int, Field(ge=0)] | None = None
    start_id: Annotated[int, Field(ge=0)] | None = None


class _Common(_Entry):
    seqspec: Literal[1]
    versions: dict[Name, str]
    signature: _Signature
    inputs: dict[Name, _Facts]
    files: dict[File, _Record | None]
    tokenizer: _Tokenizer | None = None
    sha256: Sha256

    @model_validator(mode="after")
    def _the_tokenizer_is_a_file(self) -> _Common:
        if self.tokenizer is not None and self.tokenizer.file not in self.files:
            raise ValueError(f"{self.tokenizer.file!r} is not among its files")
        return self

    @model_validator(mode="after")
    def _names_lead_somewhere(self) -> _Common:
        ports = {port.name: port for port in self.signature.inputs}
        inputs = [port.name for port in self.signature.inputs]
        pasts = [state.past for state in self.signature.states]
        named = [*self.inputs, *(facts.mask for facts in self.inputs.values() if facts.mask)]
        for name in named:
            if name not in inputs:
                raise ValueError(f"`inputs` names {name!r}, which is no input of the signature")
        for name, facts in self.inputs.items():
            if facts.mask and not ports[facts.mask].sizes <= ports[name].sizes | {PAST}:
                raise ValueError(f"{facts.mask!r} is no mask of {name!r}")
        for port in self.signature.inputs:
            if port.starts and port.starts not in pasts:
                raise ValueError(f"{port.name!r} starts {port.starts!r}, which is no state of the signature")
        if len({*inputs, *pasts}) < len(inputs) + len(pasts):
            raise ValueError("the signature has a name twice")
        return self


class _Onnx(_Common):
    backend: Literal["onnx"]
    target: Target
    dtype: Literal["float32", "float16", "bfloat16"]
    logits: Logits
    quantize: Quantize | None = None
    graphs: dict[Name, File]
    in_place: bool
    forms: list[_Form]
    error: dict[Name, float] | None = None

    @model_validator(mode="after")
    def _graphs_are_files(self) -> _Onnx:
        if set(self.graphs) not in _ROLES:
            raise ValueError(f"`graphs` has {', '.join(self.graphs) or 'nothing'}")
        lacking = [file for file in (*self.graphs.values(), "spec.yaml") if file not in self.files]
        if lacking:
            raise ValueError(f"{lacking[0]!r} is not among its files")
        return self


class _Torch(_Common):
    backend: Literal["torch"]
    target: Literal["torch"]
    dtype: Literal["float32"]
    graphs: Annotated[dict[str, str], Field(max_length=0)]
    model: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


_MANIFEST: TypeAdapter[_Onnx | _Torch] = TypeAdapter(Annotated[_Onnx | _Torch, Field(discriminator="backend")])


def problem(data: Mapping[str, Any]) -> str | None:
    """A description of the first invalid entry; None if all are valid."""
    try:
        _MANIFEST.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = format_path(first["loc"][1:]) or "it"
        return f"{place}: {first['msg'].removeprefix('Value error, ')}"
    return None
