"""Plans whose configurations take turns, and what is put off in them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import seed_of
from cbt_crypto.plan.side_by_side import partition
from cbt_crypto.plan.steps import Deploy, Measure, Pending, Plan, Prefill, plan

pytestmark = pytest.mark.unit

CONFIGURATIONS = {"A": {}, "B": {"live": {"value": 1}}, "C": {"live": {"value": 2}}}
TWO = {"rbd_single_client": {"time": 10, "op_size": [4096, 65536]}}


@pytest.fixture
def planned(campaign_of: Callable[..., Campaign]) -> Callable[..., Plan]:
    def make(**cluster: Any) -> Plan:
        section = {
            "configurations": CONFIGURATIONS,
            "rebuild": "needed",
            "order": "interleaved",
            "iterations": 4,
            **cluster,
        }
        return plan(campaign_of(cluster=section, benchmarks=TWO))

    return make


def test_every_round_has_a_block_of_each_and_every_load_of_one_visit(
    planned: Callable[..., Plan],
) -> None:
    cells = planned().to_measure
    assert [cell.iteration for cell in cells] == sorted(cell.iteration for cell in cells)
    for turn in range(4):
        own = [cell for cell in cells if cell.iteration == turn]
        names = [cell.configuration for cell in own]
        assert sorted(names) == ["A", "A", "B", "B", "C", "C"]
        assert names[::2] == names[1::2]
        assert [cell.parameters["op_size"] for cell in own] == [4096, 65536] * 3


def test_one_cluster_and_one_prefill(planned: Callable[..., Plan]) -> None:
    found = planned()
    kinds = Counter(type(step) for step in found.steps)
    assert (found.deployments(Transition.REBUILD), kinds[Prefill]) == (1, 1)
    assert found.deployments(Transition.LIVE) == kinds[Deploy] - 1


def test_the_order_follows_from_the_file_or_its_seed(
    planned: Callable[..., Plan], campaign_of: Callable[..., Campaign]
) -> None:
    def order(**cluster: Any) -> list[str]:
        return [cell.configuration for cell in planned(**cluster).to_measure]

    assert order() == order()
    assert len({tuple(order(seed=seed)) for seed in range(5)}) > 1
    assert seed_of(campaign_of(cluster={"seed": 7})) == 7


def test_what_needs_a_rebuild_takes_turns_on_a_cluster_of_its_own(
    planned: Callable[..., Plan],
) -> None:
    found = planned(configurations={"A": {}, "R": {"build": {}}, "B": {"live": {"value": 1}}})
    names = [cell.configuration for cell in found.to_measure]
    assert set(names[:16]) == {"A", "B"}
    assert set(names[16:]) == {"R"}
    assert found.deployments(Transition.REBUILD) == 2


def test_groups() -> None:
    assert partition("abAcB", lambda one, other: one.lower() == other.lower()) == [
        ["a", "A"], ["b", "B"], ["c"],
    ]  # fmt: skip


def test_steps_that_are_put_off(planned: Callable[..., Plan]) -> None:
    prefill = next(step for step in planned().steps if isinstance(step, Prefill))
    build = Deploy("A", Transition.REBUILD, "first")
    pending = Pending()
    assert pending.take() == []
    pending.add(build)
    pending.add(prefill)
    pending.add(Deploy("B", Transition.LIVE, "needed"))
    assert pending.take() == [Deploy("B", Transition.REBUILD, "first"), prefill]
    pending.add(Deploy("C", Transition.LIVE, "needed"))
    pending.add(Deploy("A", Transition.RESTART, "needed"))
    assert pending.take() == [Deploy("A", Transition.RESTART, "needed")]
    pending.add(build)
    pending.add(prefill)
    pending.add(Deploy("R", Transition.REBUILD, "needed"))
    assert pending.take() == [Deploy("R", Transition.REBUILD, "needed")]
    assert pending.take() == []


def test_volumes_that_no_cell_needs_any_more_are_not_filled(
    campaign_of: Callable[..., Campaign],
) -> None:
    """Loads that were known were filled for on each further deployment, and never read."""
    loads = {
        "rbd_single_client": {"vol_size": 64, "time": 1},
        "rbd_multi_client": {"vol_size": 64, "volumes_per_client": 3, "time": 1},
    }
    steps = plan(campaign_of(cluster={"rebuild": "needed"}, benchmarks=loads)).steps
    (prefill,) = [step for step in steps if isinstance(step, Prefill)]
    assert {volume.name for volume in prefill.volumes} == set(prefill.used_by)
    pending = Pending()
    pending.add(prefill)
    (left,) = pending.take(lambda cell: cell.scenario.name == "rbd_single_client")
    assert isinstance(left, Prefill) and len(left.volumes) == 1 < len(prefill.volumes)
    pending.add(prefill)
    assert pending.take(lambda _: False) == []


def test_a_precision_makes_as_many_rounds_as_its_longest_time(
    campaign_of: Callable[..., Campaign],
) -> None:
    time = {"precision": "1%", "min": 20, "max": 95, "block": 10}
    section = {"configurations": CONFIGURATIONS, "rebuild": "needed", "order": "interleaved"}
    found = plan(campaign_of(cluster=section, benchmarks={"rbd_single_client": {"time": time}}))
    assert len(found.to_measure) == 3 * 10
    assert found.seconds == 3 * 10 * 10
    assert all(isinstance(s, Measure) for s in found.steps[-1:])


def test_volumes_of_all_scenarios_are_filled_at_once_on_each_cluster(
    campaign_of: Callable[..., Campaign],
) -> None:
    loads = {
        "rbd_single_client": {"vol_size": 64, "time": 1},
        "rbd_multi_client": {"vol_size": 64, "volumes_per_client": 3, "time": 1},
        "rbd_single_client_sync": {"vol_size": 32, "time": 1},
    }
    needed = plan(campaign_of(cluster={"rebuild": "needed"}, benchmarks=loads))
    fills = [step for step in needed.steps if isinstance(step, Prefill)]
    assert [(step.scenario.name, len(step.volumes)) for step in fills] == [
        ("rbd_single_client", 6), ("rbd_single_client_sync", 1),
    ]  # fmt: skip
    article = plan(campaign_of(cluster={"rebuild": "scenario"}, benchmarks=loads))
    fills = [step for step in article.steps if isinstance(step, Prefill)]
    assert [len(step.volumes) for step in fills] == [1, 6, 1]
