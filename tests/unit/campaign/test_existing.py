"""Clusters that somebody else deployed: what is refused, and how OSDs are found."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional, cast

import pytest
import yaml
from fake_hosts import FakeHosts, in_a_shell

from cbt_crypto.benchmarks.base import ClusterCommands, Volume
from cbt_crypto.cluster_overlays.luks.crypt_table import CryptTable
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.luks.proof import found_fault
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.choice import embedded
from cbt_crypto.engine.embedded.existing import ExistingCeph
from cbt_crypto.errors import HostError, RunError, UsageError
from cbt_crypto.hosts.admin_socket_on_host import ask_and_identify
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.run.targets import existing, sockets_on_host
from cbt_crypto.run.targets.choice import target_of

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
EXISTING = {"use_existing": True, "mons": ..., "mgrs": ...}


def problems(campaign: Campaign) -> list[str]:
    return list(target_of(campaign.cluster).problems(campaign, list(campaign.configurations)))


def test_one_claim_is_no_problem(campaign_of: Make) -> None:
    for overlays in ({}, {"luks": {}}, {"luks": {}, "secure_messenger": {}}):
        assert problems(campaign_of(cluster={**EXISTING, "configurations": {"A": overlays}})) == []


def test_what_would_have_to_be_deployed_is_refused(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={**EXISTING, "configurations": {"A": {"cpuset": {"osd_cores": 1}}}}
    )
    (sentence,) = problems(campaign)
    assert sentence.startswith('cluster.configurations: "A": cpuset would have to be deployed')


def test_two_claims_that_exclude_each_other_are_refused(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={**EXISTING, "configurations": {"A": {}, "B": {"secure_messenger": {}}}}
    )
    (sentence,) = problems(campaign)
    assert '"A" cannot become "B"' in sentence


def test_clusters_of_our_own_have_no_such_problem(campaign_of: Make) -> None:
    assert problems(campaign_of(cluster={"configurations": {"A": {}, "B": {"luks": {}}}})) == []


def remote_of(answers: dict[str, str], names: dict[str, str]) -> Remote:
    """Hosts that answer what the monitors and the hosts would."""

    def say(host: str, command: str) -> str:
        if "osd metadata" in command:
            osds = [
                {"id": 3, "hostname": "alpha", "osd_data": "/var/lib/ceph/osd/ceph-3"},
                {"id": 1, "hostname": "beta.example.org", "osd_data": "/var/lib/ceph/osd/ceph-1"},
                {"id": 9},
            ]
            return f"f-s-i-d\n{json.dumps(osds)}"
        return (names if "hostname -s" in command else answers)[host]

    return FakeHosts(say).remote()


def found(number: int) -> str:
    facts = {"socket": f"/run/x/{number}", "pid": 70 + number, "device": "/dev/dm-1",
             "db_device": None, "is_file": False}  # fmt: skip
    return json.dumps({str(number): facts})


def test_osds_are_found_by_whichever_name_their_host_has(campaign_of: Make) -> None:
    cluster = campaign_of(cluster={**EXISTING, "tmp_dir": "/t"}).cluster
    names = {"o0": "alpha\nalpha\nalpha.example.org", "o1": "beta\nbeta\nbeta.example.org"}
    remote = remote_of({"o0": found(3), "o1": found(1)}, names)
    discovered = existing.discover(remote, site_of(cluster), cluster)
    osds = [(osd.id, osd.host, osd.admin_socket, osd.is_existing) for osd in discovered.site.osds]
    assert osds == [(1, "o1", "/run/x/1", True), (3, "o0", "/run/x/3", True)]
    assert discovered.pid_files == {
        "o1": "echo 71 > /t/ceph/run/osd.1.pid\n",
        "o0": "echo 73 > /t/ceph/run/osd.3.pid\n",
    }


def test_an_osd_on_a_host_that_is_not_named_is_told(campaign_of: Make) -> None:
    cluster = campaign_of(cluster=EXISTING).cluster
    remote = remote_of({}, {"o0": "alpha", "o1": "gamma"})
    with pytest.raises(RunError, match=r"^osd\.1 is on beta\.example\.org, which is none of"):
        existing.discover(remote, site_of(cluster), cluster)


def test_an_osd_that_does_not_answer_is_told(campaign_of: Make) -> None:
    cluster = campaign_of(cluster=EXISTING).cluster
    names = {"o0": "alpha", "o1": "beta.example.org"}
    remote = remote_of({"o0": "{}", "o1": found(1)}, names)
    with pytest.raises(HostError, match=r"^o0: find the admin socket of osd\.3"):
        existing.discover(remote, site_of(cluster), cluster)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """A socket that answers once as OSD 4 of the cluster `x` would."""
    path = tmp_path / "ceph-osd.4.asok"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        # `shutdown` below ends the wait where nobody asked.
        with contextlib.suppress(OSError):
            answer(*server.accept())

    def answer(peer: socket.socket, _: object) -> None:
        with peer:
            peer.recv(100)
            said = json.dumps({"cluster_fsid": "x", "whoami": 4}).encode()
            peer.sendall(struct.pack(">I", len(said)) + said)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    server.close()


def test_a_socket_is_asked_whose_it_is(daemon: Path) -> None:
    table = Path("/proc/net/unix").read_text()
    assert str(daemon) in list(sockets_on_host.listening(table))
    assert ask_and_identify(str(daemon), {"prefix": "status"}, 10) == (
        {"cluster_fsid": "x", "whoami": 4},
        os.getpid(),
    )


def test_sockets_are_those_of_the_processes_called_ceph_osd(daemon: Path, tmp_path: Path) -> None:
    """As a container has them: its own root, its own list of sockets."""
    proc, other = tmp_path / "proc" / "71", tmp_path / "proc" / "8"
    for process, name in ((proc, "ceph-osd"), (other, "bash")):
        (process / "net").mkdir(parents=True)
        (process / "comm").write_text(name + "\n")
    (proc / "net/unix").write_text("Num\n0: 2 0 10000 1 1 7 /var/run/ceph/ceph-osd.4.asok\n")
    inside = proc / "root/var/run/ceph"
    inside.mkdir(parents=True)
    os.link(daemon, inside / "ceph-osd.4.asok")
    found = list(sockets_on_host.candidates(str(tmp_path / "proc")))
    assert found == [str(inside / "ceph-osd.4.asok")]


def facts(*layers: dict[str, Any]) -> dict[str, Any]:
    named = {"data": layers[0]["device"]}
    return {"running": True, "named": named, "opened": {layers[0]["device"]: list(layers)}}


LINE = "0 100 crypt aes-xts-plain64 :64:logon:x 0 8:1 32768 2 allow_discards sector_size:4096"
CRYPT = {"device": "254:1", "name": "dm-1", "mapping": "theirs", "uuid": "CRYPT-LUKS2-x",
         "table": LINE}  # fmt: skip
VOLUME = {"device": "254:0", "name": "dm-0", "mapping": "vg-lv", "uuid": "LVM-x", "table": ""}
PLAIN = {"device": "8:1", "name": "sdb1"}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, None),
        ({"sector_size": 4096}, None),
        ({"allow_discards": True}, None),
        ({"sector_size": 512}, "sector_size 4096 and not 512"),
        ({"allow_discards": False}, "has flags allow_discards and not none"),
        ({"no_read_workqueue": True}, "has flags none and not no_read_workqueue"),
    ],
)
def test_luks_of_somebody_else_s_is_as_claimed_and_no_more(
    options: dict[str, Any], fault: Optional[str]
) -> None:
    luks = Luks(**options)
    wanted = luks._wanted()
    assert isinstance(wanted, CryptTable)
    found = found_fault(facts(CRYPT, VOLUME, PLAIN), wanted, luks.model_fields_set, ("data", "db"))
    assert (found is None) if fault is None else (found is not None and fault in found)


def test_what_is_not_encrypted_is_told_by_part() -> None:
    wanted = Luks()._wanted()
    assert isinstance(wanted, CryptTable)
    both = facts(CRYPT, VOLUME, PLAIN)
    both["named"]["db"] = "8:2"
    both["opened"]["8:2"] = [{"device": "8:2", "name": "sdb2"}]
    assert found_fault(both, wanted, (), ("data",)) is None
    found = found_fault(both, wanted, (), ("data", "db"))
    assert found == "it has sdb2 open, below which is no dm-crypt"
    found = found_fault(both, wanted, (), ("db",))
    assert found == "its data device lies on theirs, which is encrypted"


def test_nothing_is_proved_of_a_cluster_that_we_deploy_by_saying_so(campaign_of: Make) -> None:
    with pytest.raises(UsageError, match="none is for clusters that exist already"):
        campaign_of(cluster={"proof": "none"})
    assert campaign_of(cluster={**EXISTING, "proof": "none"}).cluster.proof == "none"


class Cluster:
    """What the engine's cluster does at the end, noted; each of `failing` fails."""

    ceph_cmd, rbd_cmd, tmp_conf = "ceph", "rbd", "/their.conf"

    def __init__(self, calls: list[str], failing: tuple[str, ...]) -> None:
        self.calls, self.failing = calls, failing

    def __getattr__(self, step: str) -> Callable[[], None]:
        def take() -> None:
            self.calls.append(step)
            if step in self.failing:
                raise RunError(f"{step} failed")

        return take


@pytest.mark.parametrize(
    ("failing", "error", "called"),
    [
        ((), None, ["shutdown", "rbd rm", "cleanup", "purge"]),
        (("shutdown",), "shutdown failed", ["shutdown", "rbd rm", "cleanup"]),
        (("rbd rm",), "remove the volumes", ["shutdown", "rbd rm", "cleanup", "purge"]),
        (("rbd rm", "purge"), "remove the volumes", ["shutdown", "rbd rm", "cleanup", "purge"]),
        (("cleanup",), "cleanup failed", ["shutdown", "rbd rm", "cleanup"]),
    ],
)
def test_images_are_removed_when_nobody_has_one_and_nothing_keeps_the_rest_up(
    campaign_of: Make, failing: tuple[str, ...], error: Optional[str], called: list[str]
) -> None:
    calls: list[str] = []

    def say(host: str, command: str) -> Optional[str]:
        calls.append("rbd rm")
        return None if "rbd rm" in failing else ""

    section = campaign_of(cluster=EXISTING).cluster
    engine = embedded()
    engine.settings.cluster.clear()
    engine.settings.cluster.update(yaml.safe_load(section.model_dump_json()))
    stacks = {"A": Stack(())}
    target = existing.ExistingCluster(engine, FakeHosts(say).remote(), section, stacks)
    target.cluster = cast(Any, Cluster(calls, failing))
    with pytest.raises(RunError, match=error) if error else contextlib.nullcontext():
        target.end([Volume("ours", "rbd", "c0", 64)])
    assert calls == called


def test_an_image_that_a_dead_client_watches_is_removed_when_its_watch_has_ended(
    campaign_of: Make, programs: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """16 is EBUSY: as rbd ends where an image still has watchers."""
    calls = tmp_path / "calls"
    body = f"""echo "$@" >> {calls}
case $(grep -c busy {calls}):$* in [12]:*/busy) exit 16 ;; *:*/gone) exit 2 ;; esac"""
    programs("rbd", body)
    programs("sleep", "exit 0")
    remote = FakeHosts(in_a_shell).remote()
    commands = ClusterCommands("ceph", "rbd -c '/a b/their.conf'", "env")
    site = site_of(campaign_of(cluster=EXISTING).cluster)
    volumes = [Volume(name, "rbd", "c0", 64) for name in ("gone", "busy", "free")]
    with pytest.raises(HostError, match="remove the volumes"):
        existing.remove_images(remote, site, commands, volumes)
    one = "-c /a b/their.conf rm --no-progress rbd/"
    assert sorted(calls.read_text().splitlines()) == sorted(
        [f"{one}gone", f"{one}free", *[f"{one}busy"] * 3]
    )


def test_what_clients_of_it_have_mapped_is_unmapped(campaign_of: Make) -> None:
    """A run that was killed left it; nothing else is undone on such a cluster."""
    hosts = FakeHosts(lambda host, command: "")
    section = campaign_of(cluster=EXISTING).cluster
    document = yaml.safe_load(section.model_dump_json(exclude_unset=True))
    cluster = ExistingCeph(document)
    cluster.remote = hosts.remote()
    cluster.shutdown()
    *_, undone = hosts.calls
    assert set(undone) == set(section.clients)
    assert all("detach" in command for command in undone.values())
