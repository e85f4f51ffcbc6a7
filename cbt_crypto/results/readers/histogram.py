"""fio's latency histogram: bins that can be added up, and percentiles read from the sum.

fio counts completion latencies in bins that are exact up to 128 ns and then 64 to an octave, so
a bin is at most 1.6 % wide. Percentiles of several processes are read from their added bins;
percentiles are never averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cbt_crypto.results.arrays import Floats, Ints

#: The percentiles of a record, by the name of their column.
PERCENTILES = {
    "clat_ns_p50": 50.0,
    "clat_ns_p90": 90.0,
    "clat_ns_p95": 95.0,
    "clat_ns_p99": 99.0,
    "clat_ns_p999": 99.9,
}
#: Bins to an octave.
_OCTAVE = 64


@dataclass(frozen=True)
class Histogram:
    """`counts` IOs took `latencies_ns`, the middle of their bins; both ascending, same length."""

    latencies_ns: Ints
    counts: Ints

    @property
    def total(self) -> int:
        """How many IOs are counted."""
        return int(self.counts.sum())

    def percentile_ns(self, percent: float) -> float:
        """The middle of the bin that holds this percentile, as fio picks it; NaN when empty."""
        if not self.total:
            return float("nan")
        reached = np.cumsum(self.counts)
        at = int(np.searchsorted(reached, percent / 100 * self.total, side="left"))
        at = max(at, int(np.flatnonzero(self.counts)[0]))
        return float(self.latencies_ns[min(at, len(reached) - 1)])


def from_bins(bins: dict[int, int]) -> Histogram:
    """From the `bins` of fio's json+ output: latency in ns -> count."""
    latencies = np.array(sorted(bins), np.int64)
    counts = np.array([bins[int(latency)] for latency in latencies], np.int64)
    return Histogram(latencies, counts)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of histograms, bin by bin."""
    parts = list(histograms)
    if not parts:
        return Histogram(np.empty(0, np.int64), np.empty(0, np.int64))
    every = np.concatenate([part.latencies_ns for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    latencies, where = np.unique(every, return_inverse=True)
    summed = np.zeros(len(latencies), np.int64)
    np.add.at(summed, where, counts)
    return Histogram(latencies, summed)


def bin_latencies_ns(indices: Sequence[int] | Ints) -> Ints:
    """The middle, in ns, of the bins with these indices, as they stand in a histogram log."""
    index = np.asarray(indices, np.int64)
    octave = np.maximum(index // _OCTAVE - 1, 0)
    bottom = (_OCTAVE + index % _OCTAVE) << octave
    middle = bottom + ((1 << octave) >> 1)
    return np.where(index < 2 * _OCTAVE, index, middle)


def percentile_columns(counts: Floats, latencies_ns: Ints) -> dict[str, Floats]:
    """Percentiles and the maximum of many histograms at once, by the name of the record's column.

    `counts` has a row a histogram and a column for each of `latencies_ns`, which ascend. A row
    without a count gives NaN.
    """
    reached = np.cumsum(counts, axis=1)
    total = reached[:, -1:]
    empty = total[:, 0] <= 0

    def at(share: float) -> Floats:
        index = (reached < share * total).sum(axis=1)
        values = latencies_ns[np.minimum(index, len(latencies_ns) - 1)].astype(np.float64)
        return np.where(empty, np.nan, values)

    columns = {name: at(percent / 100) for name, percent in PERCENTILES.items()}
    last = counts.shape[1] - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    columns["clat_ns_max"] = np.where(empty, np.nan, latencies_ns[last])
    return columns
