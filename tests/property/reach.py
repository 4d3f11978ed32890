"""Which weights an output cannot depend on: of its stack, backwards, the positions that are read of each layer.

`pool: first` reads one position, `last` another, and a mask may hide what others would read. So an attention may see a
single key, whose weight is 1 whatever the score, or none; and a recurrent layer may take a single step, from zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from seqspec.components.attention import SelfAttention
from seqspec.components.audio import Audio
from seqspec.components.biases import RelativeBias
from seqspec.components.bridge import Bridge, Learned
from seqspec.components.efficient import LinearAttention, LowRankAttention
from seqspec.components.image import Image
from seqspec.components.parallel import Parallel
from seqspec.components.recurrent import Recurrent
from seqspec.components.stack import Stack
from seqspec.components.sublayers import Single, Sublayer
from seqspec.ops.pairs import seen

LENGTH = 6
"""Tokens, or frames of a sound, that a stack is given."""
SCORES = ("q_proj", "k_proj", "e_proj", "q_norm", "k_norm")
"""What makes scores of an attention, which has `e_proj` only for its keys."""
Read = frozenset[int]


class Idle(NamedTuple):
    """The weights below a scope, or those of them that `names` has, with a dot or an end behind."""

    scope: str
    names: tuple[str, ...] = ()

    def covers(self, weight: str) -> bool:
        scope, _, rest = weight.partition(self.scope)
        return not scope and weight != rest and (not self.names or rest.partition(".")[0] in self.names)


def idle(name: str, stack: Stack, pooled: str | None) -> Iterator[Idle]:
    """Of a resolved stack under its name, given `LENGTH` tokens, all real, and nothing that may be left out."""
    total = _positions(stack)
    last = {"first": 0, "last": total - 1}.get(pooled or "")
    read = frozenset(range(total) if last is None else [last])
    unscored = False
    for n, layer in reversed(list(enumerate(stack.flat()))):
        scope = f"{name}.layers.{n}."
        if layer.recurrent:
            yield from _single_steps(scope, layer.recurrent, read, total)
            read = _entering(layer.recurrent, read, total)
        for sublayer in reversed(layer.block):
            yield from _unscored(scope, sublayer, read, total)
            tables = [s for _, s in sublayer.opened() if _has_table(s)]
            unscored |= not all(any(len(_keys(s, q, total)) > 1 for q in read) for s in tables)
            read = _before(sublayer, read, total)
        if not read:  # every vector from here on is the same for any input, zeros as far as nothing is added
            yield Idle(f"{name}.")
            return
    if unscored:  # a table may be of this attention alone
        yield Idle(f"{name}.embed_relative")
    if isinstance(stack.input, Image) and stack.input.class_token:
        yield from [Idle(f"{name}.class_token")] * (0 not in read)
        yield from [Idle(f"{name}.patch_embedding")] * (read <= {0})


def _positions(stack: Stack) -> int:
    if isinstance(stack.input, Image):
        return stack.input.count
    stride = prod(c.stride for c in stack.input.convolutions) if isinstance(stack.input, Audio) else 1
    return -(-LENGTH // stride)


# ---- recurrent layers --------------------------------------------------------------------------------------------


def _entering(layer: Recurrent, read: Read, total: int) -> Read:
    """The positions that a recurrent layer reads to say what it is at those of `read`."""
    for _ in range(layer.num_layers if read else 0):
        forward = range(max(read) + 1)
        read = frozenset(forward) | frozenset(range(min(read), total) if layer.bidirectional else ())
    return read


def _single_steps(scope: str, layer: Recurrent, read: Read, total: int) -> Iterator[Idle]:
    """The matrices that are only multiplied with the zeros that a direction starts from."""
    if isinstance(layer.initial_state, Learned | Bridge):
        return
    for k in reversed(range(layer.num_layers)):
        if read == {0}:
            yield Idle(f"{scope}{layer.name}.", (f"weight_hh_l{k}",))
        if layer.bidirectional and read == {total - 1}:
            yield Idle(f"{scope}{layer.name}.", (f"weight_hh_l{k}_reverse",))
        read = _entering(layer.model_copy(update={"num_layers": 1}), read, total)
    if layer.attend and read == {0}:
        yield Idle(f"{scope}step.{layer.name}.", ("weight_hh",))
        if layer.attend.query == "previous":
            yield Idle(f"{scope}step.", ("query_proj",))
            yield Idle(scope, ("key_proj",) if layer.attend.score == "general" else ())


# ---- blocks ------------------------------------------------------------------------------------------------------


def _before(sublayer: Sublayer, read: Read, total: int) -> Read:
    """The positions that a sublayer reads to say what stands at those of `read`."""
    if isinstance(sublayer, Parallel):
        inner = frozenset().union(
            *(_before(s.model_copy(update={"residual": "none"}), read, total) for s in sublayer.block)
        )
    else:
        inner = frozenset().union(*(_keys(sublayer, query, total) for query in read))
    return inner | read if sublayer.residual == "add" else inner


def _unscored(scope: str, sublayer: Sublayer, read: Read, total: int) -> Iterator[Idle]:
    """What no score depends on, and what nothing comes out of."""
    if isinstance(sublayer, Parallel):
        for inner in sublayer.block:
            yield from _unscored(f"{scope}{sublayer.called}.", inner, read, total)
        return
    most = max((len(_weighed(sublayer, query, total)) for query in read), default=0)
    own = sublayer.called
    if most == 0:
        yield from (Idle(f"{scope}{part}.") for part in (own, f"{own}_norm", f"post_{own}_norm"))
    elif most == 1 and sublayer.kind != "ffn":
        yield Idle(f"{scope}{own}.", SCORES)


def _weighed(sublayer: Single, query: int, total: int) -> Read:
    """What a query gives weights to: keys, or what they are brought down to."""
    if isinstance(sublayer, LowRankAttention):
        return frozenset(range(sublayer.projected_length))
    if sublayer.kind == "cross_attention":
        return frozenset(range(LENGTH))
    return _keys(sublayer, query, total)


def _keys(sublayer: Single, query: int, total: int) -> Read:
    """The positions of its own stack that are read for one; of what mixes none, that one."""
    if isinstance(sublayer, SelfAttention):
        return frozenset(k for start, stop in seen(sublayer.allowed, query, total) for k in range(start, stop))
    if isinstance(sublayer, LowRankAttention):
        return frozenset(range(total))
    if isinstance(sublayer, LinearAttention):
        return frozenset(range(query + 1 if sublayer.causal else total))
    return frozenset([query])


def _has_table(sublayer: Single) -> bool:
    return isinstance(sublayer, SelfAttention) and isinstance(sublayer.position, RelativeBias)
