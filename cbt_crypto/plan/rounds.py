"""The order within rounds: random, so that nothing that recurs can keep step with it.

Each round is shuffled by itself. Then, whatever disturbs a campaign and whenever, it is as likely
to hit a configuration as the one beside it, and what a round's difference is taken for has either
sign with the same chance: the argument of a randomised block design (R. A. Fisher, The Design of
Experiments, 1935). A design that also balances places exactly, as Williams's, leaves fewer orders
to draw from, and a disturbance that returns every second round meets them more often in step:
`perf/coverage.py` has both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

NameT = TypeVar("NameT")

#: Seconds that the pauses of one round take at most, all visits together. A cycle of up to two
#: minutes then does not meet the same configuration at the same phase in each round.
PAUSES_S = 60.0
#: Draws of a campaign's order before the last one is taken as it is.
_ATTEMPTS = 2000


def orders(names: Sequence[NameT], rounds: int, seed: int) -> tuple[tuple[NameT, ...], ...]:
    """The order of `names` in each of so many rounds; the same for the same seed.

    More rounds begin with the same ones.
    """
    return tuple(
        tuple(_generator(seed, turn).sample(list(names), len(names))) for turn in range(rounds)
    )


def round_orders(
    groups: Sequence[Sequence[str]], rounds: int, seed: int, baseline: str
) -> list[tuple[str, ...]]:
    """The order of each round, in which those of one group stand together.

    Drawn anew where chance has the baseline before, or behind, the same configuration in every
    round: a drift would be taken for a difference.
    """
    for attempt in range(_ATTEMPTS):
        start = seed + 1009 * attempt
        outer = orders(range(len(groups)), rounds, start)
        inner = [orders(group, rounds, start + 1 + n) for n, group in enumerate(groups)]
        drawn = [
            tuple(name for number in order for name in inner[number][turn])
            for turn, order in enumerate(outer)
        ]
        if _is_balanced(drawn, baseline):
            break
    return drawn


def _is_balanced(rounds: Sequence[tuple[str, ...]], baseline: str) -> bool:
    if len(rounds) < 2 or len(rounds[0]) < 2 or baseline not in rounds[0]:
        return True
    if len(rounds) == 2:
        return any(order[0] != baseline for order in rounds)
    behind: list[set[str]] = [
        {name for name in order if order.index(name) > order.index(baseline)} for order in rounds
    ]
    others = set(rounds[0]) - {baseline}
    return all(0 < sum(name in earlier for earlier in behind) < len(rounds) for name in others)


def pause_s(seed: int, turn: int, name: str, visits: int, longest: float = PAUSES_S) -> float:
    """Seconds to wait before a configuration is measured in a round of so many visits."""
    return round(_generator(seed, turn, name).uniform(0, _longest_pause_s(visits, longest)), 1)


def usual_pause_s(visits: int, longest: float = PAUSES_S) -> float:
    """The same on the average."""
    return _longest_pause_s(visits, longest) / 2


def _longest_pause_s(visits: int, longest: float) -> float:
    return min(PAUSES_S / max(visits, 1), longest)


def _generator(*of: object) -> random.Random:
    return random.Random(" ".join(map(str, of)))
