"""Cycles in a run's latency, and what of its hosts works in the same cycle.

A comb of the periodogram's peaks (harmonic sums: Buccheri and others' Z2m, 1983) is judged against
series of AR(1) (Torrence and Compo, 1998), whose residuals are drawn anew: latencies have tails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import numpy as np

from cbt_crypto.results.cell.record import Floats
from cbt_crypto.results.cell.within_run import LONGEST_S

#: A cycle has at least this many periods in a run: two spikes alone would make one of fewer.
_PERIODS = 4
_FEWEST_SECONDS = 40
#: The least share of a run's seconds that have a latency.
_KNOWN = 0.9
#: Overtones that are added up: 1 shows a wave best, 8 shows spikes of an eighth of their period.
_COMBS = (1, 3, 8)
#: Steps of a period for each of the periodogram's own, as overtones would drift off between those.
_FINER = 2
#: Spikes are cut at this many standard deviations, which are taken from the middle half of values.
_HIGHEST = 6.0
_DRAWS = 199
#: What exceeds the logarithm of the number of frequencies by less than this is mostly noise.
_WORTH_DRAWS = 1.5
#: A whole period resembles the best of its multiples at least by this share.
_AS_ALIKE = 0.3
_SEED = 20241124
#: At most one run in a hundred without a cycle is said to have one.
_LEVEL = 0.01
#: Two periods that differ by less are one cycle.
ALIKE = 0.15
#: Threads share a cycle only where their use differs by this many cores between seconds.
_MOVES_CORES = 0.05


@dataclass(frozen=True)
class Cycle:
    """A cycle of `period_s` in the latency of one direction, and the classes that share it."""

    direction: str
    period_s: float
    shared: tuple[str, ...] = ()


def cycle_of(direction: str, latency: Floats, beside: Mapping[str, Floats]) -> Optional[Cycle]:
    """The cycle in a latency for each second, NaN where there was none; None without one.

    `beside` has cores for each second of the classes of threads that may share it.
    """
    period = period_of(latency)
    if period is None:
        return None
    moving = {name: v for name, v in beside.items() if _range(v) >= _MOVES_CORES}
    periods = {name: period_of(values) for name, values in moving.items()}
    shared = [name for name, other in periods.items() if other and is_alike(other, period)]
    return Cycle(direction, round(period, 1), tuple(shared))


def is_alike(period: float, other: float) -> bool:
    """Whether two periods are one cycle's."""
    return abs(period / other - 1) < ALIKE


def period_of(values: Floats) -> Optional[float]:
    """The period in seconds of the only cycle that chance does not explain; None without one."""
    known = np.isfinite(values)
    length = len(values)
    if not _FEWEST_SECONDS <= length <= LONGEST_S:
        return None
    if known.mean() < _KNOWN or np.ptp(values[known]) == 0:
        return None
    seconds = np.arange(length)
    series = _even(np.interp(seconds, seconds[known], values[known])[np.newaxis, :])
    memory = float(np.clip(series[0, 1:] @ series[0, :-1] / length, 0.0, 0.95))
    expected = _expected(memory, length)
    if _combed(_power(series), expected).max() < math.log(len(expected)) + _WORTH_DRAWS:
        return None
    draws = _power(_even(_without_order(series[0], memory)))
    noise = draws.mean(axis=0)
    combs, highest = _combed(_power(series), noise), _combed(draws, noise).max(axis=1)
    best = int(combs[0].argmax())
    if (1 + np.count_nonzero(highest >= combs[0, best])) / (1 + _DRAWS) > _LEVEL:
        return None
    return _whole(_FINER * length / (best + _PERIODS * _FINER), series[0], memory)


def _whole(part: float, series: Floats, memory: float) -> float:
    """The period of which `part` may be an overtone's: after it a series resembles itself most."""
    rest = series[1:] - memory * series[:-1]
    power = np.abs(np.fft.rfft(rest, 2 * len(rest))) ** 2
    alike = np.fft.irfft(power)[: len(rest)]
    periods = part * np.arange(1, max(int(len(rest) / _PERIODS / part), 1) + 1)
    # Of 10.5 s half of the spikes come after 10 and half after 11.
    after = np.maximum(alike[np.floor(periods).astype(int)], alike[np.ceil(periods).astype(int)])
    return float(periods[np.flatnonzero(after >= _AS_ALIKE * after.max())[0]])


def _range(values: Floats) -> float:
    """Without the highest and lowest twentieth: one busy second is no cycle."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low)


def _even(rows: Floats) -> Floats:
    """Rows without a line through them and without extremes, of mean 0 and variance 1."""
    seconds = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    rows = rows - np.outer(rows @ seconds / (seconds @ seconds), seconds)
    low, middle, high = np.quantile(rows, (0.25, 0.5, 0.75), axis=1)[:, :, np.newaxis]
    reach = _HIGHEST * np.maximum((high - low) / 1.35, 1e-3 * rows.std(axis=1, keepdims=True))
    rows = np.clip(rows, middle - reach, middle + reach)
    rows = rows - rows.mean(axis=1, keepdims=True)
    even: Floats = rows / np.maximum(rows.std(axis=1, keepdims=True), 1e-12)
    return even


def _expected(memory: float, length: int) -> Floats:
    """The mean periodogram of AR(1) of variance 1."""
    angles = np.linspace(0, np.pi, _FINER * length // 2 + 1)
    return length * (1 - memory**2) / (1 - 2 * memory * np.cos(angles) + memory**2)


def _without_order(series: Floats, memory: float) -> Floats:
    """Series without a cycle that resemble this one, a row each."""
    residuals = series[1:] - memory * series[:-1]
    length = len(series)
    drawn = np.random.default_rng(_SEED).choice(residuals, (_DRAWS, 2 * length))
    for second in range(1, 2 * length):
        drawn[:, second] += memory * drawn[:, second - 1]
    # The first half is forgotten: it remembers that there was nothing before it.
    return drawn[:, length:]


def _combed(power: Floats, noise: Floats) -> Floats:
    """How far each frequency and its overtones stand out of `noise`, a row each."""
    best = np.full(power.shape, -np.inf)
    sums, counts = np.zeros(power.shape), np.zeros(power.shape[1])
    for overtone in range(1, max(_COMBS) + 1):
        places = np.arange(0, power.shape[1], overtone)
        sums[:, : len(places)] += power[:, places] / noise[places] - 1
        counts[: len(places)] += 1
        if overtone in _COMBS:
            best = np.maximum(best, sums / np.sqrt(counts))
    return best[:, _PERIODS * _FINER :]


def _power(rows: Floats) -> Floats:
    """The periodogram of each row; from the lowest frequencies on that matter it is never 0."""
    power: Floats = np.abs(np.fft.rfft(rows, _FINER * rows.shape[1], axis=1)) ** 2
    return power + 1e-12
