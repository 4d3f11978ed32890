"""Any amount of simple English: the text that the language model examples are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

GRAMMAR = {
    "sentence": ["{claim} .", "{claim} and {verb} {noun} .", "when {noun} {sleeps} , {claim} ."],
    "claim": ["{noun} {verb} {noun}"],
    "noun": ["the {thing}", "a {thing}", "the {sort} {thing}"],
    "thing": ["cat", "bird", "model", "teacher", "river"],
    "sort": ["small", "old", "red", "quiet"],
    "verb": ["sees", "follows", "remembers"],
    "sleeps": ["sleeps", "sings"],
}
PAD, START, END = 0, 1, 2
LETTERS = " ,.abcdefghijklmnopqrstuvwxyz"
VOCABULARY = 3 + len(LETTERS)


def sentences(seed: int) -> Iterator[str]:
    """An endless stream of sentences."""
    random = Random(seed)
    while True:
        yield _expand("{sentence}", random)


def encode(text: str) -> list[int]:
    return [3 + LETTERS.index(letter) for letter in text]


def decode(ids: list[int]) -> str:
    """The text of ids, up to the end."""
    return "".join(LETTERS[n - 3] for n in (ids[: ids.index(END)] if END in ids else ids) if n >= 3)


def _expand(text: str, random: Random) -> str:
    while "{" in text:
        before, _, rest = text.partition("{")
        name, _, after = rest.partition("}")
        text = before + random.choice(GRAMMAR[name]) + after
    return text
