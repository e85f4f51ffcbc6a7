"""The seconds in which all client processes measured, and rates resampled onto them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Optional, Protocol, TypeVar

import numpy as np

from cbt_crypto.archive.files import Problem
from cbt_crypto.results.cell.record import Floats
from cbt_crypto.results.readers.fio_log import FioLog


class Use(Protocol):
    """What a host used over `seconds` of a window."""

    @property
    def seconds(self) -> float:
        """For how long."""


AnyUse = TypeVar("AnyUse", bound=Use)


@dataclass(frozen=True)
class Window:
    """A stretch of time in seconds since the epoch, on the head's clock."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it is; negative when the processes it was made of never ran together."""
        return self.end_s - self.start_s

    def shortfall(self, seconds: float) -> Optional[str]:
        """How many seconds the samples miss, beyond the last one; None if they are enough."""
        if seconds > 0 and seconds >= 0.98 * self.seconds - 1.1:
            return None
        return f"covers {seconds:.0f} of {self.seconds:.0f} s"

    def whole(
        self, host: str, use: Optional[AnyUse], what: str, problems: list[Problem]
    ) -> tuple[AnyUse, ...]:
        """`use`, if samples cover the window; else nothing, and a problem."""
        if shortfall := self.shortfall(use.seconds if use else 0.0):
            problems.append(Problem("", f"{host}: {what} {shortfall}"))
        return () if use is None or shortfall else (use,)

    @property
    def grid_s(self) -> Floats:
        """The edges of its whole seconds, one more than there are seconds."""
        return self.start_s + np.arange(max(int(self.seconds + 1e-6), 0) + 1, dtype=np.float64)


def common(windows: Sequence[Window]) -> Window:
    """The stretch that all of `windows` share."""
    return Window(max(w.start_s for w in windows), min(w.end_s for w in windows))


def start_skew_s(windows: Sequence[Window]) -> float:
    """How long after the first the last one began."""
    starts = [w.start_s for w in windows]
    return max(starts) - min(starts)


def apart_s(windows: Sequence[Window], shared: Window) -> float:
    """How long, at most, one of them was outside of what all of them share."""
    return max(w.seconds for w in windows) - shared.seconds


def counts_per_second(log: FioLog, shift_s: float, interval_s: float, window: Window) -> Floats:
    """IOs in each second of `window`, by one side of an IOPS log shifted to the head's clock.

    An averaged log's entry is the rate since the last, `interval_s` at most; no entry, no IO.
    """
    grid = window.grid_s
    if not len(log.times_ms):
        return np.zeros(len(grid) - 1)
    times = log.times_ms / 1000 + shift_s
    if not log.is_averaged:
        return np.histogram(times, bins=grid)[0].astype(np.float64)
    return np.diff(_cumulative(times, log.values.astype(np.float64), interval_s, grid))


def means_per_second(
    log: FioLog, shift_s: float, interval_s: float, window: Window
) -> tuple[Floats, Floats]:
    """Sums of latency and weights (seconds if averaged, else IOs) by second of the window."""
    grid = window.grid_s
    if not len(log.times_ms):
        empty = np.zeros(len(grid) - 1)
        return empty, empty
    times = log.times_ms / 1000 + shift_s
    values = log.values.astype(np.float64)
    if not log.is_averaged:
        sums = np.histogram(times, bins=grid, weights=values)[0]
        return sums, np.histogram(times, bins=grid)[0].astype(np.float64)
    sums = np.diff(_cumulative(times, values, interval_s, grid))
    return sums, np.diff(_cumulative(times, np.ones_like(values), interval_s, grid))


def _cumulative(times: Floats, rates: Floats, interval_s: float, grid: Floats) -> Floats:
    """The integral of a rate up to each point of `grid`."""
    gaps = np.diff(times, prepend=times[0] - interval_s)
    # fio's own clock wakes it a few ms late: only a gap well over the interval is a gap
    spans = np.where(gaps > 1.5 * interval_s, interval_s, gaps)
    edges = np.stack((times - spans, times), axis=1).ravel()
    sums = np.cumsum(rates * spans)
    before = np.concatenate((np.zeros(1), sums[:-1]))
    integral: Floats = np.interp(grid, edges, np.stack((before, sums), axis=1).ravel())
    return integral


def used_per_second(counters: Iterable[tuple[Floats, Floats]], window: Window) -> Floats:
    """What `counters`, each with its times first, counted together in each second of the window."""
    so_far = [np.interp(window.grid_s, times_s, counter) for times_s, counter in counters]
    used: Floats = np.diff(np.sum(so_far, axis=0))
    return used


class Samples(Protocol):
    """Samples with their times on the host's clock, in s since the epoch."""

    @property
    def epoch_s(self) -> Floats:
        """When each was taken."""


AnySamples = TypeVar("AnySamples", bound=Samples)


@dataclass(frozen=True)
class Sampled(Generic[AnySamples]):
    """One host's samples and its clock minus the head's, in s."""

    host: str
    series: AnySamples
    offset_s: float

    @property
    def times_s(self) -> Floats:
        """When the samples were taken, on the head's clock."""
        times: Floats = self.series.epoch_s - self.offset_s
        return times
