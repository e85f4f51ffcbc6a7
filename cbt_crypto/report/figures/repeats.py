"""What repetitions tell of the ratio of two configurations: pure arithmetic on logarithms.

The unit is the deployment: two runs on one cluster say little of another. Reports and the trial in
`perf/coverage.py` use the same functions. docs/method.md says what they assume and how often they
are wrong.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Optional, TypeVar

from scipy.special import stdtr, stdtrit

from cbt_crypto.results import repetition
from cbt_crypto.results.repetition import (
    ALPHA,
    FEWEST_PAIRS,
    FEWEST_ROUNDS,
    FIRST,
    Interval,
    Spread,
    boundary,
    fluke,
    interval,
    p_of_t,
    p_value,
)

_TAIL = 0.975


@dataclass(frozen=True)
class Value:
    """The logarithm of one run's figure, the round it was measured in, and on which deployment.

    `beside`: its group of OSDs, and the number of the deployment, where groups stand side by side.
    """

    log: float
    round: int
    deployment: Hashable
    beside: Optional[tuple[str, int]] = None


@dataclass(frozen=True)
class Wish:
    """Half the interval of a figure's logarithm that a campaign was to end at.

    `half_reached`: where other figures decide too, the widest of their intervals by now.
    """

    half: float
    half_reached: Optional[float] = None


class Level(Enum):
    """What an interval is made of."""

    ROUNDS = "rounds"
    TURNS = "turns"
    #: Of another archive's repetitions.
    ELSEWHERE = "elsewhere"
    #: Seconds of single runs: no more than a range within them.
    RUN = "run"


@dataclass(frozen=True)
class StandardError:
    """The standard error of the logarithm of a ratio, and the test that goes with it.

    It is Student's, of so many degrees of freedom, or with `is_sequence` the confidence sequence's.
    No p is below `least`, however large a difference is: see `fluke`.
    """

    error: float
    degrees: int
    is_sequence: bool = False
    least: float = 0.0

    @property
    def half(self) -> float:
        """Half an interval of 95 %; infinite where that little is known."""
        if self.is_sequence:
            return boundary(self.degrees + 1) * self.error if self.error else 0.0
        return float(stdtrit(self.degrees, _TAIL)) * self.error

    def p(self, distance: float) -> float:
        """The two-sided chance of a mean that is `distance` or more from the true one."""
        if self.error == 0:
            return 1.0 if distance == 0 else self.least
        t = abs(distance) / self.error
        if self.is_sequence:
            return max(p_of_t(t, self.degrees + 1), self.least)
        return max(2 * float(stdtr(self.degrees, -t)), self.least)


@dataclass(frozen=True)
class Estimate:
    """`center` +- `half` of the logarithm of a ratio, at 95 %.

    `p` is the chance of such a difference where there is none; None where no verdict may rest on
    what was repeated. `errors` are what both follow from: the one that knows least counts.
    """

    center: float
    half: float
    level: Level
    basis: str
    p: Optional[float] = None
    errors: tuple[StandardError, ...] = ()


def estimate(
    values: Sequence[Value], base: Sequence[Value], until: Optional[Wish] = None
) -> Optional[Estimate]:
    """What the repetitions of two configurations say of their ratio; None where nothing repeats.

    `until` says that the campaign ended when it knew enough: only intervals that are right whatever
    ends it are then.
    """
    besides = [{repeat.beside for repeat in side} for side in (values, base)]
    if besides[0] != besides[1] or (until is not None and len(besides[0]) > 1):
        return _beside(values, base, until)
    shared = {repeat.deployment for repeat in values} & {repeat.deployment for repeat in base}
    if not shared:
        return _apart(values, base, until)
    pairs = _pairs(values, base)
    units = _units(pairs)
    if until is not None and 1 < len(units) == len(pairs):
        ratios = [unit[0] for unit in units]
        counted = f"{len(units)} deployments that served both, in rounds"
        return _until(repetition.shared(ratios), ratios, until, counted)
    on_one_cluster = [
        of_row.log - of_base.log
        for of_row, of_base in pairs
        if of_row.deployment == of_base.deployment
    ]
    if until is not None or len(pairs) >= 2 * len(units):
        return _in_turns(on_one_cluster, len(units))
    return _paired([math.fsum(unit) / len(unit) for unit in units])


def _until(known: Spread, ratios: Sequence[float], until: Wish, counted: str) -> Estimate:
    """Deployments that were added until what was asked of each row was known well enough.

    Width ended them, for which Stein's interval is right. Before that somebody may have ended them
    by what he saw: then a verdict needs intervals that hold whenever one looks, too. `ratios` has
    one of each deployment.
    """
    least = fluke(2 * len(ratios))
    errors = [StandardError(error, degrees, least=least) for error, degrees in known.errors]
    half = max(error.half for error in errors)
    reached = half if until.half_reached is None else until.half_reached
    is_reached = reached <= until.half
    if not is_reached and len(ratios) >= FIRST:
        errors.append(_of_sequence(interval(ratios)))
    p = max(error.p(known.center) for error in errors) if len(ratios) >= FIRST else None
    enough = ", until it was known well enough" if is_reached else ""
    return Estimate(known.center, half, Level.ROUNDS, counted + enough, p, tuple(errors))


def _beside(
    values: Sequence[Value], base: Sequence[Value], until: Optional[Wish]
) -> Optional[Estimate]:
    """Groups of OSDs on the same clusters, in turns: each deployment is one value.

    Two groups of one cluster differ by their slices of the drives and by where CRUSH puts what, as
    two clusters do, and no number of turns on them tells by how much.
    """
    by_deployment = repetition.on_one_cluster(
        (of_row.beside[1], of_row.deployment, of_base.deployment, of_row.log - of_base.log)
        for of_row, of_base in _pairs(values, base)
        if of_row.beside is not None
    )
    if not by_deployment:
        # One was measured again, or by itself, on clusters that never served the other.
        return _apart(values, base, until)
    pairs = [log for logs in by_deployment.values() for log in logs]
    count = len(by_deployment)
    if count > 1:
        basis = f"{count} deployments side by side, {len(pairs)} pairs of turns in all"
        means = [math.fsum(logs) / len(logs) for logs in by_deployment.values()]
        if until is not None:
            return _until(repetition.beside(list(by_deployment.values())), means, until, basis)
        center, of_means = _student(means, least=fluke(2 * count))
        of_pairs, of_turns = _student(pairs)
        # Whichever knows less: deployments can be alike by chance, and turns then are not.
        half = max(of_means.half, of_turns.half)
        p = max(of_means.p(center), of_turns.p(of_pairs)) if count >= FEWEST_ROUNDS else None
        return Estimate(center, half, Level.ROUNDS, basis, p, (of_means, of_turns))
    if len(pairs) < 2:
        return None
    center, error = _student(pairs)
    basis = f"{len(pairs)} pairs of turns of two groups on one deployment; no verdict"
    return Estimate(center, error.half, Level.RUN, basis)


def _apart(
    values: Sequence[Value], base: Sequence[Value], until: Optional[Wish]
) -> Optional[Estimate]:
    """Each configuration on deployments of its own: none serves both."""
    means, base_means = _means(values), _means(base)
    if min(len(means), len(base_means)) < 2:
        return None
    differences = [a.log - b.log for a, b in _pairs(means, base_means)]
    if until is not None:
        if len(differences) < 2:
            return None
        counted = f"{len(differences)} deployments of each, in rounds"
        spread = repetition.apart([(a.log, b.log) for a, b in _pairs(means, base_means)])
        return _until(spread, differences, until, counted)
    center, welch = _welch([value.log for value in means], [value.log for value in base_means])
    # A degree of freedom is given away for cycles, as in `_paired`; what has no verdict keeps it.
    less = 2 if len(differences) >= FEWEST_ROUNDS else 1
    of_rounds, rounds = _student(differences, less) if len(differences) > 1 else (center, welch)
    # Whichever knows less: rounds differ where one disturbance lasts over several of them,
    # configurations where a disturbance changes from one of them to the next.
    half, p = max(welch.half, rounds.half), max(welch.p(center), rounds.p(of_rounds))
    least = min(len(means), len(base_means))
    count = (
        f"{len(means)}" if len(means) == len(base_means) else f"{len(means)} and {len(base_means)}"
    )
    basis = f"{count} deployments of each, in rounds"
    has_verdict = least >= FEWEST_ROUNDS
    return Estimate(center, half, Level.ROUNDS, basis, p if has_verdict else None, (welch, rounds))


def _paired(differences: Sequence[float]) -> Optional[Estimate]:
    """Deployments that serve both configurations; several of them.

    Two degrees of freedom are given away: a cycle that is longer than a round has a phase and a
    depth, makes differences that are alike more often than normal ones are, and here nothing else
    tells of it.
    """
    count = len(differences)
    if count < 3:
        return None
    center, error = _student(differences, min(3, count - 1), fluke(2 * count))
    basis = f"{count} deployments that served both, in rounds"
    p = error.p(center) if count >= FEWEST_ROUNDS else None
    return Estimate(center, error.half, Level.ROUNDS, basis, p, (error,))


def _in_turns(differences: Sequence[float], clusters: int) -> Optional[Estimate]:
    """Pairs of blocks of one round on one cluster."""
    estimated = interval(differences)
    if len(differences) < FEWEST_PAIRS or not math.isfinite(estimated.half):
        return None
    batches = f", {estimated.batch} at a time" if estimated.batch > 1 else ""
    where = "one cluster" if clusters == 1 else f"{clusters} clusters"
    basis = f"{len(differences)} pairs of blocks{batches}, in turns on {where}"
    p, errors = p_value(differences), (_of_sequence(estimated),)
    return Estimate(estimated.center, estimated.half, Level.TURNS, basis, p, errors)


def _of_sequence(estimated: Interval) -> StandardError:
    """Of an interval that is finite."""
    error = estimated.half / boundary(estimated.count)
    return StandardError(error, estimated.count - 1, is_sequence=True)


def _welch(values: Sequence[float], base: Sequence[float]) -> tuple[float, StandardError]:
    """Center and error of means of unlike variance.

    Degrees of freedom are the fewer ones, less one: Welch's own estimate of them is too many where
    two or three values happen to be alike.
    """
    error = math.sqrt(
        statistics.variance(values) / len(values) + statistics.variance(base) / len(base)
    )
    center = math.fsum(values) / len(values) - math.fsum(base) / len(base)
    least = fluke(len(values) + len(base))
    return center, StandardError(error, min(len(values), len(base)) - 1, least=least)


def _student(
    values: Sequence[float], less: int = 1, least: float = 0.0
) -> tuple[float, StandardError]:
    error = math.sqrt(statistics.variance(values) / len(values))
    found = StandardError(error, len(values) - less, least=least)
    return math.fsum(values) / len(values), found


def of_known_spread(center: float, parts: Iterable[tuple[float, int, int]], basis: str) -> Estimate:
    """A ratio of which each side's variance, with its degrees of freedom, is known from elsewhere.

    `parts` has (variance, degrees, runs here) of each side. It carries no verdict: one run that
    met a stall is too far off for any variance of others.
    """
    sides = list(parts)
    error = math.sqrt(sum(variance / runs for variance, _, runs in sides))
    known = StandardError(error, min(degrees for _, degrees, _ in sides))
    return Estimate(center, known.half, Level.ELSEWHERE, basis)


def variance_of(values: Sequence[Value]) -> Optional[tuple[float, int]]:
    """The variance between deployments and its degrees of freedom; None where there is one."""
    means = [value.log for value in _means(values)]
    return (statistics.variance(means), len(means) - 1) if len(means) > 1 else None


def _means(values: Iterable[Value]) -> list[Value]:
    """One value a deployment, in the order of their first rounds."""
    by_deployment: dict[Hashable, list[Value]] = {}
    for value in sorted(values, key=lambda value: value.round):
        by_deployment.setdefault(value.deployment, []).append(value)
    return [
        Value(math.fsum(v.log for v in repeats) / len(repeats), repeats[0].round, deployment)
        for deployment, repeats in by_deployment.items()
    ]


def _pairs(values: Sequence[Value], base: Sequence[Value]) -> list[tuple[Value, Value]]:
    """The runs of one round, in the order of rounds."""
    other: Mapping[int, Value] = {value.round: value for value in base}
    return [
        (value, other[value.round])
        for value in sorted(values, key=lambda value: value.round)
        if value.round in other
    ]


def _units(pairs: Sequence[tuple[Value, Value]]) -> list[list[float]]:
    """Differences of pairs, those together that have a deployment in common, in order."""
    units: list[tuple[set[Hashable], list[float]]] = []
    for of_row, of_base in pairs:
        deployments: set[Hashable] = {of_row.deployment, of_base.deployment}
        differences: list[float] = []
        for unit in [unit for unit in units if unit[0] & deployments]:
            units.remove(unit)
            deployments |= unit[0]
            differences += unit[1]
        units.append((deployments, [*differences, of_row.log - of_base.log]))
    return [differences for _, differences in units]


KeyT = TypeVar("KeyT", bound=Hashable)


def differing(p_values: Mapping[KeyT, float], more: int = 0) -> dict[KeyT, bool]:
    """Key -> whether its difference is shown. `more` comparisons are counted without a p."""
    ordered = sorted(p_values, key=lambda key: p_values[key])
    verdicts: dict[KeyT, bool] = {}
    shown = True
    for rank, key in enumerate(ordered):
        shown = shown and p_values[key] <= ALPHA / (len(ordered) + more - rank)
        verdicts[key] = shown
    return verdicts
