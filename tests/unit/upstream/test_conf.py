"""What upstream reads: ceph.conf, and its own words for monitoring."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cbt_crypto.engine.upstream.checkout import for_upstream, monitoring_arguments, sections
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import MonitoringProfiles
from cbt_crypto.plan.layout import site_of

pytestmark = pytest.mark.unit


def test_devices_keys_and_overlays(campaign_of: Callable[..., Campaign]) -> None:
    cluster = campaign_of(cluster={"osds_per_node": 2, "tmp_dir": "/t"}).cluster
    made = sections(
        cluster, site_of(cluster), {"global": {"ms_client_mode": "secure"}},
        lambda osd: f"/dev/mapper/{osd.id}", lambda osd: "/dev/db" if osd.id == 3 else None,
    )  # fmt: skip
    assert made["osd.0"] == {"host": "o0", "bluestore_block_path": "/dev/mapper/0"}
    assert made["osd.3"]["bluestore_block_db_path"] == "/dev/db"
    assert made["global"]["ms_client_mode"] == "secure"
    assert "fsid" not in made["global"]
    assert made["osd"]["keyring"] == "/t/ceph/osd.$id/keyring"
    assert made["mon"]["mon_allow_pool_delete"] == "true"


def test_directories_are_where_the_embedded_engine_has_them(
    campaign_of: Callable[..., Campaign],
) -> None:
    keys = for_upstream(campaign_of(cluster={"tmp_dir": "/t"}).cluster)
    assert (keys["tmp_dir"], keys["clusterid"], keys["pid_dir"]) == ("/t", "ceph", "/t/ceph/run")
    assert keys["use_existing"] is False


def test_monitoring_in_upstream_s_words() -> None:
    profiles = MonitoringProfiles.model_validate(
        {"collectl": {"args": "-i 2 --x {y}"}, "perf": {"args": "stat -a"}}
    )
    arguments = monitoring_arguments(profiles, perf_by_pid_files=True)
    collectl = arguments["collectl"]["args"].format(collectl_dir="/d")
    assert collectl == "-i 2 --x {y} -F0 -f /d"
    perf = arguments["perf"]
    assert perf["args"].format(perf_dir="/d", pid=1) == "stat -a -o /d/perf.out"
    assert perf["perf_cmd"] == "sudo perf"
    assert perf["pid_glob"] == "monitored", "diagnosis takes *.pid for a daemon's"
    # Since monitoring is a package, that key would make it a profile for each OSD.
    assert "pid_glob" not in monitoring_arguments(profiles, perf_by_pid_files=False)["perf"]
