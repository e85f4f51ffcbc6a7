"""What disturbs a measurement, second by second: models of others, with their sources.

Each makes the logarithm by which a second's throughput differs from an undisturbed one's. Where no
size is given in the source, it is one that this project has seen on shared machines, or worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]
Generator = np.random.Generator
#: Seconds -> logarithms, one each.
Series = Callable[[int, Generator], Floats]


@dataclass(frozen=True)
class Disturbance:
    """`series` hits all configurations alike; `deployment` and `own` are standard deviations.

    `deployment` is of a deployment's level, `own` of each run of the configuration that is
    compared, and of no other. With `two_levels` a deployment's level is one of two, by a toss.
    """

    name: str
    series: Series
    deployment: float = 0.0
    own: float = 0.0
    two_levels: bool = False

    def levels(self, count: int, random: Generator) -> Floats:
        """The levels of so many deployments."""
        drawn = random.standard_normal(count)
        return self.deployment * (np.sign(drawn) if self.two_levels else drawn)


def white(deviation: float) -> Series:
    """Seconds that have nothing to do with one another."""

    def made(length: int, random: Generator) -> Floats:
        return deviation * random.standard_normal(length)

    return made


def ar1(kept: float, deviation: float) -> Series:
    """Each second keeps a share of the one before (Box and Jenkins, Time Series Analysis, 1970)."""

    def made(length: int, random: Generator) -> Floats:
        steps = random.standard_normal(length) * deviation * math.sqrt(1 - kept**2)
        steps[0] = random.standard_normal() * deviation
        found: Floats = lfilter([1.0], [1.0, -kept], steps)
        return found

    return made


def cycle(period_s: float, depth: float) -> Series:
    """What returns, as compactions and cron do: a sine, the purest of cycles.

    (Petrini, Kerbyson and Pakin, The Case of the Missing Supercomputer Performance, SC 2003, found
    periodic daemons to keep step with whole applications.)
    """

    def made(length: int, random: Generator) -> Floats:
        at = np.arange(length) / period_s + random.uniform()
        found: Floats = depth * np.sin(2 * math.pi * at)
        return found

    return made


def shifts(every_s: float, deviation: float) -> Series:
    """A level that lasts and then is another: bandwidth that a provider shapes anew.

    (Uta et al., Is Big Data Performance Reproducible in Modern Cloud Networks?, NSDI 2020.)
    """

    def made(length: int, random: Generator) -> Floats:
        number = np.cumsum(random.uniform(size=length) < 1 / every_s)
        found: Floats = deviation * random.standard_normal(int(number[-1]) + 1)[number]
        return found

    return made


def two_levels(mean_s: float, depth: float) -> Series:
    """A neighbour that comes and goes.

    (Schad, Dittrich and Quiane-Ruiz, Runtime Measurements in the Cloud, VLDB 2010: performance in
    two bands.)
    """

    def made(length: int, random: Generator) -> Floats:
        number = np.cumsum(random.uniform(size=length) < 1 / mean_s) + int(random.integers(2))
        return np.where(number % 2, -depth, 0.0)

    return made


def heavy_tails(scale: float) -> Series:
    """Student's t of two degrees of freedom, which has no variance.

    (Downey, Evidence for Long-tailed Distributions in the Internet, IMW 2001; for such noise in
    benchmarks, Chen and Revels, Robust Benchmarking in Noisy Environments, arXiv:1608.04295.)
    """

    def made(length: int, random: Generator) -> Floats:
        return np.maximum(scale * random.standard_t(2, length), -5.0)

    return made


def stalls(every_s: float, least_s: float = 1.0, shape: float = 1.5) -> Series:
    """Seconds with a tenth of the throughput, of Pareto's length.

    (Lengths as of Willinger et al., Self-similarity Through High-variability, SIGCOMM 1995.)
    """

    def made(length: int, random: Generator) -> Floats:
        found = np.zeros(length)
        for start in np.flatnonzero(random.uniform(size=length) < 1 / every_s):
            lasts = int(least_s * (1 + random.pareto(shape)))
            found[start : start + lasts] = math.log(0.1)
        return found

    return made


def every(period_s: int) -> Series:
    """One second in so many has a twentieth of the throughput: a journal that is written out.

    A run that is shorter than the period meets it or does not: two levels, and nothing between.
    (Kalibera, Bulej and Tuma, Benchmark Precision and Random Initial State, SPECTS 2005, have
    such levels of whole runs.)
    """

    def made(length: int, random: Generator) -> Floats:
        found = np.zeros(length)
        found[int(random.integers(period_s)) :: period_s] = math.log(0.05)
        return found

    return made


def wandering(step: float) -> Series:
    """A random walk, which has no level to return to (Box and Jenkins's integrated process)."""

    def made(length: int, random: Generator) -> Floats:
        found: Floats = np.cumsum(step * random.standard_normal(length))
        return found

    return made


def stays(depth: float) -> Series:
    """A neighbour that comes at any time, once, and stays (Page, Biometrika 41, 1954)."""

    def made(length: int, random: Generator) -> Floats:
        return np.where(np.arange(length) < random.uniform() * length, 0.0, -depth)

    return made


def heaviest_tails(scale: float) -> Series:
    """Cauchy's, of which not even a mean exists."""

    def made(length: int, random: Generator) -> Floats:
        return np.clip(scale * random.standard_cauchy(length), -5.0, 2.0)

    return made


def collections(every_s: float, lasts_s: int, depth: float) -> Series:
    """A drive collects garbage once so many seconds' worth was written, not by the clock.

    (Hu et al., Write Amplification Analysis in Flash-based Solid State Drives, SYSTOR 2009.)
    """

    def made(length: int, random: Generator) -> Floats:
        found, written = np.zeros(length), random.uniform(0, every_s)
        second = 0
        while second < length:
            idle = max(1, int((every_s - written) * random.uniform(0.8, 1.2)))
            found[second + idle : second + idle + lasts_s] = -depth
            second, written = second + idle + lasts_s, 0.0
        return found

    return made


def drift(deviation: float) -> Series:
    """A slope over the whole campaign: a cluster that fills, a room that warms."""

    def made(length: int, random: Generator) -> Floats:
        found: Floats = deviation * random.standard_normal() * np.arange(length) / length
        return found

    return made


def together(*parts: Series) -> Series:
    """All of them at once."""

    def made(length: int, random: Generator) -> Floats:
        found: Any = sum(part(length, random) for part in parts)
        return np.asarray(found, np.float64)

    return made


_QUIET = white(0.03)
DISTURBANCES = (
    Disturbance("seconds alone", _QUIET),
    *(Disturbance(f"AR(1) {kept}", together(_QUIET, ar1(kept, 0.1))) for kept in (0.5, 0.9)),
    *(Disturbance(f"AR(1) {kept}", together(_QUIET, ar1(kept, 0.1))) for kept in (0.97, 0.995)),
    *(
        Disturbance(f"cycle of {period} s", together(_QUIET, cycle(period, 0.1)))
        for period in (10, 20, 30, 60, 90, 120)
    ),
    Disturbance("level shifts", together(_QUIET, shifts(60, 0.15))),
    Disturbance("neighbour, a minute", together(_QUIET, two_levels(60, 0.7))),
    Disturbance("heavy tails", heavy_tails(0.05)),
    Disturbance("stalls", together(_QUIET, stalls(60))),
    Disturbance("drift", together(_QUIET, drift(0.3))),
    Disturbance("deployments 5 %", _QUIET, deployment=0.05),
    Disturbance("deployments 10 %", together(_QUIET, ar1(0.97, 0.05)), deployment=0.1),
    Disturbance("one noisy, rest quiet", white(0.01), deployment=0.002, own=0.08),
    Disturbance("stall each 30 s", together(_QUIET, every(30))),
    Disturbance("deployments of two levels", _QUIET, deployment=0.08, two_levels=True),
    Disturbance("deep cycle of 180 s", together(_QUIET, cycle(180, 0.3))),
    Disturbance("deep cycle of 240 s", together(_QUIET, cycle(240, 0.3))),
    Disturbance("random walk", together(_QUIET, wandering(0.01))),
    Disturbance("neighbour, long", together(_QUIET, two_levels(600, 0.3))),
    Disturbance("neighbour that stays", together(_QUIET, stays(0.4))),
    Disturbance("Cauchy", heaviest_tails(0.03)),
    Disturbance("garbage collection", together(_QUIET, collections(200, 40, 0.5))),
    Disturbance(
        "all at once",
        together(
            _QUIET, ar1(0.97, 0.05), shifts(90, 0.08), cycle(60, 0.03), stalls(120), drift(0.2)
        ),
        deployment=0.04,
    ),
)
