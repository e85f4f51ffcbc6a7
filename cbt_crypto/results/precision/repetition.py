"""How much repetition a verdict takes, and what it buys."""

from __future__ import annotations

import math

#: Pairs of blocks from which on turns on one cluster carry a verdict: with fewer, a disturbance
#: that keeps step puts all of them on one side in more than one case of twenty.
FEWEST_PAIRS = 6
#: Rounds from which on they carry a verdict. Two and three have an interval, as wide as it is, and
#: none: see `fluke`.
FEWEST_ROUNDS = 4
#: The chance that any difference that is shown is none.
ALPHA = 0.05
#: Student's t at 97.5 % for 1 degree of freedom and more. The nodes that plan have no scipy.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)


def fluke(deployments: int) -> float:
    """The chance that so many deployments, of two sides together, differ by side and by no more.

    Deployments may have two levels, as a good and a bad draw of placement groups, or a second's
    stall that a run meets or does not. Of two sides with three each, one in 32 pairs has all of one
    on one level and all of the other on the other. No variance tells of it, as there is none.
    """
    return 2.0 ** (1 - deployments)


def rounds_for(comparisons: int) -> int:
    """The fewest rounds in which each of so many comparisons can be shown to differ, beside all."""
    rounds = FEWEST_ROUNDS
    while fluke(2 * rounds) > ALPHA / max(comparisons, 1):
        rounds += 1
    return rounds


def half_of_rounds(rounds: int) -> float:
    """Half an interval of a ratio, in standard deviations between deployments."""
    return student(rounds - 1) * math.sqrt(2 / rounds)


def student(degrees: int) -> float:
    """Student's t at 97.5 %, to two in a thousand."""
    return _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.6 / degrees
