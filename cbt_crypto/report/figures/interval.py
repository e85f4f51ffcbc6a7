"""Every comparison of a report: its percent, its interval, what that rests on, and its verdict.

A percent has a verdict only where what varies most was repeated (docs/figures.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from scipy.special import stdtrit

from cbt_crypto.archive.documents import Scalar
from cbt_crypto.report.figures import repeats
from cbt_crypto.report.figures.metric import BY_KEY, Metric, Test
from cbt_crypto.report.model import Comparison
from cbt_crypto.report.wording import ARCHIVE
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.repetition import variance
from cbt_crypto.results.until import asked_of, until_of
from cbt_crypto.units import grouped

#: Runs of one cell, by stretch.
Stretches = tuple[tuple[Run, ...], ...]


def stretches(runs: Sequence[Run], dimension: str) -> dict[int, int]:
    """`id` of each run -> the number of its stretch; runs without a start come first.

    `dimension` is the compared one: a stretch ends with its value, or with the deployment.
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
    by_stretch = grouped((numbers[id(run)], run) for run in runs if run.failure is None)
    return tuple(tuple(by_stretch[number]) for number in sorted(by_stretch))


def _deployment(run: Run, stretch: int) -> Hashable:
    if run.deployment is not None:
        return run.deployment
    return (run.planned.configuration, stretch, tuple(sorted(map(str, run.dimensions.items()))))


def log_value(metric: Metric, run: Run, direction: str) -> Optional[float]:
    """The logarithm of one run's figure; None where it has none above zero."""
    value = metric.of([run], direction)
    return math.log(value) if value is not None and value > 0 else None


#: Dimensions that may differ between the two campaigns without making another load of it.
_ASIDE = ("pool_profile", "prefill_op_size", "prefill_iodepth", "fio_cmd", "cmd_path")
#: A spread of fewer degrees of freedom, that is of two deployments, is as good as unknown.
_FEWEST_DEGREES = 2


@dataclass(frozen=True)
class KnownSpread:
    """The workloads of an archive that was measured in rounds; `name` is the archive's."""

    name: str
    loads: tuple[LoadRuns, ...]

    def estimate(
        self,
        metric: Metric,
        dimensions: Mapping[str, Scalar],
        direction: str,
        values: Sequence[Scalar],
        sides: Sequence[Sequence[repeats.Value]],
    ) -> Optional[repeats.Estimate]:
        """The ratio of two rows that were deployed once; None where that workload was not repeated.

        Each row has the variance of its own name there; of a name that is not there the largest.
        """
        load = self.like(dimensions, direction)
        if load is None:
            return None
        variances = [_variance(metric, load, value) for value in values]
        if variances[0] is None or variances[1] is None:
            return None
        centers = [sum(value.log for value in side) / len(side) for side in sides]
        parts = [(variance[0], variance[1], 1) for variance in (variances[0], variances[1])]
        basis = f"one deployment of each; spread between deployments from {self.name}"
        return repeats.of_known_spread(centers[0] - centers[1], parts, basis)

    def like(self, dimensions: Mapping[str, Scalar], direction: str) -> Optional[LoadRuns]:
        """That workload there; None where it was not measured."""
        wanted = direction, _plain(dimensions)
        loads = (load for load in self.loads if (load.direction, _plain(load.dimensions)) == wanted)
        return next(loads, None)


def _variance(metric: Metric, load: LoadRuns, value: Scalar) -> Optional[tuple[float, int]]:
    by_row = {name: repeats.variance_of(load.values(metric, name)) for name in load.cells}
    known = {name: v for name, v in by_row.items() if v is not None and v[1] >= _FEWEST_DEGREES}
    return known.get(value) or max(known.values(), default=None)


def _plain(dimensions: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {key: value for key, value in dimensions.items() if key not in _ASIDE}


_TAIL = 0.975

#: The figure by which rows are also compared with one another.
_AMONG_ROWS = "iops"
#: Among so many first rows of a workload at most; their pairs are 125,000.
MOST_ROWS = 500

#: A section, one of its rows, the row it is compared with, and the figure.
_Key = tuple[Hashable, Scalar, Scalar, str]


@dataclass(frozen=True)
class LoadRuns:
    """All cells of one section: the same workload under each value of the compared dimension.

    `dimensions` are what the workload is, without the compared one.
    """

    direction: str
    cells: Mapping[Scalar, Stretches]
    dimensions: Mapping[str, Scalar] = field(default_factory=dict)
    #: Row -> how many of its runs failed, and how many are still to be measured.
    failed: Mapping[Scalar, int] = field(default_factory=dict)
    missing: Mapping[Scalar, int] = field(default_factory=dict)
    _values: dict[tuple[str, Scalar], list[repeats.Value]] = field(default_factory=dict)
    _figures: dict[tuple[str, Scalar], Optional[float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        direction: str,
        rows: Mapping[Scalar, Sequence[Run]],
        numbers: Mapping[int, int],
        dimensions: Mapping[str, Scalar],
    ) -> LoadRuns:
        """From the runs of each row, with the `stretches` that they are in."""
        gone = {
            value: [run.is_missing for run in runs if run.failure is not None]
            for value, runs in rows.items()
        }
        return cls(
            direction,
            {value: split(runs, numbers) for value, runs in rows.items()},
            dimensions,
            {value: missing.count(False) for value, missing in gone.items()},
            {value: missing.count(True) for value, missing in gone.items()},
        )

    def gave_nothing(self, metric: Metric, value: Scalar) -> int:
        """How many runs of a row failed, or did no IO: they are part of what it does."""
        idle = 0
        if metric.key == _AMONG_ROWS:
            measured = self.runs(value)
            idle = len(measured) - len(self.values(metric, value))
        return self.failed.get(value, 0) + idle

    def runs(self, value: Scalar) -> list[Run]:
        """The measured runs of one row."""
        return [run for stretch in self.cells.get(value, ()) for run in stretch]

    def figure(self, metric: Metric, value: Scalar, runs: Sequence[Run]) -> Optional[float]:
        """Of `runs` of a row; of all made once, as other rows are compared with the baseline's."""
        if len(runs) < len(self.runs(value)):
            return metric.of(runs, self.direction)
        key = (metric.key, value)
        if key not in self._figures:
            self._figures[key] = metric.of(self.runs(value), self.direction)
        return self._figures[key]

    def together(self, *rows: Scalar) -> list[list[Run]]:
        """The runs of rows that are compared: of the rounds in which all of them were measured.

        The machine may be another in the next round, where only one of them was. All runs where
        they have no round in common, as those of two archives.
        """
        runs = [self.runs(value) for value in rows]
        rounds = [{(run.campaign, run.planned.iteration) for run in of_row} for of_row in runs]
        common = set.intersection(*rounds)
        if not common or all(of_row == common for of_row in rounds):
            return runs
        return [
            [run for run in of_row if (run.campaign, run.planned.iteration) in common]
            for of_row in runs
        ]

    def values(self, metric: Metric, value: Scalar) -> list[repeats.Value]:
        """The logarithms of one row's runs that have this figure; made once."""
        key = (metric.key, value)
        if key not in self._values:
            self._values[key] = [
                repeats.Value(
                    log, run.planned.iteration, _deployment(run, number), run.beside, run.started,
                    run.campaign,
                )
                for number, stretch in enumerate(self.cells.get(value, ()))
                for run in stretch
                if (log := log_value(metric, run, self.direction)) is not None
            ]  # fmt: skip
        return self._values[key]


class Comparisons:
    """All comparisons of a report, with their verdicts.

    A verdict is of one figure over an archive: with a chance of 95 % every difference that is shown
    in it is one. Rows compared with one another, and each compared archive, are families too.
    """

    def __init__(
        self,
        loads: Mapping[Hashable, LoadRuns],
        baseline: Scalar,
        lacking: Collection[Optional[Scalar]] = (),
        known: Optional[KnownSpread] = None,
    ) -> None:
        """`known` is how much deployments differed in another archive.

        `lacking`: the archives without a control; None is the only one.
        """
        self._archives = {key: load.dimensions.get(ARCHIVE) for key, load in loads.items()}
        self._baseline = baseline
        # A campaign without a control has one comparison less to be wrong with, and no test of
        # itself: its absent control counts.
        self._absent = Counter(one for one in self._archives.values() if one in lacking)
        self._by_key = self._judged(_with_baseline(loads, baseline), loads, known)
        self._by_key |= self._judged(_among(loads, baseline), loads, known)

    def of(self, load: Hashable, value: Scalar, key: str) -> Optional[Comparison]:
        """A row's figure in percent of the baseline's; None where one of them has none."""
        return self._by_key.get((load, value, self._baseline, key))

    def between(self, load: Hashable, value: Scalar, other: Scalar) -> Optional[Comparison]:
        """A row's throughput in percent of another row's."""
        return self._by_key.get((load, value, other, _AMONG_ROWS))

    def count(self, key: str) -> int:
        """How many comparisons of a figure with the baseline carry a verdict."""
        return sum(
            comparison.differs is not None
            for (_, _, other, figure), comparison in self._by_key.items()
            if figure == key and other == self._baseline
        )

    def family(self, key: str) -> int:
        """Over how many comparisons with the baseline the verdicts of a figure hold together."""
        return self.count(key) + sum(self._absent.values())

    def levels(self, key: str) -> set[Optional[str]]:
        """What was repeated of the comparisons of a figure, each once."""
        return {one.level for (*_, figure), one in self._by_key.items() if figure == key}

    def _judged(
        self, keys: Iterable[_Key], loads: Mapping[Hashable, LoadRuns], known: Optional[KnownSpread]
    ) -> dict[_Key, Comparison]:
        by_figure = grouped(((key[3], self._archives[key[0]]), key) for key in keys)
        judged: dict[_Key, Comparison] = {}
        for (figure, archive), of_figure in by_figure.items():
            metric = BY_KEY[figure]
            found = {
                key: repeated
                for key in of_figure
                if (repeated := _repeated(metric, loads[key[0]], key[1], key[2], known))
            }
            found = repeats.together(
                found, {key: key[1:3] for key in found}, {key: key[0] for key in found}
            )
            compared = {
                key: comparison
                for key in of_figure
                if (comparison := _compare(metric, loads[key[0]], *key[1:3], found.get(key)))
            }
            p_values = {key: one.p for key, one in compared.items() if one.p is not None}
            shown = repeats.differing(p_values, self._absent[archive])
            judged |= {key: replace(one, differs=shown.get(key)) for key, one in compared.items()}
        return judged


def _with_baseline(loads: Mapping[Hashable, LoadRuns], baseline: Scalar) -> Iterator[_Key]:
    for name, load in loads.items():
        for value in load.cells:
            if value != baseline:
                for metric in BY_KEY.values():
                    yield name, value, baseline, metric.key


def _among(loads: Mapping[Hashable, LoadRuns], baseline: Scalar) -> Iterator[_Key]:
    for name, load in loads.items():
        rows = [value for value in load.cells if value != baseline][:MOST_ROWS]
        for position, value in enumerate(rows):
            for other in rows[:position]:
                yield name, value, other, _AMONG_ROWS


def _compare(
    metric: Metric, load: LoadRuns, value: Scalar, other: Scalar,
    repeated: Optional[repeats.Estimate],
) -> Optional[Comparison]:  # fmt: skip
    """In percent of another row; no interval if nothing is known, None if it would mean nothing."""
    if not metric.better:
        return None
    measured, base = load.together(value, other)
    figure, of_base = load.figure(metric, value, measured), load.figure(metric, other, base)
    if figure is None or not of_base:
        return None
    percent = 100 * figure / of_base
    if metric.test is Test.NONE:
        return Comparison(percent)
    if nothing := sum(load.gave_nothing(metric, row) for row in (value, other)):
        all_runs = sum(len(load.runs(v)) + load.failed.get(v, 0) for v in (value, other))
        basis = f"{nothing} of {all_runs} cells of both rows failed or did no IO; no verdict"
        return Comparison(percent, basis=basis)
    if repeated is None:
        return _within_runs(metric, load.direction, measured, base, percent)
    if repeated.level is not repeats.Level.ELSEWHERE:
        percent = 100 * math.exp(repeated.center)
    basis = repeated.basis
    if metric.key in asked_of(measured[0].planned.parameters):
        basis += _wish(measured[0], repeated)
    return of_estimate(repeated, percent, basis)


def of_estimate(found: repeats.Estimate, percent: float, basis: str) -> Comparison:
    """An estimate as reports have it, without the verdict, which others have a part in."""
    compared = _comparison(percent, found.half, found.level, basis, found.p)
    return replace(compared, errors=found.errors, looks=found.looks)


def _repeated(
    metric: Metric, load: LoadRuns, value: Scalar, other: Scalar, known: Optional[KnownSpread]
) -> Optional[repeats.Estimate]:
    if not metric.is_judged:
        return None
    sides = [load.values(metric, row) for row in (value, other)]
    if not all(sides) or any(load.gave_nothing(metric, row) for row in (value, other)):
        return None
    is_finished = not any(load.missing.get(row, 0) for row in (value, other))
    wish = _wished(metric, load, value, other)
    estimated = repeats.estimate(sides[0], sides[1], wish, is_finished)
    if estimated is None and known is not None:
        estimated = known.estimate(metric, load.dimensions, load.direction, (value, other), sides)
    return estimated


def _wished(metric: Metric, load: LoadRuns, value: Scalar, other: Scalar) -> Optional[repeats.Wish]:
    """The precision that the row was measured to, and how far that was reached."""
    wishes = [until_of(run.planned.parameters) for run in load.runs(value)]
    until = next((wish for wish in wishes if wish is not None), None)
    if until is None:
        return None
    asked = asked_of(load.runs(value)[0].planned.parameters)
    if asked == (metric.key,):
        return repeats.Wish(until.half)
    halves = [_half(load, BY_KEY[key], (value, other), repeats.Wish(until.half)) for key in asked]
    return repeats.Wish(until.half, max(halves))


def _half(load: LoadRuns, metric: Metric, rows: tuple[Scalar, Scalar], wish: repeats.Wish) -> float:
    """Half the interval of that figure's percent by now; infinite where nothing is known of it."""
    sides = [load.values(metric, row) for row in rows]
    found = repeats.estimate(sides[0], sides[1], wish) if all(sides) else None
    return math.inf if found is None else found.half


def _within_runs(
    metric: Metric, direction: str, measured: Sequence[Run], base: Sequence[Run], percent: float
) -> Comparison:
    """What varied while this was measured. Another deployment may differ by more."""
    sides = [_error(metric, direction, runs) for runs in (measured, base)]
    if sides[0] is None or sides[1] is None:
        return Comparison(percent)
    degrees = min(sides[0][1], sides[1][1])
    half = float(stdtrit(degrees, _TAIL)) * math.hypot(sides[0][0], sides[1][0])
    many = len(measured) > 1 or len(base) > 1
    basis = f"within {'these runs' if many else 'this run'}, of one deployment; no verdict"
    return _comparison(percent, half, repeats.Level.RUN, basis, None)


def _error(metric: Metric, direction: str, runs: Sequence[Run]) -> Optional[tuple[float, float]]:
    """Standard error of the logarithm of one side's mean, with its degrees of freedom."""
    logs = [log_value(metric, run, direction) for run in runs]
    known = [log for log in logs if log is not None]
    if len(known) > 1:
        return math.sqrt(variance(known) / len(known)), len(known) - 1
    within = [run.within[direction] for run in runs if direction in run.within]
    spreads = [sd for sd in map(metric.log_sd, within) if sd is not None]
    return (spreads[0], max(within[0].blocks - 1, 1.0)) if spreads else None


def _wish(run: Run, repeated: repeats.Estimate) -> str:
    """What is said where a precision was asked for."""
    until = until_of(run.planned.parameters)
    if until is None:
        return ""
    if repeated.half <= until.half:
        return repeats.UNTIL_KNOWN if repeated.level is repeats.Level.TURNS else ""
    return f"; {until.precision} was asked for and not reached"


def _comparison(
    percent: float, half: float, level: repeats.Level, basis: str, p: Optional[float]
) -> Comparison:
    low, high = percent * math.exp(-min(half, 50.0)), percent * math.exp(min(half, 50.0))
    return Comparison(percent, low, high, basis, level.value, p)
