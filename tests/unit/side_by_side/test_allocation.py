"""Where time is spent best: against a search of all that could be asked for, and simulation."""

from __future__ import annotations

import json
import math
import random
from itertools import product
from pathlib import Path
from statistics import variance

import pytest
from scipy import stats

from cbt_crypto.plan import allocation
from cbt_crypto.plan.allocation import (
    Allocation,
    Costs,
    Count,
    Planned,
    Spread,
    advice,
    costs_of,
    likely,
    named_beforehand,
    needed,
    optimum,
    spread_of,
    until_known,
)
from cbt_crypto.results.until import MeasureUntil

pytestmark = pytest.mark.unit

PLANNED = Planned(cells=9, visits=3, ramp_s=18, fill_mb=4096)
COSTS = [Costs(30, 30, 9), Costs(600, 30, 9), Costs(3600, 100, 3), Costs(30, 5, 30)]
SPREADS = [
    Spread(0.05, 0.001, 0.002, 2),
    Spread(0.02, 0.0005, 0.0001, 2),
    Spread(0.5, 0.001, 0.0005, 4),
    # LUKS against plain in an emulated machine, whose four deployments were as alike as turns let
    # them be: nothing was left for what deployments differ by.
    Spread(0.001, 0.0016, 0.0, 3),
]


@pytest.mark.parametrize("half", [0.1, 0.05, 0.02])
@pytest.mark.parametrize("count", [named_beforehand, until_known])
@pytest.mark.parametrize(("costs", "spread"), list(product(COSTS, SPREADS)))
def test_no_other_allocation_is_much_sooner(
    costs: Costs, spread: Spread, count: Count, half: float
) -> None:
    """The search of all that could be asked for has every second of a turn, which ours has not."""

    def seconds(one: Allocation) -> float:
        return count(one.variance(spread), half) * one.cost(costs)

    everything = (Allocation(n, s) for n in range(2, 31) for s in range(5, 301))
    assert seconds(optimum([spread], costs, half, count)) <= 1.1 * min(map(seconds, everything))


@pytest.mark.parametrize(("costs", "spread"), list(product(COSTS, SPREADS[:3])))
def test_of_many_deployments_it_is_the_published_one(costs: Costs, spread: Spread) -> None:
    """Kalibera and Jones, section 6: roots of costs and variances of neighbouring levels."""
    seconds = math.sqrt(costs.turns * spread.second / (costs.second * spread.turn))
    of_turn, cost = spread.turn + spread.second / seconds, costs.turns + costs.second * seconds
    turns = math.sqrt(costs.deployment * of_turn / (cost * spread.deployment))
    theirs = Allocation(round(min(max(turns, 2), 30)), round(min(max(seconds, 5), 300)))
    half = 4 * math.sqrt(theirs.variance(spread) / 300)
    assert until_known(theirs.variance(spread), half) > 100
    found = optimum([spread], costs, half, until_known)
    product_of = [one.variance(spread) * one.cost(costs) for one in (found, theirs)]
    assert product_of[0] <= 1.1 * product_of[1]


@pytest.mark.parametrize("count", [3, 5, 12])
def test_the_half_is_students(count: int) -> None:
    spread = SPREADS[0]
    own = Allocation(6, 10)
    error = math.sqrt(own.variance(spread) / count)
    assert own.half(spread, count) == pytest.approx(stats.t.ppf(0.975, count - 1) * error, 1e-3)
    need = named_beforehand(own.variance(spread), 0.05)
    assert own.half(spread, need) <= 0.05 < own.half(spread, need - 1)


def test_advice_counts_deployments_as_a_campaign_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a precision is known, Stein's first four decide: more deployments than Student's."""
    spread = Spread(0.0, 0.004, 0.0014, 7)
    seen = [allocation.Seen("", {}, "iops", "beside", spread)]
    monkeypatch.setattr(allocation, "costs_of", lambda *_: Costs(54, 17, 2))
    said = list(advice(tmp_path, seen, PLANNED, None, Allocation(2, 5)))
    best = optimum([spread], Costs(54, 17, 2), math.log1p(0.05), until_known)
    until = MeasureUntil(precision="5%", min=1, max=2000, block=best.seconds)
    campaign = needed([spread], until, best.turns, 1000)
    (five,) = (sentence for sentence in said if sentence.startswith("±5 %"))
    assert f"with {campaign.rounds[1] // best.turns} deployments of {best.turns} turns" in five
    assert not any("As the file has it" in sentence for sentence in said)


def test_levels_are_told_apart() -> None:
    """Deployments and turns whose variances are known, as a simulation draws them."""
    source = random.Random(3)
    drawn = []
    for _ in range(400):
        level = source.gauss(0, 0.05)
        drawn.append([level + source.gauss(0, 0.03) for _ in range(6)])
    found = spread_of(drawn, of_run=0.0004, seconds=10)
    assert math.sqrt(found.deployment) == pytest.approx(0.05, rel=0.1)
    assert math.sqrt(found.turn + 0.0004) == pytest.approx(0.03, rel=0.1)
    assert found.second == pytest.approx(0.004)
    with pytest.raises(ValueError, match="nothing about the next"):
        spread_of([[0.1, 0.2]], 0, 10)


def test_the_ends_hold_four_times_of_five() -> None:
    source = random.Random(5)
    held = 0
    for _ in range(500):
        known = variance([source.gauss(0, 0.1) for _ in range(4)])
        least, most = likely(Spread(0, 0, known, 3))
        held += least.deployment <= 0.01 <= most.deployment
    assert 0.74 < held / 500 < 0.86


def test_one_deployment_tells_nothing(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    cells = [{"id": "id-a", "path": "results/0/id-a", "scenario": "s", "configuration": "A"}]
    (results / "plan.json").write_text(json.dumps({"format": 1, "cells": cells}))
    (said,) = advice(tmp_path, [], PLANNED, 3, Allocation(6, 10))
    assert "no two deployments" in said


def test_what_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [allocation.Seen("", {}, "iops", "beside", Spread(0.5, 0.1, 4.0, 1))]
    monkeypatch.setattr(allocation, "costs_of", lambda *_: Costs(600, 30, 9))
    said = list(allocation.advice(tmp_path, seen, PLANNED, 1, Allocation(6, 10)))
    assert said[1:] == [
        f"±{percent} % cannot be reached: it takes more than 1000 deployments."
        for percent in (5, 2, 1)
    ]


def test_costs_are_those_of_the_plan_at_the_archive_s_pace(tmp_path: Path) -> None:
    """Fillings of another size count as large as they are, and as many as there are."""
    (tmp_path / "results").mkdir()
    steps = [
        {"step": "deploy", "how": "rebuild", "seconds": 20.0},
        *({"step": "prefill", "seconds": seconds, "mib": 64} for seconds in (0.5, 1.0, 1.0)),
        {"step": "deploy", "how": "live", "seconds": 0.5},
        {"step": "measure", "seconds": 15.0, "seconds_measured": 10, "seconds_ramp": 2},
    ]
    (tmp_path / "results" / "timeline.json").write_text(json.dumps({"steps": steps}))
    costs = costs_of(tmp_path, PLANNED)
    assert costs == Costs(20 + 4096 / 64, 9 * 3.0 + 18 + 3 * 0.5, 9, 3)
    # A pause is drawn from nothing to half a turn, a minute in all at most.
    assert (costs.pauses(10), costs.pauses(300)) == (3 * 2.5, 30)
