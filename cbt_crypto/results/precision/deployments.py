"""An interval of fixed width from as many deployments as it takes: Stein's, and no narrower.

Who adds deployments until Student's interval is narrow enough ends where chance has them alike,
and is wrong more often than one time in twenty. Stein's interval takes the variance of the first
few deployments alone, and the mean of all: as the mean knows nothing of how far values are apart,
it is right whatever width decides when to end (C. Stein, A two-sample test for a linear hypothesis
whose power is independent of the variance, Annals of Mathematical Statistics 16(3), 1945). Here an
interval is the widest of his and of Student's over all deployments and over all pairs of turns.

That holds where width alone decides. Who may end a campaign because of what it shows needs
`confidence_sequence`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cbt_crypto.results.precision.repetition import student

ValueT = TypeVar("ValueT")

#: The first deployments, which alone say how far deployments are apart. Before these no campaign
#: ends. Three would need more than twice as many in the end, five are more than most need.
FIRST = 4
#: Degrees of freedom that rounds give away for cycles: where each side has deployments of its own,
#: and where one deployment serves both. As many more deployments come first.
_GIVEN_APART, _GIVEN_SHARED = 1, 2
FIRST_APART, FIRST_SHARED = FIRST + _GIVEN_APART, FIRST + _GIVEN_SHARED


@dataclass(frozen=True)
class Spread:
    """The mean of deployments, and what may be taken for its standard error.

    `errors` has (standard error, degrees of freedom) of each: the widest interval counts.
    """

    center: float
    errors: tuple[tuple[float, int], ...]

    @property
    def half(self) -> float:
        """Half the interval at 95 %."""
        return max(error * student(degrees) for error, degrees in self.errors)


def on_one_cluster(
    pairs: Iterable[tuple[int, Hashable, Hashable, ValueT]],
) -> dict[int, list[ValueT]]:
    """The values of pairs side by side, by the number that their deployment was planned with.

    A pair is (that number, the cluster of one side, that of the other, its value). Sides that were
    on different clusters are no pair: days may lie between them. A deployment that broke between
    the two sides counts all the same, as long as most did not.
    """
    whole: dict[int, list[ValueT]] = {}
    broken: dict[int, list[ValueT]] = {}
    for number, own, base, value in pairs:
        (whole if own == base else broken).setdefault(number, []).append(value)
    between = {number: values for number, values in broken.items() if number not in whole}
    if len(between) < len(whole):
        whole.update(between)
    return dict(sorted(whole.items()))


def beside(deployments: Sequence[Sequence[float]]) -> Spread:
    """Of logarithms of a ratio, pair by pair, of each deployment in their order.

    Each deployment has a pair at least. Raises ValueError for fewer than two deployments.
    """
    means = [math.fsum(pairs) / len(pairs) for pairs in deployments]
    errors = _errors(means)
    pairs = [log for logs in deployments for log in logs]
    if len(pairs) > len(means):
        # Deployments can be alike by chance, and turns then are not.
        errors.append((statistics.stdev(pairs) / math.sqrt(len(pairs)), len(pairs) - 1))
    return Spread(math.fsum(means) / len(means), tuple(errors))


def shared(ratios: Sequence[float]) -> Spread:
    """Of one ratio from each round, whose deployment served both sides; of two rounds at least.

    Two degrees of freedom are given away, as a cycle longer than a round makes ratios alike. So
    the first six tell how far deployments are apart: of four, one degree would be left.
    """
    return Spread(math.fsum(ratios) / len(ratios), tuple(_errors(ratios, _GIVEN_SHARED)))


def apart(rounds: Sequence[tuple[float, float]]) -> Spread:
    """Of rounds in which both sides had deployments of their own: (logarithm, the baseline's).

    Of two rounds at least. Rounds differ where a disturbance lasts over several, sides where it
    changes from one deployment to the next: so Welch's error counts beside that of the rounds. A
    degree of freedom of the rounds is given away, as a cycle about as long makes differences.
    """
    row, base = ([pair[side] for pair in rounds] for side in (0, 1))
    of_rounds = _errors([own - other for own, other in rounds], _GIVEN_APART)
    of_sides = [
        (math.hypot(own, other), degrees)
        for (own, degrees), (other, _) in zip(_errors(row), _errors(base))
    ]
    return Spread((math.fsum(row) - math.fsum(base)) / len(rounds), (*of_rounds, *of_sides))


def _errors(values: Sequence[float], given_away: int = 0) -> list[tuple[float, int]]:
    """Standard errors of a mean: by what the first values suggest, and by what all do."""
    count = len(values)
    if count < 2:
        raise ValueError("one deployment tells nothing of the next")
    return [
        (statistics.stdev(part) / math.sqrt(count), max(len(part) - 1 - given_away, 1))
        for part in (values[: FIRST + given_away], values)
    ]
