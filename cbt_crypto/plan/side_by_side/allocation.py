"""Where time is spent best: how many deployments, turns on each, and seconds a turn.

The optimum is that of Kalibera and Jones (Rigorous Benchmarking in Reasonable Time, ISMM 2013,
section 6): at each level as many repetitions as the root of the next level's cost over its own,
times the root of its own variance over the next level's. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cbt_crypto.results.precision.repetition import FEWEST_ROUNDS, half_of_rounds

#: What is sensible whatever variances say, of which some are estimated as nothing.
_SECONDS, _TURNS = (5, 300), (2, 30)
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
    as many as it has cells.
    """

    deployment: float
    turns: float
    second: float


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
        return costs.deployment + self.turns * (costs.turns + costs.second * self.seconds)

    def half(self, spread: Spread, deployments: int) -> float:
        """Half the interval of the percent's logarithm, of so many deployments; at least 2."""
        # `half_of_rounds` is of a ratio of two; here their difference is one value.
        return half_of_rounds(deployments) / math.sqrt(2) * math.sqrt(self.variance(spread))

    def deployments(self, spread: Spread, half: float) -> int:
        """The fewest that carry a verdict and reach that half; `MOST` where none do."""
        counts = range(FEWEST_ROUNDS, MOST)
        return next((n for n in counts if self.half(spread, n) <= half), MOST)


def optimum(spread: Spread, costs: Costs) -> Allocation:
    """The allocation that reaches any precision in the least time."""
    seconds = _root(costs.turns * spread.second, costs.second * spread.turn, _SECONDS)
    # A turn costs its seconds too, and varies by them.
    of_turn = spread.turn + spread.second / seconds
    cost = costs.turns + costs.second * seconds
    turns = _root(costs.deployment * of_turn, cost * spread.deployment, _TURNS)
    return Allocation(turns, seconds)


def _root(above: float, below: float, limits: tuple[int, int]) -> int:
    """The root of a quotient, within limits; the upper one where nothing stands below."""
    wanted = math.sqrt(above / below) if below > 0 else math.inf
    return round(min(max(wanted, limits[0]), limits[1]))


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
