"""Writes docs/keys.md: for each kind a table of its keys, read off the pydantic classes, and its smallest YAML."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from seqspec.components import (
    attend,
    attention,
    audio,
    biases,
    blocks,
    bridge,
    conv,
    cross_attention,
    ctc,
    efficient,
    features,
    feedforward,
    given_masks,
    gru,
    image,
    inherited,
    joined_masks,
    language_model,
    linear,
    lstm,
    masked_language_model,
    masks,
    norms,
    parallel,
    pooled_heads,
    positions,
    projected,
    rnn,
    rope,
    rope_scaling,
    sparse_masks,
    stack,
    tokenizer,
    tokens,
)
from seqspec.spec import docs
from seqspec.spec.fields import Kind, components, fields, kind_of, leaves, reachable
from seqspec.spec.model import Model


class Group(NamedTuple):
    """A section of the page: the classes that belong to one place, each with the smallest YAML of it."""

    title: str
    one: str
    """What a field that takes any of these is said to take."""
    smallest: dict[Kind, str]


_STACK = "{input: {kind: tokens, vocab_size: 100}, d_model: 16, layers: [{kind: gru, hidden_size: 8}]}"
_BRIDGED = "initial_state: {kind: bridge, from: encoder}"

GROUPS = (
    Group("Document", "document", {
        Model: f"seqspec: 1\nname: my-model\nencoder: {_STACK}",
        inherited.Defaults: "defaults: {d_model: 64}",
        tokenizer.Tokenizer: "tokenizer: {file: tokenizer.json}",
    }),
    Group("Stack", "stack", {
        stack.Stack: f"encoder: {_STACK}",
        inherited.DropoutRates: "dropout: {residual: 0.1}",
    }),
    Group("Inputs", "input", {
        tokens.Tokens: "input: {kind: tokens, vocab_size: 100}",
        features.Features: "input: {kind: features, size: 8}",
        audio.Audio: "input: {kind: audio, mel_bins: 80, convolutions: [{channels: 64, kernel: 3}]}",
        audio.Convolution: "convolutions: [{channels: 64, kernel: 3}]",
        image.Image: "input: {kind: image, size: 32, patch: 8}",
    }),
    Group("Positions", "position", {
        positions.NoPosition: "position: none",
        positions.Sinusoidal: "position: sinusoidal",
        positions.Learned: "position: {kind: learned, max_length: 512}",
        rope.Rope: "position: rope",
        biases.Alibi: "position: alibi",
        biases.RelativeBias: "position: relative_bias",
    }),
    Group("Scalings of rotary positions", "scaling", {
        rope_scaling.LinearScaling: "scaling: {kind: linear, factor: 4}",
        rope_scaling.DynamicScaling: "scaling: {kind: dynamic, factor: 4, original_max_length: 2048}",
        rope_scaling.YarnScaling: "scaling: {kind: yarn, factor: 4, original_max_length: 2048}",
        rope_scaling.Llama3Scaling: (
            "scaling: {kind: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_length: 8192}"
        ),
        rope_scaling.LongRopeScaling: (
            "scaling: {kind: longrope, short_factor: [1, 1, 1, 1], long_factor: [1, 2, 4, 8], "
            "original_max_length: 4096, factor: 8}"
        ),
    }),
    Group("Masks", "mask", {
        masks.Causal: "mask: causal",
        masks.NoMask: "mask: none",
        sparse_masks.Window: "mask: {kind: window, size: 128}",
        given_masks.Prefix: "mask: prefix",
        sparse_masks.Global: "mask: {kind: global, tokens: [0]}",
        sparse_masks.BlockSparse: "mask: {kind: block_sparse, block_size: 64}",
        given_masks.Documents: "mask: documents",
        given_masks.Given: "mask: {kind: given, name: graph_mask}",
        joined_masks.AllOf: "mask: {all: [causal, documents]}",
        joined_masks.AnyOf: "mask: {any: [causal, prefix]}",
    }),
    Group("Norms", "norm", {
        norms.LayerNorm: "norm: layernorm",
        norms.RMSNorm: "norm: rmsnorm",
    }),
    Group("Sublayers", "sublayer", {
        attention.SelfAttention: "{kind: attention, heads: 8}",
        cross_attention.CrossAttention: "{kind: cross_attention, from: encoder, heads: 8}",
        efficient.LinearAttention: "{kind: linear_attention, heads: 8}",
        efficient.LowRankAttention: "{kind: low_rank_attention, heads: 8, projected_length: 64, max_length: 1024}",
        projected.Biases: "{kind: attention, heads: 8, bias: {key: false}}",
        feedforward.FeedForward: "{kind: ffn, d_ff: 256}",
        parallel.Parallel: "{kind: parallel, block: [{kind: attention, heads: 4}, {kind: ffn, d_ff: 256}]}",
    }),
    Group("Layers", "layer", {
        blocks.Block: "layers: [{block: [{kind: ffn, d_ff: 256}]}]",
        blocks.Pattern: "layers: [{pattern: [wide]}]",
        conv.ConvLayer: "layers: [{kind: conv, channels: 64, kernel: 3}]",
        linear.LinearLayer: "layers: [{kind: linear, size: 64}]",
        lstm.LSTM: "layers: [{kind: lstm, hidden_size: 64}]",
        gru.GRU: "layers: [{kind: gru, hidden_size: 64}]",
        rnn.RNN: "layers: [{kind: rnn, hidden_size: 64}]",
    }),
    Group("Initial states", "initial state", {
        bridge.Zeros: "initial_state: zeros",
        bridge.Learned: "initial_state: learned",
        bridge.Given: "initial_state: given",
        bridge.Bridge: _BRIDGED,
    }),
    Group("Attention in a recurrent step", "attend", {
        attend.Attend: "attend: {from: encoder}",
        attend.LocalP: "attend: {from: encoder, window: {kind: local_p, size: 4}}",
    }),
    Group("Heads", "head", {
        language_model.LanguageModel: "head: lm",
        masked_language_model.MaskedLanguageModel: "head: masked_lm",
        ctc.Ctc: "head: {kind: ctc, vocab_size: 32}",
        pooled_heads.Classifier: "head: {kind: classifier, classes: 2, pool: mean}",
        pooled_heads.Regression: "head: {kind: regression, size: 1, pool: last}",
        pooled_heads.Embedding: "head: {kind: embedding, pool: mean}",
    }),
)  # fmt: skip
"""In the order in which one writes a spec."""

# classes without a `kind`, by the key that holds them
_TITLES: dict[Kind, str] = {
    Model: "the root", inherited.Defaults: "defaults", stack.Stack: "encoder, decoder",
    inherited.DropoutRates: "dropout",
    audio.Convolution: "convolutions", projected.Biases: "bias", blocks.Block: "block", blocks.Pattern: "pattern",
    joined_masks.AllOf: "all", joined_masks.AnyOf: "any", attend.Attend: "attend",
    tokenizer.Tokenizer: "tokenizer",
}  # fmt: skip
_NUMBERS: dict[Any, str] = {int: "integer", float: "number"}
_INTRO = """\
# Every key

This page is written by `seqspec schema --format markdown`. [The language](language.md) explains how keys work together;
`seqspec show SPEC --resolved` prints a spec with every default filled in.

Each kind comes with its shortest YAML. Where the default column is empty, the text says what the default is. A kind
without required keys may be written as a bare word: `position: rope`.
"""


def markdown() -> str:
    """The text of `docs/keys.md`."""
    return "\n".join([_INTRO, _contents(), *(line for group in GROUPS for line in _group(group))])


def ungrouped() -> list[str]:
    """Names of classes that the page lacks; a test checks that there are none."""
    shown = {cls for group in GROUPS for cls in group.smallest}
    return sorted(cls.__name__ for cls in reachable(Model) if cls not in shown)


def _contents() -> str:
    links = [_link(group.title, group.title) for group in GROUPS]
    return "".join(f"{link} ·\n" for link in links[:-1]) + f"{links[-1]}\n"


def _group(group: Group) -> Iterator[str]:
    yield f"## {group.title}\n"
    for cls, smallest in group.smallest.items():
        yield f"### `{_title(cls)}`\n"
        yield docs.of_class(cls) + "\n"
        yield f"```yaml\n{smallest}\n```\n"
        rows = [_row(cls, name, field) for name, field in fields(cls).items() if name != "kind"]
        if rows:
            yield "\n".join(["| key | takes | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _title(cls: Kind) -> str:
    return kind_of(cls) or _TITLES[cls]


def _row(cls: Kind, name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else "" if field.default is None else _code(field.default)
    about = docs.of_field(cls, "from_" if name == "from" else name).replace("\n", " ")
    cells = f"`{name}`", _takes(field.annotation, field.metadata), default, about
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _takes(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """A type in words."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _takes(inner, [*more, *metadata])
    if components(leaves(annotation)) and origin not in (list, dict):
        return _alternatives(annotation)
    if origin is Union or origin is types.UnionType:
        return " or ".join(_takes(part) for part in get_args(annotation) if part is not type(None))
    if origin is Literal:
        return ", ".join(_code(word) for word in get_args(annotation))
    if origin is list:
        return f"list of {_takes(get_args(annotation)[0])}"
    if origin is dict:
        return f"mapping of names to {_takes(get_args(annotation)[1])}"
    if annotation is bool:
        return "`true`, `false`"
    return " ".join(["text" if annotation is str else _NUMBERS[annotation], " and ".join(_bounds(metadata))]).strip()


def _alternatives(annotation: Any) -> str:
    """What a field takes: plain types first, then links to the sections of its classes."""
    known = leaves(annotation)
    plain = [leaf for leaf in _plain(annotation) if not components(leaves(leaf))]
    links: list[str] = []
    for cls in components(known):
        group = next(group for group in GROUPS if cls in group.smallest)
        alone = cls in _TITLES and len(components(known)) == 1
        link = _link(_TITLES[cls], _TITLES[cls]) if alone else _link(group.one, group.title)
        links += [link] if link not in links else []
    return ", ".join([*map(_takes, plain), *links])


def _plain(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for part in get_args(annotation) if part is not type(None)]
    return []


def _link(text: str, heading: str) -> str:
    return f"[{text}](#{heading.lower().replace(',', '').replace(' ', '-')})"


def _bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _bounds(item.metadata)
        for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if (bound := getattr(item, name, None)) is not None:
                yield f"{sign} {bound:g}"


def _code(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`"
