"""How words sound, by the compiled model.

python examples/g2p/say.py bahdanau gloompf --model out/g2p
"""

import argparse

import numpy as np

import seqspec

LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
SOUNDS = """
<pad> <unk> <s> </s> AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH EH0 EH1 EH2 ER0
ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH UH0 UH1 UH2 UW
UW0 UW1 UW2 V W Y Z ZH
""".split()  # noqa: SIM905
START, END = SOUNDS.index("<s>"), SOUNDS.index("</s>")


def letters(word: str) -> list[int]:
    """The ids of a word: its letters and the end mark."""
    return [LETTERS.index(c if c in LETTERS else "<unk>") for c in [*word.lower(), "</s>"]]


def sounds(ids: np.ndarray) -> str:
    """What was generated, up to the end mark."""
    row = [int(n) for n in ids]
    return " ".join(SOUNDS[n] for n in row[: row.index(END) if END in row else None])


def say(session: seqspec.Session, words: list[str], beams: int = 1) -> list[str]:
    """All words in one batch, greedily or by beam search, at most 20 sounds each."""
    ids = [letters(word) for word in words]
    made = session.generate(ids, decoder_start_id=START, eos_id=END, max_new_tokens=20, num_beams=beams)
    return [sounds(row) for row in made]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--model", required=True, metavar="DIR", help="what `seqspec compile --to onnx` wrote")
    parser.add_argument("--beams", type=int, default=1, metavar="K", help="how many texts a beam search keeps")
    args = parser.parse_args()
    for word, said in zip(args.words, say(seqspec.Session(args.model), args.words, args.beams), strict=True):
        print(f"{word}: {said}")


if __name__ == "__main__":
    main()
