"""What all client processes of a run did together, second by second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.results.arrays import Floats
from cbt_crypto.results.cell.client import Client
from cbt_crypto.results.cell.latency_by_second import SecondBins
from cbt_crypto.results.cell.window import Window, counts_per_second, means_per_second
from cbt_crypto.results.readers.fio_log import DIRECTIONS


@dataclass(frozen=True)
class Series:
    """What all processes did together in one direction, second by second of the window.

    Latencies are NaN in a second without IO, and everywhere without latency or histogram logs.
    """

    start_epoch_s: float
    iops: Floats
    clat_ns_mean: Floats
    clat_ns_p99: Floats


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
    return Series(window.start_s, iops, mean_ns, p99_ns)


def _added(parts: Sequence[Floats], seconds: int) -> Floats:
    return np.sum(parts, axis=0) if parts else np.zeros(seconds)


def _mean(parts: Sequence[tuple[Floats, Floats]], seconds: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Mean latency of each second, and where there is one, over the logs of one process."""
    sums = _added([part[0] for part in parts], seconds)
    weights = _added([part[1] for part in parts], seconds)
    has_latency = weights > 0
    return np.where(has_latency, sums / np.where(has_latency, weights, 1.0), 0.0), has_latency
