"""Whether throughput kept its level in a run's window, or a mean is of several levels.

Seconds resemble their neighbours, so tests that take them for independent cry wolf. Two that do
not need to know how long the resemblance lasts are used: Mann and Kendall's for a trend, on the
means of a few long blocks, and Shao and Zhang's for a shift (Testing for Change Points in Time
Series, Journal of the American Statistical Association 105, 2010), whose statistic is divided by
the spread of the series itself on both sides of the place. docs/method.md has how often each is
wrong, and what it sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

import numpy as np

from cbt_crypto.results.cell.record import Floats

#: Of fewer seconds nothing is said.
FEWEST_SECONDS = 30
#: A change of less than this share of the throughput is no matter.
LEAST_CHANGE = 0.05
#: What Shao and Zhang's statistic exceeds by chance once in 1000 times (their table 1, q = 1).
SHIFT_CRITICAL = 121.9
#: A shift is looked for no nearer to an end than this share of the window.
_MARGIN = 0.1
#: Chance of such a trend where there is none.
_TREND_LEVEL = 0.002
_BLOCKS, _LEAST_BLOCK_S = 12, 4


@dataclass(frozen=True)
class Change:
    """From one level to another: `share` of the first; `after_s` is None for a trend."""

    share: float
    after_s: Optional[int]
    #: Sum of squares that a model with this change leaves.
    unexplained: float


def sentences(iops: Floats) -> Iterator[str]:
    """What is to be said of a run's throughput, second by second of its window."""
    change = change_of(iops)
    if change is None:
        return
    word = "rose" if change.share > 0 else "fell"
    size = f"{abs(100 * change.share):.0f} %"
    if change.after_s is None:
        yield (
            f"throughput {word} by {size} over the {len(iops)} s that were measured: "
            "its mean is of no level that lasted"
        )
    else:
        yield (
            f"throughput {word} by {size} after {change.after_s} of {len(iops)} s: its mean is of "
            "two levels"
        )


def change_of(iops: Floats) -> Optional[Change]:
    """The trend or shift that is in a series; of both what explains more."""
    if len(iops) < FEWEST_SECONDS or np.ptp(iops) == 0:
        return None
    changes = [change for change in (_shift(iops), _trend(iops)) if change is not None]
    large = [change for change in changes if abs(change.share) > LEAST_CHANGE]
    return min(large, key=lambda one: one.unexplained, default=None)


def _shift(iops: Floats) -> Optional[Change]:
    statistic, place = largest_shift(iops)
    before, after = iops[:place], iops[place:]
    if statistic <= SHIFT_CRITICAL or before.mean() <= 0:
        return None
    unexplained = len(before) * before.var() + len(after) * after.var()
    return Change(float(after.mean() / before.mean() - 1), place, float(unexplained))


def largest_shift(series: Floats) -> tuple[float, int]:
    """Shao and Zhang's statistic, and the number of values before the place of the largest."""
    length = len(series)
    ends = np.arange(1, length)
    forward = np.cumsum(series - series.mean())
    backward = np.cumsum((series - series.mean())[::-1])
    spread = _spread(forward)[:-1] + _spread(backward)[:-1][::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = length * forward[:-1] ** 2 / spread
    margin = int(np.ceil(_MARGIN * length))
    allowed = (ends >= margin) & (ends <= length - margin)
    # without any spread on both sides the two levels are all that there is
    ratio = np.where(spread > 0, ratio, np.where(forward[:-1] == 0, 0.0, np.inf))
    place = int(np.argmax(np.where(allowed, ratio, 0.0)))
    return float(ratio[place]), int(ends[place])


def _spread(sums: Floats) -> Floats:
    """For each number of values k, the sum over t <= k of (S_t - t/k S_k) squared."""
    count = np.arange(1, len(sums) + 1)
    squares, crossed = np.cumsum(sums**2), np.cumsum(count * sums)
    spread: Floats = squares - 2 * sums / count * crossed
    spread += (sums / count) ** 2 * np.cumsum(count**2)
    # what is left of differences of large numbers is no spread
    return np.where(spread > 1e-9 * squares, spread, 0.0)


def _trend(iops: Floats) -> Optional[Change]:
    from scipy.stats import kendalltau, theilslopes  # noqa: PLC0415 - takes long to import

    number = min(_BLOCKS, len(iops) // _LEAST_BLOCK_S)
    block = len(iops) // number
    means = iops[len(iops) - number * block :].reshape(number, block).mean(axis=1)
    at = np.arange(number)
    slope, intercept, *_ = theilslopes(means, at)
    first, last = intercept - slope / 2, intercept + slope * (number - 0.5)
    # the test takes far longer than this
    if first <= 0 or abs(last / first - 1) <= LEAST_CHANGE:
        return None
    if kendalltau(at, means).pvalue > _TREND_LEVEL:
        return None
    line = np.polynomial.Polynomial.fit(np.arange(len(iops)), iops, 1)
    unexplained = float(np.sum((iops - line(np.arange(len(iops)))) ** 2))
    return Change(float(last / first - 1), None, unexplained)
