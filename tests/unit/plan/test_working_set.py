"""Whether reads can come from the OSDs' memory: of a file, before anything is run."""

from __future__ import annotations

import io
from typing import Any, Callable

import pytest
from rich.console import Console

from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import cautions
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.show import show_plan
from cbt_crypto.plan.steps import plan

pytestmark = pytest.mark.unit


def _campaign(make: Callable[..., Campaign], vol_size: int, **changes: Any) -> Campaign:
    """Three hosts of ten OSDs with 16 GiB each, of which two copies can hold 240 GiB."""
    hosts = ["osd0", "osd1", "osd2"]
    cluster = {
        "osds": hosts,
        "osds_per_node": 10,
        "pool_profiles": {"rbd": {"pg_size": 64, "pgp_size": 64, "replication": 2}},
        "settings": {"osd_memory_target": "16G"},
        **changes,
    }
    load = {"vol_size": vol_size, "op_size": 4096, "time": 10, "ramp": 0, "mode": "randread"}
    return make(cluster=cluster, benchmarks={"rbd_single_client": load})


def test_volumes_that_fit_into_memory_are_said(campaign_of: Callable[..., Campaign]) -> None:
    campaign = _campaign(campaign_of, 16384)
    (sentence,) = cautions(campaign, cells_of(campaign))
    assert sentence == (
        "rbd_single_client: its 1 volume of 16G fits into the memory of 30 OSDs with "
        "osd_memory_target 16G and 2 copies: reads measure memory and not drives; with vol_size: "
        "491521 (MiB) or more at least half of them reach drives"
    )
    shown = io.StringIO()
    show_plan(plan(campaign), Console(file=shown))
    assert f"warning: {sentence}" in shown.getvalue()


@pytest.mark.parametrize(("vol_size", "is_said"), [(245760, True), (245761, False)])
def test_the_size_from_which_on_drives_are_measured(
    campaign_of: Callable[..., Campaign], vol_size: int, is_said: bool
) -> None:
    campaign = _campaign(campaign_of, vol_size)
    assert bool(list(cautions(campaign, cells_of(campaign)))) == is_said


def test_a_small_memory_is_exceeded(campaign_of: Callable[..., Campaign]) -> None:
    campaign = _campaign(campaign_of, 16384, settings={"osd_memory_target": "1G"})
    assert list(cautions(campaign, cells_of(campaign))) == []


def test_odd_pools_are_said(campaign_of: Callable[..., Campaign]) -> None:
    """500 groups, and four copies on three hosts, went without a word until Ceph warned."""
    pools = {"rbd": {"pg_size": 500, "pgp_size": 500, "replication": 4}}
    campaign = _campaign(campaign_of, 491521, pool_profiles=pools, replication=...)
    sentences = list(cautions(campaign, []))
    assert sentences == [
        "cluster.pool_profiles.rbd.pg_size: 500 is no power of two, so some groups are twice as "
        "large as others; 512 is",
        "cluster.pool_profiles.rbd: of 4 pieces of an object on 3 hosts some share a host",
    ]
    shown = io.StringIO()
    show_plan(plan(campaign), Console(file=shown))
    assert all(f"warning: {sentence}" in shown.getvalue() for sentence in sentences)


def test_a_configuration_without_its_overlay_is_said(campaign_of: Callable[..., Campaign]) -> None:
    """`Secure messenger: {}` was measured for hours, and cost nothing."""
    configurations = {"plain": {}, "Secure messenger": {}, "control": {}}
    campaign = campaign_of(cluster={"configurations": configurations, "baseline": "plain"})
    assert list(cautions(campaign, [])) == [
        "cluster.configurations.Secure messenger: is the same as the baseline, plain"
    ]


def test_what_is_formatted_is_said(campaign_of: Callable[..., Campaign]) -> None:
    """No line of the plan said which drives of which hosts."""
    hosts = {"osds": ["o0", "o1"], "osds_per_node": 2, "osd_devices": ["/dev/sdb", "/dev/sdc"]}
    for cluster, is_said in ((hosts, True), ({**hosts, "osd_file_size": "4G"}, False)):
        shown = io.StringIO()
        show_plan(plan(campaign_of(cluster=cluster)), Console(file=shown, width=200))
        assert ("Formats and empties /dev/sdb, /dev/sdc on o0, o1." in shown.getvalue()) == is_said
    drives = {"fast": {"host": "o0", "device": "/dev/sdx"},
              "slow": {"host": "o1", "device": "/dev/sdy"}}  # fmt: skip
    of_each = {"clients": ["o0", "o1"], "drives": drives, "osd_drives": ["fast", "slow"],
               "osds": [], "osds_per_node": 1, "replication": 1}  # fmt: skip
    shown = io.StringIO()
    show_plan(plan(campaign_of(cluster=of_each)), Console(file=shown, width=200))
    assert "Formats and empties /dev/sdx on o0; /dev/sdy on o1." in shown.getvalue()


def test_writes_alone_are_no_matter(campaign_of: Callable[..., Campaign]) -> None:
    campaign = _campaign(campaign_of, 16)
    cells = [
        cell
        for mode in ("randwrite", "write")
        for cell in cells_of(
            campaign_of(benchmarks={"rbd_single_client": {"vol_size": 16, "mode": mode}})
        )
    ]
    assert list(cautions(campaign, cells)) == []
