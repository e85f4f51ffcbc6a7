"""What was measured of one cell, by round and deployment.

Runs of a configuration between which no other one was measured may share a deployment, and then
they show less than a newly built cluster would. Where an archive does not say what was deployed,
such a stretch of runs counts as one deployment.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Optional

from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.report.figures.repeats import Value
from cbt_crypto.results.cell.run import Run

#: Runs of one cell, by stretch.
Stretches = tuple[tuple[Run, ...], ...]


def stretches(runs: Sequence[Run], dimension: str) -> dict[int, int]:
    """`id` of each run -> the number of its stretch; runs without a start come first.

    `dimension` is the compared one: a stretch ends where another value of it was measured, or with
    the deployment.
    """
    numbers: dict[int, int] = {}
    number, before = 0, object()
    for run in sorted(runs, key=lambda run: -math.inf if run.started is None else run.started):
        value = (run.dimensions.get(dimension), run.deployment)
        number += value != before
        before = value
        numbers[id(run)] = number
    return numbers


def split(runs: Iterable[Run], numbers: Mapping[int, int]) -> Stretches:
    """The measured runs of one cell, in the order of their stretches."""
    by_stretch: dict[int, list[Run]] = {}
    for run in runs:
        if run.failure is None:
            by_stretch.setdefault(numbers[id(run)], []).append(run)
    return tuple(tuple(by_stretch[number]) for number in sorted(by_stretch))


def values_of(metric: Metric, cell: Stretches, direction: str) -> list[Value]:
    """The logarithms of a cell's runs that have this figure, with their rounds and deployments."""
    values = []
    for number, stretch in enumerate(cell):
        for run in stretch:
            log = log_value(metric, run, direction)
            if log is not None:
                deployment = _deployment(run, number)
                values.append(Value(log, run.planned.iteration, deployment, run.beside))
    return values


def _deployment(run: Run, stretch: int) -> Hashable:
    if run.deployment is not None:
        return run.deployment
    return (run.planned.configuration, stretch, tuple(sorted(map(str, run.dimensions.items()))))


def log_value(metric: Metric, run: Run, direction: str) -> Optional[float]:
    """The logarithm of one run's figure; None where it has none above zero."""
    value = metric.of([run], direction)
    return math.log(value) if value is not None and value > 0 else None
