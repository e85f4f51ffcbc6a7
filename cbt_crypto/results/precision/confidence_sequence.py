"""A 95 % interval of a mean that holds however often one looks, and whenever one stops.

A Student interval is right for a number of values that was fixed before. Who looks after every
value, and stops when he likes what he sees, is wrong far more often than one time in twenty. The
intervals here are a confidence sequence: with a chance of 95 % *all* of them, from the first to
the last, contain the mean. It is the one that Wang and Ramdas derive for a normal mean with an
unknown variance, from the likelihood ratio that no scale changes, mixed over effects by a normal
distribution ("Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
variance", arXiv:2310.03722, after Lai 1976).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cbt_crypto.results.precision.repetition import ALPHA

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
