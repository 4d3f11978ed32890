"""`shrink(model)`: the same architecture with small numbers, so that big specs run in CI.

Kept: every kind and key, the order of everything, how many query heads share a key/value head, whether a head's width
is what rotary positions need, d_ff a multiple of d_model or not. Cut: widths, vocabularies, repeats, lengths of tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import gcd
from typing import Any

import seqspec

Plain = Any

# widths that must stay in proportion: one flows into the other, is tied to it or copied from it
COUPLED = ("d_model", "hidden_size", "channels")
MOST = {
    "repeat": 2, "num_layers": 4, "vocab_size": 61, "classes": 3, "token_types": 3, "max_length": 64, "kv_heads": 2,
    "projected_length": 3, "d_attention": 5, "projection_size": 3, "value_dim": 3, "mel_bins": 6, "block_size": 3,
}  # fmt: skip
WINDOWS = ("size", "left", "right")
PATCHES = 3  # along each side of an image
SMALL = 16  # a width up to this stays


def shrink(model: seqspec.Model) -> seqspec.Model:
    """The small twin of a spec, checked."""
    data = model.model_dump(by_alias=True, exclude_none=True, exclude={"tokenizer"})
    unit = _unit(data)
    for name in ("encoder", "decoder"):
        if name in data:
            data[name] = _stack(data[name], data.get("defaults", {}), unit)
    return seqspec.load(_cut(data, unit))


def _stack(stack: Plain, defaults: Plain, unit: int) -> Plain:
    """A stack whose sublayers are cut by what is around them: widths, positions."""
    width = stack.get("d_model") or stack["input"].get("d_model") or defaults.get("d_model")
    position = stack.get("position") or defaults.get("position")
    if stack["input"]["kind"] == "image" and (position or {}).get("kind") == "learned":
        stack["position"] = position | {"max_length": PATCHES**2 + stack["input"].get("class_token", False)}
    rows = [block for entry in stack["layers"] if (block := entry.get("block"))]
    for row in (*rows, *stack.get("blocks", {}).values()):
        for sublayer in (single for part in row for single in part.get("block", [part])):  # of a parallel, those inside
            if "heads" in sublayer:
                _attention(sublayer, width, sublayer.get("position") or position, unit)
            elif "d_ff" in sublayer and width:
                ratio, rest = divmod(sublayer["d_ff"], width)
                sublayer["d_ff"] = max(1, min(ratio, 4)) * _scaled(width, unit) + (1 if rest else 0)
    for entry in stack["layers"]:
        if entry.get("repeat", 1) > 1 and "pattern" in entry:
            entry["repeat"] = 1 if len(entry["pattern"]) > 2 else 2
    return stack


def _attention(sublayer: Plain, width: int, position: Plain, unit: int) -> None:
    heads, kv_heads = sublayer["heads"], sublayer.get("kv_heads", sublayer["heads"])
    group, small = heads // kv_heads, min(kv_heads, 2)
    sublayer["heads"] = group * small
    if "kv_heads" in sublayer:
        sublayer["kv_heads"] = small
    if sublayer.get("projections") == "none":
        sublayer["heads"] = gcd(small, _scaled(width, unit))
        sublayer.pop("head_dim", None)
    else:
        sublayer["head_dim"] = _head_dim(sublayer.get("head_dim") or width // heads, position)


def _head_dim(head_dim: int, position: Plain) -> int:
    """Odd where nothing forbids it; else the least above 4 of which an even part is turned."""
    if not isinstance(position, dict) or position["kind"] != "rope":
        return min(head_dim, 5)
    fraction = position.get("fraction", 1.0)
    if position.get("scaling", {}).get("kind") == "longrope":
        return head_dim  # a factor for each pair
    fits = (d for d in range(6, head_dim) if d * fraction == int(d * fraction) and int(d * fraction) % 2 == 0)
    return next(fits, head_dim)


def _unit(data: Plain) -> int:
    """What the coupled widths are divided by."""
    widths = [value for key, value in _fields(data) if key in COUPLED and isinstance(value, int)]
    widths += [layer["size"] for layer in _mappings(data) if layer.get("kind") == "linear" and "size" in layer]
    common = reduce(gcd, widths, 0)
    if not widths or max(widths) <= SMALL:
        return 1
    spread = max(widths) // common
    least = 12 if spread <= 4 else 4 if spread <= 8 else 1
    return next((common // n for n in range(least, common + 1, 2) if common % n == 0), common)


def _scaled(width: int, unit: int) -> int:
    return max(1, width // unit)


def _cut(value: Plain, unit: int) -> Plain:
    if isinstance(value, list):
        return [_cut(item, unit) for item in value]
    if not isinstance(value, dict):
        return value
    kind, cut = value.get("kind"), {k: _cut(v, unit) for k, v in value.items()}
    for key, number in value.items():
        if key in COUPLED and isinstance(number, int) and kind != "image":
            cut[key] = _scaled(number, unit)
        elif key in MOST and isinstance(number, int):
            cut[key] = min(number, MOST[key])
    if kind == "window":
        cut |= {k: min(value[k], 4) for k in WINDOWS if k in value}
    elif kind == "linear" and "size" in value:
        cut["size"] = _scaled(value["size"], unit)
    elif kind in ("features", "regression"):
        cut["size"] = min(value["size"], 5)
    elif kind == "image":
        cut |= {"size": PATCHES * min(value["patch"], 4), "patch": min(value["patch"], 4)}
    if "pad_id" in cut and "vocab_size" in cut:
        cut["pad_id"] = min(cut["pad_id"], cut["vocab_size"] - 1)
    return cut


def _fields(value: Plain) -> Iterator[tuple[str, Plain]]:
    for mapping in _mappings(value):
        if mapping.get("kind") != "image":
            yield from mapping.items()


def _mappings(value: Plain) -> Iterator[Plain]:
    """Every mapping in it."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _mappings(inner)
