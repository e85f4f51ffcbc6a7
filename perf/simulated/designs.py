"""Simulated campaigns, many at once: when each run is measured, and what it measures.

Orders and pauses are made by the code that plans campaigns.
"""

from __future__ import annotations

import math
import random as standard
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Union

import numpy as np
from scipy.special import ndtr

from cbt_crypto.plan.order import longest_pause_s, orders, pause_s, round_orders
from simulated.disturbances import Disturbance, Floats, Generator, Grid

FIGURES = ("IOPS", "p99", "CPU per IO")
#: Seconds that a deployment takes, and a change of configuration on a cluster.
DEPLOY_S, CHANGE_S = 25.0, 5.0
#: Timetables that the campaigns of a design choose from.
_TIMETABLES = 64
#: The deviation of the logarithms of latencies within one second.
_WITHIN_SECOND = 0.4


@dataclass(frozen=True)
class Design:
    """A way to measure `rows` rows beside the baseline, the control among them.

    `kind`: rounds, shared, beside, turns. `rounds` are deployments, or the turns on one cluster;
    `turns` those of each row on each deployment, side by side.
    """

    kind: str
    rows: int
    workloads: int
    rounds: int
    turns: int = 1
    seconds: int = 15

    @property
    def size(self) -> str:
        """As `5 x 4`."""
        return f"{self.rows} x {self.workloads}"

    @property
    def names(self) -> list[str]:
        """Of all rows; the baseline first, and last the one that may differ."""
        return ["baseline", *(f"row {n}" for n in range(1, self.rows)), "other"]

    @cached_property
    def timetables(self) -> tuple[Floats, Floats]:
        """When each run begins, of several campaigns, and its row's place in its round.

        Timetables x rounds (all turns) x rows x workloads, and without the last.
        """
        made = [self._timetable(seed) for seed in range(_TIMETABLES)]
        begins, places = zip(*made)
        return np.array(begins), np.array(places)

    def _timetable(self, seed: int) -> tuple[list[Any], list[Any]]:
        jitter = standard.Random(seed)
        names, all_turns = self.names, self.rounds * self.turns
        is_quick = self.kind in ("beside", "turns")
        change = CHANGE_S if is_quick else DEPLOY_S
        longest = longest_pause_s(self.seconds * self.workloads, len(names), is_quick)
        now, begins, places = 0.0, [], []
        for turn, order in enumerate(self._orders(seed, all_turns)):
            if self.kind == "beside" and turn % self.turns == 0:
                now += DEPLOY_S
            at: dict[str, list[int]] = {}
            for name in order:
                now += change * (1 + 0.05 * jitter.uniform(-1, 1))
                now += pause_s(seed, turn, name, len(names), longest)
                at[name] = [int(now) + self.seconds * load for load in range(self.workloads)]
                now += self.seconds * self.workloads
            begins.append([at[name] for name in names])
            places.append([order.index(name) for name in names])
        return begins, places

    def _orders(self, seed: int, turns: int) -> list[tuple[str, ...]]:
        if self.kind == "turns":
            return list(orders(self.names, turns, seed))
        groups = [self.names] if self.kind == "shared" else [[name] for name in self.names]
        return round_orders(groups, turns, seed, "baseline")


@dataclass(frozen=True)
class Campaigns:
    """The logarithms of runs: campaigns x rounds (all turns) x rows x workloads, by figure."""

    design: Design
    logs: tuple[Floats, ...]
    #: What was made of all figures at once, by its name.
    made: dict[str, Any] = field(default_factory=dict)


def simulate(
    design: Design,
    how: Disturbance,
    count: int,
    loss: Union[float, Sequence[float]],
    random: Generator,
    figures: int = 1,
) -> Campaigns:
    """So many campaigns, in which `other` loses that share of its throughput.

    `loss` may be of each workload.
    """
    tables, places = design.timetables
    chosen = random.integers(len(tables), size=count)
    begins, place = tables[chosen], places[chosen]
    flat = begins.reshape(count, -1)
    length = int(begins.max()) + design.seconds + 1
    round_s = length / begins.shape[1]
    level = how.series(count, length, round_s, random).astype(np.float32)
    own = _own(design, how, place, random)
    own[:, :, -1] += np.log1p(-np.asarray(loss))
    sums = np.cumsum(np.exp(level, dtype=np.float64), axis=1)
    sums = np.concatenate([np.zeros((count, 1)), sums], axis=1)
    done = np.take_along_axis(sums, flat + design.seconds, 1) - np.take_along_axis(sums, flat, 1)
    rate = np.log(np.maximum(done, 1e-9) / design.seconds).reshape(begins.shape) + own
    logs = [rate]
    if figures > 1:
        logs.append(_p99(level, flat, own, design.seconds, random))
        busy = 0.03 / math.sqrt(design.seconds) * random.standard_normal(rate.shape)
        logs.append(np.log(0.3 * np.exp(-rate) + 0.7) + busy)
    return Campaigns(design, tuple(logs))


def _p99(level: Floats, flat: Floats, own: Floats, seconds: int, random: Generator) -> Floats:
    """A client with so many IOs in flight waits as they do: over all IOs of a run."""
    count = len(level)
    window = np.stack([np.take_along_axis(level, flat + s, 1) for s in range(seconds)], axis=-1)
    middle = -window + 0.03 * random.standard_normal(window.shape)
    weights = np.exp(window)
    weights /= weights.sum(axis=-1, keepdims=True)
    low, high = middle.min(axis=-1), middle.max(axis=-1) + 4 * _WITHIN_SECOND
    for _ in range(11):
        half = (low + high) / 2
        below = (weights * ndtr((half[..., None] - middle) / _WITHIN_SECOND)).sum(axis=-1)
        low, high = np.where(below < 0.99, half, low), np.where(below < 0.99, high, half)
    found: Floats = half.reshape(count, *own.shape[1:]) - own
    return found


def _own(design: Design, how: Disturbance, place: Floats, random: Generator) -> Floats:
    """What deployments, rows and runs differ by.

    What the deployments of a cluster differ by, the groups of one are taken to differ by too, each
    time anew: where CRUSH puts what, and how a daemon came up. As much again is of the slice of
    the drive, which stays and which groups exchange, and of what all groups have in common.
    """
    count, all_turns = place.shape[:2]
    shape = (count, all_turns, design.rows + 1, design.workloads)
    found = np.zeros(shape)
    if how.levels is None or (design.kind == "turns" and how.unit != "run"):
        return found
    if how.unit == "run":
        return found + how.levels(Grid(shape, place, random))
    deployed = (count, design.rounds, *shape[2:])
    grid = Grid(deployed, place[:, :: design.turns], random)
    drawn = np.broadcast_to(how.levels(grid), deployed)
    if design.kind == "shared" and how.unit == "deployment":
        drawn = drawn[:, :, :1]
    if design.kind == "beside":
        common = np.broadcast_to(how.levels(grid), deployed)[:, :, :1]
        slices = np.broadcast_to(how.levels(grid), deployed)[:, 0]
        rolled = np.stack([np.roll(slices, -n, axis=1) for n in range(design.rounds)], axis=1)
        is_whole = how.unit == "deployment"
        drawn = drawn + common + rolled if is_whole else drawn
    found += np.repeat(drawn, design.turns, axis=1)
    return found
