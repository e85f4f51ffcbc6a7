"""Test plans in CBT's own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign, read_campaign

pytestmark = pytest.mark.unit

_CLUSTER: dict[str, Any] = {
    "head": "ceph@head",
    "clients": ["ceph@client"],
    "osds": ["ceph@osd"],
    "osds_per_node": 3,
    "mons": ["ceph@mon0", "ceph@mon1"],
    "mgrs": {"mon0": {"x": None}},
    "fs": "xfs",
    "mkfs_opts": "-f",
    "ceph-run_cmd": "/usr/local/bin/ceph-run",
    "rbd-nbd_cmd": "/usr/local/bin/rbd-nbd",
    "rados_cmd": "/usr/local/bin/rados",
    "pool_profiles": {"rbd": {"pg_size": 64, "pgp_size": 64, "replication": "replicated"}},
}
_BENCHMARKS = {"radosbench": {"time": 3, "pool_profile": "rbd", "acceptable": {"iops_avg": "x"}}}

Loaded = Callable[..., Campaign]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """Load CBT's file with changes; `...` removes a key."""

    def of(benchmarks: Any = None, more: Any = None, **changes: Any) -> Campaign:
        cluster = {k: v for k, v in {**_CLUSTER, **changes}.items() if v is not ...}
        path = tmp_path / "cbt.yaml"
        data = {"cluster": cluster, "benchmarks": benchmarks or _BENCHMARKS, **(more or {})}
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return read_campaign(path)

    return of


def test_a_file_of_cbt_is_read_as_cbt_reads_it(loaded: Loaded) -> None:
    campaign = loaded(use_existing=False)
    cluster = campaign.cluster
    assert (cluster.user, cluster.head, cluster.clients) == ("ceph", "head", ["client"])
    assert cluster.mons == {"mon0": {"a": "mon0"}, "mon1": {"b": "mon1"}}
    assert cluster.fs == "bluestore"
    assert cluster.pool_profiles["rbd"].replication == 3
    assert [note.partition(":")[0] for note in campaign.notes] == [
        "cluster.fs has no effect",
        "cluster.mkfs_opts has no effect",
        "cluster.ceph-run_cmd has no effect",
        "benchmarks.radosbench.acceptable has no effect",
    ]


def test_without_use_existing_nothing_is_deployed(loaded: Loaded) -> None:
    assert loaded().cluster.use_existing


CONFIGURATIONS = {"Plain": {}, "Secure": {"secure_messenger": {}}}


def test_overlays_in_a_file_of_cbt(loaded: Loaded) -> None:
    campaign = loaded(use_existing=False, configurations=CONFIGURATIONS)
    assert {"Plain", "Secure"} <= set(campaign.configurations)


@pytest.mark.parametrize(
    "section",
    [
        {"configurations": CONFIGURATIONS},
        {"matrix": {"wire": CONFIGURATIONS, "cores": {"all": {}, "one": {"cpuset": {}}}}},
    ],
    ids=["configurations", "matrix"],
)
def test_whether_to_deploy_has_to_be_said_beside_overlays(
    loaded: Loaded, section: dict[str, Any]
) -> None:
    """With a `matrix` the campaign would have measured whatever cluster answered."""
    with pytest.raises(UsageError, match=r"cluster\.use_existing: is missing; write false to"):
        loaded(**section)


def test_sections_that_are_left_alone(loaded: Loaded) -> None:
    more = {"common": {"pdsh_cmd": "pdsh"}, "client_endpoints": {}, "report": {"create_pdf": True},
            "monitoring_profiles": {"top": {"args": "-b"}}}  # fmt: skip
    notes = " ".join(loaded(more=more).notes)
    assert "common" not in notes
    assert "client_endpoints" not in notes
    for section in ("report", "monitoring_profiles.top"):
        assert f"{section} has no effect" in notes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"benchmarks": {"nullbench": {}, "radosbench": {}}},
         r":\d+: benchmarks.nullbench: does not run here: it measures nothing"),
        ({"use_existing": False, "benchmarks": {"fio": {"client_endpoints": "x"}},
          "more": {"client_endpoints": {"x": {"driver": "cephfs-fuse"}}}},
         r"cluster.mdss: has to name who serves the driver cephfs-fuse: write {host: {a: ~}}"),
        ({"use_existing": False, "mdss": {"other": {"a": None}},
          "benchmarks": {"fio": {"client_endpoints": "x"}},
          "more": {"client_endpoints": {"x": {"driver": "cephfs-kernel"}}}},
         "cluster.mdss: names other, which has no other role; name a host of head, clients, osds"),
        ({"osd_valgrind": "massif", "rgws": {}}, "cluster.osd_valgrind: is not supported: daemons"),
        ({"head": "root@head"}, "cluster.user: hosts are reached as ceph and root; use one user"),
        ({"user": "x"}, "cluster.user: hosts are reached as ceph and x; use one user for all"),
        ({"ceph-osd_cmd": "env -i ceph-osd"},
         "cluster.ceph-osd_cmd: is the path of one program here, not 'env -i ceph-osd'; write"),
        # a digit for str.isdigit, and no number for int
        ({"benchmarks": {"radosbench": {"time": "²"}}}, "benchmarks.radosbench.time: "),
        ({"clients": ["^vms"]}, "cluster.clients: names a file of pdsh's; write the hosts"),
        ({"rgws": {}, "use_existing": False}, "cluster.rgws: is not supported: object gateways "),
        ({"rgws": ["g"], "benchmarks": {"cosbench": {}}}, "cluster.rgws: is a list, which"),
        ({"benchmarks": {"fio": {"client_endpoints": "x"}}}, "client_endpoints: has no 'x', which"),
        ({"benchmarks": {"fio": {"client_endpoints": "x"}},
          "more": {"client_endpoints": {"x": {"driver": "rbd-tcmu"}}}},
         "client_endpoints.x.driver: rbd-tcmu is not supported: what targetcli made would"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_one_sentence(
    loaded: Loaded, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        loaded(**changes)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("mons", [{"mon0": "10.0.0.1"}]), ("pool_profiles", "rbd"), ("pool_profiles", {"rbd": None}),
     ("benchmarks", ["radosbench"]), ("benchmarks", "radosbench"), ("benchmarks", 3),
     ("monitoring_profiles", True)],
)  # fmt: skip
def test_a_section_of_another_kind_is_one_sentence(loaded: Loaded, key: str, value: Any) -> None:
    """What is CBT's alone was translated before anything was checked: a traceback."""
    changes = {key: value} if key in _CLUSTER else {"more": {key: value}}
    with pytest.raises(UsageError, match=rf":\d+: \S*{key}\S*: must be a "):
        loaded(**changes)


def test_other_files_are_not_touched(campaign_of: Callable[..., Campaign]) -> None:
    campaign = campaign_of()
    assert not campaign.notes and not campaign.cluster.use_existing


def test_fio_has_what_its_client_endpoints_say(loaded: Loaded) -> None:
    more = {"client_endpoints": {"x": {"driver": "librbd", "endpoints_per_client": 3,
                                       "pool_profile": "rbd"}}}  # fmt: skip
    benchmarks = {"fio": {"client_endpoints": "x", "time": "60", "mode": ["read", "write"]}}
    made: Any = loaded(benchmarks=benchmarks, more=more).scenarios["fio"]
    assert [scenario.volume_numbers() for scenario in made] == [("0", "1", "2")] * 2
    assert {(scenario.time, scenario.pool_profile) for scenario in made} == {(60, "rbd")}


def test_cephfs_is_served_by_the_hosts_that_the_file_names(loaded: Loaded) -> None:
    more = {"client_endpoints": {"x": {"driver": "cephfs-fuse", "pool_profile": "rbd"}}}
    benchmarks = {"fio": {"client_endpoints": "x"}}
    mdss = {"ceph@osd": {"a": None}}
    (made,) = loaded(benchmarks=benchmarks, more=more, mdss=mdss, use_existing=False).scenarios[
        "fio"
    ]
    asked: Any = made
    assert asked.mds_hosts == "osd" and "mds_hosts" not in asked.options()
    (existing,) = loaded(benchmarks=benchmarks, more=more).scenarios["fio"]
    assert "mds_hosts" not in existing.model_dump(), "cells are named as before"


def test_erasure_coded_pools_of_a_cluster_that_exists(loaded: Loaded) -> None:
    pools = {"ec": {"replication": "erasure", "erasure_profile": "theirs"}}
    benchmarks = {"radosbench": {"time": 3, "pool_profile": "ec"}}
    profile = loaded(pool_profiles=pools, benchmarks=benchmarks).cluster.pool_profiles["ec"]
    assert profile.erasure_profile == "theirs"


def test_devices_without_a_cluster_need_no_head(loaded: Loaded) -> None:
    campaign = loaded(
        {"rawfio": {"block_devices": ["/dev/vdb"], "ramp": "0"}}, use_existing=True,
        **dict.fromkeys(("head", "osds", "mons", "mgrs", "rados_cmd", "pool_profiles"), ...),
    )  # fmt: skip
    assert campaign.cluster.head == "client"
