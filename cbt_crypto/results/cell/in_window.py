"""Which seconds every figure of a run is of, and what the logs say of them.

fio's totals are of all that a process measured. Where all share less of it, logs give figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Problem
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.client import Client, Logs
from cbt_crypto.results.cell.record import Floats, Ints
from cbt_crypto.results.cell.window import Window, apart_s, counts_per_second, means_per_second
from cbt_crypto.results.readers.fio_log import DIRECTIONS
from cbt_crypto.results.readers.histogram import (
    Histogram,
    HistogramLog,
    percentile_columns,
    read_histogram_log,
)


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


#: Of each second all bins are in memory, 30 KB.
_LONGEST_S = 2 * 86_400


def second_bins(
    folder: Folder, clients: Sequence[Client], window: Window, problems: list[Problem]
) -> dict[str, SecondBins]:
    """By direction; empty unless every process has its histogram log, read one by one."""
    if window.seconds > _LONGEST_S:
        sentence = f"it is longer than {_LONGEST_S // 3600} hours, so it has no latency by second"
        problems.append(Problem("", sentence))
        return {}
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
                filled = counts[:, used].astype(np.float64)
                directions[name] = SecondBins(filled, self._middles[used])
        return directions


@dataclass(frozen=True)
class Series:
    """What all processes did in one direction, second by second of the window.

    Latencies are NaN without IO or log. Not `is_whole`: torn lines hide some IOs.
    """

    start_epoch_s: float
    iops: Floats
    clat_ns_mean: Floats
    clat_ns_p99: Floats
    is_whole: bool = True


def directions_of(clients: Sequence[Client]) -> list[str]:
    """Every direction in which a process did something."""
    return list(dict.fromkeys(record.direction for c in clients for record in c.records))


def series_of(
    clients: Sequence[Client], window: Window, bins: Mapping[str, SecondBins]
) -> dict[str, Series]:
    """By direction; empty unless every process has its IOPS log."""
    if not all(client.iops_logs for client in clients) or window.seconds < 1:
        return {}
    return {
        direction: _one_series(clients, direction, window, bins.get(direction))
        for direction in directions_of(clients)
        if direction in DIRECTIONS
    }


def _one_series(
    clients: Sequence[Client], direction: str, window: Window, bins: Optional[SecondBins]
) -> Series:
    seconds = len(window.grid_s) - 1
    iops, latency, weight = np.zeros(seconds), np.zeros(seconds), np.zeros(seconds)
    for client in clients:
        logs, span = client.iops_logs, (client.shift_s, client.interval_s, window)
        ios = _added([counts_per_second(log.side(direction), *span) for log in logs], seconds)
        means = [means_per_second(log.side(direction), *span) for log in client.latency_logs]
        mean, has_latency = _mean(means, seconds)
        iops += ios
        latency += np.where(has_latency, mean * ios, 0.0)
        weight += np.where(has_latency, ios, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_ns = np.where(weight > 0, latency / weight, np.nan)
    p99_ns = np.full(seconds, np.nan) if bins is None else bins.percentiles_ns("clat_ns_p99")
    is_whole = not any(log.torn for client in clients for log in client.iops_logs)
    return Series(window.start_s, iops, mean_ns, p99_ns, is_whole)


def _added(parts: Sequence[Floats], seconds: int) -> Floats:
    return np.sum(parts, axis=0) if parts else np.zeros(seconds)


def _mean(parts: Sequence[tuple[Floats, Floats]], seconds: int) -> tuple[Floats, NDArray[np.bool_]]:
    sums = _added([part[0] for part in parts], seconds)
    weights = _added([part[1] for part in parts], seconds)
    has_latency = weights > 0
    return np.where(has_latency, sums / np.where(has_latency, weights, 1.0), 0.0), has_latency


#: Processes may measure apart for this share of their common time before the logs decide: one that
#: runs alone can be as fast as all of them together, so this bounds the error too.
APART_SHARE = 0.005


@dataclass(frozen=True)
class InWindow:
    """What all processes did together in one direction in the window; None where no log says."""

    iops: float
    bandwidth_bytes_per_s: float
    clat_ns_mean: Optional[float] = None
    clat_ns_max: Optional[float] = None


@dataclass(frozen=True)
class Cut:
    """The window of a run; `from_logs`: fio's totals are of other seconds.

    `warmup_s` is left out at its start, `apart_s` was measured outside; `doubt`: the missing log.
    """

    window: Window
    from_logs: bool
    warmup_s: float = 0.0
    apart_s: float = 0.0
    doubt: Optional[str] = None


def cut(
    clients: Sequence[Client], windows: Sequence[Window], shared: Window, cell: CellDocument
) -> Cut:
    """The window of the processes that measured in `windows` and have `shared` in common."""
    apart = apart_s(windows, shared)
    warmup_s = 0.0 if cell.block is None else min(cell.block.warmup_s, shared.seconds / 2)
    if not warmup_s and apart <= APART_SHARE * shared.seconds:
        return Cut(shared, from_logs=False, apart_s=apart)
    if not all(client.iops_logs for client in clients) or shared.seconds - warmup_s < 1:
        return Cut(shared, from_logs=False, apart_s=apart, doubt=_doubt(warmup_s, apart))
    return Cut(_whole_seconds(clients, windows, shared, warmup_s), True, warmup_s, apart)


def _whole_seconds(
    clients: Sequence[Client], windows: Sequence[Window], shared: Window, warmup_s: float
) -> Window:
    """What is left of `shared` without entries of a log that are in part of other seconds."""
    start, end = shared.start_s + warmup_s, shared.end_s
    first, last = start, end
    for client, window in zip(clients, windows):
        step = client.interval_s
        first = max(
            first, window.start_s + math.ceil((start - window.start_s) / step - 1e-6) * step
        )
        last = min(last, window.start_s + math.floor((end - window.start_s) / step + 1e-6) * step)
    if last - first < 1:
        first, last = start, end
    return Window(first, first + int(last - first + 1e-6))


def _doubt(warmup_s: float, apart: float) -> str:
    """What no log of the IOPS means for the figures."""
    without = "there is no log of every process's IOPS"
    if warmup_s:
        return f"{without}, so the {warmup_s:g} s of warm-up are in every figure"
    return (
        f"{without}, and a process measured for {apart:.1f} s without the others: throughput"
        " counts these seconds as if all had run"
    )


def in_window(
    clients: Sequence[Client], series: Mapping[str, Series], bins: Mapping[str, SecondBins]
) -> dict[str, InWindow]:
    """What the logs say, by direction."""
    by_direction = {}
    for direction, seconds in series.items():
        rows = [r for c in clients for r in c.records if r.direction == direction]
        ios = sum(row.ios for row in rows)
        iops = float(seconds.iops.mean())
        bytes_per_io = sum(row.bytes for row in rows) / ios if ios else 0.0
        has_latency = np.isfinite(seconds.clat_ns_mean) & (seconds.iops > 0)
        mean = None
        if has_latency.any():
            mean = float(
                np.average(seconds.clat_ns_mean[has_latency], weights=seconds.iops[has_latency])
            )
        counted = bins.get(direction)
        most = None if counted is None else float(counted.latencies_ns[-1])
        by_direction[direction] = InWindow(iops, iops * bytes_per_io, mean, most)
    return by_direction


def other_seconds(directions: Sequence[str], by_direction: Mapping[str, InWindow]) -> Iterator[str]:
    """A sentence for each direction whose latencies no log has: they are of other seconds."""
    for direction in directions:
        in_window = by_direction.get(direction)
        if in_window is None:
            yield f"figures of {direction}s cover all that fio measured: no log has them"
            continue
        figures = {"mean latency": in_window.clat_ns_mean, "percentiles": in_window.clat_ns_max}
        lacking = [figure for figure, value in figures.items() if value is None]
        if lacking:
            yield (
                f"{' and '.join(lacking)} of {direction}s cover all that fio measured, the other"
                " figures the window alone: there is no log of them"
            )
