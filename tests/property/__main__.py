"""The long form: `python -m tests.property --examples 2000` prints a table, and what each failure shrinks to."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch

from . import of_compile, of_loss, of_onnx, of_order, of_torch
from .case import Case
from .rounds import ROUND, Property, examples, shrink

PROPERTIES = (
    *of_torch.PROPERTIES,
    *of_order.PROPERTIES,
    *of_loss.PROPERTIES,
    *of_onnx.PROPERTIES,
    *of_compile.PROPERTIES,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="how many specs, each with a batch")
    parser.add_argument("--seed", type=int, default=1000, help="the number of the first round of ten")
    parser.add_argument("--only", default="", help="properties whose name has this in it")
    parser.add_argument("--as-drawn", action="store_true", help="make no failure smaller")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [p for p in PROPERTIES if arguments.only in p.name]
    rounds = range(arguments.seed, arguments.seed + -(-arguments.examples // ROUND))
    table = {p: _Row() for p in chosen}
    refused: list[str] = []
    for number in rounds:
        try:
            drawn = examples(number)
        except Exception as error:  # a spec that was to be valid, and the rest of its round
            refused.append(f"\n==== round {number} cannot be drawn: {type(error).__name__}: {error}")
            refused += getattr(error, "__notes__", ())
            continue
        for case in drawn:
            for prop in chosen:
                table[prop].add(prop, case, number)
        print(f"\r{(number - arguments.seed + 1) * ROUND} examples", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{'property':34}{'examples':>9}{'failures':>9}{'worst error':>13}{'seconds':>9}")
    for prop, row in table.items():
        print(f"{prop.name:34}{row.count:9}{row.failures.total():9}{row.worst:13.3g}{row.seconds:9.1f}")
    print(*refused, sep="\n")
    failed = [(prop, row) for prop, row in table.items() if row.failures]
    for prop, row in failed:
        print(f"\n==== {prop.name}: fails in rounds {dict(row.failures)}", *row.told, sep="\n")
        if arguments.as_drawn:
            continue
        try:
            shrink(prop, row.failures.most_common(1)[0][0])
        except Exception as error:
            print("\nmade smaller:", f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n")
    return 1 if failed or refused else 0


class _Row:
    """One property's line of the table."""

    def __init__(self) -> None:
        self.count, self.worst, self.seconds = 0, 0.0, 0.0
        self.failures: Counter[int] = Counter()
        self.told: list[str] = []

    def add(self, prop: Property, case: Case, number: int) -> None:
        begun = time.perf_counter()
        try:
            error = prop.check(case)
        except Exception as fault:
            self.failures[number] += 1
            self.told.append(f"\n-- round {number}: {type(fault).__name__}: {fault}\n{case.spec.text}{case.batch}")
        else:
            self.count += error is not None
            self.worst = max(self.worst, error or 0.0)
        self.seconds += time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
