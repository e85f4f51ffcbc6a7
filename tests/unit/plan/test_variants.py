"""Lists in the cluster section: each value is a cluster of its own."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.engine.embedded.daemons import base_options, file_size
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import at, variants
from cbt_crypto.plan.layout import drives_of, site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import Deploy, plan
from cbt_crypto.run import take_down

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
LISTS = {"osds_per_device": [4, 5], "replication": [1, 3]}


def test_every_combination_is_a_variant(campaign_of: Make) -> None:
    assert variants(campaign_of(cluster=LISTS).cluster) == (
        (("osds_per_device", 4), ("replication", 1)),
        (("osds_per_device", 4), ("replication", 3)),
        (("osds_per_device", 5), ("replication", 1)),
        (("osds_per_device", 5), ("replication", 3)),
    )
    assert variants(campaign_of().cluster) == ((),)
    assert variants(campaign_of(cluster={"replication": 2}).cluster) == ((),)


def test_a_cell_has_them_among_its_parameters_and_in_its_label(campaign_of: Make) -> None:
    cells = cells_of(campaign_of(cluster=LISTS))
    assert len(cells) == 4 and len({cell.path for cell in cells}) == 4
    assert len({cell.definition for cell in cells}) == 4
    assert cells[1].parameters["replication"] == 3
    assert "osds_per_device 4 replication 3" in cells[1].label


def test_each_takes_a_new_cluster(campaign_of: Make) -> None:
    campaign = campaign_of(cluster={**LISTS, "rebuild": "needed"})
    steps = [step for step in plan(campaign).steps if isinstance(step, Deploy)]
    assert [step.how for step in steps] == [Transition.REBUILD] * 4
    assert dict(steps[3].variant) == {"osds_per_device": 5, "replication": 3}
    assert steps[3].reason == "osds_per_device 5 replication 3"


def test_osds_of_a_device_have_a_volume_each(campaign_of: Make) -> None:
    cluster = {"osds_per_device": 2, "osds_per_node": 2, "osd_devices": "/dev/d{n}"}
    site = site_of(campaign_of(cluster=cluster).cluster)
    own = site.osds_of("o0")
    assert [osd.disk for osd in own] == ["/dev/d0", "/dev/d0", "/dev/d1", "/dev/d1"]
    assert own[0].device.rpartition("/")[0] == own[1].device.rpartition("/")[0]
    assert own[0].device.endswith("/osd.0-data")
    assert site.osds_of("o1")[0].id == 4


def test_one_osd_has_the_whole_device(campaign_of: Make) -> None:
    (first, *_) = site_of(campaign_of(cluster={"osd_devices": "/dev/d{n}"}).cluster).osds
    assert (first.device, first.disk) == ("/dev/d0", None)


def test_a_file_is_divided_too(campaign_of: Make) -> None:
    section = at(campaign_of(cluster={"osd_file_size": "4G", "osds_per_device": 3}).cluster)
    assert file_size(section) == 1365 << 20
    assert base_options(section, "f")["osd"]["bluestore_block_size"] == str(1365 << 20)
    assert "osd.5" in base_options(section, "f")


def test_replication_is_that_of_every_pool(campaign_of: Make) -> None:
    section = at(campaign_of(cluster=LISTS).cluster, (("replication", 1),))
    assert {pool.replication for pool in section.pool_profiles.values()} == {1}


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ({"replication": [1, 3], "baseline": {"replication": 2}}, "does not list the baseline"),
        ({"replication": [0, 3]}, "greater than or equal to 1"),
        ({"replication": 3, "baseline": {"replication": 3}}, "does not list the baseline"),
    ],
)
def test_one_sentence_for_a_mistake(
    campaign_of: Make, cluster: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        campaign_of(cluster=cluster)


def test_a_place_can_be_the_baseline(campaign_of: Make) -> None:
    campaign = campaign_of(cluster={**LISTS, "baseline": {"replication": 1}})
    assert (campaign.compared, campaign.baseline) == ("replication", 1)


DRIVES = {
    "drives": {
        "PLP": {"host": "c0", "device": "/dev/nvme0n1", "plp": True},
        "Plain": {"host": "c0", "device": "/dev/nvme1n1", "plp": False},
    },
    "osd_drives": ["PLP", "Plain"],
    "osds_per_device": [4, 5],
}


def test_a_cluster_for_each_drive(campaign_of: Make) -> None:
    campaign = campaign_of(cluster={**DRIVES, "baseline": {"drive": "Plain"}})
    cells = cells_of(campaign)
    assert [dict(cell.variant)["drive"] for cell in cells] == ["PLP", "PLP", "Plain", "Plain"]
    assert "drive Plain osds_per_device 5" in cells[3].label
    site = site_of(at(campaign.cluster, cells[3].variant))
    assert [(osd.host, osd.disk) for osd in site.osds] == [("c0", "/dev/nvme1n1")] * 5


def test_drives_are_measured_alone_once(campaign_of: Make) -> None:
    benchmarks = {"fdatasync": {"size": 1}, "rbd_kbench": {"time": 5}, "rbd_single_client": ...}
    cells = cells_of(campaign_of(cluster=DRIVES, benchmarks=benchmarks))
    assert [(cell.scenario.name, bool(cell.variant)) for cell in cells] == [
        *[("fdatasync", False)] * 2,
        *[("rbd_kbench", True)] * 4,
    ]


def test_an_unknown_drive_is_one_sentence(campaign_of: Make) -> None:
    with pytest.raises(UsageError, match='unknown drive "No"'):
        campaign_of(cluster={**DRIVES, "osd_drives": ["No"]})


def test_the_control_of_drives_is_the_baseline_s_drive_again(campaign_of: Make) -> None:
    compared = {**DRIVES, "baseline": {"drive": "Plain"}}
    benchmarks = {"fdatasync": {"size": 1}}
    without = cells_of(campaign_of(cluster=compared, benchmarks=benchmarks))
    campaign = campaign_of(cluster={**compared, "control": True}, benchmarks=benchmarks)
    cells = cells_of(campaign)
    drives = list(dict.fromkeys(cell.parameters["drive"] for cell in cells))
    assert drives == ["PLP", "Plain", "control"]
    control = [cell for cell in cells if cell.parameters["drive"] == "control"]
    assert [cell.scenario.name for cell in control] == ["fdatasync", *["rbd_single_client"] * 2]
    site = site_of(at(campaign.cluster, control[-1].variant))
    assert {(osd.host, osd.disk) for osd in site.osds} == {("c0", "/dev/nvme1n1")}
    # What was measured before there was a control counts as measured.
    assert {(cell.path, cell.definition) for cell in without} <= {
        (cell.path, cell.definition) for cell in cells
    }


def test_the_control_of_another_baseline_is_another_cell(campaign_of: Make) -> None:
    """After a change of the baseline's drive, the old one's cells stayed as its control."""
    found = []
    for name in ("Plain", "PLP"):
        compared = {**DRIVES, "baseline": {"drive": name}, "control": True}
        cells = cells_of(campaign_of(cluster=compared, benchmarks={"fdatasync": {"size": 1}}))
        found.append({c.definition for c in cells if c.scenario.drive_name == "control"})
    assert found[0] and found[0].isdisjoint(found[1])


def test_another_device_of_a_drive_of_that_name_is_another_cell(campaign_of: Make) -> None:
    """Where configurations are compared, a file's own drive may be called control."""
    found = []
    for device in ("/dev/sdx", "/dev/sdy"):
        section = {
            "drives": {"control": {"host": "c0", "device": device}},
            "control": True, "configurations": {"A": {}, "B": {"build": {}}},
        }  # fmt: skip
        campaign = campaign_of(
            cluster=section, benchmarks={"fdatasync": {"size": 1, "configuration": ["A"]}}
        )
        found.append({cell.definition for cell in cells_of(campaign)})
    assert found[0].isdisjoint(found[1])


def test_a_killed_run_is_cleared_of_the_control_s_drive(campaign_of: Make) -> None:
    """`cleanup` knows no more than the file, which does not name the control."""
    compared = {**DRIVES, "baseline": {"drive": "Plain"}, "control": True}
    campaign = campaign_of(cluster=compared, benchmarks={"fdatasync": {"size": 1}})
    cleared = take_down.cluster_of(campaign)
    text = "\n".join(cleared.hooks.take_down().values())
    assert len(drives_of(campaign.cluster)) == 3
    assert all(drive.mount_point in text for drive in drives_of(campaign.cluster))


def test_the_control_of_a_list_is_the_baseline_s_value_again(campaign_of: Make) -> None:
    cluster = {**LISTS, "baseline": {"replication": 1}, "control": True}
    campaign = campaign_of(cluster=cluster)
    cells = cells_of(campaign)
    assert [cell.parameters["replication"] for cell in cells] == [1, "control", 3] * 2
    pools = at(campaign.cluster, cells[1].variant).pool_profiles
    assert {pool.replication for pool in pools.values()} == {1}
    assert cells[1].definition == cells[0].definition and cells[1].path != cells[0].path


def test_no_control_where_one_value_or_another_kind_of_list_is_compared(campaign_of: Make) -> None:
    one = {"replication": [1], "baseline": {"replication": 1}}
    sizes = {"replication": [1, 2], "baseline": {"op_size": 4096}}
    for cluster in (one, sizes):
        cells = cells_of(campaign_of(cluster={**cluster, "control": True}))
        assert "control" not in {cell.parameters["replication"] for cell in cells}


def test_a_drive_may_not_have_the_control_s_name(campaign_of: Make) -> None:
    drives = {**DRIVES["drives"], "control": {"host": "c0", "device": "/dev/nvme2n1"}}
    cluster = {"drives": drives, "baseline": {"drive": "Plain"}, "control": False}
    with pytest.raises(UsageError, match="control: is the name under which"):
        campaign_of(cluster=cluster)
    del cluster["baseline"]
    campaign_of(cluster=cluster)


@pytest.mark.parametrize(
    ("cluster", "benchmarks", "key", "values"),
    [
        ({**LISTS, "baseline": {"replication": 1}}, {}, "replication",
         {1, 3, "control"}),
        ({**DRIVES, "baseline": {"drive": "PLP"}},
         {"fdatasync": {"size": 1}, "rbd_single_client": ...}, "drive",
         {"PLP", "Plain", "control"}),
        (DRIVES, {}, "drive", {"PLP", "Plain"}),
    ],
)  # fmt: skip
def test_each_round_measures_all_places_in_an_order_of_its_own(
    campaign_of: Make, cluster: dict[str, Any], benchmarks: dict[str, Any], key: str,
    values: set[Any],
) -> None:  # fmt: skip
    """All rounds of one drive stood behind those of another: a drift looked like a difference."""
    rounds = {"iterations": 6, "order": "rounds", "control": True}
    cells = cells_of(campaign_of(cluster={**cluster, **rounds}, benchmarks=benchmarks))
    assert [cell.iteration for cell in cells] == sorted(cell.iteration for cell in cells)
    orders = [
        tuple(dict.fromkeys(c.parameters[key] for c in cells if c.iteration == n)) for n in range(6)
    ]
    assert all(set(order) == values for order in orders)
    assert len(set(orders)) > 1
    for cell in cells:
        assert sum(other.path == cell.path for other in cells) == 1


def test_a_new_round_s_places_are_new_clusters(campaign_of: Make) -> None:
    rounds = {"iterations": 4, "order": "rounds", "control": True, "rebuild": "needed"}
    compared = {"replication": [1, 2], "baseline": {"replication": 1}}
    steps = plan(campaign_of(cluster={**compared, **rounds})).steps
    deployed = [dict(step.variant) for step in steps if isinstance(step, Deploy)]
    assert len(deployed) == 12
    assert sum(variant == {"replication": "control"} for variant in deployed) == 4
