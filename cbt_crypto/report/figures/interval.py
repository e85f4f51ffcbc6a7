"""The 95 % interval of a percent, and what it rests on. docs/figures.md says it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from scipy.special import stdtrit

from cbt_crypto.archive.documents import Scalar
from cbt_crypto.report.figures import spread
from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.report.figures.paired import compare_pairs, half_of_blocks
from cbt_crypto.report.figures.spread import Pooled, Stretches
from cbt_crypto.report.model import Comparison

#: With fewer degrees of freedom a measured variance says too little by itself.
_ENOUGH = 3
_NORMAL = 1.959964
_TAIL = 0.975


@dataclass(frozen=True)
class Load:
    """All cells of one section: the same load under each value of the compared dimension."""

    direction: str
    cells: Mapping[Scalar, Stretches]


@dataclass
class Intervals:
    """Comparisons with intervals, from every load of a report, whatever its keys are.

    `assumed_percent` is the standard deviation between runs where nothing was measured twice;
    `in_turns` says that configurations took turns, so that their blocks are pairs.
    """

    loads: Mapping[Any, Load]
    assumed_percent: float = spread.ASSUMED_PERCENT
    in_turns: bool = False
    _everywhere: dict[str, Pooled] = field(default_factory=dict)

    def compare(
        self, metric: Metric, load: Load, value: Scalar, baseline: Scalar, percent: float
    ) -> Comparison:
        """`percent` of the baseline with its interval; without one where nothing can be said."""
        cell, base = load.cells[value], load.cells[baseline]
        if self.in_turns:
            pairs = compare_pairs(metric, load.direction, cell, base, percent)
            if pairs is not None:
                return pairs
        measured = self._between(metric, load)
        if measured.degrees >= _ENOUGH:
            half = _t(measured.degrees) * math.sqrt(measured.variance * _inverse(cell, base))
            runs = f"{_runs(cell)} and {_runs(base)} runs"
            return _comparison(
                percent, half, f"{runs}; run to run, {measured.degrees} degrees of freedom"
            )
        sides = [self._within(metric, load, side) for side in (cell, base)]
        if sides[0] is None or sides[1] is None:
            return Comparison(percent)
        variance = max((self.assumed_percent / 100) ** 2, measured.variance)
        half = math.hypot(
            _NORMAL * math.sqrt(variance * _inverse(cell, base)), sides[0].half, sides[1].half
        )
        assumed = f"{100 * math.sqrt(variance):.2g} % assumed between deployments"
        return _comparison(percent, half, f"{sides[0].basis}; {assumed}")

    def _between(self, metric: Metric, load: Load) -> Pooled:
        """Run to run: of this load where it was repeated enough, else of all loads together."""
        here = spread.between(load.cells.values(), metric, load.direction)
        if here.degrees >= _ENOUGH:
            return here
        if metric.key not in self._everywhere:
            self._everywhere[metric.key] = spread.add(
                spread.between(one.cells.values(), metric, one.direction)
                for one in self.loads.values()
            )
        return self._everywhere[metric.key]

    def _within(self, metric: Metric, load: Load, cell: Stretches) -> Optional[_Side]:
        """Half the interval of one side's own mean, from iterations or from blocks of seconds."""
        runs = [run for stretch in cell for run in stretch]
        blocks = half_of_blocks(metric, load.direction, runs)
        if blocks is not None:
            return _Side(blocks, f"{len(runs)} blocks in a row")
        repeated = spread.within(load.cells.values(), metric, load.direction)
        if repeated.degrees >= _ENOUGH:
            half = _t(repeated.degrees) * math.sqrt(repeated.variance / len(runs))
            return _Side(half, f"{len(runs)} runs in a row")
        found = [run.within[load.direction] for run in runs if load.direction in run.within]
        spreads = [own.log_sd[metric.key] for own in found if metric.key in own.log_sd]
        if not runs or len(spreads) < len(runs):
            return None
        degrees = max(sum(own.blocks - 1 for own in found), 1.0)
        half = _t(degrees) * math.sqrt(sum(one**2 for one in spreads)) / len(runs)
        return _Side(half, f"blocks of the seconds of {_one_or_more(len(runs))}")


@dataclass(frozen=True)
class _Side:
    """Half an interval, of a logarithm, and what it rests on."""

    half: float
    basis: str


def _t(degrees: float) -> float:
    return float(stdtrit(degrees, _TAIL))


def _inverse(cell: Stretches, base: Stretches) -> float:
    return 1 / len(cell) + 1 / len(base)


def _runs(cell: Stretches) -> int:
    return sum(len(stretch) for stretch in cell)


def _one_or_more(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _comparison(percent: float, half: float, basis: str) -> Comparison:
    return Comparison(percent, percent * math.exp(-half), percent * math.exp(half), basis)
