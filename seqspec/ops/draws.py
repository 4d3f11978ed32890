"""A counter-based pseudorandom function with the same results in Python, NumPy, PyTorch and ONNX."""

from __future__ import annotations

PRIME = 2**31 - 1
"""The modulus: squares of smaller numbers fit into 63 bits."""


def factors(seed: int, draw: int) -> tuple[int, int, int]:
    """Three numbers from 1 to PRIME − 1 for each seed and draw, by a hash that never changes."""
    from hashlib import sha256

    digest = sha256(f"{seed}:{draw}".encode()).digest()
    first, second, third = (1 + int.from_bytes(digest[at : at + 8], "big") % (PRIME - 1) for at in (0, 8, 16))
    return first, second, third


def scatter(seed: int, draw: int, number: int) -> int:
    """A number from 0 to PRIME − 1: ((a · number + b)² + c)², modulo PRIME."""
    a, b, c = factors(seed, draw)
    once = (a * number + b) % PRIME
    return ((once * once + c) % PRIME) ** 2 % PRIME
