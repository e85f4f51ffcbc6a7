"""kbench's set: each test has its own size and depth."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import Prefill, plan

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


def test_without_a_file_system_it_is_what_it_was(campaign_of: Make) -> None:
    """Archives know no such key, and clients use librbd."""
    (cell,) = cells_of(_campaign(campaign_of))
    assert "filesystem" not in cell.parameters
    assert cell.scenario.uses_client_libraries and not cell.scenario.takes_encryption
    assert cell.scenario.requirements(site_of(_campaign(campaign_of).cluster)) == ()
    (volume,) = cell.scenario.volumes(site_of(_campaign(campaign_of).cluster))
    assert "--ioengine=rbd " in cell.scenario.fio_command(0, volume)


def test_on_a_file_as_kbench_does(campaign_of: Make) -> None:
    campaign = _campaign(campaign_of, filesystem="ext4", vol_size=20480, test="latency")
    site = site_of(campaign.cluster)
    (cell,) = cells_of(campaign)
    assert cell.parameters["filesystem"] == "ext4"
    assert cell.scenario.takes_encryption and not cell.scenario.uses_client_libraries
    (volume,) = cell.scenario.volumes(site)
    assert volume.name.endswith("-20480-krbd-ext4")
    # A tenth, as kbench asks for, and what the smallest XFS takes.
    assert cell.scenario.created_mb(volume) == 20480 + 2048 + 320
    fio = cell.scenario.fio_command(0, volume)
    file = f"{site.tmp_dir}/mnt/{volume.name}/file"
    for word in (f"--filename={file}", "--size=20480M", "--ioengine=libaio", "--direct=1"):
        assert word in fio
    assert [each.name for each in cell.scenario.requirements(site)] == ["krbd", "rbd", "mkfs.ext4"]


def test_librbd_fills_no_volume_of_the_kernel_s(campaign_of: Make) -> None:
    """What one scenario filled for all had no file system, nor LUKS's header, in the others'."""
    loads = {"rbd_kbench": [{"vol_size": 64}, {"vol_size": 64, "filesystem": ["ext4", "xfs"]}]}
    loads["rbd_krbd"] = [{"vol_size": 64}]
    campaign = campaign_of(benchmarks={"rbd_single_client": ..., **loads})
    fills = [step for step in plan(campaign).steps if isinstance(step, Prefill)]
    assert [len(fill.volumes) for fill in fills] == [1, 1, 1, 1]
    assert len({volume.name for fill in fills for volume in fill.volumes}) == 4


def test_an_unknown_test(campaign_of: Make) -> None:
    with pytest.raises(UsageError, match="'iops', 'bandwidth' or 'latency'"):
        _campaign(campaign_of, test="speed")
