"""A precision over deployments that the file keeps from being known is refused, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.show import show_plan
from cbt_crypto.plan.steps import Plan, plan

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
#: How configurations differ, and how many deployments tell how far these are apart.
APART = ({"A": {}, "B": {"build": {}}}, 4)
SHARED = ({"A": {}, "B": {"restart": {}}}, 4)


def planned(
    campaign_of: Make, configurations: Any, iterations: int, most: int = 600, **cluster: Any
) -> Plan:
    section = {
        "configurations": configurations, "rebuild": "needed", "order": "rounds",
        "iterations": iterations, "control": False, **cluster,
    }  # fmt: skip
    load = {
        "time": {"precision": "2%", "block": 10, "max": most},
        "op_size": 4096,
        "mode": "randread",
    }
    return plan(campaign_of(cluster=section, benchmarks={"rbd_single_client": load}))


@pytest.mark.parametrize(("configurations", "least"), [APART, SHARED])
def test_rounds_that_are_too_few_are_refused(
    campaign_of: Make, configurations: Any, least: int
) -> None:
    with pytest.raises(UsageError, match=f"cluster.iterations: is at least {least} where time"):
        planned(campaign_of, configurations, least - 1)
    assert len(planned(campaign_of, configurations, least).to_measure) == 2 * least


@pytest.mark.parametrize(("configurations", "least"), [APART, SHARED])
def test_room_for_too_few_blocks_is_refused(
    campaign_of: Make, configurations: Any, least: int
) -> None:
    with pytest.raises(UsageError, match=f"rbd_single_client: time: max has room for {least - 1}"):
        planned(campaign_of, configurations, 12, most=10 * (least - 1))
    assert len(planned(campaign_of, configurations, 12, most=10 * least).to_measure) == 2 * least


def test_percents_of_another_dimension_add_no_deployments(campaign_of: Make) -> None:
    """It was measured to the end, and foretelling that was a traceback."""
    with pytest.raises(UsageError, match=r"cluster\.baseline: compares iodepth, but a precision"):
        planned(campaign_of, SHARED[0], 12, baseline={"iodepth": 128})


def test_one_configuration_alone_adds_no_deployments(campaign_of: Make) -> None:
    """So was that; and a control does not stand beside one alone."""
    with pytest.raises(UsageError, match=r"cluster\.configurations: has only one, so"):
        planned(campaign_of, {"A": {}}, 12)
    with pytest.raises(UsageError, match=r"cluster\.configurations: has only one"):
        planned(campaign_of, {"A": {}}, 12, control=True)


def test_a_load_of_the_baseline_alone_adds_no_deployments(campaign_of: Make) -> None:
    """It took all deployments that there may be, for no percent."""
    section = {
        "configurations": APART[0], "rebuild": "needed", "order": "rounds", "iterations": 12,
        "control": False,
    }  # fmt: skip
    load = {"time": {"precision": "2%", "block": 10}, "op_size": 4096, "mode": "randread"}
    loads = {"rbd_single_client": load, "rbd_multi_client": {**load, "configuration": "A"}}
    with pytest.raises(UsageError, match="rbd_multi_client: configuration: is only A, so"):
        plan(campaign_of(cluster=section, benchmarks=loads))


def test_the_plan_says_from_how_many_deployments_to_how_many(campaign_of: Make) -> None:
    text = StringIO()
    show_plan(planned(campaign_of, APART[0], 40, most=300), Console(file=text, width=500))
    assert "from 4 to 30, until percentages are known to ±2%" in text.getvalue()
