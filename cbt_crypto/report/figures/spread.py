"""How much one and the same measurement differs from run to run, as far as an archive tells.

Runs of a configuration between which no other one was measured may share a deployment, and then
they show less than a newly built cluster would. Such a stretch of runs counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np

from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.results.cell.run import Run

#: Assumed where nothing was measured twice: standard deviation between runs, in percent.
ASSUMED_PERCENT = 2.0

#: Runs of one cell, by stretch.
Stretches = tuple[tuple[Run, ...], ...]


@dataclass(frozen=True)
class Pooled:
    """A variance of logarithms, pooled over cells, with its degrees of freedom."""

    variance: float
    degrees: int


def stretches(runs: Sequence[Run], dimension: str, in_turns: bool = False) -> dict[int, int]:
    """`id` of each run -> the number of its stretch; runs without a start come first.

    `dimension` is the compared one: a stretch ends where another value of it was measured. Where
    configurations took turns it ends with the deployment.
    """
    numbers: dict[int, int] = {}
    number, before = 0, object()
    for run in sorted(runs, key=lambda run: -math.inf if run.started is None else run.started):
        value = run.deployment if in_turns else run.dimensions.get(dimension)
        number += value != before
        before = value
        numbers[id(run)] = number
    return numbers


def split(runs: Iterable[Run], numbers: Mapping[int, int]) -> Stretches:
    """The measured runs of one cell, in the order of their stretches."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        if run.failure is None:
            found.setdefault(numbers[id(run)], []).append(run)
    return tuple(tuple(found[number]) for number in sorted(found))


def log_value(metric: Metric, run: Run, direction: str) -> Optional[float]:
    """The logarithm of one run's figure; None where it has none above zero."""
    value = metric.of([run], direction)
    return math.log(value) if value is not None and value > 0 else None


def between(cells: Iterable[Stretches], metric: Metric, direction: str) -> Pooled:
    """The variance of a stretch's mean, over cells that were measured in several."""
    return _pooled([_means(cell, metric, direction) for cell in cells])


def within(cells: Iterable[Stretches], metric: Metric, direction: str) -> Pooled:
    """The variance of a run, over stretches that hold several."""
    return _pooled([_logs(stretch, metric, direction) for cell in cells for stretch in cell])


def add(pooled: Iterable[Pooled]) -> Pooled:
    """One pool of several: variances weighted by their degrees of freedom."""
    parts = list(pooled)
    degrees = sum(part.degrees for part in parts)
    squares = sum(part.variance * part.degrees for part in parts)
    return Pooled(squares / degrees if degrees else 0.0, degrees)


def _logs(runs: Sequence[Run], metric: Metric, direction: str) -> list[float]:
    logs = (log_value(metric, run, direction) for run in runs)
    return [log for log in logs if log is not None]


def _means(cell: Stretches, metric: Metric, direction: str) -> list[float]:
    logs = (_logs(stretch, metric, direction) for stretch in cell)
    return [float(np.mean(found)) for found in logs if found]


def _pooled(groups: Iterable[list[float]]) -> Pooled:
    repeated = [group for group in groups if len(group) > 1]
    return add(Pooled(float(np.var(group, ddof=1)), len(group) - 1) for group in repeated)
