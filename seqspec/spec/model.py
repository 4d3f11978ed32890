"""The root model: one or two stacks and a head."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from seqspec.components import rules
from seqspec.components.base import Component, Finding, Findings, Name
from seqspec.components.heads import Head, Readable
from seqspec.components.inherited import Defaults
from seqspec.components.masks import TAKEN
from seqspec.components.stack import Facts, Stack
from seqspec.components.tokenizer import Tokenizer
from seqspec.components.tokens import Tokens
from seqspec.ops import masks


def _not_true(value: Any) -> Any:
    """Refuses True, which equals 1 in Python."""
    if value is True:
        raise ValueError("the language version is the number 1")
    return value


Version = Annotated[Literal[1], BeforeValidator(_not_true)]
OutputName = Annotated[Name, Field(pattern=r"^[A-Za-z]")]
_WEIGHTS = re.compile(r"attentions_\d")
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")]


class Model(Component):
    """A spec as written, or resolved: the same classes, every default filled in."""

    seqspec: Version
    """The version of the language."""
    name: ModelName
    """The name of the model."""
    defaults: Defaults | None = None
    """Settings of every stack that does not set its own."""
    encoder: Stack | None = None
    """Reads the whole input at once."""
    decoder: Stack | None = None
    """Generates one position after another, and may read the encoder."""
    head: Head | None = None
    """The output layer on the decoder, else on the encoder; without one, the model's output is the stack's vectors."""
    outputs: dict[OutputName, Head] | None = Field(None, min_length=1)
    """Several heads instead of one, each under the name of its output."""
    tokenizer: str | Tokenizer | None = None
    """The tokenizer's file: its path, or a mapping of the path and the tokens for end and start."""

    _tokenizer_path: str = PrivateAttr("")

    @property
    def tokenizer_path(self) -> str:
        """The path at which the tokenizer's file was found."""
        return self._tokenizer_path

    @property
    def heads(self) -> dict[str, Head]:
        """The heads by the names of their outputs, sorted; a single `head` is under the empty name."""
        return {"": self.head} if self.head else dict(sorted((self.outputs or {}).items()))

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks by name, in the order they run."""
        return {name: stack for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)) if stack}

    @property
    def last(self) -> str:
        """The stack that the head reads."""
        return list(self.stacks)[-1]

    def owner(self, stack: Stack) -> str | None:
        """The name of the stack whose tables `input.share` refers to, if there is one."""
        source = stack.input
        if not isinstance(source, Tokens) or source.share is None:
            return None
        name, _, part = source.share.partition(".")
        other = self.stacks.get(name)
        fits = part == "input" and other is not None and other is not stack
        return name if fits and other and isinstance(other.input, Tokens) and other.input.share is None else None

    def resolved(self) -> Model:
        """The model with every default filled in. Idempotent."""
        defaults = self.defaults or Defaults()
        done: dict[str, Stack] = {}
        for name, stack in sorted(self.stacks.items(), key=lambda item: self.owner(item[1]) is not None):
            owner = self.owner(stack)
            done[name] = stack.resolved(defaults, name, done.get(owner) if owner else None)
        model = self.model_copy(update={**done, "defaults": None})
        if not model.stacks:
            return model
        known = (model.vocab_size, model.stacks[model.last].norm)
        heads = {name: head.resolved(*known) for name, head in self.heads.items()}
        return model.model_copy(update={"outputs": heads} if self.outputs else {"head": heads.get("")})

    @property
    def vocab_size(self) -> int | None:
        """The number of rows of the token table that the last stack reads."""
        table = self.table(self.last)
        return table.vocab_size if table else None

    def table(self, name: str) -> Tokens | None:
        """The input that owns the token table a stack reads."""
        stack = self.stacks[name]
        owner = self.owner(stack)
        source = self.stacks[owner].input if owner else stack.input
        return source if isinstance(source, Tokens) else None

    def facts(self) -> dict[str, Facts]:
        """The facts about each stack of a resolved model, by name."""
        found: dict[str, Facts] = {}
        for name, stack in self.stacks.items():
            found[name] = stack.facts(found)
        return found

    @property
    def stateful(self) -> bool:
        """Whether the last stack can run in chunks: it is causal, and no head needs the whole sequence at once."""
        pooled = {head.pooled for head in self.heads.values()}
        return self.facts()[self.last].causal and pooled <= {"none", "last", "final_state"}

    def check(self) -> Findings:
        """What is wrong with a resolved model, at paths from the root."""
        if not self.stacks:
            yield Finding("SEQ112", (), "the spec has neither `encoder` nor `decoder`", "write one of them, or both")
            return
        sizes = [f.under(name) for name, stack in self.stacks.items() for f in rules.size_is_bounded(stack)]
        yield from sizes
        if sizes:
            return
        known: dict[str, Facts] = {}
        for name, stack in self.stacks.items():
            yield from self._check_share(name, stack)
            owner = self.owner(stack)
            found = rules.check(stack, name, known, self.stacks[owner] if owner else None)
            yield from (f.under(name) for f in found)
            known[name] = stack.facts(known)
        # a misspelt `from` counts as reading: it has a finding of its own
        if self.decoder and self.encoder and not self.decoder.reads() - {"decoder"}:
            hint = "let the decoder read it (`cross_attention`, `bridge` or `attend`), or delete it"
            yield Finding("SEQ213", ("encoder",), "nobody reads the encoder", hint)
        elif (
            self.decoder
            and self.encoder
            and not (self.decoder.attends_to("encoder") or self.decoder.averages("encoder"))
        ):
            yield from (f.under("encoder") for f in rules.outputs_are_read(self.encoder))
        if {head.pooled for head in self.heads.values()} == {"final_state"}:
            yield from (f.under(self.last) for f in rules.state_is_read(self.stacks[self.last]))
        yield from self._check_heads(known)

    def _check_share(self, name: str, stack: Stack) -> Findings:
        source = stack.input
        if isinstance(source, Tokens) and source.share is not None and self.owner(stack) is None:
            others = [f"`{n}.input`" for n, s in self.stacks.items() if n != name and isinstance(s.input, Tokens)]
            text = f"`{source.share}` is no input with tables of its own"
            hint = f"inputs that can be shared: {', '.join(others) or 'none'}"
            yield Finding("SEQ214", (name, "input", "share"), text, hint)

    def _check_heads(self, known: dict[str, Facts]) -> Findings:
        facts, table = known[self.last], self.table(self.last)
        readable = Readable(
            self.last,
            facts.width,
            table,
            table.d_model if table else None,
            table.vocab_size if table else None,
            facts.last_recurrent,
        )
        if self.head:
            yield from (f.under("head") for f in self.head.check(readable))
        if self.head and self.outputs:
            yield Finding("SEQ110", ("outputs",), "`outputs` stands in the place of `head`", "keep one of them")
        outputs = self.outputs or {}
        inputs = set(self._inputs()) if outputs else set[str]()
        taken = {"loss", *inputs, *(f"{name}_{added}" for name in outputs for added in ("labels", "loss"))}
        for name, head in outputs.items():
            yield from (f.under("outputs", name) for f in head.check(readable))
            if name in taken or f"{name}_labels" in inputs or _WEIGHTS.match(name):
                text = f"the name `{name}` is taken, by an input, by attention weights or by what training adds"
                yield Finding("SEQ223", ("outputs", name), text)

    def _inputs(self) -> Iterator[str]:
        """The names that inputs of the model may have."""
        for name, stack in self.stacks.items():
            prefix = "decoder_" if name == "decoder" and len(self.stacks) > 1 else ""
            atoms = (atom for s in stack.attentions() for atom in masks.atoms(s.allowed))
            given = {atom.name for atom in atoms if isinstance(atom, masks.Given)}
            yield f"{name}_attention_mask"
            yield from (f"{prefix}{word}" for word in TAKEN | given)
