"""How much repetition a verdict takes, and what it buys."""

from __future__ import annotations

import math

#: Pairs of blocks from which on turns on one cluster carry a verdict: with fewer, a disturbance
#: that keeps step puts all of them on one side in more than one case of twenty.
FEWEST_PAIRS = 6
#: Rounds from which on they carry a verdict. Two have an interval, as wide as it is, and none:
#: what differs by two levels, as with a neighbour that comes and goes, is level twice by chance.
FEWEST_ROUNDS = 3
#: Student's t at 97.5 % for 1 degree of freedom and more. The nodes that plan have no scipy.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)


def half_of_rounds(rounds: int) -> float:
    """Half an interval of a ratio, in standard deviations between deployments."""
    return student(rounds - 1) * math.sqrt(2 / rounds)


def student(degrees: int) -> float:
    """Student's t at 97.5 %, to two in a thousand."""
    return _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.6 / degrees
