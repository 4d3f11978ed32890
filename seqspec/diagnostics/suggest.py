"""Did you mean: the known word closest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable

_SEPARATORS = str.maketrans("", "", "_- .")
# difflib is quadratic in the word's length, and a longer word is no misspelling.
_LONGEST = 80


def suggest(word: object, known: Iterable[str]) -> str | None:
    """The closest known word, or None. `Dropout`, `drop_out` and `dropuot` all give `dropout`."""
    words = list(known)
    text = str(word)
    if not text or len(text) > _LONGEST:
        return None
    folded: dict[str, str] = {}
    for candidate in words:
        folded.setdefault(_fold(candidate), candidate)
    match = _fold(text)
    if match in folded:
        return folded[match]
    import difflib  # not at the top: only a wrong spec pays for it

    close = difflib.get_close_matches(match, folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def did_you_mean(word: object, known: Iterable[str], *, what: str = "known") -> str | None:
    """The hint for an unknown word: the closest known word, else the list of all, else None."""
    words = list(known)
    guess = suggest(word, words)
    if guess is not None:
        return f"did you mean `{guess}`?"
    if not words:
        return None
    return f"{what}: " + ", ".join(f"`{candidate}`" for candidate in words)


def _fold(word: str) -> str:
    return word.casefold().translate(_SEPARATORS)
