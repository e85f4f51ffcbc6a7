"""Are the verdicts right? Simulated campaigns in which nothing differs, and some that do.

    python perf/coverage.py [--campaigns 1000] [--seed 1] [--markdown]

Every design that a file can ask for meets every disturbance of `simulated/disturbances.py`. A
campaign has a baseline, its control, and one configuration more. Order and pauses are made by the
code that plans campaigns, stops by the code that paces them, and intervals and verdicts by the code
that reports.

The first table has, of campaigns without any difference, how many give a verdict on any row, in
percent, for the worst of four figures: throughput, mean latency, p99 latency, CPU per IO. The
second says what each design buys. Exit status 1 where a verdict is false more often than 6 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Optional

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import ndtri
from simulated.designs import (
    NAMES,
    Values,
    deployments,
    fixed,
    spread_from,
    until_it_differs,
    until_precise,
    verdicts,
)
from simulated.disturbances import DISTURBANCES, Disturbance, Floats, Generator

from cbt_crypto.plan.order import PAUSES_S, longest_pause_s, orders, pause_s, round_orders
from cbt_crypto.report.figures.repeats import Estimate, Value

FIGURES = ("IOPS", "latency", "p99", "CPU per IO")
#: Seconds that a deployment takes, and a change of configuration on a cluster.
DEPLOY_S, CHANGE_S = 25.0, 5.0
#: No verdict may be false more often.
FALSE = 0.06
#: From so many campaigns on the limit is taken as it is; fewer have three standard errors of it.
_MANY = 1000
#: Latencies within one second: quantiles of a log-normal distribution.
_WITHIN_SECOND = np.exp(0.4 * ndtri((np.arange(20) + 0.5) / 20))


@dataclass(frozen=True)
class Design:
    """A way to measure. `shared`: one deployment serves all configurations of a round.

    `beside`: turns of each configuration on each deployment, where they stand side by side on it;
    `rounds` are all turns then. `rule` makes the estimates of one figure.
    """

    name: str
    rounds: int
    seconds: int
    turns: bool = False
    shared: bool = False
    beside: int = 0
    names: Sequence[str] = NAMES
    rule: Optional[Callable[[Values, int], dict[str, Optional[Estimate]]]] = None

    def estimates(self, values: Values, figure: int) -> dict[str, Optional[Estimate]]:
        """Of every row but the baseline; by default of as many rounds as the file says."""
        return (self.rule or fixed)(values, figure)


def campaign(design: Design, how: Disturbance, ratio: float, random: Generator) -> Values:
    """Every run of a campaign; `other` has `ratio` times the throughput of the baseline."""
    seed = int(random.integers(1 << 31))
    names, count = design.names, len(design.names)
    if design.beside:
        return _side_by_side(design, how, ratio, random)
    change = CHANGE_S if design.turns else DEPLOY_S
    longest = longest_pause_s(design.seconds, count, design.turns)
    visit = design.seconds + 1.2 * change + min(PAUSES_S / count, longest) + 2
    level = how.series(int(design.rounds * count * visit) + 2, random)
    values: Values = [{name: [] for name in names} for _ in FIGURES]
    now = 0.0
    for turn, order in enumerate(_orders(design, seed)):
        together = how.levels(1, random)[0]
        for name in order:
            now += change * (1 + 0.05 * random.uniform(-1, 1))
            now += pause_s(seed, turn, name, count, longest)
            own = together if design.shared or design.turns else (
                how.levels(1, random)[0]
            )  # fmt: skip
            if name == "other":
                own += math.log(ratio) + how.own * random.standard_normal()
            seconds = level[int(now) : int(now) + design.seconds] + own
            now += design.seconds
            deployment = "one" if design.turns else turn if design.shared else (turn, name)
            for figure, log in enumerate(figures(seconds, random)):
                values[figure][name].append(Value(log, turn, deployment))
    return values


def _side_by_side(design: Design, how: Disturbance, ratio: float, random: Generator) -> Values:
    """The same with groups of OSDs on each deployment, which take turns.

    What the deployments of a cluster differ by, the groups of one are taken to differ by too, each
    time anew: where CRUSH puts what, and how a daemon came up. As much again is of the slice of
    the drive, which stays and which groups exchange. What all groups of a deployment have in
    common, as hosts and network, is in every one of them.
    """
    seed = int(random.integers(1 << 31))
    names, count = design.names, len(design.names)
    longest = longest_pause_s(design.seconds, count, design.turns)
    visit = design.seconds + 1.2 * CHANGE_S + min(PAUSES_S / count, longest) + 2
    deployments = design.rounds // design.beside
    seconds_in_all = int(design.rounds * count * visit + deployments * 1.2 * DEPLOY_S) + 2
    level = how.series(seconds_in_all, random)
    of_slices = how.levels(count, random)
    values: Values = [{name: [] for name in names} for _ in FIGURES]
    now = 0.0
    for number in range(deployments):
        now += DEPLOY_S * (1 + 0.05 * random.uniform(-1, 1))
        own = how.levels(1, random) + how.levels(count, random)
        own += np.roll(of_slices, -number)
        own[-1] += math.log(ratio) + how.own * random.standard_normal()
        for turn, order in enumerate(orders(names, design.beside, seed + number)):
            for name in order:
                now += CHANGE_S * (1 + 0.05 * random.uniform(-1, 1))
                now += pause_s(seed, number * design.beside + turn, name, count, longest)
                place = names.index(name)
                seconds = level[int(now) : int(now) + design.seconds] + own[place]
                now += design.seconds
                for figure, log in enumerate(figures(seconds, random)):
                    at = number * design.beside + turn
                    beside = (f"group{place}", number)
                    values[figure][name].append(Value(log, at, number, beside))
    return values


def _orders(design: Design, seed: int) -> Sequence[Sequence[str]]:
    if design.turns:
        return orders(design.names, design.rounds, seed)
    groups = [list(design.names)] if design.shared else [[name] for name in design.names]
    return round_orders(groups, design.rounds, seed, "baseline")


def figures(level: Floats, random: Generator) -> tuple[float, ...]:
    """The logarithms of a run's figures. A client with so many IOs in flight waits as they do."""
    rate = np.exp(level)
    latency = np.exp(-level + 0.03 * random.standard_normal(len(level)))
    busy = (0.3 + 0.7 * rate) * np.exp(0.03 * random.standard_normal(len(level)))
    ios = rate.sum()
    points = (latency[:, None] * _WITHIN_SECOND).ravel()
    weights = np.repeat(rate, len(_WITHIN_SECOND))
    rising = np.argsort(points)
    reached = np.cumsum(weights[rising])
    p99 = points[rising][np.searchsorted(reached, 0.99 * reached[-1])]
    found = (ios / len(rate), (rate * latency).sum() / ios, p99, busy.sum() / ios)
    return tuple(math.log(value) for value in found)


DESIGNS = (
    Design("one run", 1, 15),
    Design("2 rounds", 2, 15),
    Design("3 rounds", 3, 15),
    Design("4 rounds", 4, 15),
    Design("4 rounds of 60 s", 4, 60),
    Design("5 rounds", 5, 15),
    Design("5 rounds, no control", 5, 60, names=("baseline", "other")),
    Design("5 rounds, shared", 5, 15, shared=True),
    Design("7 rounds, shared", 7, 15, shared=True),
    Design("6 turns", 6, 10, turns=True),
    Design("20 turns", 20, 10, turns=True),
    Design("turns until +-3 %", 30, 10, turns=True, rule=partial(until_precise, precision="3%")),
    Design("turns until it differs", 20, 10, turns=True, rule=until_it_differs),
    Design("4 x 6 side by side", 24, 10, beside=6),
    Design("5 x 6 side by side", 30, 10, beside=6),
    Design(
        "side by side until +-5 %",
        40,
        10,
        beside=4,
        rule=partial(deployments, precision="5%", turns=4),
    ),
    Design(
        "side by side until it differs",
        40,
        10,
        beside=4,
        rule=partial(deployments, precision="5%", turns=4, looks=True),
    ),
    Design("rounds until +-10 %", 12, 15, rule=partial(deployments, precision="10%", turns=1)),
    Design("--spread-from", 6, 15, rule=spread_from),
    Design(
        "rounds until +-10 %, shared",
        12,
        15,
        shared=True,
        rule=partial(deployments, precision="10%", turns=1),
    ),
)


@dataclass
class Tally:
    """What became of the campaigns of one design under one disturbance."""

    false: list[int]
    verdicts: int = 0
    intervals: int = 0
    covered: int = 0
    found: int = 0
    half: float = 0.0


def trial(work: tuple[int, int, int, int]) -> Tally:
    """Campaigns of one design under one disturbance, without a difference and with one."""
    which, disturbed, campaigns, seed = work
    design, how = DESIGNS[which], DISTURBANCES[disturbed]
    random = np.random.default_rng((seed, which, disturbed))
    absent = 0 if "control" in design.names else 1
    tally = Tally([0] * len(FIGURES))
    for _ in range(campaigns):
        values = campaign(design, how, 1.0, random)
        for figure in range(len(FIGURES)):
            shown = verdicts(design.estimates(values, figure), absent)
            tally.verdicts += bool(shown)
            tally.false[figure] += any(shown.values())
        ratio = float(random.uniform(0.6, 0.95))
        estimates = design.estimates(campaign(design, how, ratio, random), 0)
        other = estimates["other"]
        if other is not None:
            tally.intervals += 1
            tally.covered += abs(other.center - math.log(ratio)) <= other.half
            tally.half += min(other.half, 5.0)
            tally.found += verdicts(estimates, absent).get("other", False)
    return tally


def main() -> int:
    """Print what became of all campaigns; 1 when a verdict is false too often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--campaigns", type=int, default=1000, help="of each kind (default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="a design, by its name; may be repeated")
    parser.add_argument("--markdown", action="store_true", help="as docs/method-trial.md has it")
    options = parser.parse_args()
    began = time.monotonic()
    work = [
        (which, disturbed, options.campaigns, options.seed)
        for disturbed in range(len(DISTURBANCES))
        for which, design in enumerate(DESIGNS)
        if not options.only or design.name in options.only
    ]
    with ProcessPoolExecutor() as pool:
        tallies = dict(zip(((d, w) for w, d, _, _ in work), pool.map(trial, work)))
    designs = sorted({which for _, which in tallies})
    tables = (_false(tallies, designs, options.campaigns), _buys(tallies, designs))
    console = Console(width=200)
    for title, rows in tables:
        _show(title, rows, console, options.markdown)
    allowed = FALSE
    if options.campaigns < _MANY:
        allowed += 3 * math.sqrt(FALSE * (1 - FALSE) / options.campaigns)
    worst = max(max(tally.false) / options.campaigns for tally in tallies.values())
    holds = worst <= allowed
    said = "No verdict is false too often" if holds else "A VERDICT IS FALSE TOO OFTEN"
    taken = time.monotonic() - began
    console.print(f"{said}: {worst:.1%} at worst; the simulation took {taken:.0f} s.")
    return 0 if holds else 1


def _false(
    tallies: dict[tuple[int, int], Tally], designs: Sequence[int], campaigns: int
) -> tuple[str, list[list[str]]]:
    rows = [["disturbance", *(DESIGNS[which].name for which in designs)]]
    for number, how in enumerate(DISTURBANCES):
        found = [tallies[number, which] for which in designs]
        shown = (
            f"{100 * max(tally.false) / campaigns:.1f}" if tally.verdicts else "none"
            for tally in found
        )
        rows.append([how.name, *shown])
    return f"false verdicts, % of {campaigns} campaigns", rows


def _buys(
    tallies: dict[tuple[int, int], Tally], designs: Sequence[int]
) -> tuple[str, list[list[str]]]:
    rows = [["design", "95 % intervals that cover", "the least", "half interval", "5-40 % is seen"]]
    for which in designs:
        design = DESIGNS[which]
        found = [tallies[number, which] for number in range(len(DISTURBANCES))]
        known = [tally for tally in found if tally.intervals]
        if not known:
            rows.append([design.name, "none", "none", "none", "never"])
            continue
        covers = [tally.covered / tally.intervals for tally in known]
        half = float(np.median([tally.half / tally.intervals for tally in known]))
        seen = sum(t.found for t in known) / sum(t.intervals for t in known)
        shares = (f"{np.mean(covers):.1%}", f"{min(covers):.1%}")
        rows.append([design.name, *shares, f"±{100 * math.expm1(half):.0f} %", f"{seen:.0%}"])
    return "throughput, all disturbances together", rows


def _show(title: str, rows: list[list[str]], console: Console, markdown: bool) -> None:
    if markdown:
        rule = ["---", *("---:" for _ in rows[0][1:])]
        for row in (rows[0], rule, *rows[1:]):
            console.print(f"| {' | '.join(row)} |", markup=False, highlight=False, soft_wrap=True)
        console.print()
        return
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(rows[0]):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
