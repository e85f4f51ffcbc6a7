"""What disturbs a measurement: models of others, with their sources, for many campaigns at once.

`Series` are second by second and hit whatever is measured then; `Levels` are of whole deployments,
rows or runs. Both make the logarithm by which throughput differs from an undisturbed one's. Where a
source gives no size, it is one that this project has seen on shared machines, or worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[Any]
Generator = np.random.Generator


@dataclass(frozen=True)
class Grid:
    """Campaigns x rounds x rows x workloads; the first row is the baseline, the last one `other`.

    `place`: campaigns x rounds x rows, when in its round a row was measured, from 0.
    """

    shape: tuple[int, int, int, int]
    place: Floats
    random: Generator

    def normal(self, *, by_cell: bool = False) -> Floats:
        """One value for each deployment, the same under all workloads unless `by_cell`."""
        return self.random.standard_normal(self._size(by_cell))

    def uniform(self, *, by_cell: bool = False) -> Floats:
        """As `normal`, between 0 and 1."""
        return self.random.uniform(size=self._size(by_cell))

    def _size(self, by_cell: bool) -> tuple[int, ...]:
        return self.shape if by_cell else (*self.shape[:3], 1)


#: Campaigns, seconds, and the seconds of a round -> logarithms of each second.
Series = Callable[[int, int, float, Generator], Floats]
#: -> logarithms that can be broadcast to the grid's shape.
Levels = Callable[[Grid], Floats]


@dataclass(frozen=True)
class Disturbance:
    """`series` hits what is measured then; `levels` a whole `unit`: deployment, row, or run.

    Rows that share a deployment share its level, but not one that is a row's or a run's. Turns on
    one cluster only know those of runs. `is_fresh`: the rule's constants were chosen without it.
    `outside` the claim: "exempt" is what no rule can tell from a loss after a few deployments, "not
    held" what verdicts are false under more often than they may be.
    """

    name: str
    series: Series
    levels: Optional[Levels] = None
    unit: str = "deployment"
    is_fresh: bool = False
    outside: str = ""


def white(deviation: float) -> Series:
    """Seconds that have nothing to do with one another."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        return deviation * random.standard_normal((count, length), np.float32)

    return made


def ar1(kept: float, deviation: float) -> Series:
    """Each second keeps a share of the one before (Box and Jenkins, Time Series Analysis, 1970)."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        steps = random.standard_normal((count, length), np.float32)
        steps *= deviation * math.sqrt(1 - kept**2)
        steps[:, 0] /= math.sqrt(1 - kept**2)
        found: Floats = lfilter([1.0], [1.0, -kept], steps, axis=1)
        return found

    return made


def cycle(period_s: float, depth: float, of_rounds: bool = False) -> Series:
    """What returns, as compactions and cron do: a sine, the purest of cycles.

    With `of_rounds` the period is counted in rounds of the campaign. (Petrini, Kerbyson and Pakin,
    The Case of the Missing Supercomputer Performance, SC 2003, found periodic daemons to keep step
    with whole applications.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        period = period_s * (round_s if of_rounds else 1.0)
        at = np.arange(length, dtype=np.float32) / period + random.uniform(size=(count, 1))
        found: Floats = depth * np.sin(2 * math.pi * at)
        return found

    return made


def any_cycle(depth: float, *, square: bool = False) -> Series:
    """A cycle of 20 s to half an hour, another one in each campaign; a sine, or on and off."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        period = np.exp(random.uniform(math.log(20), math.log(1800), (count, 1)))
        wave = np.sin(2 * math.pi * (np.arange(length) / period + random.uniform(size=(count, 1))))
        return depth * (np.sign(wave) if square else wave)

    return made


def shifts(every_s: float, deviation: float) -> Series:
    """A level that lasts and then is another: bandwidth that a provider shapes anew.

    (Uta et al., Is Big Data Performance Reproducible in Modern Cloud Networks?, NSDI 2020.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        number = np.cumsum(random.uniform(size=(count, length)) < 1 / every_s, axis=1, dtype=int)
        drawn = deviation * random.standard_normal((count, int(number[:, -1].max()) + 1))
        return np.take_along_axis(drawn, number, axis=1)

    return made


def two_levels(mean_s: float, depth: float) -> Series:
    """A neighbour that comes and goes.

    (Schad, Dittrich and Quiane-Ruiz, Runtime Measurements in the Cloud, VLDB 2010: performance in
    two bands.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        number = np.cumsum(random.uniform(size=(count, length)) < 1 / mean_s, axis=1)
        return np.where((number + random.integers(2, size=(count, 1))) % 2, -depth, 0.0)

    return made


def heavy_tails(scale: float, degrees: float = 2) -> Series:
    """Student's t of two degrees of freedom, which has no variance; with one, Cauchy's: no mean.

    (Downey, Evidence for Long-tailed Distributions in the Internet, IMW 2001; for such noise in
    benchmarks, Chen and Revels, Robust Benchmarking in Noisy Environments, arXiv:1608.04295.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        return np.clip(scale * random.standard_t(degrees, (count, length)), -5.0, 2.0)

    return made


def stalls(every_s: float, shape: float = 1.5, burst: int = 1) -> Series:
    """Seconds with a tenth of the throughput, of Pareto's length; `burst` of them at a time.

    (Lengths as of Willinger et al., Self-similarity Through High-variability, SIGCOMM 1995.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        begins = random.uniform(size=(count, length)) < 1 / every_s
        rows, starts = np.nonzero(begins)
        rows, starts = np.repeat(rows, burst), np.repeat(starts, burst)
        starts = starts + (random.exponential(10.0, len(starts)).astype(int) if burst > 1 else 0)
        lasts = 1 + random.pareto(shape, len(starts)).astype(int)
        change = np.zeros((count, length + 1), np.int32)
        np.add.at(change, (rows, np.minimum(starts, length)), 1)
        np.add.at(change, (rows, np.minimum(starts + lasts, length)), -1)
        return np.where(np.cumsum(change, axis=1)[:, :-1] > 0, math.log(0.1), 0.0)

    return made


def every(period_s: int) -> Series:
    """One second in so many has a twentieth of the throughput: a journal that is written out.

    A run that is shorter than the period meets it or does not: two levels, and nothing between.
    (Kalibera, Bulej and Tuma, Benchmark Precision and Random Initial State, SPECTS 2005, have
    such levels of whole runs.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        at = np.arange(length) + random.integers(period_s, size=(count, 1))
        return np.where(at % period_s, 0.0, math.log(0.05))

    return made


def wandering(step: float) -> Series:
    """A random walk, which has no level to return to (Box and Jenkins's integrated process)."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        return np.cumsum(step * random.standard_normal((count, length), np.float32), axis=1)

    return made


def stays(depth: float) -> Series:
    """A neighbour that comes at any time, once, and stays (Page, Biometrika 41, 1954)."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        begins = random.uniform(0, length, (count, 1))
        return np.where(np.arange(length) < begins, 0.0, -depth)

    return made


def collections(every_s: float, lasts_s: int, depth: float) -> Series:
    """A drive collects garbage once so many seconds' worth was written, not by the clock.

    (Hu et al., Write Amplification Analysis in Flash-based Solid State Drives, SYSTOR 2009.)
    """

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        times = int(length / (0.8 * every_s)) + 2
        idle = np.maximum(1, every_s * random.uniform(0.8, 1.2, (count, times)).astype(int))
        idle[:, 0] = idle[:, 0] * random.uniform(size=count)
        begins = np.cumsum(idle + lasts_s, axis=1) - lasts_s
        change = np.zeros((count, length + 1), np.int32)
        rows = np.arange(count)[:, None]
        np.add.at(change, (rows, np.minimum(begins, length).astype(int)), 1)
        np.add.at(change, (rows, np.minimum(begins + lasts_s, length).astype(int)), -1)
        return np.where(np.cumsum(change, axis=1)[:, :-1] > 0, -depth, 0.0)

    return made


def drift(deviation: float) -> Series:
    """A slope over the whole campaign: a cluster that fills, a room that warms."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        return deviation * random.standard_normal((count, 1)) * np.arange(length) / length

    return made


def cold(depth: float, lasts_s: float) -> Series:
    """The first minutes on a new machine are slow (seen: 28 % in the first cell)."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        lasts = lasts_s * random.uniform(0.5, 2.0, (count, 1))
        found: Floats = -depth * np.exp(-np.arange(length) / lasts)
        return found

    return made


def together(*parts: Series) -> Series:
    """All of them at once."""

    def made(count: int, length: int, round_s: float, random: Generator) -> Floats:
        found: Floats = sum(part(count, length, round_s, random) for part in parts)  # type: ignore[assignment]
        return found

    return made


def normal(deviation: float, *, by_cell: bool = False) -> Levels:
    return lambda grid: deviation * grid.normal(by_cell=by_cell)


def toss(deviation: float, *, by_cell: bool = False) -> Levels:
    return lambda grid: deviation * np.sign(grid.normal(by_cell=by_cell))


def alone(levels: Levels, quiet: float, row: bool = True, workload: bool = False) -> Levels:
    """The last row, the first workload, or the cell of both has `levels`; all others are quiet."""

    def made(grid: Grid) -> Floats:
        found = quiet * grid.normal(by_cell=True)
        rows, loads = slice(-1 if row else 0, None), slice(0, 1 if workload else None)
        found[:, :, rows, loads] = np.broadcast_to(levels(grid), grid.shape)[:, :, rows, loads]
        return found

    return made


def uneven(rows: bool, workloads: bool) -> Levels:
    """Deviations of a row, a workload, or both, that are lognormal: 2 %, give or take e."""

    def made(grid: Grid) -> Floats:
        count, _, of_rows, of_loads = grid.shape
        size = (count, 1, of_rows if rows else 1, of_loads if workloads else 1)
        scale = 0.02 * np.exp(grid.random.standard_normal(size))
        found: Floats = scale * grid.normal(by_cell=workloads)
        return found

    return made


def slow_one(chance: float, depth: float, *, by_cell: bool = False) -> Levels:
    """One deployment in so many is slow."""
    return lambda grid: (
        np.where(grid.uniform(by_cell=by_cell) < chance, -depth, 0.0)
        + (0.01 * grid.normal(by_cell=True))
    )


def lognormal(scale: float) -> Levels:
    """(Limpert, Stahel and Abbt, Log-normal Distributions across the Sciences, 2001.)"""
    return lambda grid: -scale * np.exp(grid.normal())


def pareto(scale: float, shape: float) -> Levels:
    return lambda grid: -np.minimum(scale * (grid.uniform() ** (-1 / shape) - 1), 3.0)


def by_place(step: float) -> Levels:
    """Who is measured later in a round is slower by so much; the size is another each round."""

    def made(grid: Grid) -> Floats:
        slope = 1 + 0.3 * grid.random.standard_normal((grid.shape[0], grid.shape[1], 1, 1))
        found: Floats = -step * slope * grid.place[..., None] + 0.005 * grid.normal()
        return found

    return made


def partly_alike(share: float, deviation: float) -> Levels:
    """A deployment's level is shared by its workloads to so large a part of its variance."""
    return lambda grid: (
        deviation
        * (math.sqrt(share) * grid.normal() + math.sqrt(1 - share) * grid.normal(by_cell=True))
    )


def remembers(kept: float, deviation: float) -> Levels:
    """A row's deployment resembles its last one, as where they get the same drives."""

    def made(grid: Grid) -> Floats:
        drawn = grid.normal() * math.sqrt(1 - kept**2)
        drawn[:, 0] /= math.sqrt(1 - kept**2)
        found: Floats = deviation * lfilter([1.0], [1.0, -kept], drawn, axis=1)
        return found

    return made


def left_behind(kept: float, deviation: float) -> Levels:
    """What one deployment did is partly felt by those behind it, whatever their rows."""

    def made(grid: Grid) -> Floats:
        drawn = np.squeeze(grid.normal(), 3)
        rising = np.argsort(grid.place, axis=2)
        in_time = np.take_along_axis(drawn, rising, axis=2).reshape(len(drawn), -1)
        felt = lfilter([1.0], [1.0, -kept], in_time, axis=1).reshape(drawn.shape)
        placed = np.take_along_axis(felt, np.argsort(rising, axis=2), axis=2)
        return deviation * placed[..., None]

    return made


def growing(deviation: float) -> Levels:
    """Rounds differ the more the longer it takes, in the end by so much."""
    return lambda grid: (
        deviation * np.linspace(0.1, 1, grid.shape[1])[:, None, None] * grid.normal(by_cell=True)
    )


def bad_night(deviation: float) -> Levels:
    """One round in four is ten times as noisy as the others."""

    def made(grid: Grid) -> Floats:
        is_bad = grid.random.uniform(size=(grid.shape[0], grid.shape[1], 1, 1)) < 0.25
        return deviation * np.where(is_bad, 10.0, 1.0) * grid.normal(by_cell=True)

    return made


def hosts(depth: float) -> Levels:
    """Three sorts of hosts, and a deployment is on one of them."""
    return lambda grid: depth * np.floor(3 * grid.uniform()) + 0.003 * grid.normal(by_cell=True)


def sensitivity(deviation: float) -> Levels:
    """One thing differs from deployment to deployment, and each workload feels it differently."""

    def made(grid: Grid) -> Floats:
        felt = np.exp(grid.random.standard_normal((grid.shape[0], 1, 1, grid.shape[3])))
        return deviation * felt * grid.normal() + 0.003 * grid.normal(by_cell=True)

    return made


def rarely(chance: float, deviation: float, depth: float) -> Levels:
    """Nearly no noise, and a rare jump."""
    return lambda grid: (
        deviation * grid.normal(by_cell=True)
        - np.where(grid.uniform(by_cell=True) < chance, depth, 0.0)
    )


def students_t(scale: float, degrees: float) -> Levels:
    return lambda grid: (
        scale * np.clip(grid.random.standard_t(degrees, (*grid.shape[:3], 1)), -20, 20)
    )


def laplace(scale: float) -> Levels:
    return lambda grid: grid.random.laplace(0.0, scale, grid.shape)


_QUIET = white(0.03)
_ALL = together(_QUIET, ar1(0.97, 0.05), shifts(90, 0.08), cycle(60, 0.03), stalls(120), drift(0.2))
#: Seconds that this project's first trials had, on which the rule's constants were chosen.
_SECONDS: dict[str, Series] = {
    "seconds alone": _QUIET,
    **{f"AR(1) {kept}": together(_QUIET, ar1(kept, 0.1)) for kept in (0.5, 0.9, 0.97, 0.995)},
    **{f"cycle of {s} s": together(_QUIET, cycle(s, 0.1)) for s in (10, 20, 30, 60, 90, 120)},
    "level shifts": together(_QUIET, shifts(60, 0.15)),
    "neighbour, a minute": together(_QUIET, two_levels(60, 0.7)),
    "heavy tails": heavy_tails(0.05),
    "stalls": together(_QUIET, stalls(60)),
    "drift": together(_QUIET, drift(0.3)),
    "stall each 30 s": together(_QUIET, every(30)),
    "deep cycle of 180 s": together(_QUIET, cycle(180, 0.3)),
    "deep cycle of 240 s": together(_QUIET, cycle(240, 0.3)),
    "random walk": together(_QUIET, wandering(0.01)),
    "neighbour, long": together(_QUIET, two_levels(600, 0.3)),
    "neighbour that stays": together(_QUIET, stays(0.4)),
    "Cauchy": heavy_tails(0.03, 1),
    "garbage collection": together(_QUIET, collections(200, 40, 0.5)),
    **{
        f"cycle of {n:g} rounds": together(_QUIET, cycle(n, 0.1, of_rounds=True))
        for n in (0.5, 1, 1.5, 2)
    },
}
_KNOWN = (
    *(Disturbance(name, series) for name, series in _SECONDS.items()),
    Disturbance("all at once", _ALL, normal(0.04)),
    Disturbance("deployments 1 %", _QUIET, normal(0.01)),
    Disturbance("deployments 5 %", _QUIET, normal(0.05)),
    Disturbance("deployments 10 %", together(_QUIET, ar1(0.97, 0.05)), normal(0.1)),
    Disturbance("deployments 5 %, each workload", _QUIET, normal(0.05, by_cell=True)),
    Disturbance("workloads half alike", _QUIET, partly_alike(0.5, 0.05)),
    Disturbance("runs 5 %", _QUIET, normal(0.05, by_cell=True), "run"),
    Disturbance("deployments of two levels", _QUIET, toss(0.08)),
    Disturbance("cells of two levels", _QUIET, toss(0.08, by_cell=True), "row"),
    Disturbance("one row noisy", white(0.01), alone(normal(0.08), 0.002), "run"),
    Disturbance("one workload noisy", _QUIET, alone(normal(0.08), 0.002, False, True), "row"),
    Disturbance("one cell noisy", _QUIET, alone(normal(0.08), 0.002, True, True), "row"),
    Disturbance("noise by row", _QUIET, uneven(True, False), "row"),
    Disturbance("noise by workload", _QUIET, uneven(False, True), "row"),
    Disturbance("noise by both", _QUIET, uneven(True, True), "row"),
    Disturbance("lognormal deployments", _QUIET, lognormal(0.03)),
    Disturbance("Pareto deployments", _QUIET, pareto(0.03, 1.5)),
    Disturbance("one in ten slow", _QUIET, slow_one(0.1, 0.2)),
    Disturbance("one in ten slow, by row", _QUIET, slow_one(0.1, 0.2), "row"),
    Disturbance("later in a round is slower", _QUIET, by_place(0.02), "run"),
    Disturbance("one row tosses +-10 %", _QUIET, alone(toss(0.1), 0.01), "row", outside="exempt"),
)  # fmt: skip
_FRESH = (
    Disturbance("three sorts of hosts", _QUIET, hosts(0.08)),
    Disturbance("exponential slowdowns", _QUIET, lambda grid: 0.05 * np.log(grid.uniform()), "row"),
    Disturbance("Laplace cells", _QUIET, laplace(0.03), "row"),
    Disturbance("a row remembers", _QUIET, remembers(0.5, 0.05), "row", outside="not held"),
    Disturbance("the last ones are felt", _QUIET, left_behind(0.7, 0.04), "row"),
    Disturbance("noise that grows", _QUIET, growing(0.08), "run"),
    Disturbance("a bad night", _QUIET, bad_night(0.01), "run"),
    Disturbance("cold start", together(_QUIET, cold(0.35, 120)), normal(0.01)),
    Disturbance("one row's t of 3", _QUIET, alone(students_t(0.03, 3), 0.005), "row"),
    Disturbance("one cell jumps", _QUIET, alone(slow_one(0.2, 0.2), 0.01, True, True), "row"),
    Disturbance("one thing, felt by workload", _QUIET, sensitivity(0.02), "row"),
    Disturbance("rare jumps, else nothing", white(0.002), rarely(1 / 6, 0.0005, 0.03), "row"),
    Disturbance("uniform deployments", _QUIET, lambda grid: 0.16 * (grid.uniform() - 0.5), "row"),
    Disturbance("a cycle of any length", together(_QUIET, any_cycle(0.15)), normal(0.01)),
    Disturbance("on and off", together(_QUIET, any_cycle(0.1, square=True)), normal(0.01)),
    Disturbance("bursts of stalls", together(_QUIET, stalls(240, 2.0, 5)), normal(0.01)),
)  # fmt: skip
DISTURBANCES = (
    *_KNOWN,
    *(replace(disturbance, is_fresh=True) for disturbance in _FRESH),
)
