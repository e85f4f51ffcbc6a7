"""What repetitions tell of the ratio of two configurations: pure arithmetic on logarithms.

The unit is the deployment. Each round gives one ratio: of two deployments, of one that served both,
or the mean of the turns on one. One rule makes verdicts of them (`moderated`, `p_values`,
`differing`); docs/method.md explains it and says how often it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from cbt_crypto.results import repetition
from cbt_crypto.results.repetition import (
    ALPHA,
    FEWEST_PAIRS,
    FEWEST_ROUNDS,
    GIVEN,
    GIVEN_SHARED,
    VERDICT,
    boundary,
    interval,
    p_of_t,
)
from cbt_crypto.units import grouped

_TAIL = 0.975
#: Whoever looks at a campaign while it runs may end it by what he sees. So before its end a
#: verdict must hold beside as many looks.
LOOKS = 50
#: Of a basis, where the precision that was asked for ended the campaign.
UNTIL_KNOWN = ", until the precision was reached"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Value:
    """The logarithm of one run's figure, the round it was measured in, and on which deployment.

    `beside`: its group of OSDs, and the number of the deployment, where groups stand side by side.
    `started`: when, where that is known. `campaign`: the archive, where several are compared.
    """

    log: float
    round: int
    deployment: Hashable
    beside: Optional[tuple[str, int]] = None
    started: Optional[float] = None
    campaign: str = ""


@dataclass(frozen=True)
class Wish:
    """Half the interval of a figure's logarithm to end at, and the widest reached by now."""

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
    """The standard error of a ratio's logarithm, by Student or, with `is_sequence`, the sequence's.

    `is_own`: of the comparison's own deployments alone, beside one that borrows.
    """

    error: float
    degrees: float
    is_sequence: bool = False
    is_own: bool = False

    @property
    def half(self) -> float:
        """Half an interval of 95 %; infinite where that little is known."""
        if self.is_sequence:
            return boundary(int(self.degrees) + 1) * self.error if self.error else 0.0
        return float(stdtrit(self.degrees, _TAIL)) * self.error

    def p(self, distance: float) -> float:
        """The two-sided chance of a mean that is `distance` or more from the true one."""
        if self.error == 0:
            return 1.0 if distance == 0 else 0.0
        t = abs(distance) / self.error
        if self.is_sequence:
            return p_of_t(t, int(self.degrees) + 1)
        return 2 * float(stdtr(self.degrees, -t))


def p_of(errors: Iterable[StandardError], distance: float) -> float:
    """The two-sided chance of a mean that far from the true one.

    A comparison's own deployments need not hold beside all other comparisons, but by themselves.
    """
    found = 0.0
    for error in errors:
        p = error.p(distance)
        if not error.is_own or p > ALPHA:
            found = max(found, p)
    return found


@dataclass(frozen=True)
class Estimate:
    """`center` +- `half` of the logarithm of a ratio, at 95 %.

    `p` is the chance of such a difference where there is none; None where none may be told.
    `errors` are what both follow from. `variance` is that of one round's ratio, `count` the rounds,
    and `given` the degrees of freedom that a verdict gives away for what others lend.
    """

    center: float
    half: float
    level: Level
    basis: str
    p: Optional[float] = None
    errors: tuple[StandardError, ...] = ()
    variance: Optional[float] = None
    count: int = 0
    given: int = 0
    #: By how much `p` is raised, as the campaign may end by what it shows.
    looks: int = 1


def moderated(variances: Floats, degrees: Floats, rows: Ints, loads: Ints) -> tuple[Floats, Floats]:
    """The variance of each comparison of a figure, drawn towards the others', and its degrees.

    The last axis is comparisons; `rows` and `loads` number what each is of. Variances are drawn
    towards the largest of three means: of all, of the same row's, and of the same workload's. None
    becomes smaller. (After G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 3(1), 2004.)
    """
    borrowed = repetition.borrowed(len(degrees))
    expected = np.maximum(variances.mean(axis=-1, keepdims=True), _means_by(variances, rows))
    expected = np.maximum(expected, _means_by(variances, loads))
    drawn = (borrowed * expected + degrees * variances) / (borrowed + degrees)
    return np.maximum(drawn, variances), degrees + borrowed


def _means_by(values: Floats, groups: Ints) -> Floats:
    belongs = (groups[:, None] == groups[None, :]).astype(float)
    found: Floats = values @ (belongs / belongs.sum(axis=0))
    return found


def p_values(
    centers: Floats, variances: Floats, counts: Ints, given: int, rows: Ints, loads: Ints
) -> Floats:
    """The p of each comparison (last axis) of a figure, as `together` has it, for the trial."""
    drawn, degrees = moderated(variances, np.asarray(counts - 1.0 - given), rows, loads)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_all = 2 * stdtr(degrees, -np.abs(centers) / np.sqrt(drawn / counts))
        by_own = 2 * stdtr(counts - 1.0, -np.abs(centers) / np.sqrt(variances / counts))
    found = np.where(by_own > ALPHA, np.maximum(by_own, by_all), by_all)
    return np.where(np.isnan(found), 1.0, found)


def shown(found: Floats, more: int = 0, level: float = VERDICT) -> NDArray[np.bool_]:
    """Whether each difference is shown, of p-values whose last axis is that of comparisons.

    Holm's rule (Scandinavian Journal of Statistics 6, 1979); `more` are counted without a p.
    """
    count = found.shape[-1]
    rising = np.argsort(found, axis=-1)
    limits = level / (count + more - np.arange(count))
    holds = np.cumprod(np.take_along_axis(found, rising, -1) <= limits, axis=-1).astype(bool)
    verdicts = np.empty(found.shape, bool)
    np.put_along_axis(verdicts, rising, holds, axis=-1)
    return verdicts


KeyT = TypeVar("KeyT", bound=Hashable)


def together(
    estimates: Mapping[KeyT, Estimate], row: Mapping[KeyT, Hashable], load: Mapping[KeyT, Hashable]
) -> dict[KeyT, Estimate]:
    """All comparisons of one figure, with what they know of one another's deployments.

    What carries no verdict, or is of turns on one cluster, neither lends nor borrows.
    """
    found = dict(estimates)
    keys = [key for key, one in found.items() if one.variance is not None and one.p is not None]
    if not keys:
        return found
    variances = np.array([found[key].variance for key in keys], np.float64)
    own = np.array([found[key].count - 1 - found[key].given for key in keys], np.float64)
    numbers = [_numbered([names[key] for key in keys]) for names in (row, load)]
    drawn, degrees = moderated(variances, own, *numbers)
    for key, variance, freedom in zip(keys, drawn, degrees):
        one = found[key]
        error = StandardError(math.sqrt(variance / one.count), float(freedom))
        errors = (error, *one.errors)
        p = min(1.0, p_of(errors, one.center) * one.looks)
        found[key] = replace(one, p=p, errors=errors)
    return found


def _numbered(names: Sequence[Hashable]) -> Ints:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])


def estimate(
    values: Sequence[Value],
    base: Sequence[Value],
    until: Optional[Wish] = None,
    is_finished: bool = True,
) -> Optional[Estimate]:
    """What the repetitions of two configurations say of their ratio; None where nothing repeats.

    `until` says that the campaign ended when it knew enough: only intervals that are right whatever
    ends it are then. `is_finished`: everything was measured that was to be.
    """
    campaigns = {repeat.campaign for repeat in (*values, *base)}
    if len(campaigns) > 1:
        return _unrelated(values, base, "in different campaigns")
    besides = {repeat.beside for repeat in (*values, *base) if repeat.beside is not None}
    # Groups, or rows of one group on several deployments, which are the unit of those too.
    if len({name for name, _ in besides}) > 1 or len({number for _, number in besides}) > 1:
        return _beside(values, base, until, is_finished)
    pairs = _pairs(values, base)
    if not {repeat.deployment for repeat in values} & {repeat.deployment for repeat in base}:
        return _apart(values, base, until, is_finished)
    units = _units(pairs)
    cells = (*values, *base)
    if len(units) < 2 or len(pairs) >= 2 * len(units) or (until and len(units) < len(pairs)):
        on_one_cluster = [
            of_row.log - of_base.log
            for of_row, of_base in pairs
            if of_row.deployment == of_base.deployment and _took_turns(of_row, of_base, cells)
        ]
        return _in_turns(on_one_cluster, len(units))
    ratios = [(math.fsum(unit) / len(unit), 0.0) for unit in units]
    basis = f"{len(ratios)} deployments shared with the baseline, in rounds"
    return _rounds(ratios, basis, until, is_finished, GIVEN_SHARED)


def _rounds(
    rounds: Sequence[tuple[float, float]],
    basis: str,
    until: Optional[Wish],
    is_finished: bool,
    given: int = GIVEN,
    least: float = 0.0,
) -> Optional[Estimate]:
    """The logarithms of both sides of each round; the only estimator of deployments."""
    count = len(rounds)
    if count < 2:
        return None
    spread = repetition.of_rounds(rounds, until is not None, least)
    errors = tuple(StandardError(*error, is_own=True) for error in spread.errors)
    half = max(error.half for error in errors)
    looks = 1 if is_finished else LOOKS
    if until is not None:
        reached = half if until.half_reached is None else until.half_reached
        is_reached = reached <= until.half
        looks = 1 if is_reached else LOOKS
        basis += UNTIL_KNOWN if is_reached else ""
    if count < FEWEST_ROUNDS:
        return Estimate(spread.center, half, Level.ROUNDS, basis, errors=errors)
    p = min(1.0, max(error.p(spread.center) for error in errors) * looks)
    return Estimate(
        spread.center, half, Level.ROUNDS, basis, p, errors, spread.variance, count, given, looks
    )


def _beside(
    values: Sequence[Value], base: Sequence[Value], until: Optional[Wish], is_finished: bool
) -> Optional[Estimate]:
    """Groups of OSDs side by side: each deployment is a value, as turns tell nothing of slices."""
    by_deployment = repetition.on_one_cluster(
        (of_row.beside[1], of_row.deployment, of_base.deployment, of_row.log - of_base.log)
        for of_row, of_base in _pairs(values, base, same_time=False)
        if of_row.beside is not None
    )
    if not by_deployment:
        # One was measured again, or by itself, on clusters that never served the other.
        return _apart(values, base, until, is_finished)
    pairs = [log for logs in by_deployment.values() for log in logs]
    count = len(by_deployment)
    if count > 1:
        basis = f"{count} deployments side by side, {len(pairs)} pairs of turns in all"
        means = [(math.fsum(logs) / len(logs), 0.0) for logs in by_deployment.values()]
        least = repetition.least_of(list(by_deployment.values()))
        found = _rounds(means, basis, until, is_finished, least=least)
        if found is not None and len(pairs) == count:
            # A place in the round looks like a difference: 10 % of such verdicts were false.
            basis = f"{found.basis}, one pair on each; no verdict"
            return replace(found, basis=basis, p=None, variance=None)
        return found
    if len(pairs) < 2:
        return None
    error = math.sqrt(repetition.variance(pairs) / len(pairs))
    half = StandardError(error, len(pairs) - 1).half
    basis = f"{len(pairs)} pairs of turns of two groups on one deployment; no verdict"
    return Estimate(math.fsum(pairs) / len(pairs), half, Level.RUN, basis)


def _apart(
    values: Sequence[Value], base: Sequence[Value], until: Optional[Wish], is_finished: bool
) -> Optional[Estimate]:
    """Each configuration on deployments of its own: none serves both."""
    means, base_means = _means(values), _means(base)
    least = min(len(means), len(base_means))
    if least < 2:
        return None
    pairs = _pairs(means, base_means)
    if len(pairs) < max(2, least / 2):
        return _unrelated(values, base, "not measured in the same rounds")
    rounds = [(of_row.log, of_base.log) for of_row, of_base in pairs]
    basis = f"{len(rounds)} deployments of each, in rounds"
    return _rounds(rounds, basis, until, is_finished)


def _unrelated(values: Sequence[Value], base: Sequence[Value], why: str) -> Optional[Estimate]:
    """Deployments of different days: an interval, and no verdict, as anything may have changed."""
    sides = [[value.log for value in _means(side)] for side in (values, base)]
    if min(map(len, sides)) < 2:
        return None
    center = math.fsum(sides[0]) / len(sides[0]) - math.fsum(sides[1]) / len(sides[1])
    error = math.sqrt(sum(repetition.variance(side) / len(side) for side in sides))
    known = StandardError(error, min(map(len, sides)) - 1)
    count = f"{len(sides[0])}" if len(sides[0]) == len(sides[1]) else (
        f"{len(sides[0])} and {len(sides[1])}"
    )  # fmt: skip
    basis = f"{count} deployments of each, {why}; no verdict"
    return Estimate(center, known.half, Level.ROUNDS, basis)


def _took_turns(one: Value, other: Value, cells: Iterable[Value]) -> bool:
    """Whether none of another round came between: with `order: sequential`, and on another day on
    what stays deployed, one row is measured after the other, and all that changed meanwhile.
    """
    first, last = sorted((one.started or 0.0, other.started or 0.0))
    return not any(
        first < cell.started < last for cell in cells if cell.started and cell.round != one.round
    )


def _in_turns(differences: Sequence[float], clusters: int) -> Optional[Estimate]:
    if len(differences) < FEWEST_PAIRS:
        return None
    estimated = interval(differences)
    if not math.isfinite(estimated.half):
        return None
    batches = f", averaged {estimated.batch} at a time" if estimated.batch > 1 else ""
    where = "one cluster" if clusters == 1 else f"{clusters} clusters"
    basis = f"{len(differences)} pairs of turns{batches} on {where}"
    error = estimated.half / boundary(estimated.count)
    errors = (StandardError(error, estimated.count - 1, is_sequence=True),)
    p = errors[0].p(estimated.center)
    return Estimate(estimated.center, estimated.half, Level.TURNS, basis, p, errors)


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
    return (repetition.variance(means), len(means) - 1) if len(means) > 1 else None


def _means(values: Iterable[Value]) -> list[Value]:
    in_order = sorted(values, key=lambda value: value.round)
    by_deployment = grouped((value.deployment, value) for value in in_order)
    return [
        replace(repeats[0], log=math.fsum(v.log for v in repeats) / len(repeats), beside=None)
        for repeats in by_deployment.values()
    ]


def _pairs(
    values: Sequence[Value], base: Sequence[Value], same_time: bool = True
) -> list[tuple[Value, Value]]:
    """The runs of one round, in order; with `same_time` none that was added or repeated later."""
    sides = [{value.round: value for value in side} for side in (values, base)]
    both = sorted(sides[0].keys() & sides[1].keys())
    return [
        (sides[0][number], sides[1][number])
        for number in both
        if not same_time
        or sides[0][number].deployment == sides[1][number].deployment
        or (_in_round(number, sides[0], sides[1]) and _in_round(number, sides[1], sides[0]))
    ]


def _in_round(number: int, own: Mapping[int, Value], other: Mapping[int, Value]) -> bool:
    started = own[number].started
    if started is None:
        return True
    before = [v.started for n, v in other.items() if n < number and v.started is not None]
    behind = [v.started for n, v in other.items() if n > number and v.started is not None]
    return started > max(before, default=-math.inf) and started < min(behind, default=math.inf)


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


def differing(
    p_values: Mapping[KeyT, float], more: int = 0, level: float = VERDICT
) -> dict[KeyT, bool]:
    """Key -> whether its difference is shown. `more` comparisons are counted without a p."""
    verdicts = shown(np.array(list(p_values.values()), np.float64), more, level)
    return dict(zip(p_values, verdicts.tolist()))
