"""Which seconds every figure of a run is of, and what the logs say of these seconds.

fio's own totals are of all that a process measured. Where that is other than what all processes
share, or holds a warm-up, the totals would be of other seconds than the processors' time and the
energy beside them; then what was done comes from the logs, for every figure alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.results.cell.client import Client
from cbt_crypto.results.cell.latency_by_second import SecondBins
from cbt_crypto.results.cell.series import Series
from cbt_crypto.results.cell.window import Window, apart_s

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
    """The window of a run. `from_logs` says that fio's totals are of other seconds than it.

    `warmup_s` was left out of it at its start, and for `apart_s` a process measured outside of
    it. `doubt` is a sentence where no log tells what should have been left out.
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
            yield f"the figures of {direction}s are of all that fio measured, as no log has them"
            continue
        lacking = [
            figure
            for figure, value in (
                ("mean latency", in_window.clat_ns_mean),
                ("percentiles", in_window.clat_ns_max),
            )
            if value is None
        ]
        if lacking:
            yield (
                f"{' and '.join(lacking)} of {direction}s are of all that fio measured, the other"
                " figures of the window alone: there is no log of them"
            )
