"""How much of a gradient arrives: its norm at an input d steps before the output, for RNN, LSTM and GRU as they start.

    python examples/vanishing_gradient.py --output vanishing_gradient.svg

∂h'/∂h of a plain RNN is diag(1 − h'²) U, and a product of many such matrices vanishes. The gates of an LSTM
(c' = f c + …) and of a GRU (h' = (1 − z) n + z h) leave a way on which f and z are multiplied instead.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from math import floor, log10
from pathlib import Path

import torch

import seqspec

LAYERS = {
    "rnn": "{kind: rnn, hidden_size: 64}",
    "lstm": "{kind: lstm, hidden_size: 64, forget_bias: 1}",
    "gru": "{kind: gru, hidden_size: 64}",
}
SPEC = """
seqspec: 1
name: vanishing
encoder:
  input: {{kind: features, size: 16}}
  layers: [{layer}]
"""
COLOURS = {"rnn": "#c0392b", "lstm": "#2471a3", "gru": "#1e8449"}


def norms(kind: str, length: int, seed: int, rows: int = 32) -> list[float]:
    """At distance d = 0, 1, …: the norm of ∂(r · h at the end) / ∂(x d steps before), r random, as a mean over rows."""
    model = seqspec.to_torch(SPEC.format(layer=LAYERS[kind]), seed=seed).double()
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, length, 16, generator=draw, dtype=torch.float64, requires_grad=True)
    last = model(x).last_hidden_state[:, -1]
    (last * torch.randn(last.shape, generator=draw, dtype=torch.float64)).sum().backward()
    assert x.grad is not None
    found: list[float] = x.grad.norm(dim=2).mean(0).flip(0).tolist()
    return found


def table(found: Mapping[str, Sequence[float]]) -> str:
    """A line for each distance that is 0 or a power of 2, relative to distance 0."""
    length = len(next(iter(found.values())))
    distances = [0, *(2**k for k in range(length.bit_length()) if 2**k < length)]
    lines = ["distance" + "".join(f"{kind:>12}" for kind in found)]
    lines += [f"{d:8}" + "".join(f"{row[d] / row[0]:12.2e}" for row in found.values()) for d in distances]
    return "\n".join(lines)


def plot(found: Mapping[str, Sequence[float]], width: int = 640, height: int = 360) -> str:
    """An SVG of the same on a logarithmic axis."""
    left, right, top, bottom = 64, 60, 24, 48
    relative = {kind: [log10(max(v / row[0], 1e-300)) for v in row] for kind, row in found.items()}
    last = max(len(row) for row in relative.values()) - 1
    low = floor(min(map(min, relative.values())))

    def at(distance: float, power: float) -> tuple[float, float]:
        return left + (width - left - right) * distance / last, top + (height - top - bottom) * power / low

    parts = [f'<rect width="{width}" height="{height}" fill="white"/>']
    for power in range(0, low - 1, -max(1, -low // 6)):
        (x, y), end = at(0, power), at(last, power)[0]
        parts.append(f'<line x1="{x}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    for distance in range(0, last + 1, max(1, last // 8)):
        x = at(distance, 0)[0]
        parts.append(f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{distance}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">steps back from the output</text>')
    parts.append(f'<text x="{left}" y="14">norm of the gradient, relative to its last step</text>')
    for kind, row in relative.items():
        points = " ".join("{:.1f},{:.1f}".format(*at(d, power)) for d, power in enumerate(row))
        x, y = at(last, row[-1])
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[kind]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 6:.1f}" y="{y:.1f}" fill="{COLOURS[kind]}">{kind.upper()}</text>')
    style = 'font-family="sans-serif" font-size="12"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>\n{body}\n</svg>\n'


def main(argv: Sequence[str] | None = None) -> dict[str, list[float]]:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=65, help="how many steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("vanishing_gradient.svg"), metavar="FILE")
    args = parser.parse_args(argv)
    found = {kind: norms(kind, args.length, args.seed) for kind in LAYERS}
    print(table(found))
    args.output.write_text(plot(found))
    print(f"drawn in {args.output}")
    return found


if __name__ == "__main__":
    main()
