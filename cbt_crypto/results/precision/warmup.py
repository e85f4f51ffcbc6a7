"""Where the warm-up at the start of a series ends, by White's rule (MSER).

The rule leaves out as many first values as make the standard error of the rest's mean least: a
value that belongs to the warm-up adds more to the spread than its number takes from the error
(K. P. White, "An effective truncation heuristic for bias reduction in simulation output",
Simulation 69(6), 1997). It is used on means over a second, as MSER-5 is on means of five values.
"""

from __future__ import annotations

from collections.abc import Sequence


def warmup(series: Sequence[float]) -> int:
    """How many values to leave out at the start; at most half of them.

    A series whose first half is all warm-up is too short to tell; half of it is left out then.
    """
    length = len(series)
    best, least = 0, float("inf")
    total = squares = 0.0
    # From the end, so that each rest is the one before it and one value more.
    shift = series[-1] if length else 0.0
    for start in range(length - 1, -1, -1):
        value = series[start] - shift
        total += value
        squares += value * value
        rest = length - start
        error = max(squares - total * total / rest, 0.0) / rest**2
        # of equals the earliest, which keeps most
        if 2 * start <= length and rest > 1 and error <= least:
            best, least = start, error
    return best
