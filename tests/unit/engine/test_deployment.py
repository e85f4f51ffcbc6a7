"""What a deployment runs on which host, in which order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.secure_messenger import SecureMessenger
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.site import Osd
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.steps import Deploy

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
Cluster = Callable[[Campaign], Any]

CLUSTER = {
    "mons": {"head": ..., "m0": {"a": "10.0.0.1"}, "m1": {"b": "10.0.0.2", "c": "10.0.0.3:3301"}},
    "mgrs": {"head": ..., "m0": {"x": None}},
    "osds_per_node": 2,
    "tmp_dir": "/srv/bench",
}


def test_the_steps_of_a_deployment(campaign_of: Make, cluster_of: Cluster, notebook: Any) -> None:
    cluster_of(campaign_of(cluster=CLUSTER)).initialize()
    steps = notebook.names
    # A file system in a mapped image writes out what it holds, and waits for OSDs that are gone.
    assert steps[:2] == ["unmap the volumes", "end the daemons"]
    # The OSDs are made while the monitors are.
    order = ["clear the host", "make the OSDs", "make the monitors", "start the managers",
             "start the OSDs"]  # fmt: skip
    assert [step for step in steps if step in order] == order
    assert steps[steps.index("start the OSDs") + 1] == "wait for the cluster"


def test_the_short_poll_of_starting_osds_is_taken_back(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster = cluster_of(campaign_of(cluster=CLUSTER))
    cluster.initialize()
    cluster.restart()
    asked = [step.get("mon", step) for step in notebook.monitor_steps()]
    given = [step["prefix"] for step in asked if step.get("name") == "bdev_aio_poll_ms"]
    assert given == ["config set", "config rm"] * 2
    # Not before all are up: the last thing that the OSDs of a deployment are waited for.
    waits = [n for n, step in enumerate(asked) if step.get("wait") == "osds"]
    taken = [n for n, step in enumerate(asked) if step.get("prefix") == "config rm"]
    assert [n + 1 for n in waits] == taken


def test_every_host_is_cleared_first(campaign_of: Make, cluster_of: Cluster, notebook: Any) -> None:
    cluster_of(campaign_of(cluster=CLUSTER)).initialize()
    everyone = {"head", "m0", "m1", "o0", "o1", "c0", "c1"}
    assert set(notebook.scripts("end the daemons")) == everyone
    assert set(notebook.scripts("clear the host")) == everyone


def test_keys_go_where_they_are_needed_and_nowhere_else(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster = cluster_of(campaign_of(cluster=CLUSTER))
    cluster.initialize()
    copies = {target: (set(hosts), text) for hosts, target, text in notebook.copies}
    assert {target.removeprefix("/srv/bench/ceph/") for target in copies} == {
        "ceph.conf",
        "keyring",
        "daemons.keyring",
    }
    hosts, admin = copies["/srv/bench/ceph/keyring"]
    assert hosts == {"head", "c0", "c1"}
    assert re.findall(r"^\[(.*)\]$", admin, re.MULTILINE) == ["client.admin"]
    hosts, daemons = copies["/srv/bench/ceph/daemons.keyring"]
    assert hosts == {"m0", "m1", "o0", "o1"}
    osds = [f"osd.{number}" for number in range(4)]
    entities = re.findall(r"^\[(.*)\]$", daemons, re.MULTILINE)
    assert entities == ["mon.", "client.admin", "mgr.x", *osds]
    keys = re.findall(r"key = (\S+)", daemons)
    assert len(set(keys)) == len(keys) == 7
    commands = str(notebook.steps)
    assert not [key for key in keys if key in commands], "a key is in no list of processes"
    assert not [key for key in keys if key in cluster.conf_text]


def test_a_second_deployment_has_an_identity_of_its_own(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster = cluster_of(campaign_of())
    found = set()
    for _ in range(2):
        cluster.initialize()
        found.add(cluster.fsid)
        found |= set(re.findall(r"key = (\S+)", notebook.copies[-1][2]))
    # mon., client.admin, mgr.x, osd.0, osd.1
    assert len(found) == 2 * (1 + 5)


def test_monitors_are_made_on_their_hosts_with_the_same_map(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster = cluster_of(campaign_of(cluster=CLUSTER))
    cluster.initialize()
    scripts = notebook.scripts("make the monitors")
    assert set(scripts) == {"m0", "m1"}
    (line,) = {
        line for text in scripts.values() for line in text.splitlines() if "monmaptool" in line
    }
    assert f"--fsid {cluster.fsid}" in line
    for name, vector in (
        ("a", "[v2:10.0.0.1:3300]"),
        ("b", "[v2:10.0.0.2:3300]"),
        ("c", "[v2:10.0.0.3:3301]"),
    ):
        assert f"--addv {name} '{vector}'" in line
    assert [text.count("--mkfs") for text in scripts.values()] == [1, 2]


def test_osds_are_made_on_their_devices_and_started(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster_of(campaign_of(cluster=CLUSTER)).initialize()
    scripts = notebook.scripts("make the OSDs")
    started = notebook.scripts("start the OSDs")
    assert set(scripts) == set(started) == {"o0", "o1"}
    for number, host in ((0, "o0"), (1, "o0"), (2, "o1"), (3, "o1")):
        text = scripts[host]
        device = f"/dev/disk/by-partlabel/osd-device-{number % 2}-data"
        assert f"-i {number} --mkfs" in text
        assert f"-i {number} --keyring" in started[host]
        assert f"--bluestore-block-path={device}" in text
        assert f"-i {number} " not in scripts["o1" if host == "o0" else "o0"]


def test_devices_are_claimed_before_anything_is_written_to_them(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster_of(campaign_of(cluster=CLUSTER)).initialize()
    made = notebook.scripts("make the OSDs")
    for host in ("o0", "o1"):
        for n in (0, 1):
            device = f"/dev/disk/by-partlabel/osd-device-{n}-data"
            claimed = made[host].index(f"\nclaim {device}")
            ready = made[host].index(f"prove ready {device} bluestore")
            assert claimed < ready < made[host].index("--mkfs", ready)


def test_osds_on_files_need_no_root(campaign_of: Make, cluster_of: Cluster, notebook: Any) -> None:
    cluster_of(campaign_of(cluster={"osd_file_size": "8G"})).initialize()
    text = notebook.scripts("make the OSDs")["o1"]
    assert "truncate -s 8192M /var/lib/cbt-crypto/ceph/osd.1.block" in text
    assert "$SUDO" not in text
    assert "/dev/disk" not in text


def test_daemons_carry_the_mark_even_through_sudo(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster_of(campaign_of()).initialize()
    for step in ("make the monitors", "start the managers", "start the OSDs"):
        for text in notebook.scripts(step).values():
            starts = [line for line in text.splitlines() if ".out 2>&1" in line and ">>" in line]
            assert starts
            for line in starts:
                assert 'env CBT_CRYPTO_MARK="$CBT_CRYPTO_MARK" ' in line


def test_what_the_monitors_are_told(campaign_of: Make, cluster_of: Cluster, notebook: Any) -> None:
    cluster = cluster_of(
        campaign_of(
            cluster={
                "pool_profiles": {"rbd": {"pg_size": 64, "pgp_size": 32, "replication": 1}},
                "replication": ...,
                "settings": {"scrub": True},
            }
        )
    )
    cluster.initialize()
    cluster.mkpool("rbd", "rbd", "rbd")
    cluster.mkpool("rbd", "rbd", "rbd")
    told = [step["mon"] for step in notebook.monitor_steps() if "mon" in step]
    assert [step["key"] for step in told if step["prefix"] == "osd set"] == ["nodeep-scrub"]
    (create,) = [step for step in told if step["prefix"] == "osd pool create"]
    assert (create["pg_num"], create["pgp_num"], create["size"]) == (64, 32, 1)
    waits = [step for step in notebook.monitor_steps() if step.get("wait") == "osds"]
    assert {step["count"] for step in waits} == {2}


def test_a_restart_keeps_the_data_and_waits_for_osds_that_came_up_since(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    cluster = cluster_of(campaign_of(cluster=CLUSTER))
    cluster.initialize()
    fsid = cluster.fsid
    del notebook.steps[:]
    cluster.restart()
    assert cluster.fsid == fsid
    assert "--mkfs" not in str(notebook.steps)
    assert set(notebook.scripts("stop the daemons")) == {"m0", "m1", "o0", "o1"}
    # The others afterwards: an OSD that ends waits for the monitors' answer.
    assert notebook.names.index("stop the OSDs") < notebook.names.index("stop the daemons")
    for host, text in notebook.scripts("stop the OSDs").items():
        assert all(osd.pid_file in text for osd in cluster.site.osds_of(host))
    (wait,) = [step for step in notebook.monitor_steps() if step.get("wait") == "osds"]
    assert wait["since"] == 41


def test_an_existing_cluster_is_left_alone(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    absent = dict.fromkeys(("osds", "mons", "mgrs"), ...)
    cluster = cluster_of(campaign_of(cluster={"use_existing": True, **absent}))
    assert cluster.tmp_conf == "/etc/ceph/ceph.conf"
    cluster.adopt(cluster.site)
    cluster.mkpool("rbd", "rbd", "rbd")
    cluster.check_health()
    cluster.shutdown()
    cluster.cleanup()
    cluster.purge()
    asked, ours = "ask since when OSDs are up", "unmap the volumes"
    ended = {"end the daemons", ours, "prepare tmp_dir", "remove tmp_dir"}
    assert set(notebook.names) == {*ended, asked}
    # What our own notes name, where there are any.
    noted = f"if [ -d {cluster.tmp_dir}/mapped ] || "
    for scripts in [scripts for what, scripts in notebook.steps if what == ours]:
        assert set(scripts) == {"c0", "c1"}
        assert all(text.startswith(noted) for text in scripts.values())
    assert {host for _, scripts in notebook.steps for host in scripts} == {"head", "c0", "c1"}
    assert notebook.copies == []


def test_overlays_are_asked_in_their_places(
    campaign_of: Make, cluster_of: Cluster, notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(campaign_of())
    kind = Stack
    monkeypatch.setattr(kind, "ceph_conf", lambda self: {"global": {"ms mode": "x y"}})
    monkeypatch.setattr(kind, "before_osds", lambda self, site: {"o0": "lay it under"})
    monkeypatch.setattr(kind, "after_osds", lambda self, site: {"o0": "tune it"})
    monkeypatch.setattr(SecureMessenger, "take_down", lambda self, site: {"o0": "take it away"})
    monkeypatch.setattr(kind, "osd_device", lambda self, osd, device: f"/dev/mapper/x{osd.id}")
    monkeypatch.setattr(kind, "osd_db_device", lambda self, osd, device: "/dev/db")
    monkeypatch.setattr(kind, "wrap_osd", lambda self, osd, command: f"wrapped {command}")
    cluster.initialize()
    assert "ms_mode = x y" in cluster.conf_text
    assert "take it away" in notebook.scripts("clear the host")["o0"]
    assert notebook.scripts("finish the deployment") == {"o0": "tune it"}
    made = notebook.scripts("make the OSDs")
    assert "--bluestore-block-path=/dev/mapper/x1 --bluestore-block-db-path=/dev/db" in made["o1"]
    assert made["o0"].index("lay it under") < made["o0"].index("--mkfs")
    assert "\nwrapped " in notebook.scripts("start the OSDs")["o1"]
    names = notebook.names
    assert names.index("make the OSDs") < names.index("finish the deployment")


@pytest.mark.parametrize(
    ("how", "steps"),
    [(Transition.NONE, []), (Transition.LIVE, ["change the configuration"])],
)
def test_a_change_does_what_it_takes(
    campaign_of: Make, target_of: Any, notebook: Any, how: Transition, steps: list[str]
) -> None:
    target = target_of(campaign_of(cluster={"configurations": {"A": {}, "B": {"luks": {}}}}))
    target.change_to(Deploy("B", how, "a test"), how)
    assert [overlay.name for overlay in target.stack.named] == ["luks"]
    assert notebook.names == steps


def run_here(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"SUDO=\n(\nset -eu\n{text}\n)"],
        check=False, capture_output=True, text=True, env={**os.environ, "CBT_HOST": "here"},
    )  # fmt: skip


def prepare(cluster: Any, notebook: Any) -> str:
    del notebook.steps[:]
    cluster.cleanup()
    return str(notebook.scripts("prepare tmp_dir")["head"])


def test_tmp_dir_is_claimed_emptied_and_removed(
    campaign_of: Make, cluster_of: Cluster, notebook: Any, tmp_path: Path
) -> None:
    ours = tmp_path / "new" / "cbt"
    cluster = cluster_of(campaign_of(cluster={"tmp_dir": str(ours)}))
    assert run_here(prepare(cluster, notebook)).returncode == 0
    (ours / "ceph" / "old").touch()
    assert run_here(prepare(cluster, notebook)).returncode == 0
    assert {path.name for path in (ours / "ceph").iterdir()} == {"run", "log", "crash"}
    assert (ours / "ceph" / "run").stat().st_mode & 0o077 == 0
    cluster.purge()
    assert run_here(notebook.scripts("remove tmp_dir")["head"]).returncode == 0
    assert not ours.exists()


def test_somebody_else_s_directory_is_neither_emptied_nor_removed(
    campaign_of: Make, cluster_of: Cluster, notebook: Any, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "ceph").mkdir(parents=True)
    (theirs / "ceph" / "precious").touch()
    cluster = cluster_of(campaign_of(cluster={"tmp_dir": str(theirs)}))
    done = run_here(prepare(cluster, notebook))
    assert done.returncode == 1
    assert (
        done.stderr
        == f"{theirs} is not empty and was not made by a campaign; name another tmp_dir\n"
    )
    cluster.purge()
    done = run_here(notebook.scripts("remove tmp_dir")["head"])
    assert done.stderr == f"{theirs} was not marked by this campaign, so it is left alone\n"
    assert (theirs / "ceph" / "precious").exists()


@pytest.mark.parametrize("failing", [(), (1,), (0, 1)])
def test_osds_of_a_host_are_started_at_once_and_each_failure_counts(
    campaign_of: Make, cluster_of: Cluster, notebook: Any, failing: tuple[int, ...],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tmp_dir = tmp_path / "ours"
    (tmp_dir / "ceph" / "log").mkdir(parents=True)
    section = {"osds_per_node": 2, "tmp_dir": str(tmp_dir), "ceph-osd_cmd": "true",
               "osd_file_size": "4M"}  # fmt: skip
    cluster = cluster_of(campaign_of(cluster=section))

    def start(self: Stack, osd: Osd, command: str) -> str:
        return f"sleep 0.0{osd.id}; echo {osd.id}; exit {1 if osd.id in failing else 0}"

    monkeypatch.setattr(Stack, "wrap_osd", start)
    cluster.make_osds()
    done = run_here(notebook.scripts("start the OSDs")["o0"])
    assert sorted(done.stdout.split()) == ["0", "1"]
    assert (done.returncode == 0) is (not failing)


def test_a_torn_down_cluster_leaves_no_image_mapped(
    campaign_of: Make, cluster_of: Cluster, notebook: Any
) -> None:
    """Also where no configuration encrypts on clients; tried while its OSDs may still answer."""
    cluster_of(campaign_of(cluster=CLUSTER)).shutdown()
    assert notebook.names[:2] == ["unmap the volumes", "end the daemons"]
    assert set(notebook.scripts("unmap the volumes")) == {"c0", "c1"}
    undone = notebook.scripts("take the overlays down")
    assert all("unmount_below" in undone[client] for client in ("c0", "c1"))
