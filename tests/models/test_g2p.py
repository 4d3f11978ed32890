"""Letters to sounds: a trained GRU encoder-decoder through torch and ONNX, against its own arithmetic in NumPy."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

import seqspec

EXAMPLE = Path(__file__).parents[2] / "examples" / "g2p"
SAY = runpy.run_path(str(EXAMPLE / "say.py"))
START, END = 2, 3

WORDS = {
    "activationist": "AE2 K T IH0 V EY1 SH AH0 N IH0 S T",
    "quixotry": "K W IH1 K S T R IY0",
    "phthalate": "F EH1 TH AH0 L EY2 T",
    "syzygial": "S AY0 Z IH1 JH IY0 AH0 L",
    "gloompf": "G L UW1 M P F",
    "bahdanau": "B AA1 D AH0 N AW0",
}
Step = Callable[[int], np.ndarray]  # the id just said -> logits[74]


def letters(word: str) -> list[int]:
    return SAY["letters"](word)  # type: ignore[no-any-return]


def greedy(step: Step) -> str:
    """At most 20 sounds, from `<s>` to `</s>`."""
    said: list[int] = []
    last = START
    while len(said) < 20 and (last := int(step(last).argmax())) != END:
        said.append(last)
    return " ".join(SAY["SOUNDS"][n] for n in said)


class Reference:
    """The archive's model in float64, one vector at a time."""

    def __init__(self, archive: Path) -> None:
        with np.load(archive, allow_pickle=False) as arrays:
            self.w = {name: array.astype(np.float64) for name, array in arrays.items()}

    def cell(self, side: str, id_: int, h: np.ndarray) -> np.ndarray:
        w = self.w
        x = w[f"{side}_emb"][id_]
        xr, xz, xn = np.split(w[f"{side}_w_ih"] @ x + w[f"{side}_b_ih"], 3)
        hr, hz, hn = np.split(w[f"{side}_w_hh"] @ h + w[f"{side}_b_hh"], 3)
        r, z = 1 / (1 + np.exp(-(xr + hr))), 1 / (1 + np.exp(-(xz + hz)))
        return (1 - z) * np.tanh(xn + r * hn) + z * h

    def start(self, ids: Iterable[int]) -> Step:
        h = np.zeros(256)
        for n in ids:
            h = self.cell("enc", n, h)

        def step(n: int) -> np.ndarray:
            nonlocal h
            h = self.cell("dec", n, h)
            return self.w["fc_w"] @ h + self.w["fc_b"]

        return step


@pytest.fixture(scope="module")
def reference(g2p_archive: Path) -> Reference:
    return Reference(g2p_archive)


@pytest.fixture(scope="module")
def weights(g2p_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("g2p") / "g2p.safetensors"
    runpy.run_path(str(EXAMPLE / "convert.py"))["convert"](str(g2p_archive), str(file))
    return file


@pytest.fixture(scope="module")
def model(weights: Path) -> torch.nn.Module:
    return seqspec.to_torch(EXAMPLE / "spec.yaml", weights=weights).eval()


@pytest.fixture(scope="module")
def session(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> seqspec.Session:
    out = tmp_path_factory.mktemp("g2p") / "out"
    return seqspec.Session(seqspec.to_onnx(EXAMPLE / "spec.yaml", out, weights=weights))


@pytest.mark.parametrize("word", WORDS)
def test_the_reference_says_the_words(reference: Reference, word: str) -> None:
    assert greedy(reference.start(letters(word))) == WORDS[word]


@pytest.mark.parametrize("word", WORDS)
def test_torch_says_the_words(model: torch.nn.Module, word: str) -> None:
    past = None

    def step(last: int) -> np.ndarray:
        nonlocal past
        with torch.no_grad():
            first = {} if past else {"input_ids": torch.tensor([letters(word)])}
            out = model(**first, decoder_input_ids=torch.tensor([[last]]), state=past)
        past = out.state
        return out.logits[0, -1].numpy()

    assert greedy(step) == WORDS[word]


@pytest.mark.parametrize("word", WORDS)
def test_onnx_says_the_words(session: seqspec.Session, word: str) -> None:
    past = None

    def step(last: int) -> np.ndarray:
        nonlocal past
        first = {} if past else {"input_ids": [letters(word)]}
        out = session.run({**first, "decoder_input_ids": [[last]]}, past)
        past = out.state
        return out["logits"][0, -1]

    assert greedy(step) == WORDS[word]


def test_all_words_in_one_batch(session: seqspec.Session) -> None:
    assert SAY["say"](session, list(WORDS)) == list(WORDS.values())


@pytest.mark.parametrize("word", ["a", "bahdanau", "x" * 40, "naïve"])
def test_logits_are_the_reference_s(
    reference: Reference, model: torch.nn.Module, session: seqspec.Session, word: str
) -> None:
    """Fed sounds that no model would say, all at once: torch and ONNX against float64."""
    fed = [START, *np.random.default_rng(0).integers(4, 74, 30).tolist()]
    step = reference.start(letters(word))
    expected = np.stack([step(n) for n in fed])
    ids = {"input_ids": np.array([letters(word)]), "decoder_input_ids": np.array([fed])}
    with torch.no_grad():
        through_torch = model(**{k: torch.from_numpy(v) for k, v in ids.items()}).logits[0].numpy()
    atol = 2e-6 * np.abs(expected).max()
    np.testing.assert_allclose(through_torch, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(session.run(ids)["logits"][0], expected, rtol=0, atol=atol)
