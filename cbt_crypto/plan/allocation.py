"""What an earlier archive of several deployments says of the time that a precision takes."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Optional, get_args

from cbt_crypto.archive.files import digest
from cbt_crypto.archive.folder import beyond_the_file, steps_of, usual_fill_rate, usual_seconds
from cbt_crypto.plan.order import usual_pause_s
from cbt_crypto.results.repetition import FEWEST_ROUNDS, FIRST, half_of_rounds, student
from cbt_crypto.results.until import MARGIN, Asked, MeasureUntil
from cbt_crypto.units import time_text

#: Turns on each deployment and seconds a turn that are sensible, whatever variances say, of which
#: some are estimated as nothing.
_TURNS, _SECONDS = range(2, 31), (5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
#: More deployments than anybody waits for.
MOST = 1000
#: The normal distribution's quantile for a tenth at each end.
TENTH = 1.2816


@dataclass(frozen=True)
class Spread:
    """Variances of a percent's logarithm: of seconds, of turns, of deployments (`degrees`)."""

    second: float
    turn: float
    deployment: float
    degrees: int


@dataclass(frozen=True)
class Costs:
    """Seconds: of a deployment, of a round of turns without what it measures, of each second of it.

    That second has every cell of a round once; before each visit is a random pause.
    """

    deployment: float
    turns: float
    second: float
    visits: int = 0

    def pauses(self, seconds: float) -> float:
        """Mean pauses in a round of turns of `seconds`."""
        return self.visits * usual_pause_s(self.visits, seconds / 2)


@dataclass(frozen=True)
class Allocation:
    """How many turns of how many seconds each configuration gets on each deployment."""

    turns: int
    seconds: int

    def variance(self, spread: Spread) -> float:
        """Of one deployment's percent, its logarithm."""
        of_turn = spread.turn + spread.second / self.seconds
        return spread.deployment + of_turn / self.turns

    def cost(self, costs: Costs) -> float:
        """Seconds that one deployment takes, with all that is measured on it."""
        of_turns = costs.turns + costs.pauses(self.seconds) + costs.second * self.seconds
        return costs.deployment + self.turns * of_turns

    def half(self, spread: Spread, deployments: int) -> float:
        """Half the interval of the percent's logarithm, of at least 2 `deployments`."""
        return half_of_rounds(deployments) * math.sqrt(self.variance(spread))


#: How many deployments have an interval of that half, by the variance of one's percent: `MOST` or
#: more where nobody would wait for them.
Count = Callable[[float, float], int]
#: Half an interval in standard deviations of one deployment's percent, negative so that they rise.
_HALVES = [-half_of_rounds(count) for count in range(FEWEST_ROUNDS, MOST)]


def named_beforehand(variance: float, half: float) -> int:
    """The fewest that carry a verdict and reach that half, where the file says how many."""
    wanted = half / math.sqrt(variance) if variance else math.inf
    return FEWEST_ROUNDS + bisect_left(_HALVES, -wanted)


def until_known(variance: float, half: float) -> int:
    """How many there are where the first few say how many are needed (Stein, 1945)."""
    return max(FIRST, math.ceil(variance * (student(FIRST - 1) / (MARGIN * half)) ** 2))


def optimum(spreads: Sequence[Spread], costs: Costs, half: float, count: Count) -> Allocation:
    """The allocation with which every percent has an interval of that half in the least time."""

    def seconds(one: Allocation) -> float:
        needed = count(max(map(one.variance, spreads)), half)
        return needed * one.cost(costs) if needed < MOST else math.inf

    return min((Allocation(*each) for each in product(_TURNS, _SECONDS)), key=seconds)


def likely(spread: Spread) -> tuple[Spread, Spread]:
    """The spread with the least and the most variance that it has with a chance of 80 %."""
    least, most = (
        Spread(f * spread.second, f * spread.turn, f * spread.deployment, spread.degrees)
        for f in (spread.degrees / _chi2(spread.degrees, z) for z in (TENTH, -TENTH))
    )
    return least, most


def _chi2(degrees: int, z: float) -> float:
    """A quantile of the chi-square distribution (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * degrees)
    return float(degrees * max(1 - part + z * math.sqrt(part), 0.05) ** 3)


def spread_of(deployments: Sequence[Sequence[float]], of_run: float, seconds: float) -> Spread:
    """The spread of one percent by its logarithms, from at least two deployments, or ValueError.

    `of_run` is the variance of a turn's mean by its own `seconds`.
    """
    if len(deployments) < 2:
        raise ValueError("one deployment tells nothing about the next")
    means = [math.fsum(turns) / len(turns) for turns in deployments]
    squares = sum((x - m) ** 2 for turns, m in zip(deployments, means) for x in turns)
    degrees = sum(len(turns) - 1 for turns in deployments)
    of_turns = squares / degrees if degrees else of_run
    count = len(deployments) / math.fsum(1 / len(turns) for turns in deployments)
    mean = math.fsum(means) / len(means)
    of_means = math.fsum((m - mean) ** 2 for m in means) / (len(means) - 1)
    return Spread(
        second=of_run * seconds,
        turn=max(of_turns - of_run, 0.0),
        deployment=max(of_means - of_turns / count, 0.0),
        degrees=len(means) - 1,
    )


#: Precisions, in percent, that people ask for.
_ASKED = (5, 2, 1)


@dataclass(frozen=True)
class Seen:
    """How a percent varied: of which load and figure; `where`: beside, shared, apart."""

    scenario: str
    parameters: Mapping[str, Any]
    metric: str
    where: str
    spread: Spread


def advice(
    archive: Path, seen: Sequence[Seen], planned: Planned, deployments: Optional[int],
    own: Allocation,
) -> Iterator[str]:  # fmt: skip
    """Sentences: what varies, where time is spent best, and how long precisions take.

    `deployments` (None: until known) and `own` are what the file asks for.
    """
    spreads = [one.spread for one in seen if one.metric == "iops"]
    costs = costs_of(archive, planned)
    if not spreads or costs is None:
        yield "It has no two deployments side by side, and so does not show how much they differ."
        return
    worst = max(spreads, key=own.variance)
    yield (
        f"There, percentages differed by up to {_percent(worst.deployment)} between deployments "
        f"and {_percent(worst.turn)} between turns (the worst of {len(spreads)})."
    )
    for percent in _ASKED:
        yield _least_time(percent, spreads, costs, is_added=deployments is None)
    if deployments is not None and deployments > 1:
        reached = 100 * math.expm1(min(own.half(worst, deployments), 5.0))
        yield f"The file's {deployments} deployments reach about ±{reached:.2g} %."


def _least_time(percent: int, spreads: Sequence[Spread], costs: Costs, *, is_added: bool) -> str:
    half = math.log1p(percent / 100)
    count = until_known if is_added else named_beforehand
    best = optimum(spreads, costs, half, count)
    worst = max(spreads, key=best.variance)
    variances = [best.variance(one) for one in likely(worst)]
    if is_added:
        variances = [best.variance(worst) * ratio for ratio in _by_chance(worst.degrees, FIRST)]
    needed, *ends = (count(variance, half) for variance in (best.variance(worst), *variances))
    if needed >= MOST:
        return f"±{percent} % cannot be reached: it takes more than {MOST} deployments."
    low, usual, high = (time_text(each * best.cost(costs)) for each in (ends[0], needed, ends[1]))
    return (
        f"±{percent} % is reached soonest, in {usual} ({low} to {high} with a chance of 80 %), "
        f"with {needed} deployments of {best.turns} turns of {best.seconds} s each."
    )


def _by_chance(degrees: int, first: int) -> tuple[float, float]:
    """The range, at 80 %, of a variance estimated with `degrees` of freedom (Fisher's F)."""
    from scipy.special import fdtri  # noqa: PLC0415

    return float(fdtri(first - 1, degrees, 0.1)), float(fdtri(first - 1, degrees, 0.9))


@dataclass(frozen=True)
class Needed:
    """The rounds that a precision takes: with a chance of 80 % no fewer and no more, and usual."""

    rounds: tuple[int, int, int]
    words: str


def needed(
    seen: Sequence[Spread], until: MeasureUntil, turns: int, most: int, first: int = FIRST
) -> Needed:
    """How many deployments of `turns` to expect, at most `most`, by Stein's interval.

    The `first` differ by chance from those seen; more than `FIRST` where degrees are given away.
    """
    allocation = Allocation(turns, until.block)
    spreads = sorted(seen, key=allocation.variance)
    if not spreads:
        return Needed((most,) * 3, f"{most // turns} deployments at most; their spread is unknown")
    worst = spreads[-1]
    less, more = _by_chance(worst.degrees, first)
    fewest = max(until.fewest_of(turns), first * turns)
    wanted = [
        max(fewest, turns * until_known(ratio * allocation.variance(worst), until.half))
        for ratio in (less, 1.0, more)
    ]
    low, usual, high = (min(count, most) for count in wanted)
    asked = f"±{until.precision} after about {usual // turns} deployments of {turns} turns"
    if wanted[1] > most:
        half = math.sqrt(allocation.variance(worst) / (most // turns)) * student(most // turns - 1)
        reached = 100 * math.expm1(min(half, 5.0))
        asked = f"not ±{until.precision}, but about ±{reached:.2g} % after {most // turns}"
    words = f"{asked}, {low // turns} to {high // turns} with a chance of 80 %"
    return Needed((low, usual, high), words)


@dataclass(frozen=True)
class Planned:
    """A plan's deployment (fills `fill_mb` MiB), and its round: cells, visits, ramps' seconds."""

    cells: int
    visits: int
    ramp_s: float
    fill_mb: float


def costs_of(archive: Path, planned: Planned) -> Optional[Costs]:
    """What deployments and turns take, going by that archive; None where it measured no cell."""
    steps = steps_of(archive)
    around = [beyond_the_file(step) for step in steps if step.get("step") == "measure"]
    rebuild = usual_seconds(steps, "deploy", how="rebuild")
    if not around or rebuild is None:
        return None
    rate = usual_fill_rate(steps)
    fill = planned.fill_mb / rate if rate else 0.0
    change = usual_seconds(steps, "deploy", how="live") or 0.0
    turns = planned.cells * median(around) + planned.ramp_s + planned.visits * change
    return Costs(rebuild + fill, turns, planned.cells, planned.visits)


def spreads_of(archive: Path) -> list[Seen]:
    """Of throughput and latency of each row and load against the baseline, in that archive."""
    # The report's readers need scipy, which nodes that only plan lack.
    from cbt_crypto.archive.folder import open_archive  # noqa: PLC0415
    from cbt_crypto.report.build import read_runs  # noqa: PLC0415

    opened = open_archive(archive)
    baseline = opened.plan.baseline.value if opened.plan.baseline else None
    runs = [run for run in read_runs(opened.folder, opened.plan.cells) if run.failure is None]
    by_load: dict[str, dict[Any, dict[int, Any]]] = {}
    for run in runs:
        # Rounds of deployments of their own tell what a round is, which has one turn.
        if run.window is not None and (run.beside is not None or opened.plan.order == "rounds"):
            load = digest([run.planned.scenario, dict(run.planned.parameters)])
            rows = by_load.setdefault(load, {})
            rows.setdefault(run.planned.configuration, {})[run.planned.iteration] = run
    seen: list[Seen] = []
    for rows in by_load.values():
        for name, of_row in rows.items():
            if name != baseline and baseline in rows:
                base = rows[baseline]
                seen += _seen([(run, base[turn]) for turn, run in of_row.items() if turn in base])
    return seen


def _seen(pairs: Sequence[tuple[Any, Any]]) -> Iterator[Seen]:
    directions = sorted({record.direction for pair in pairs for record in pair[0].records})
    for metric, direction in itertools.product(get_args(Asked), directions):
        spread = _spread(pairs, metric, direction)
        if spread is not None:
            row, base = pairs[0]
            where = "shared" if row.deployment == base.deployment else "apart"
            where = where if row.beside is None else "beside"
            yield Seen(row.planned.scenario, dict(row.planned.parameters), metric, where, spread)


def _spread(pairs: Sequence[tuple[Any, Any]], metric: str, direction: str) -> Optional[Spread]:
    from cbt_crypto.report.figures.interval import log_value  # noqa: PLC0415
    from cbt_crypto.report.figures.metric import BY_KEY  # noqa: PLC0415

    by_deployment: dict[int, list[float]] = {}
    errors, seconds = [], []
    for row, of_base in pairs:
        known = [log_value(BY_KEY[metric], run, direction) for run in (row, of_base)]
        logs = [log for log in known if log is not None]
        if len(logs) == 2:
            number = row.planned.iteration if row.beside is None else row.beside[1]
            by_deployment.setdefault(number, []).append(logs[0] - logs[1])
            # The variances of both means, by their own seconds; nothing where they are too few.
            own = [BY_KEY[metric].log_sd(run.within.get(direction)) for run in (row, of_base)]
            errors.append(sum(float(deviation or 0.0) ** 2 for deviation in own))
            seconds.append(row.window.seconds)
    if len(by_deployment) < 2:
        return None
    return spread_of(list(by_deployment.values()), median(errors), median(seconds))


def _percent(variance: float) -> str:
    return f"{100 * math.expm1(math.sqrt(variance)):.2g} %"
