"""The order within rounds: random, and balanced, so that no configuration is always first.

A Williams design: in each set of rounds every configuration stands in every place equally often,
and follows every other one equally often (E. J. Williams, "Experimental designs balanced for the
estimation of residual effects of treatments", Australian Journal of Scientific Research A2, 1949).
Which configuration is which letter of the design, and the order of its rounds, are drawn anew for
each set.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

NameT = TypeVar("NameT")


def orders(names: Sequence[NameT], rounds: int, seed: int) -> tuple[tuple[NameT, ...], ...]:
    """The order of `names` in each of so many rounds; the same for the same seed.

    More rounds begin with the same ones.
    """
    generator = random.Random(seed)
    made: list[tuple[NameT, ...]] = []
    while len(made) < rounds:
        letters = generator.sample(list(names), len(names))
        rows = _williams(len(names))
        generator.shuffle(rows)
        made += [tuple(letters[place] for place in row) for row in rows]
    return tuple(made[:rounds])


def _williams(count: int) -> list[list[int]]:
    """`count` rows where that is even, else twice as many, of the numbers below it."""
    # 0, 1, n-1, 2, n-2, ...: all differences of neighbours are there once
    first = [(n + 1) // 2 if n % 2 else -(n // 2) % count for n in range(count)]
    rows = [[(place + shift) % count for place in first] for shift in range(count)]
    if count % 2 and count > 1:
        rows += [row[::-1] for row in rows]
    return rows
