"""Strategies for the pieces of a spec: plain values, as YAML holds them. A new kind joins its union here."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Plain = dict[str, Any]
MAX_TIME = 17  # the longest sequence that `batches` draws; learned tables are at least as long

rates = st.sampled_from([0.0, 0.1, 0.5])
# some of them are what a back end could stumble over
names = st.sampled_from(["first", "second", "third", "x", "memory", "h"])


def _kind(kind: str, optional: Plain | None = None, **required: Any) -> st.SearchStrategy[Plain]:
    """`{kind: …}` with the required fields, and any of the optional ones."""
    return st.fixed_dictionaries({"kind": st.just(kind), **required}, optional=optional or {})


norms = st.one_of(
    st.sampled_from(["layernorm", "rmsnorm"]),
    _kind("layernorm", {"eps": st.sampled_from([1e-5, 1e-12, 1e-2]), "bias": st.booleans()}),
    _kind("rmsnorm", {"eps": st.sampled_from([1e-6, 1e-5, 1e-2]), "offset": st.sampled_from([0.0, 1.0])}),
)

dropouts = st.one_of(
    rates, st.fixed_dictionaries({}, optional=dict.fromkeys(["input", "residual", "attention", "inner"], rates))
)

# ---- positions ---------------------------------------------------------------------------------------------------

added_positions = st.one_of(
    st.sampled_from(["none", "sinusoidal"]),
    _kind(
        "sinusoidal",
        {"layout": st.sampled_from(["interleaved", "half_split"]), "base": st.sampled_from([10000.0, 50.0])},
    ),
    _kind("learned", max_length=st.integers(MAX_TIME, 24)),
)


def _factors(pairs: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=pairs, max_size=pairs)


def _longropes(pairs: int) -> st.SearchStrategy[Plain]:
    """A scaling for heads that turn so many pairs."""
    optional = st.one_of(
        st.just({}), st.just({"factor": 4.0}), st.just({"factor": 0.5}), st.just({"attention_factor": 1.3})
    )
    plain = _kind(
        "longrope",
        short_factor=_factors(pairs),
        long_factor=_factors(pairs),
        original_max_length=st.sampled_from([3, 9, 100]),
    )
    return st.builds(lambda scaling, more: scaling | more, plain, optional)


_scalings = st.one_of(
    _kind("dynamic", factor=st.sampled_from([0.5, 2.0, 4.0]), original_max_length=st.sampled_from([3, 9, 100])),
    _kind(
        "yarn",
        {
            "beta_fast": st.sampled_from([4.0, 32.0]),
            "beta_slow": st.sampled_from([0.5, 1.0]),
            "truncate": st.booleans(),
            "attention_factor": st.sampled_from([0.9, 1.4]),
        },
        factor=st.sampled_from([0.5, 4.0]),
        original_max_length=st.sampled_from([4, 100]),
    ),
    _kind("linear", factor=st.sampled_from([0.5, 2.0, 3.5])),
    _kind(
        "llama3",
        factor=st.sampled_from([2.0, 8.0]),
        low_freq_factor=st.sampled_from([0.5, 1.0]),
        high_freq_factor=st.sampled_from([2.0, 4.0]),
        original_max_length=st.sampled_from([8, 32, 100]),
    ),
)

ropes = st.one_of(
    st.just("rope"),
    _kind(
        "rope",
        {
            "theta": st.sampled_from([10000.0, 100.0]),
            "layout": st.sampled_from(["half_split", "interleaved"]),
            "fraction": st.sampled_from([0.25, 0.5, 0.75, 1.0]),
            "scaling": _scalings,
        },
    ),
)

score_biases = st.one_of(
    st.sampled_from(["alibi", "relative_bias"]),
    _kind("relative_bias", buckets=st.sampled_from([4, 6, 32]), max_distance=st.sampled_from([17, 20, 128])),
)
"""Positions that are added to scores."""

_TURNED = {0.25: [8], 0.5: [4, 8], 0.75: [8], 1.0: [2, 4, 6]}  # head widths of which a fraction is even


def turns(position: Any) -> list[int] | None:
    """The head widths that a rotary position takes, or None for any other position."""
    if position == "rope":
        return _TURNED[1.0]
    return _TURNED[position.get("fraction", 1.0)] if isinstance(position, dict) and position["kind"] == "rope" else None


# ---- masks -------------------------------------------------------------------------------------------------------

_sizes, _sides = st.integers(1, 6), st.integers(0, 5)


def _joined(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """`all` and `any` of several masks, nested."""
    several = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(parts, st.fixed_dictionaries({"all": several}), st.fixed_dictionaries({"any": several}))


_causal = st.sampled_from(["causal", {"kind": "causal"}])
_backward = _kind("window", {"left": _sides}, right=st.just(0))
_open = st.one_of(
    st.just("none"),
    _kind("window", size=_sizes),
    _kind("window", {"right": _sides}, left=_sides),
    _kind("window", {"left": _sides}, right=_sides),
)
_only_causal = st.one_of(_causal, _backward)
_open = st.one_of(
    _open,
    st.sampled_from(["prefix", "documents"]),
    _kind("global", tokens=st.lists(st.integers(0, 8), min_size=1, max_size=3)),
    _kind("given", name=st.sampled_from(["extra", "seen"])),
    st.builds(
        lambda mask: {k: v for k, v in mask.items() if k != "seed" or mask.get("random_blocks", 3)},
        _kind(
            "block_sparse",
            {
                "window_blocks": st.sampled_from([1, 3, 5]),
                "global_blocks": st.integers(0, 2),
                "random_blocks": st.integers(0, 3),
                "seed": st.integers(0, 9),
            },
            block_size=st.integers(1, 4),
        ),
    ),
)
causal_masks = st.one_of(
    st.builds(lambda one: {"any": [one, "prefix"]}, _only_causal),
    _joined(_only_causal),
    st.builds(lambda one, more: {"all": [one, *more]}, _only_causal, st.lists(_joined(_open), min_size=1, max_size=2)),
    st.builds(lambda more: {"all": [*more, "causal"]}, st.lists(_joined(_open), min_size=1, max_size=2)),
)
open_masks = st.one_of(_joined(_open), causal_masks)

# ---- sublayers ---------------------------------------------------------------------------------------------------

_biases = st.one_of(
    st.booleans(), st.fixed_dictionaries({}, optional=dict.fromkeys(["query", "key", "value", "output"], st.booleans()))
)
_scaled = {"init_scale": st.sampled_from([0.5, 2.0])}
_heads = {
    "scale": st.sampled_from([0.1, 0.5, 1.0]),
    "softcap": st.sampled_from([0.5, 3.0, 30.0]),
    "bias": _biases,
    "dropout": rates,
    "return_weights": st.sampled_from([False, False, True]),
    **_scaled,
}


@st.composite
def _head_counts(draw: st.DrawFn, width: int, widths: list[int] | None) -> Plain:
    """heads, and kv_heads and head_dim where they are needed or wanted."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    counts = {"heads": heads}
    if kv_heads != heads or draw(st.booleans()):
        counts["kv_heads"] = kv_heads
    implied = width // heads if width % heads == 0 else None
    if implied is None or (widths and implied not in widths) or draw(st.booleans()):
        counts["head_dim"] = draw(st.sampled_from(widths) if widths else st.integers(1, 6))
    if draw(st.integers(0, 3)) == 0:
        counts["value_dim"] = draw(st.integers(1, 6))
    return counts


@st.composite
def self_attentions(draw: st.DrawFn, width: int, causal: bool, inherited: Any, must_turn: bool) -> Plain:
    """`inherited` is the stack's position; `must_turn` forbids to override it."""
    own = None if must_turn else draw(st.one_of(st.none(), st.just("none"), ropes, score_biases))
    widths = turns(inherited if own is None else own)
    fields = draw(_kind("attention", {**_heads, "mask": causal_masks if causal else open_masks}))
    fields |= {} if own is None else {"position": own}
    if draw(st.integers(0, 4)) == 0:
        fields["qk_norm"] = draw(norms)
        if widths is not None and draw(st.booleans()):
            fields["qk_norm_place"] = draw(st.sampled_from(["before_rotation", "after_rotation"]))
    if widths is None and draw(st.integers(0, 5)) == 0:
        fields = {k: v for k, v in fields.items() if k not in ("bias", *_scaled)}
        return fields | {"heads": draw(st.sampled_from([n for n in range(1, width + 1) if width % n == 0])), **_BARE}
    fields |= draw(_head_counts(width, widths))
    if own == "rope" and draw(st.booleans()):
        pairs = fields.get("head_dim", width // fields["heads"]) // 2
        fields["position"] = {"kind": "rope", "scaling": draw(_longropes(pairs))}
    return fields


_BARE = {"projections": "none"}
linear_attentions = _kind("linear_attention", {"bias": _biases, **_scaled})
low_rank_attentions = _kind(
    "low_rank_attention", _heads, projected_length=st.integers(1, 4), max_length=st.integers(MAX_TIME, 20)
)


@st.composite
def cheap_attentions(draw: st.DrawFn, width: int, causal: bool) -> Plain:
    """What is not quadratic."""
    if not causal and draw(st.booleans()):
        return draw(low_rank_attentions) | draw(_head_counts(width, None))
    fields = draw(linear_attentions) | draw(_head_counts(width, None))
    return fields if causal or draw(st.booleans()) else fields | {"causal": draw(st.booleans())}


@st.composite
def cross_attentions(draw: st.DrawFn, width: int, source: str) -> Plain:
    return draw(_kind("cross_attention", _heads, **{"from": st.just(source)})) | draw(_head_counts(width, None))


feed_forwards = _kind(
    "ffn",
    {
        "activation": st.sampled_from(["none", "relu", "relu2", "gelu", "gelu_tanh", "silu", "sigmoid"]),
        "gated": st.booleans(),
        "bias": st.booleans(),
        "dropout": rates,
        **_scaled,
    },
    d_ff=st.integers(1, 12),
)


@st.composite
def blocks(
    draw: st.DrawFn, width: int, causal: bool, position: Any, must_turn: bool, source: str | None
) -> list[Plain]:
    """The sublayers of one block, with names where a kind repeats. `source`: a stack that one of them reads."""
    sublayers = draw(st.lists(feed_forwards, max_size=1))
    least = 1 if must_turn else 0
    for n in range(draw(st.integers(least, 2 if source is None else 1))):
        sublayers.append(draw(self_attentions(width, causal, position, must_turn and n == 0)))
    if draw(st.integers(0, 3)) == 0:
        sublayers.append(draw(cheap_attentions(width, causal)))
    if source is not None:
        sublayers += [draw(cross_attentions(width, source)) for _ in range(draw(st.integers(1, 2)))]
    if not sublayers:
        sublayers.append(draw(feed_forwards))
    sublayers = draw(st.permutations(sublayers))
    kinds = [s["kind"] for s in sublayers]
    free = draw(st.permutations(["first", "second", "third", "x", "memory", "h"]))
    for sublayer in sublayers:
        if kinds.count(sublayer["kind"]) > 1 or draw(st.integers(0, 4)) == 0:
            sublayer["name"] = free.pop()
    return joined_up(draw, sublayers)


def joined_up(draw: st.DrawFn, sublayers: list[Plain]) -> list[Plain]:
    """The same, perhaps two or more of them in parallel, and a residual left out."""
    count = len(sublayers)
    if count > 1 and draw(st.integers(0, 3)) == 0:
        start = draw(st.integers(0, count - 2))
        stop = draw(st.integers(start + 2, count))
        several: Plain = {"kind": "parallel", "block": sublayers[start:stop]}
        several |= {"name": "joint"} if draw(st.booleans()) else {}
        sublayers = [*sublayers[:start], several, *sublayers[stop:]]
    if draw(st.integers(0, 4)) == 0:
        draw(st.sampled_from(sublayers))["residual"] = draw(st.sampled_from(["add", "none"]))
    return sublayers


# ---- recurrent layers --------------------------------------------------------------------------------------------

_own_keys: dict[str, Plain] = {
    "lstm": {
        "forget_bias": st.sampled_from([0.0, 1.0, -0.5]),
        "peepholes": st.booleans(),
        "projection_size": st.integers(1, 4),
    },
    "gru": {"reset": st.sampled_from(["before", "after"]), "update": st.sampled_from(["keep", "write"])},
    "rnn": {"activation": st.sampled_from(["tanh", "relu", "sigmoid"])},
}


@st.composite
def recurrents(draw: st.DrawFn, hidden_size: int, two_ways: bool, most_layers: int = 3) -> Plain:
    """A recurrent layer; `two_ways` allows a second direction."""
    kind = draw(st.sampled_from(["lstm", "gru", "rnn"]))
    own = dict(_own_keys[kind])
    layer: Plain = {"kind": kind, "hidden_size": hidden_size}
    optional = {"bias": st.sampled_from(["none", "single", "double"]), "num_layers": st.integers(1, most_layers)}
    optional |= {"name": names, "initial_state": st.sampled_from(["zeros", {"kind": "zeros"}, "learned", "given"])}
    layer |= draw(st.fixed_dictionaries({}, optional=optional))
    if layer.get("bias") == "none":
        own.pop("forget_bias", None)
    layer |= draw(st.fixed_dictionaries({}, optional=own))
    if layer.get("num_layers", 1) > 1 and draw(st.booleans()):
        layer["dropout"] = draw(rates)
    if two_ways and draw(st.booleans()):
        layer["bidirectional"] = True
        layer |= draw(st.fixed_dictionaries({}, optional={"merge": st.sampled_from(["concat", "sum"])}))
    return layer


linears = _kind(
    "linear",
    {
        "activation": st.sampled_from(["none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]),
        "bias": st.booleans(),
        "repeat": st.integers(1, 2),
        "name": names,
    },
    size=st.integers(1, 6),
)


convolutions = st.one_of(
    _kind(
        "conv",
        {"dilation": st.integers(1, 3), "bias": st.booleans()},
        name=st.just("slide"),
        kernel=st.just(3),
        channels=st.integers(1, 6),
    ),
    _kind(
        "conv",
        {"dilation": st.integers(1, 3), "activation": st.sampled_from(["none", "gelu"]), "repeat": st.integers(1, 2)},
        kernel=st.sampled_from([2, 4]),
        channels=st.integers(1, 6),
        causal=st.just(True),
    ),
)


def width_of(layer: Plain) -> int:
    """Channels that a bare layer without `attend` puts out."""
    if layer["kind"] in ("linear", "conv"):
        return int(layer["size"] if layer["kind"] == "linear" else layer["channels"])
    doubled = layer.get("bidirectional", False) and layer.get("merge") != "sum"
    return int(layer.get("projection_size") or layer["hidden_size"]) * (2 if doubled else 1)


@st.composite
def attends(draw: st.DrawFn, hidden: int, memory: int) -> Plain:
    """Attention in a step of `hidden` channels over a memory of `memory`."""
    scores = ["additive", "concat", "general", *(["dot"] if hidden == memory else [])]
    optional: Plain = {"window": _kind("local_p", size=st.integers(1, 4)), "return_weights": st.booleans()}
    found = {"from": "encoder", "score": draw(st.sampled_from(scores))}
    if found["score"] in ("additive", "concat"):
        optional["d_attention"] = st.integers(1, 6)
    if draw(st.booleans()):
        found["query"] = "current"
        optional |= {"output": st.sampled_from(["tanh", "concat"]), "input_feeding": st.booleans()}
    else:
        optional |= {"query": st.just("previous"), "output": st.sampled_from(["hidden", "concat"])}
    return found | draw(st.fixed_dictionaries({}, optional=optional))


# ---- sound and images --------------------------------------------------------------------------------------------


@st.composite
def sounds(draw: st.DrawFn, width: int) -> Plain:
    """One or two convolutions, the last of which puts out `width` channels."""
    activations = st.sampled_from(["none", "gelu", "tanh", "silu"])
    optional = {"stride": st.integers(1, 2), "activation": activations, "bias": st.booleans()}
    count = draw(st.integers(1, 2))
    kernels = st.sampled_from([1, 3, 5, 9])
    one = st.fixed_dictionaries({"channels": st.integers(1, 6), "kernel": kernels}, optional=optional)
    found = [draw(one) for _ in range(count)]
    found[-1]["channels"] = width
    return draw(_kind("audio", {"norm": norms}, mel_bins=st.integers(1, 5), convolutions=st.just(found)))


_image = {"channels": st.integers(1, 3), "class_token": st.booleans(), "norm": norms}
images = st.builds(
    lambda image, side: image | {"size": side * image["patch"]},
    _kind("image", _image, patch=st.integers(1, 3)),
    st.integers(2, 3),
)

# ---- heads -------------------------------------------------------------------------------------------------------


@st.composite
def heads(draw: st.DrawFn, final_state: bool, vocabulary: bool, tieable: bool, encoder: bool) -> Plain | None:
    """What the last stack allows.

    `final_state`: that its state alone is read; `vocabulary`: it reads tokens; `tieable`: its table has its width;
    `encoder`: it is one.
    """
    pools = ["none", "first", "last", "mean", "max", *(["final_state"] if final_state else [])]
    pool, few = st.sampled_from(pools), st.integers(1, 4)
    untied = {"bias": st.booleans(), "vocab_size": st.integers(2, 9)}
    bent = {"scale": st.sampled_from([0.5, 3.0]), "softcap": st.sampled_from([0.5, 30.0])}
    wanted = {} if vocabulary else {"vocab_size": untied.pop("vocab_size")}
    kinds = [
        st.none(),
        _kind("classifier", {"bias": st.booleans()}, pool=pool, classes=few),
        _kind("regression", {"bias": st.booleans()}, pool=pool, size=few),
        _kind("embedding", {"normalize": st.booleans()}, pool=pool),
        _kind("lm", untied | bent | {"tied": st.just(False)}, **wanted),
    ]
    if tieable:
        kinds.append(_kind("lm", bent | {"bias": st.just(False)}, tied=st.just(True)))
    if encoder:
        transform = {"activation": st.sampled_from(["none", "gelu", "tanh"]), "norm": norms, "bias": st.booleans()}
        kinds.append(_kind("masked_lm", transform | untied | {"tied": st.just(False)}, **wanted))
        kinds.append(_kind("ctc", {"bias": st.booleans(), "blank_id": st.integers(0, 1)}, vocab_size=st.integers(2, 5)))
        if tieable:
            kinds.append(_kind("masked_lm", transform, tied=st.just(True)))
    return draw(st.one_of(*kinds))
