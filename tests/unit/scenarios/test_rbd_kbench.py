"""kbench's set: each test has its own size and depth."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
SET = {"test": ["iops", "bandwidth", "latency"], "mode": ["randread", "read"], "time": 10}


def _campaign(make: Make, **section: Any) -> Campaign:
    return make(benchmarks={"rbd_single_client": ..., "rbd_kbench": section})


def test_the_set(campaign_of: Make) -> None:
    cells = cells_of(_campaign(campaign_of, **SET))
    shapes = [(p["test"], p["op_size"], p["iodepth"]) for p in (cell.parameters for cell in cells)]
    assert shapes[::2] == [("iops", 4096, 64), ("bandwidth", 131072, 64), ("latency", 4096, 1)]
    assert [cell.parameters["mode"] for cell in cells[:2]] == ["randread", "read"]


def test_the_file_can_say_otherwise(campaign_of: Make) -> None:
    (cell,) = cells_of(_campaign(campaign_of, test="latency", iodepth=4))
    assert (cell.parameters["op_size"], cell.parameters["iodepth"]) == (4096, 4)


def test_all_run_on_the_same_volume(campaign_of: Make) -> None:
    campaign = _campaign(campaign_of, **SET)
    site = site_of(campaign.cluster)
    names = {v.name for cell in cells_of(campaign) for v in cell.scenario.volumes(site)}
    assert len(names) == 1


def test_an_unknown_test(campaign_of: Make) -> None:
    with pytest.raises(UsageError, match="'iops', 'bandwidth' or 'latency'"):
        _campaign(campaign_of, test="speed")
