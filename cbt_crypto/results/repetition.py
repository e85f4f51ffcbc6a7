"""An interval of fixed width from as many deployments as it takes: Stein's, and no narrower.

Student's is wrong too often where its width decides when to end. Stein's takes the variance of the
first deployments alone, and the mean of all (Annals of Mathematical Statistics 16(3), 1945). Here
an interval is the widest of his and of Student's over all deployments and all pairs of turns.
To end by what is shown, and not by width, needs `confidence_sequence`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

#: Pairs of turns from which on turns on one cluster carry a verdict: with fewer, a disturbance
#: that keeps step puts all of them on one side in more than one case of twenty.
FEWEST_PAIRS = 6
#: Rounds from which on they carry a verdict. Two and three have an interval, as wide as it is, and
#: none: one configuration whose deployments have two levels has three of one in a case of four.
FEWEST_ROUNDS = 4
#: The chance that a single interval leaves the truth out.
ALPHA = 0.05
#: The chance that any difference of a figure that is shown in a report is none, by the rule. What
#: the rule does not know of, as cycles, doubles it at most: 0.04 had 6.3 % in perf/trial.py.
VERDICT = 0.03
#: Degrees of freedom that a verdict gives away, as a cycle about as long as a round makes rounds
#: alike; where one deployment serves both sides, as its rounds are short, another one.
GIVEN, GIVEN_SHARED = 1, 2
#: Student's t at 97.5 % for 1 degree of freedom and more. The nodes that plan have no scipy.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)


def half_of_rounds(rounds: int) -> float:
    """Half an interval of a ratio, in standard deviations between rounds."""
    return student(rounds - 1) / math.sqrt(rounds)


def borrowed(comparisons: int) -> float:
    """What the other comparisons of a figure count beside a comparison's own deployments.

    In degrees of freedom: the fewer there are, the likelier all of them are unlike the noisy one.
    """
    return min(comparisons / 2, 1 + comparisons / 4, 12.0)


def loss_seen(rounds: int, comparisons: int, spread: float, is_shared: bool = False) -> float:
    """The smallest loss, as a share, that a verdict will show in nine campaigns of ten.

    `spread` is by how much the logarithm of a ratio differs from round to round. Of several
    `comparisons`, the first to be shown needs the smallest chance of all (Holm).
    """
    given = GIVEN_SHARED if is_shared else GIVEN
    degrees = rounds - 1 - given + borrowed(comparisons)
    error = spread / math.sqrt(rounds)
    needed = max(quantile(degrees, VERDICT / comparisons / 2), quantile(rounds - 1, ALPHA / 2))
    return -math.expm1(-error * (needed + quantile(degrees, 0.1)))


def quantile(degrees: float, tail: float) -> float:
    """Student's t above which so small a chance lies. The nodes that plan have no scipy.

    (G. W. Hill, Algorithm 396, Communications of the ACM 13(10), 1970.)
    """
    both = 2 * tail
    if degrees <= 2:
        return math.sqrt(2 / (both * (2 - both)) - 2)
    a = 1 / (degrees - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * degrees
    x = d * both
    y = x ** (2 / degrees)
    if y > 0.05 + a:
        x = statistics.NormalDist().inv_cdf(tail)
        y = x**2
        if degrees < 5:
            c += 0.3 * (degrees - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y**2)
    else:
        y = ((1 / (((degrees + 6) / (degrees * y) - 0.089 * d - 0.822) * (degrees + 2) * 3)
              + 0.5 / (degrees + 4)) * y - 1) * (degrees + 1) / (degrees + 2) + 1 / y  # fmt: skip
    return math.sqrt(degrees * y)


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
    deviation = math.sqrt(variance(means))
    return Interval(center, boundary(count) * deviation / math.sqrt(count), count, batch)


def p_of_t(t: float, count: int) -> float:
    """The chance of such a mean of `count` values, ever: `t` is its distance in standard errors."""
    k = 1 + count * _MIXTURE
    share = t**2 / (count - 1)
    # the likelihood ratio at an infinite t is finite
    gained = math.log(k) if math.isinf(share) else math.log1p(share) - math.log1p(share / k)
    return min(1.0, math.exp((math.log(k) - gained * count) / 2))


def unlike(values: Sequence[float]) -> tuple[list[float], int]:
    """Means of batches of neighbours, long enough that the means do not resemble one another.

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


def variance(values: Sequence[float]) -> float:
    """Of at least two values."""
    return _squares(values) / (len(values) - 1)


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


ValueT = TypeVar("ValueT")

#: The first deployments, which alone say how far deployments are apart. Before these no campaign
#: ends. Three would need more than twice as many in the end, five are more than most need.
FIRST = 4


@dataclass(frozen=True)
class Spread:
    """The mean of the rounds' ratios, the variance of one, and what may be the mean's error.

    `errors` has (standard error, degrees of freedom) of each: the widest interval counts.
    """

    center: float
    variance: float
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
    on different clusters are no pair; a deployment that broke counts, as long as most did not.
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
    """Of logarithms of a ratio, pair by pair, of each deployment in their order."""
    means = [(math.fsum(pairs) / len(pairs), 0.0) for pairs in deployments]
    return of_rounds(means, least=least_of(deployments))


def least_of(deployments: Sequence[Sequence[float]]) -> float:
    """The least variance of a deployment's mean: what its turns differ by is in it.

    Deployments can be alike by chance, and turns then are not.
    """
    pairs = [log for logs in deployments for log in logs]
    return variance(pairs) * len(deployments) / len(pairs) if len(pairs) > 1 else 0.0


def of_rounds(
    rounds: Sequence[tuple[float, float]], until: bool = True, least: float = 0.0
) -> Spread:
    """Of (logarithm, the baseline's) of each round, in their order.

    The larger variance counts: of rounds, or of sides. `until`: width may end the campaign, for
    which the first rounds' variance is right (Stein). No variance of a round is below `least`.
    Raises ValueError for fewer than two rounds.
    """
    count = len(rounds)
    if count < 2:
        raise ValueError("one deployment tells nothing of the next")
    ratios = [own - base for own, base in rounds]
    parts = [rounds, rounds[:FIRST]] if until and count > FIRST else [rounds]
    variances = [(max(_variance(part), least), len(part) - 1) for part in parts]
    errors = tuple((math.sqrt(variance / count), degrees) for variance, degrees in variances)
    return Spread(math.fsum(ratios) / count, max(variances)[0], errors)


def _variance(rounds: Sequence[tuple[float, float]]) -> float:
    sides = math.fsum(variance(side) for side in zip(*rounds))
    return max(variance([own - base for own, base in rounds]), sides)
