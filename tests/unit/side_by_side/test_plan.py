"""Which configurations share OSDs, where those lie, and when each has its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cbt_crypto.benchmarks.base import ClusterCommands
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.engine.upstream.engine import problems
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.site import Osd
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.side_by_side import engine_keys, site_of_group
from cbt_crypto.plan.steps import Deploy, Plan, Prefill, plan

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
LUKS = {
    "plain": {},
    "LUKS": {"luks": {}},
    "LUKS, no workqueues": {"luks": {"no_read_workqueue": True}},
    "secure": {"secure_messenger": {}},
}
SECTION = {
    "layout": "side_by_side",
    "control": True,
    "configurations": LUKS,
    "iterations": 3,
    "turns": 2,
    "osds_per_node": 2,
    "settings": {"osd_memory_target": "8G"},
}
LOADS = {"rbd_single_client": {"time": 10, "op_size": [4096, 65536]}}
DB = {"devices": "/dev/disk/by-partlabel/osd-db", "size": "1G"}


@pytest.fixture
def campaign(campaign_of: Make) -> Callable[..., Campaign]:
    def make(benchmarks: Any = LOADS, **cluster: Any) -> Campaign:
        return campaign_of(cluster={**SECTION, **cluster}, benchmarks=benchmarks)

    return make


@pytest.fixture
def planned(campaign: Make) -> Plan:
    return plan(campaign())


def test_what_changes_live_shares_osds_and_the_control_has_its_own(campaign: Make) -> None:
    assert [group.members for group in campaign().groups] == [
        ("plain",),
        ("control",),
        ("LUKS", "LUKS, no workqueues"),
        ("secure",),
    ]


BLOCKS = {"precision": "5%", "block": 2, "max": 40}


@pytest.mark.parametrize(
    ("cluster", "time"),
    [
        ({"turns": 7, "iterations": 4}, 10),
        ({"turns": 7, "iterations": 4}, BLOCKS),
        (
            {
                "layout": "separate",
                "turns": None,
                "order": "interleaved",
                "rebuild": "needed",
                "iterations": 1,
            },
            BLOCKS,
        ),
    ],
)
def test_turns_and_blocks_are_cells_too(
    campaign: Make, monkeypatch: pytest.MonkeyPatch, cluster: Any, time: Any
) -> None:
    """15 lines planned for minutes, and made an archive that no report reads."""
    found = campaign({"rbd_single_client": {"time": time}}, **cluster)
    made = len(cells_of(found))
    monkeypatch.setattr("cbt_crypto.archive.documents.MOST_CELLS", made - 1)
    with pytest.raises(UsageError, match=f": makes {made:,} cells, of at most {made - 1:,}; lower"):
        cells_of(found)


def test_drives_and_memory_are_divided(campaign: Make) -> None:
    section = campaign().cluster
    assert section.osds_per_device == 4
    assert section.settings.osd_memory_target == "2048M"
    keys = engine_keys(section)
    assert keys["osds_per_device"] == 4 and keys["settings"]["osd_memory_target"] == "2048M"
    site = site_of(section)
    # two drives on each of two hosts
    assert Counter(osd.disk for osd in site.osds if osd.host == "o0") == Counter(
        {f"/dev/disk/by-partlabel/osd-device-{n}-data": 4 for n in range(2)}
    )


def test_every_group_has_every_slice_once_in_as_many_deployments(campaign: Make) -> None:
    section = campaign().cluster
    site = site_of(section)
    slices: dict[int, list[int]] = {number: [] for number in range(4)}
    for deployment in range(4):
        taken: list[Osd] = []
        for number in range(4):
            own = site_of_group(site, section, 4, number, deployment)
            assert {(osd.host, osd.disk) for osd in own.osds} == {
                (osd.host, osd.disk) for osd in site.osds
            }
            (place,) = {osd.number % 4 for osd in own.osds}
            slices[number].append(place)
            assert set(own.osds) | set(own.idle) == set(site.osds)
            taken += own.osds
        assert sorted(osd.id for osd in taken) == [osd.id for osd in site.osds]
    assert all(sorted(places) == [0, 1, 2, 3] for places in slices.values())


def test_upstream_s_engine_refuses_it(campaign: Make) -> None:
    common = SimpleNamespace(get_localnode=lambda nodes: None)
    (said,) = problems(campaign(), common, None)  # type: ignore[arg-type]
    assert said == (
        "cluster.layout: side_by_side is deployed by this program's own engine alone; say "
        "--cbt embedded"
    )


def test_it_deploys_and_fills_once_for_all_turns(planned: Plan) -> None:
    assert planned.deployments(Transition.REBUILD) == 3
    assert planned.deployments(Transition.RESTART) == 0
    numbers = [
        step.deployment
        for step in planned.steps
        if isinstance(step, Deploy) and step.how is Transition.REBUILD
    ]
    assert numbers == [0, 1, 2]
    prefills = [step for step in planned.steps if isinstance(step, Prefill)]
    assert len(prefills) == 3
    for prefill in prefills:
        assert sorted(volume.pool for volume in prefill.volumes) == [
            f"rbd.group{number}" for number in range(4)
        ]
        assert len({volume.name for volume in prefill.volumes}) == 4


def test_a_precision_adds_deployments_up_to_the_longest_time(campaign_of: Make) -> None:
    until = {"precision": "2%", "min": 10, "max": 100, "block": 10}
    loads = {"rbd_single_client": {"time": until, "op_size": 4096}}
    section = {key: value for key, value in SECTION.items() if key != "iterations"}
    for cluster, most in ((section, 5), ({**section, "iterations": 7}, 7)):
        made = plan(campaign_of(cluster=cluster, benchmarks=loads))
        assert made.deployments(Transition.REBUILD) == most
        cells = [cell for cell in made.cells if cell.configuration == "plain"]
        assert [cell.iteration for cell in cells] == list(range(2 * most))
        assert len({cell.path for cell in made.cells}) == len(made.cells)
    (one,) = {
        plan(campaign_of(cluster={**section, "iterations": 1}, benchmarks=loads)).deployments(how)
        for how in (Transition.REBUILD,)
    }
    assert one == 1


@pytest.mark.parametrize("iterations", [2, 3])
def test_too_few_deployments_for_a_precision_are_refused(
    campaign_of: Make, iterations: int
) -> None:
    loads = {"rbd_single_client": {"time": {"precision": "2%"}, "op_size": 4096}}
    with pytest.raises(UsageError, match="is at least 4 where time is a precision"):
        campaign_of(cluster={**SECTION, "iterations": iterations}, benchmarks=loads)


def test_every_turn_has_each_configuration_once_in_an_order_of_its_own(planned: Plan) -> None:
    cells = planned.to_measure
    names = sorted(["plain", "control", *list(LUKS)[1:]])
    orders = []
    for turn in range(6):
        order = [cell.configuration for cell in cells if cell.iteration == turn]
        assert sorted(order[::2]) == names and order[::2] == order[1::2]
        orders.append(tuple(order))
    assert len(set(orders)) > 3
    assert [cell.iteration for cell in cells] == sorted(cell.iteration for cell in cells)


@pytest.mark.parametrize("seed", range(6))
def test_who_is_asked_for_a_share_of_the_baseline_waits_for_it(campaign: Make, seed: int) -> None:
    """Whether the file was refused hung on what chance drew as the first order."""
    loads = {"rbd_single_client": {"time": 10, "op_size": 4096, "rate": ["max", "50%"]}}
    cells = plan(campaign(benchmarks=loads, seed=seed)).to_measure
    assert [cell.configuration for cell in cells[:2]] == ["plain", "plain"]
    later = [cell.configuration for cell in cells if cell.iteration == 1]
    assert sorted(set(later)) == sorted({cell.configuration for cell in cells})


def test_the_kernel_s_client_maps_each_group_s_images_as_that_group_speaks(campaign: Make) -> None:
    """All were mapped by the whole cluster's file, which says secure: crc groups refuse that."""
    loads = {"rbd_single_client": ..., "rbd_krbd": {"time": 10, "op_size": 4096}}
    planned = plan(campaign(benchmarks=loads))
    prefill = next(step for step in planned.steps if isinstance(step, Prefill))
    confs = {volume.conf for volume in prefill.volumes}
    assert {conf.rpartition("/")[2] for conf in confs} == {
        f"ceph.group{number}.conf" for number in range(4)
    }
    commands = ClusterCommands("ceph", "rbd", "env")
    (script,) = prefill.scenario.prefill_scripts(prefill.volumes, "/run", commands).values()
    assert all(f"CONF={conf}" in script for conf in confs)


def test_other_archives_keep_their_cells(campaign_of: Make) -> None:
    """The definition of a cell that stands by itself has no word of layouts."""
    first, again = (
        plan(campaign_of(cluster=cluster, benchmarks=LOADS)).cells
        for cluster in ({}, {"layout": "separate"})
    )
    assert [cell.definition for cell in first] == [cell.definition for cell in again]
    assert all("layout" not in cell.parameters for cell in first)


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ({"layout": "separate"}, "turns: is for layout: side_by_side"),
        ({"order": "interleaved"}, "order: does not go with layout: side_by_side"),
        ({"rebuild": "configuration"}, "rebuild: does not go with layout: side_by_side"),
        ({"replication": [2, 3]}, "replication: is a list, which takes several clusters"),
        ({"osds_per_device": 5}, "makes 20 OSDs on each device for 4 groups"),
        (
            {"settings": {"osd_memory_target": "2G"}},
            "settings.osd_memory_target: 2G is divided among 4 groups, and an OSD takes no less "
            "than 896M; raise it to 3584M",
        ),
        (
            {"configurations": {"A": {}, "B": {"cpuset": {"osd_cores": 1}}}},
            "every configuration changes live into every other; say order: interleaved",
        ),
        (
            {"configurations": {"A": {}, "B": {"network": {"type": "wireguard"}}}},
            '"B" has network, in which OSDs of one host cannot differ; leave layout out',
        ),
        (
            {"configurations": {"A": {"db_device": DB}, "B": {"db_device": DB, "luks": {}}}},
            "layout: is side_by_side, and db_device shares devices among the OSDs of a host",
        ),
        (
            {"configurations": {"A": {}, "B": {"luks": {"like": "ceph-volume"}}}},
            '"B" has luks with like: ceph-volume, which takes whole drives, and here groups share '
            "each drive; leave like: ceph-volume out, or layout",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_said(
    campaign: Make, cluster: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError) as error:
        campaign(**cluster)
    assert sentence in str(error.value)


def test_what_cannot_stand_beside_is_said_once_with_its_cause(campaign: Make) -> None:
    """`like: ceph-volume` was said in six lines, none of which named it: "luks cannot differ"."""
    like = {"luks": {"like": "ceph-volume"}}
    configurations = {"A": {}, "B": like, "C": {"secure_messenger": {}},
                      "D": {"secure_messenger": {}, **like}}  # fmt: skip
    with pytest.raises(UsageError) as error:
        campaign(configurations=configurations)
    lines = [line for line in str(error.value).splitlines() if "luks" in line]
    assert len(lines) == 1
    assert '"B" and "D" have luks with like: ceph-volume' in lines[0]
