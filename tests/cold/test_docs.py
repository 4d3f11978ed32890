"""The pages: those that are generated are up to date, YAML in them is sound, links lead somewhere, claims are true."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import seqspec
from seqspec.diagnostics import CODES
from seqspec.diagnostics import page as errors
from seqspec.ops.base import Op
from seqspec.spec.dump import resolved
from seqspec.spec.reference import GROUPS, Group, markdown, ungrouped

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "examples").rglob("*.md"))

# ---- every key -------------------------------------------------------------------------------------------------------


def test_the_page_of_keys_is_up_to_date() -> None:
    stored = (ROOT / "docs/keys.md").read_text()
    assert stored == markdown(), "run `seqspec schema --format markdown > docs/keys.md`"


def test_the_page_of_errors_is_up_to_date() -> None:
    stored = (ROOT / "docs/errors.md").read_text()
    assert stored == errors.markdown(), "run `python -m seqspec.diagnostics.page > docs/errors.md`"
    rows = re.findall(r'^\| <a id="seq(\d+)"></a>', stored, re.MULTILINE)
    assert [f"SEQ{number}" for number in rows] == list(CODES), "every code has a line, under the title of its hundred"
    unescaped = (re.sub(r"`[^`]*`|\\\\\|", "", row) for row in stored.splitlines() if row.startswith("| <a"))
    assert {row.count("|") for row in unescaped} == {5}


def test_every_class_has_a_group() -> None:
    assert ungrouped() == [], "give them a place in GROUPS of seqspec/spec/reference.py"


# a spec around what each group writes
BLOCK = "layers: [{block: [{kind: attention, heads: 2, head_dim: 8}]}]"
READ = "input: {kind: tokens, vocab_size: 100}, d_model: 16"
ENCODER = f"encoder: {{{READ}, layers: [{{kind: gru, hidden_size: 8}}]}}"
GRU = "layers: [{kind: gru, hidden_size: 8, %s}]"
AROUND = {
    "Document": f"{ENCODER}\n%s",
    "Stack": "%s",
    "Inputs": "encoder: {layers: [{kind: gru, hidden_size: 8}], %s}",
    "Positions": f"encoder: {{{READ}, {BLOCK}, %s}}",
    "Scalings of rotary positions": f"encoder: {{{READ}, {BLOCK}, position: {{kind: rope, %s}}}}",
    "Masks": f"encoder: {{{READ}, {BLOCK}, %s}}",
    "Norms": f"encoder: {{{READ}, {BLOCK}, %s}}",
    "Sublayers": f"encoder: {{{READ}, layers: [{{block: [%s]}}]}}",
    "Layers": f"encoder: {{{READ}, %s}}",
    "Initial states": f"{ENCODER}\ndecoder: {{{READ}, {GRU}}}",
    "Attention in a recurrent step": f"{ENCODER}\ndecoder: {{{READ}, {GRU}}}",
    "Heads": f"{ENCODER}\n%s",
}
# and around those that need something else
AROUND_ONE = {
    "document Model": "%s",
    "document Tokenizer": f"{ENCODER}\n%s",
    "stack DropoutRates": f"encoder: {{{READ}, {BLOCK}, %s}}",
    "input Tokens": "encoder: {d_model: 16, layers: [{kind: gru, hidden_size: 8}], %s}",
    "input Convolution": "encoder: {layers: [{kind: gru, hidden_size: 8}], input: {kind: audio, mel_bins: 80, %s}}",
    "input Image": f"encoder: {{d_model: 16, {BLOCK}, %s}}",
    "sublayer CrossAttention": f"{ENCODER}\ndecoder: {{{READ}, layers: [{{block: [%s]}}]}}",
    "layer Pattern": f"encoder: {{{READ}, blocks: {{wide: [{{kind: ffn, d_ff: 256}}]}}, %s}}",
    "head Ctc": f"encoder: {{{READ}, {BLOCK}}}\n%s",
    "initial state Zeros": f"encoder: {{{READ}, {GRU}}}",
    "initial state Learned": f"encoder: {{{READ}, {GRU}}}",
    "initial state Given": f"encoder: {{{READ}, {GRU}}}",
}
PLACES = [(group, cls) for group in GROUPS for cls in group.smallest]


def spec_around(group: Group, cls: Any) -> str:
    around = AROUND_ONE.get(f"{group.one} {cls.__name__}", AROUND[group.title])
    text = around % group.smallest[cls]
    return text if "seqspec: 1" in text else f"seqspec: 1\nname: m\n{text}"


def saved(text: str, folder: Path) -> Path:
    """The spec as a file, with the tokenizer that one may name beside it."""
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (folder / "spec.yaml").write_text(text)
    return folder / "spec.yaml"


@pytest.mark.parametrize(("group", "cls"), PLACES, ids=[f"{g.one}-{c.__name__}" for g, c in PLACES])
def test_the_least_that_can_be_written_is_sound(group: Group, cls: Any, tmp_path: Path) -> None:
    text = spec_around(group, cls)
    report = seqspec.check(saved(text, tmp_path))
    assert [d.message for d in report] == [], text


@pytest.mark.parametrize(("group", "cls"), PLACES, ids=[f"{g.one}-{c.__name__}" for g, c in PLACES])
def test_it_writes_what_it_stands_under(group: Group, cls: Any, tmp_path: Path) -> None:
    """An instance of the class is in the model that its YAML makes."""
    model = seqspec.load(saved(spec_around(group, cls), tmp_path))
    assert any(isinstance(found, cls) for found in inside(model))


def inside(value: Any) -> Iterator[Any]:
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from inside(item)
    elif hasattr(value, "model_fields_set"):
        yield value
        for _, item in value:
            yield from inside(item)


# ---- coverage --------------------------------------------------------------------------------------------------------


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "docs/coverage.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


COVERAGE: Any = _module()
CLAIMS = [claim for claims in COVERAGE.claims().values() for claim in claims]


def test_the_page_of_coverage_is_up_to_date() -> None:
    stored = (ROOT / "docs/coverage.md").read_text()
    assert stored == COVERAGE.markdown(), "run `python docs/coverage.py > docs/coverage.md`"


@cache
def _resolved(path: Path) -> str:
    return resolved(seqspec.load(path))


@cache
def _tests(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.what)
def test_what_is_claimed_is_there(claim: Any) -> None:
    assert claim.lacks or (claim.examples and claim.tests and claim.docs), "what is not there is not said"
    for example, shown in claim.examples.items():
        path = ROOT / example
        assert path.is_file(), example
        text = _resolved(path) if path.suffix == ".yaml" else path.read_text()
        assert shown in text, f"{example} does not say {shown!r}"
    for test in claim.tests:
        file, _, name = test.partition("::")
        assert (ROOT / "tests" / file).is_file(), test
        assert not name or name in _tests(ROOT / "tests" / file), test
    for section in claim.docs:
        page, _, anchor = section.partition("#")
        assert anchor in anchors(ROOT / "docs" / page), section


# ---- architecture ----------------------------------------------------------------------------------------------------

ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()


def primitives() -> list[str]:
    """The ops by name."""
    found = set()
    for file in (ROOT / "seqspec/ops").glob("*.py"):
        for cls in vars(importlib.import_module(f"seqspec.ops.{file.stem}")).values():
            if isinstance(cls, type) and issubclass(cls, Op) and not inspect.isabstract(cls):
                found.add(cls.__name__)
    return sorted(found)


@pytest.mark.parametrize("op", primitives())
def test_every_op_is_in_the_table(op: str) -> None:
    assert re.search(rf"`{op}\b", ARCHITECTURE)


def test_every_pass_is_in_the_table() -> None:
    imported = re.findall(r"import (\w+)$", (ROOT / "seqspec/passes/pipeline.py").read_text(), re.MULTILINE)
    passes = [name for name in imported if (ROOT / f"seqspec/passes/{name}.py").is_file()]
    assert len(passes) > 8
    assert [name for name in passes if f"`{name}`" not in ARCHITECTURE] == []


def test_the_files_it_names_are_there() -> None:
    """Those with a folder; single names stand beside theirs."""
    for name in re.findall(r"`([\w./]+/[\w.]+)`", ARCHITECTURE):
        assert (ROOT / name).exists() or (ROOT / "seqspec" / name).exists(), name
    lines = ARCHITECTURE.count("\n")
    assert lines < 250


# ---- links and YAML --------------------------------------------------------------------------------------------------

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def anchors(path: Path) -> set[str]:
    """The names that GitHub gives to headings, and those that a page gives itself."""
    found: set[str] = set(re.findall(r'<a id="(\w+)">', path.read_text()))
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while name + (f"-{number}" if number else "") in found:
            number += 1
        found.add(name + (f"-{number}" if number else ""))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_yaml_is_sound(page: Path) -> None:
    """Whole specs are checked; parts of one are read."""
    for kind, text in FENCE.findall(page.read_text()):
        if kind == "yaml" and "{…" not in text:
            data = yaml.safe_load(text)
            if "seqspec" in data:
                assert [d.message for d in seqspec.check(text)] == [], text
