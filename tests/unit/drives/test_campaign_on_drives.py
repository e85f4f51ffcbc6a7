"""Files without any OSD: what is refused, and what the plan does."""

from __future__ import annotations

from typing import Any

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.steps import Deploy, Measure, Prefill, plan

pytestmark = pytest.mark.unit

LUKS = {"Plain": {}, "LUKS": {"luks": {}}}
RAW = {"raw_device": {"time": 5, "size": 64, "iodepth": [1, 32]}}


def words(steps: Any) -> list[str]:
    found = []
    for step in steps:
        if isinstance(step, Deploy):
            found.append(f"{step.how.name.lower()} {step.configuration} {step.drive}")
        elif isinstance(step, Prefill):
            found.append(f"prefill {step.volumes[0].device}")
        else:
            assert isinstance(step, Measure)
            found.append(f"measure {step.cell.scenario.iodepth}")
    return found


def test_each_configuration_prepares_and_fills_each_drive_once(on_drives: Any) -> None:
    raw = {"raw_device": {**RAW["raw_device"], "drive": ["NVMe", "RAID-0 of LUKS"]}}
    steps = words(plan(on_drives(raw, configurations=LUKS)).steps)
    mapping, array = steps[9].partition(" ")[2], steps[5].partition(" ")[2]
    assert mapping.startswith("/dev/mapper/cbt-crypto-") and mapping.endswith("-drive-data")
    assert array.startswith("/dev/md/cbt-crypto-")
    both = ["measure 1", "measure 32"]
    assert steps == [
        *("rebuild Plain NVMe", "prefill /dev/nvme0n1", *both),
        *("rebuild Plain RAID-0 of LUKS", f"prefill {array}", *both),
        *("rebuild LUKS NVMe", f"prefill {mapping}", *both),
        *("rebuild LUKS RAID-0 of LUKS", f"prefill {array}", *both),
    ]


def test_flags_change_live_on_one_drive(on_drives: Any) -> None:
    configurations = {"LUKS": {"luks": {}}, "flag": {"luks": {"no_read_workqueue": True}}}
    raw = {"raw_device": {**RAW["raw_device"], "drive": "NVMe"}}
    campaign = on_drives(raw, configurations=configurations, rebuild="needed")
    changes = [step for step in plan(campaign).steps if not isinstance(step, Measure)]
    assert [getattr(step, "how", None) for step in changes] == [
        Transition.REBUILD,
        None,
        Transition.LIVE,
    ]


def test_drives_come_before_the_cluster(campaign_of: Any) -> None:
    drives = {"D": {"host": "c0", "device": "/dev/sda"}}
    lists = {"drives": drives, "osds_per_device": [1, 2]}
    steps = plan(campaign_of(cluster=lists, benchmarks=RAW)).steps
    assert [step.drive for step in steps if isinstance(step, Deploy)] == ["D", None, None]
    measured = [step.cell.scenario.name for step in steps if isinstance(step, Measure)]
    assert measured == ["raw_device"] * 2 + ["rbd_single_client"] * 2


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ({"drives": {}}, "cluster.drives: is missing; name the drives of raw_device"),
        (
            {"drives": {"D": {"host": "o7", "device": "/dev/sda"}}},
            'drives.D.host: "o7" is none of the hosts in cluster.clients',
        ),
        (
            {"drives": {"D": {"host": "c0", "raid0": ["/dev/sda", "/dev/sda"]}}},
            'drives.D.raid0: names the device "/dev/sda" twice; keep one',
        ),
        ({"drives": {"D": {"host": "c0"}}}, "drives.D: takes one of device and raid0"),
        ({"use_existing": True}, "cluster.drives: does not go with use_existing"),
        (
            {"configurations": {"Default": {}, "Secure": {"secure_messenger": {}}}},
            "configurations.Secure.secure_messenger: changes nothing on drives without Ceph",
        ),
    ],
)
def test_what_is_refused(on_drives: Any, cluster: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        on_drives(RAW, **cluster)
    assert sentence in str(error.value)


def test_a_drive_that_is_not_there_is_named(on_drives: Any) -> None:
    with pytest.raises(UsageError, match='unknown drive "NVM"; did you mean "NVMe"'):
        on_drives({"raw_device": {"drive": "NVM"}})


def test_a_cluster_is_still_asked_for_where_a_scenario_needs_one(on_drives: Any) -> None:
    with pytest.raises(UsageError, match=r"cluster\.mons: is empty"):
        on_drives({**RAW, "rbd_single_client": {"time": 1}})
