"""How sure one run is of its own figures: a moving-block bootstrap of its seconds.

Blocks, as neighbouring seconds resemble each other. `report.interval` adds differences of runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

import numpy as np

from cbt_crypto.results.cell.record import Floats, Ints
from cbt_crypto.results.readers.histogram import percentile_columns

#: Draws; the spread of their results is known to some 4 %.
_DRAWS = 400
_SEED = 20240229
#: With fewer seconds nothing can be said.
_FEWEST_SECONDS = 6
#: With fewer, how long the resemblance lasts cannot be estimated, and the longest is assumed.
_FEWEST_FOR_LENGTH = 10


@dataclass(frozen=True)
class Seconds:
    """Per-second series of a run in one direction, of equal length; see `results.run`.

    `counts`: a column for each of `latencies_ns`; totals and shares are of both directions.
    """

    iops: Floats
    clat_ns_mean: Floats
    io_total: Floats
    cpu_percent: Mapping[str, Floats] = field(default_factory=dict)
    busy_cores: Optional[Floats] = None
    watts: Optional[Floats] = None
    client_cores: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    counts: Optional[Floats] = None
    latencies_ns: Optional[Ints] = None


#: Each second takes 10 kB in memory.
LONGEST_S = 86_400


@dataclass(frozen=True)
class Within:
    """A run's figures' spread: standard deviations of logarithms, of `blocks`."""

    log_sd: Mapping[str, float]
    blocks: float
    block_s: int


def within_run(seconds: Seconds) -> Optional[Within]:
    """None when the run is too short or too long to say, or did nothing."""
    length = len(seconds.iops)
    if not _FEWEST_SECONDS <= length <= LONGEST_S or not seconds.iops.any():
        return None
    block = _block_length(seconds.iops)
    weights = drawn_weights(length, block)
    blocks = length / block
    figures = _figures(seconds, weights)
    small_sample = math.sqrt(blocks / (blocks - 1))
    spread = {name: _log_sd(values) for name, values in figures.items()}
    log_sd = {name: sd * small_sample for name, sd in spread.items() if sd is not None}
    return Within(log_sd, blocks, block)


def _block_length(series: Floats) -> int:
    """Seconds a block; at least one, and at most a third of the series."""
    longest = len(series) // 3
    if np.ptp(series) == 0:
        return 1
    if len(series) < _FEWEST_FOR_LENGTH:
        return longest
    with np.errstate(invalid="ignore", divide="ignore"):
        best = optimal_block_length(series)
    return max(1, min(longest, math.ceil(best))) if math.isfinite(best) else longest


def optimal_block_length(series: Floats) -> float:
    """Politis and White's block length (2004, corrected 2009), circular blocks."""
    length = len(series)
    in_a_row = max(5, int(math.log10(length)))
    furthest = math.ceil(math.sqrt(length)) + in_a_row
    deviations = series - series.mean()
    products = np.array(
        [deviations[lag:] @ deviations[: length - lag] for lag in range(furthest + 1)]
    )
    is_small = _correlations(products, deviations) < 2 * math.sqrt(math.log10(length) / length)
    starts = range(furthest + 1 - in_a_row)
    end = next((lag for lag in starts if is_small[lag : lag + in_a_row].all()), None)
    width = furthest if end is None else min(2 * max(end, 1), furthest)
    lags = np.arange(1, width + 1)
    # Flat to half of the width, then down to zero.
    weighted = np.minimum(1.0, 2 * (1 - lags / width)) * products[1 : width + 1] / length
    spectrum = products[0] / length + 2 * weighted.sum()
    bias = 2 * (lags * weighted).sum()
    best = np.cbrt(2 * bias**2 / (4 / 3 * spectrum**2) * length)
    return float(np.minimum(best, math.ceil(min(3 * math.sqrt(length), length / 3))))


def _correlations(products: Floats, deviations: Floats) -> Floats:
    """How much the series resembles itself after each number of seconds; without the last lag."""
    lags = np.arange(len(products) - 1)
    squares = np.cumsum(deviations**2)
    before, after = squares[len(squares) - 2 - lags], squares[-1] - squares[lags]
    correlations: Floats = np.abs(products[:-1]) / np.sqrt(before * after)
    return correlations


def drawn_weights(length: int, block: int) -> Floats:
    """For each draw (a row), how often each second was drawn, in whole circular blocks."""
    blocks = -(-length // block)
    first = np.random.default_rng(_SEED).integers(length - block + 1, size=(_DRAWS, blocks))
    seconds = (first[:, :, np.newaxis] + np.arange(block)).reshape(_DRAWS, -1)[:, :length]
    return np.array([np.bincount(row, minlength=length) for row in seconds], np.float64)


def _figures(seconds: Seconds, weights: Floats) -> dict[str, Floats]:
    length = len(seconds.iops)
    has_latency = np.isfinite(seconds.clat_ns_mean)
    weighted_ios = np.where(has_latency, seconds.iops, 0.0)
    latency = weighted_ios * np.where(has_latency, seconds.clat_ns_mean, 0.0)
    iops = weights @ seconds.iops / length
    figures = {"iops": iops}
    if has_latency.any():
        with np.errstate(invalid="ignore", divide="ignore"):
            figures["clat_ns_mean"] = (weights @ latency) / (weights @ weighted_ios)
    for state, percent in seconds.cpu_percent.items():
        figures[f"osd_cpu_{state}_percent"] = weights @ percent
    if seconds.busy_cores is not None:
        busy = weights @ seconds.busy_cores
        figures["osd_cpu_busy_cores"] = busy
        with np.errstate(invalid="ignore", divide="ignore"):
            figures["osd_cpu_us_per_io"] = busy / (weights @ seconds.io_total)
    if seconds.watts is not None:
        figures["osd_power_w"] = weights @ seconds.watts
        with np.errstate(invalid="ignore", divide="ignore"):
            figures["osd_energy_j_per_io"] = figures["osd_power_w"] / (weights @ seconds.io_total)
    figures.update(_of_clients(seconds, weights))
    if seconds.counts is not None and seconds.latencies_ns is not None:
        figures.update(percentile_columns(weights @ seconds.counts, seconds.latencies_ns))
    return figures


def _of_clients(seconds: Seconds, weights: Floats) -> dict[str, Floats]:
    """Processor time of clients for each IO; nothing where it was not sampled."""
    ios = weights @ seconds.io_total
    figures: dict[str, Floats] = {}
    for metric, cores in seconds.client_cores.items():
        if not cores:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            used = {state: (weights @ series) / ios for state, series in cores.items()}
        busy: Floats = np.sum(list(used.values()), axis=0)
        figures.update({f"{metric}_{state}_us_per_io": values for state, values in used.items()})
        figures[f"{metric}_us_per_io"] = busy
    return figures


def _log_sd(values: Floats) -> Optional[float]:
    if not np.isfinite(values).all() or (values <= 0).any():
        return None
    return float(np.log(values).std(ddof=1))
