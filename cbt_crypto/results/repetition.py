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


#: Variance of the effects, in standard deviations of one value, that the ratio is mixed over.
#: Fixed once and for all; with 3 the intervals of 5 to 100 values are about as narrow as they get.
_MIXTURE = 3.0
#: With fewer values no resemblance of neighbours can be told from chance.
_FEWEST_FOR_LIKENESS = 8
#: One-sided 5 % point of the normal distribution.
_LIKENESS = 1.645


@dataclass(frozen=True)
class Interval:
    """`center` +- `half`, from `count` values; `half` is infinite while they say nothing.

    Where neighbours were alike, `batch` of them were first made one.
    """

    center: float
    half: float
    count: int
    batch: int = 1


def boundary(count: int) -> float:
    """Half the interval of `count` values, in their standard deviation over sqrt(count).

    It follows from the mixed likelihood ratio's being below 1/ALPHA, solved for t:
    sqrt(1/k) * ((1 + t2/v) / (1 + t2/(v*k))) ** (count/2), v = count - 1, k = 1 + count*_MIXTURE.
    """
    if count < 2:
        return math.inf
    k = 1 + count * _MIXTURE
    a = (k / ALPHA**2) ** (1 / count)
    return math.sqrt((count - 1) * (a - 1) / (1 - a / k)) if a < k else math.inf


def interval(values: Sequence[float]) -> Interval:
    """The interval of the mean of values in the order in which they were measured.

    Neighbours that are alike would make it too narrow: they are put together until they are not.
    """
    means, batch = unlike(values)
    count = len(means)
    center = sum(values) / len(values) if values else math.nan
    if count < 2:
        return Interval(center, math.inf, count, batch)
    deviation = math.sqrt(_squares(means) / (count - 1))
    return Interval(center, boundary(count) * deviation / math.sqrt(count), count, batch)


def p_value(values: Sequence[float]) -> float:
    """The chance of such values, ever, where the mean is 0: the sequence's own verdict.

    It is at most ALPHA exactly where `interval` leaves 0 out.
    """
    means, _ = unlike(values)
    count = len(means)
    squares = _squares(means) if count > 1 else 0.0
    mean = sum(values) / len(values) if values else 0.0
    if count < 2 or (squares == 0 and mean == 0):
        return 1.0
    if squares == 0:
        return p_of_t(math.inf, count)
    return p_of_t(abs(mean) * math.sqrt(count * (count - 1) / squares), count)


def p_of_t(t: float, count: int) -> float:
    """The chance of such a mean of `count` values, ever: `t` is its distance in standard errors."""
    k = 1 + count * _MIXTURE
    share = t**2 / (count - 1)
    # the likelihood ratio at an infinite t is finite
    gained = math.log(k) if math.isinf(share) else math.log1p(share) - math.log1p(share / k)
    log_ratio = (gained * count - math.log(k)) / 2
    return min(1.0, math.exp(-log_ratio))


def unlike(values: Sequence[float]) -> tuple[list[float], int]:
    """Means of batches of neighbours, so long that the means do not resemble one another.

    Neighbours are alike when the correlation of each value with the next is greater than chance
    explains in one case of twenty. Too few values are taken as they are.
    """
    means, batch = list(values), 1
    while len(means) >= _FEWEST_FOR_LIKENESS and likeness(means) > _LIKENESS / math.sqrt(
        len(means)
    ):
        # the oldest value is left over: it is the likeliest to be odd
        means = means[len(means) % 2 :]
        means = [(left + right) / 2 for left, right in zip(means[::2], means[1::2])]
        batch *= 2
    return means, batch


def likeness(values: Sequence[float]) -> float:
    """The correlation of each value with the next one; 0 where nothing varies."""
    squares = _squares(values)
    if squares == 0:
        return 0.0
    mean = sum(values) / len(values)
    return sum((a - mean) * (b - mean) for a, b in zip(values, values[1:])) / squares


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


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
