"""Rounds of deployments, and the control in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import Deploy, Measure, plan

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
LOADS = {"rbd_single_client": {"time": 10, "op_size": [4096, 65536]}}


def _campaign(campaign_of: Make, **cluster: Any) -> Campaign:
    section = {"rebuild": "needed", "iterations": 4, "control": True, **cluster}
    return campaign_of(cluster=section, benchmarks=LOADS)


def _visits(campaign: Campaign) -> list[tuple[int, str]]:
    found = [(cell.iteration, cell.configuration) for cell in cells_of(campaign)]
    return list(dict.fromkeys(found))


def _visit(step: Measure) -> tuple[str, int]:
    return step.cell.configuration, step.cell.iteration


def test_each_round_measures_every_configuration_once(campaign_of: Make) -> None:
    campaign = _campaign(
        campaign_of, configurations={"A": {}, "B": {"build": {}}, "C": {"build": {}}}
    )
    visits = _visits(campaign)
    assert len(visits) == 4 * 4 == len(set(visits))
    assert [turn for turn, _ in visits] == sorted(turn for turn, _ in visits)
    firsts = [next(name for turn, name in visits if turn == n) for n in range(4)]
    assert len(set(firsts)) > 1, "no configuration is always first"


def test_the_baseline_is_not_always_first(campaign_of: Make) -> None:
    for seed in range(30):
        campaign = _campaign(campaign_of, configurations={"A": {}, "B": {"build": {}}}, seed=seed)
        visits = _visits(campaign)
        assert len({next(n for t, n in visits if t == turn) for turn in range(4)}) > 1


def test_a_round_begins_with_deployments_of_its_own(campaign_of: Make) -> None:
    configurations = {"A": {}, "B": {"build": {}}, "S": {"restart": {"value": 1}}}
    made = plan(_campaign(campaign_of, configurations=configurations))
    deployment, used = 0, {}
    for step in made.steps:
        if isinstance(step, Deploy):
            deployment += step.how is Transition.REBUILD
        elif isinstance(step, Measure):
            used.setdefault(step.cell.configuration, set()).add((step.cell.iteration, deployment))
    for name in ("A", "B", "S", "control"):
        assert len({number for _, number in used[name]}) == 4, name
    # the control is as far from the baseline as what needs a rebuild is
    assert not used["A"] & used["control"] and not used["A"] & used["B"]
    # what a restart changes shares the deployment, and is measured beside it
    assert used["A"] == used["S"]


def test_where_nothing_needs_a_rebuild_the_control_shares_too(campaign_of: Make) -> None:
    campaign = _campaign(campaign_of, configurations={"A": {}, "S": {"restart": {"value": 1}}})
    made = plan(campaign)
    assert made.deployments(Transition.REBUILD) == 4
    # "restart, rebuild: needed" would be read as two answers
    deploys = [step for step in made.steps if isinstance(step, Deploy)]
    reasons = {step.reason for step in deploys if step.how is Transition.RESTART}
    assert reasons <= {f"after {name}" for name in ("A", "S", "control")} and reasons


def test_with_rebuild_configuration_each_has_its_own(campaign_of: Make) -> None:
    configurations = {"A": {}, "S": {"restart": {"value": 1}}}
    campaign = _campaign(campaign_of, configurations=configurations, rebuild="configuration")
    assert plan(campaign).deployments(Transition.REBUILD) == 12


def test_pauses_stand_before_visits_and_differ(campaign_of: Make) -> None:
    made = plan(_campaign(campaign_of, configurations={"A": {}, "B": {"build": {}}}))
    steps = [step for step in made.steps if isinstance(step, Measure)]
    later = [(step, _visit(step) == _visit(last)) for last, step in zip(steps, steps[1:])]
    visits = [step for step, goes_on in later if not goes_on]
    pauses = [step.pause_s for step in visits]
    # A third of the 20 s that rounds of short cells take; of long cells, of a minute.
    assert all(0 <= pause <= 20 / 3 for pause in pauses) and len(set(pauses)) > 5
    assert made.pauses_s == pytest.approx(sum(step.pause_s for step in steps))
    within = [step for step, goes_on in later if goes_on]
    assert within and all(step.pause_s == 0 for step in within)


def test_one_round_is_measured_in_the_cheapest_order(campaign_of: Make) -> None:
    campaign = _campaign(campaign_of, configurations={"A": {}, "B": {"build": {}}}, iterations=1)
    assert [name for _, name in _visits(campaign)] == ["A", "control", "B"]
    assert plan(campaign).pauses_s == 0


def test_the_control_is_the_baseline_by_another_name(campaign_of: Make) -> None:
    section = {"configurations": {"B": {"build": {}}, "A": {}}, "baseline": "A", "control": True}
    campaign = campaign_of(cluster=section)
    assert list(campaign.configurations) == ["B", "A", "control"]
    assert campaign.configurations["control"] == campaign.configurations["A"]
    assert list(campaign_of(cluster={**section, "control": False}).configurations) == ["B", "A"]
    alone = campaign_of(cluster={"configurations": {"A": {}}, "control": True})
    assert list(alone.configurations) == ["A"]


def test_a_scenario_that_lists_its_configurations_has_the_control_too(campaign_of: Make) -> None:
    section = {"configurations": {"A": {}, "B": {"build": {}}, "C": {}}, "control": True}
    listed = {"rbd_single_client": {"time": 10, "configuration": ["A", "B"]}}
    found = {c.configuration for c in cells_of(campaign_of(cluster=section, benchmarks=listed))}
    assert found == {"A", "control", "B"}
    one = {"rbd_single_client": {"time": 10, "configuration": ["A"]}}
    found = {c.configuration for c in cells_of(campaign_of(cluster=section, benchmarks=one))}
    assert found == {"A"}


def test_its_name_is_taken(campaign_of: Make) -> None:
    section = {"configurations": {"A": {}, "control": {"build": {}}}, "control": True}
    with pytest.raises(UsageError, match="measured a second time; rename it"):
        campaign_of(cluster=section)
    assert campaign_of(cluster={**section, "control": False})
