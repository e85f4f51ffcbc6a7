"""Where time is spent best: how many deployments, turns on each, and seconds a turn.

Kalibera and Jones (Rigorous Benchmarking in Reasonable Time, ISMM 2013, section 6) derive the
optimum where deployments are many. Here the least number of them often decides, so that all that is
sensible is tried; where they are many, what is found is theirs. Pure arithmetic.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from cbt_crypto.plan.rounds import usual_pause_s
from cbt_crypto.results.precision.deployments import FIRST
from cbt_crypto.results.precision.pace import MARGIN
from cbt_crypto.results.precision.repetition import FEWEST_ROUNDS, half_of_rounds, student

#: Turns on each deployment and seconds a turn that are sensible, whatever variances say, of which
#: some are estimated as nothing.
_TURNS, _SECONDS = range(2, 31), (5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
#: More deployments than anybody waits for.
MOST = 1000
#: The normal distribution's quantile for a tenth at each end.
_TENTH = 1.2816


@dataclass(frozen=True)
class Spread:
    """Variances of the logarithm of one percent, by what is repeated.

    `second`: of single seconds; `turn`: from turn to turn, beyond that; `deployment`: from one
    deployment to the next, beyond both, with so many `degrees` of freedom.
    """

    second: float
    turn: float
    deployment: float
    degrees: int


@dataclass(frozen=True)
class Costs:
    """Seconds: of a deployment, of a round of turns without what it measures, of each second of it.

    A round of turns has every configuration under every load once, so that a second of it costs
    as many as it has cells. Before each of its visits to a configuration it pauses, by chance.
    """

    deployment: float
    turns: float
    second: float
    visits: int = 0

    def pauses(self, seconds: float) -> float:
        """Of a round of turns of so many seconds, on the average."""
        return self.visits * usual_pause_s(self.visits, seconds / 2)


@dataclass(frozen=True)
class Allocation:
    """So many turns of so many seconds of each configuration, on each deployment."""

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
        """Half the interval of the percent's logarithm, of so many deployments; at least 2."""
        return half_of_rounds(deployments) / math.sqrt(2) * math.sqrt(self.variance(spread))


#: How many deployments have an interval of that half, by the variance of one's percent: `MOST` or
#: more where nobody waits for so many.
Count = Callable[[float, float], int]
#: Half an interval in standard deviations of one deployment's percent, negative so that they rise.
#: `half_of_rounds` is of a ratio of two; here their difference is one value.
_HALVES = [-half_of_rounds(count) / math.sqrt(2) for count in range(FEWEST_ROUNDS, MOST)]


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
    total = spread.deployment + spread.turn + spread.second
    least, most = (total * spread.degrees / _chi2(spread.degrees, z) for z in (_TENTH, -_TENTH))
    return _scaled(spread, least / total if total else 1), _scaled(
        spread, most / total if total else 1
    )


def _scaled(spread: Spread, factor: float) -> Spread:
    return replace(
        spread,
        second=spread.second * factor,
        turn=spread.turn * factor,
        deployment=spread.deployment * factor,
    )


def _chi2(degrees: int, z: float) -> float:
    """A quantile of the chi-square distribution (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * degrees)
    return float(degrees * max(1 - part + z * math.sqrt(part), 0.05) ** 3)


def spread_of(deployments: Sequence[Sequence[float]], of_run: float, seconds: float) -> Spread:
    """The spread of one percent: its logarithm by deployment and turn.

    `of_run` is the variance that the seconds of a turn, of which it has `seconds`, make of it.
    Raises ValueError for fewer than two deployments.
    """
    if len(deployments) < 2:
        raise ValueError("one deployment tells nothing of the next")
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
