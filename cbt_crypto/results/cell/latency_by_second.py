"""The latency bins of all processes together, second by second of the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cbt_crypto.archive.files import Problem
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.arrays import Floats, Ints
from cbt_crypto.results.cell.client import Client, Logs
from cbt_crypto.results.cell.window import Window
from cbt_crypto.results.readers.fio_log import DIRECTIONS
from cbt_crypto.results.readers.histogram import Histogram, percentile_columns
from cbt_crypto.results.readers.histogram_log import HistogramLog, read_histogram_log


@dataclass(frozen=True)
class SecondBins:
    """`counts` has a row a second and a column for each of `latencies_ns`, which ascend."""

    counts: Floats
    latencies_ns: Ints

    @property
    def total(self) -> Histogram:
        """One histogram of all seconds: IOs by latency."""
        return Histogram(self.latencies_ns, self.counts.sum(axis=0).astype(np.int64))

    def percentiles_ns(self, column: str) -> Floats:
        """A percentile, named as in `histogram.PERCENTILES`, for each second; NaN without IO."""
        return percentile_columns(self.counts, self.latencies_ns)[column]


def second_bins(
    folder: Folder, clients: Sequence[Client], window: Window, problems: list[Problem]
) -> dict[str, SecondBins]:
    """By direction; empty unless every process has its histogram log. Adds to `problems`.

    The logs are read one after another, as those of many processes together are large.
    """
    added = _Sum(window)
    complete = True
    for client in clients:
        logs = Logs(folder, client.process)
        parsed = logs.read("clat_hist", read_histogram_log)
        problems.extend(logs.problems)
        complete &= bool(parsed)
        for log in parsed:
            complete &= added.add(log, client.shift_s)
    return added.by_direction() if complete else {}


class _Sum:
    """Counts of (direction, second, bin), added up over logs."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._seconds = len(window.grid_s) - 1
        self._middles: Ints = np.empty(0, np.int64)
        self._counts: Ints = np.empty((len(DIRECTIONS), 0, 0), np.int64)

    def add(self, log: HistogramLog, shift_s: float) -> bool:
        """False when the log has other bins than those before it."""
        if not self._middles.size:
            self._middles = log.middles_ns
            shape = (len(DIRECTIONS), self._seconds, len(log.middles_ns))
            self._counts = np.zeros(shape, np.int64)
        if len(self._middles) != len(log.middles_ns):
            return False
        # a line holds the second before its time
        ended = log.times_ms / 1000 + shift_s - self._window.start_s
        second = np.rint(ended).astype(np.int64) - 1
        direction = log.directions
        inside = (second >= 0) & (second < self._seconds) & (direction < len(DIRECTIONS))
        chosen = inside[log.lines]
        lines, bins, counts = log.lines[chosen], log.bins[chosen], log.counts[chosen]
        flat = (direction[lines] * self._seconds + second[lines]) * len(self._middles) + bins
        np.add.at(self._counts.reshape(-1), flat, counts)
        return True

    def by_direction(self) -> dict[str, SecondBins]:
        """The directions that have any IO, without the bins that none fell into."""
        directions = {}
        for name, number in DIRECTIONS.items():
            counts = self._counts[number]
            used = counts.any(axis=0)
            if used.any():
                directions[name] = SecondBins(
                    counts[:, used].astype(np.float64), self._middles[used]
                )
        return directions
