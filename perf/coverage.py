"""Are the intervals right? Simulated campaigns whose true ratio is known.

    python perf/coverage.py [--campaigns 2000] [--seed 1]

Each campaign is one cluster on which two configurations take turns, second by second: noise that
resembles itself from second to second and from minute to minute, a drift over the whole campaign,
bursts of foreign load, a compaction that comes back, and a warm-up at the start of every block.
What is then done with the seconds is the code that campaigns and reports use: `precision`.

Printed are, of each way to measure, how many intervals contain the true ratio; of campaigns
without a difference, how many say that there is one; and how many rounds it took. Exit status 1
where the method does not hold what docs/method.md says of it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.signal import lfilter
from scipy.special import stdtrit

from cbt_crypto.plan.rounds import orders
from cbt_crypto.results.precision.confidence_sequence import Interval, interval
from cbt_crypto.results.precision.warmup import warmup

Floats = NDArray[np.float64]

#: Seconds of a block, and between blocks for what a change of configuration takes.
BLOCK, GAP = 10, 5
#: Rounds at least and at most, as `min: 30` and `max: 300` make them.
LEAST, MOST = 3, 30
#: So many intervals must contain the truth, and so few may see a difference where there is none.
COVERS, FALSE = 0.93, 0.05


@dataclass(frozen=True)
class Disturbance:
    """How a cluster is disturbed. Standard deviations and depths are of the logarithm of IOPS."""

    name: str
    white: float = 0.03
    #: Noise that lasts seconds, and minutes: (share kept from second to second, deviation).
    noises: tuple[tuple[float, float], ...] = ((0.8, 0.04), (0.99, 0.04))
    drift: float = 0.1
    bursts_per_s: float = 1 / 120
    burst_s: float = 15
    burst_depth: float = 0.3
    period_s: float = 60
    periodic: float = 0.03
    warmup: float = 0.3


CALM = Disturbance("calm", 0.02, ((0.5, 0.01),), 0.0, 0.0, 1, 0.0, 60, 0.0, 0.1)
USUAL = Disturbance("noise, drift and bursts")
WILD = Disturbance(
    "much of all", noises=((0.8, 0.08), (0.995, 0.08)), drift=0.4, bursts_per_s=1 / 60,
    burst_depth=0.6,
)  # fmt: skip


def seconds(how: Disturbance, length: int, generator: np.random.Generator) -> Floats:
    """The logarithm of what an undisturbed second's IOPS become, for each second of a campaign."""
    at = np.arange(length)
    level = how.white * generator.standard_normal(length)
    for kept, deviation in how.noises:
        steps = generator.standard_normal(length) * deviation * math.sqrt(1 - kept**2)
        steps[0] = generator.standard_normal() * deviation
        level += lfilter([1.0], [1.0, -kept], steps)
    level += how.drift * generator.uniform(-1, 1) * at / length
    level += how.periodic * np.sin(2 * math.pi * (at / how.period_s + generator.uniform()))
    for start in np.flatnonzero(generator.uniform(size=length) < how.bursts_per_s):
        level[start : start + 1 + int(generator.exponential(how.burst_s))] -= how.burst_depth
    return level


def in_turns(generator: np.random.Generator) -> NDArray[np.int64]:
    """Which block of the campaign is whose, in each round: the method's own order."""
    turns = orders((0, 1), MOST, int(generator.integers(1 << 31)))
    places: NDArray[np.int64] = np.array([np.argsort(turn) for turn in turns])
    places += 2 * np.arange(MOST)[:, None]
    return places


def one_by_one(generator: np.random.Generator) -> NDArray[np.int64]:
    """All blocks of one configuration, then all of the other."""
    places: NDArray[np.int64] = np.arange(MOST)[:, None] + np.array([0, MOST])
    return places


def differences(
    how: Disturbance, ratio: float, order: Callable[..., Any], generator: np.random.Generator
) -> list[float]:
    """The logarithm of each pair's ratio, from what is left of its blocks after their warm-up."""
    level = seconds(how, 2 * MOST * (BLOCK + GAP), generator)
    warming = how.warmup * np.exp(-np.arange(BLOCK) / generator.uniform(0.3, 2.0))
    logs = np.empty((MOST, 2))
    for number, places in enumerate(order(generator)):
        for whose, effect in enumerate((0.0, math.log(ratio))):
            at = places[whose] * (BLOCK + GAP)
            series = np.exp(level[at : at + BLOCK] + effect - warming)
            logs[number, whose] = math.log(series[warmup(series.tolist()) :].mean())
    found: list[float] = np.diff(logs)[:, 0].tolist()
    return found


def by_precision(found: Sequence[float], precision: float) -> Interval:
    """Stops as a campaign does: as soon as the interval is narrow enough."""
    for count in range(LEAST, MOST):
        look = interval(found[:count])
        if look.half <= precision:
            return look
    return interval(found)


def student(found: Sequence[float]) -> Interval:
    """Student's interval, which is right for values that have nothing to do with one another."""
    own = np.array(found)
    half = float(stdtrit(len(own) - 1, 0.975)) * own.std(ddof=1) / math.sqrt(len(own))
    return Interval(float(own.mean()), float(half), len(own))


def until_it_differs(found: Sequence[float]) -> Interval:
    """Stops at the first of Student's intervals that says so."""
    for count in range(LEAST, MOST):
        look = student(found[:count])
        if abs(look.center) > look.half:
            return look
    return student(found)


def until_it_really_differs(found: Sequence[float]) -> Interval:
    """The worst that can be done with the method: look after each round, stop at a difference."""
    for count in range(LEAST, MOST):
        look = interval(found[:count])
        if abs(look.center) > look.half:
            return look
    return interval(found)


@dataclass(frozen=True)
class Way:
    """A way to measure. Of the method's own, the promise is checked; the others are beside it."""

    name: str
    order: Callable[..., Any]
    measure: Callable[[Sequence[float]], Interval]
    is_ours: bool = True


WAYS = (
    Way("in turns, until +-1 %", in_turns, partial(by_precision, precision=0.01)),
    Way("in turns, until +-3 %", in_turns, partial(by_precision, precision=0.03)),
    Way("in turns, until +-10 %", in_turns, partial(by_precision, precision=0.10)),
    Way("in turns, 10 rounds", in_turns, lambda found: interval(found[:10])),
    Way("in turns, until it differs", in_turns, until_it_really_differs),
    Way("in turns, until Student's differs", in_turns, until_it_differs, is_ours=False),
    Way("one by one, Student's of 30 blocks", one_by_one, student, is_ours=False),
)


@dataclass
class Tally:
    """What became of the campaigns that were measured in one way."""

    covered: int = 0
    false: int = 0
    rounds: int = 0


def simulate(how: Disturbance, campaigns: int, seed: int) -> dict[str, Tally]:
    """`campaigns` with a difference and as many without, measured in every way."""
    generator = np.random.default_rng(seed)
    tallies = {way.name: Tally() for way in WAYS}
    for _ in range(campaigns):
        ratio = float(generator.uniform(0.6, 1.1))
        found = {
            order: [differences(how, r, order, generator) for r in (ratio, 1.0)]
            for order in (in_turns, one_by_one)
        }
        for way in WAYS:
            tally = tallies[way.name]
            some, none = (way.measure(one) for one in found[way.order])
            tally.covered += abs(some.center - math.log(ratio)) <= some.half
            tally.false += abs(none.center) > none.half
            tally.rounds += some.count * some.batch
    return tallies


def main() -> int:
    """Print what became of all campaigns; 1 when too many intervals are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--campaigns", type=int, default=2000, help="of each kind (default: 2000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, holds, console = time.monotonic(), True, Console(width=100)
    table = Table(title=f"{options.campaigns} campaigns of each kind", title_justify="left")
    table.add_column("disturbance")
    table.add_column("measured")
    for column in ("covers", "false", "rounds"):
        table.add_column(column, justify="right")
    for how in (CALM, USUAL, WILD):
        for way, tally in zip(WAYS, simulate(how, options.campaigns, options.seed).values()):
            covers, false = tally.covered / options.campaigns, tally.false / options.campaigns
            holds &= not way.is_ours or (covers >= COVERS and false <= FALSE)
            name = way.name if way.is_ours else f"({way.name})"
            rounds = f"{tally.rounds / options.campaigns:.1f}"
            table.add_row(how.name, name, f"{covers:.1%}", f"{false:.1%}", rounds)
        table.add_section()
    console.print(table)
    console.print("In parentheses: not how this project measures.")
    verdict = "holds" if holds else "DOES NOT HOLD"
    taken = time.monotonic() - began
    console.print(f"The method {verdict}; the simulation took {taken:.0f} s.", highlight=False)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
