"""Percents of blocks that took turns on one cluster: from pairs, which a drift hits alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Optional

from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.report.figures.spread import Stretches, log_value
from cbt_crypto.report.model import Comparison
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.precision.confidence_sequence import interval
from cbt_crypto.results.precision.until import until_of

#: Of these the percent comes from all bins added up, and only its interval from the pairs:
#: percentiles of blocks must not be averaged.
_FROM_BINS = (
    "clat_ns_p50",
    "clat_ns_p90",
    "clat_ns_p95",
    "clat_ns_p99",
    "clat_ns_p999",
    "clat_ns_max",
)


def compare_pairs(
    metric: Metric, direction: str, cell: Stretches, base: Stretches, percent: float
) -> Optional[Comparison]:
    """The percent with its interval; None where there are too few pairs to say anything."""
    own, other = _by_round(cell), _by_round(base)
    pairs = [(own[key], other[key]) for key in sorted(own) if key in other]
    logs = [log for log in (_difference(metric, direction, *pair) for pair in pairs) if log]
    differences = [one - two for one, two in logs]
    found = interval(differences)
    if not math.isfinite(found.half):
        return None
    center = percent if metric.key in _FROM_BINS else 100 * math.exp(found.center)
    basis = _basis(len(differences), found.batch, len({key[1] for key in own if key in other}))
    if metric.key == "iops":
        basis += _wish(pairs[0][0], found.half)
    return Comparison(center, center * math.exp(-found.half), center * math.exp(found.half), basis)


def half_of_blocks(metric: Metric, direction: str, runs: Iterable[Run]) -> Optional[float]:
    """Half the interval of the logarithm of one side alone, whose blocks stopped by themselves.

    None where it was a number of runs that was fixed before.
    """
    runs = list(runs)
    if not runs or any(until_of(run.planned.parameters) is None for run in runs):
        return None
    logs = [log_value(metric, run, direction) for run in runs]
    half = interval([log for log in logs if log is not None]).half
    return half if math.isfinite(half) else None


def _by_round(cell: Stretches) -> Mapping[tuple[int, str], Run]:
    """The measured blocks by round and deployment: pairs have both in common."""
    return {
        (run.planned.iteration, run.deployment): run
        for stretch in cell
        for run in stretch
        if run.deployment is not None
    }


def _difference(
    metric: Metric, direction: str, run: Run, base: Run
) -> Optional[tuple[float, float]]:
    one, two = log_value(metric, run, direction), log_value(metric, base, direction)
    return None if one is None or two is None else (one, two)


def _basis(pairs: int, batch: int, clusters: int) -> str:
    batches = f", {batch} at a time" if batch > 1 else ""
    where = "one cluster" if clusters == 1 else f"{clusters} clusters"
    return f"{pairs} pairs of blocks{batches}, in turns on {where}"


def _wish(run: Run, half: float) -> str:
    until = until_of(run.planned.parameters)
    if until is None or half <= until.half:
        return ""
    return f"; {until.precision} was asked for and not reached"
