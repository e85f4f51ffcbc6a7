"""Clusters that somebody else deployed: what is refused, and how OSDs are found."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional, cast

import pytest
import yaml
from click.testing import CliRunner
from fake_hosts import FakeHandle, FakeHosts, Printed, framed

from cbt_crypto.benchmarks.base import Volume
from cbt_crypto.benchmarks.rbd import RbdKrbd
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.luks.mapping import CryptTable
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.luks.proof import found_fault
from cbt_crypto.cluster_overlays.secure_messenger import SecureMessenger
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.choice import embedded
from cbt_crypto.engine.embedded.ceph import ExistingCeph
from cbt_crypto.errors import HostError, RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.hosts.admin_socket_on_host import ask_and_identify
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.devices.layers_on_host import Layers
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Osd
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of, whole_site
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import Deploy, volumes_of
from cbt_crypto.run import take_down
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.locks import LostHold, hosts_held, this_run
from cbt_crypto.run.preflight.survey import survey
from cbt_crypto.run.targets import existing, sockets_on_host, target_of

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


@pytest.mark.parametrize("command", [["plan"], ["check", "--no-hosts"]])
def test_the_file_alone_tells_so(write_campaign: Callable[..., Path], command: list[str]) -> None:
    """`plan` and `check --no-hosts` had five hours of it for good."""
    configurations = {"Open": {}, "Secret": {"secure_messenger": {}}}
    file = str(write_campaign(cluster={**EXISTING, "configurations": configurations}))
    result = CliRunner().invoke(cbt_crypto, [*command, file])
    assert result.exit_code == 2
    assert (
        '"Open" cannot become "Secret", as with use_existing nothing is deployed' in result.output
    )
    assert CliRunner().invoke(cbt_crypto, ["plan", file, "--only", "Secret"]).exit_code == 0


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


@pytest.mark.parametrize("name", ["-oProxyCommand=touch x", "a,b", "root@b", "b[1-9]", "", "b\n"])
def test_what_is_no_name_of_a_host_is_not_given_to_ssh(campaign_of: Make, name: str) -> None:
    """What an OSD calls its host was asked by that name: an option ran programs on the head."""
    cluster = campaign_of(cluster={**EXISTING, "osds": ...}).cluster
    metadata = json.dumps([{"id": 1, "hostname": name, "osd_data": "/x"}])
    hosts = FakeHosts(lambda host, command: f"f-s-i-d\n{metadata}")
    with pytest.raises(RunError, match=r"(?s)^osd\.1 is on .*, which is none of"):
        existing.discover(hosts.remote(), site_of(cluster), cluster)


def test_a_host_that_takes_another_s_name_is_refused(campaign_of: Make) -> None:
    """It was asked about the other's OSDs, and its word was all that was known of them."""
    cluster = campaign_of(cluster=EXISTING).cluster
    remote = remote_of({}, {"o0": "alpha", "o1": "beta\nbeta.example.org\nalpha"})
    with pytest.raises(RunError, match=r"^o0 and o1 both say that they are alpha, where OSDs run"):
        existing.discover(remote, site_of(cluster), cluster)


def test_an_osd_that_does_not_answer_is_told(campaign_of: Make) -> None:
    cluster = campaign_of(cluster=EXISTING).cluster
    names = {"o0": "alpha", "o1": "beta.example.org"}
    remote = remote_of({"o0": "{}", "o1": found(1)}, names)
    with pytest.raises(HostError, match=r"^o0: find the admin socket of osd\.3"):
        existing.discover(remote, site_of(cluster), cluster)


@pytest.mark.parametrize(("command", "limit"), [("ceph", 60), ("cephadm shell -- ceph", 300)])
def test_a_command_that_starts_a_container_has_the_time_for_it(
    campaign_of: Make, command: str, limit: int
) -> None:
    cluster = campaign_of(cluster={**EXISTING, "ceph_cmd": command}).cluster
    asked: list[str] = []

    def say(host: str, text: str) -> Printed:
        asked.append(text)
        return framed(text, "", 124)

    late = r"^head: ask the cluster for its OSDs: exit status 124, no answer in time"
    with pytest.raises(HostError, match=late):
        existing.discover(FakeHosts(say).remote(), site_of(cluster), cluster)
    assert f"timeout {limit} {command} -c /etc/ceph/ceph.conf fsid\n" in asked[0]


def test_the_check_waits_as_long_as_what_it_asks_may_take(campaign_of: Make) -> None:
    words = {"ceph_cmd": "cephadm shell -- ceph", "rbd_cmd": "cephadm shell -- rbd"}
    campaign = campaign_of(cluster={**EXISTING, **words})
    cells = cells_of(campaign)
    needs = target_of(campaign.cluster).requirements(campaign, site_of(campaign.cluster), cells)
    head, clients = needs
    assert (head.takes_s, clients.takes_s) == (900, 30)
    for command in words.values():
        assert f"timeout 300 {command} -c /etc/ceph/ceph.conf" in head.script

    class Silent(FakeHosts):
        def pdsh_each(self, commands: Mapping[str, str]) -> FakeHandle:
            return FakeHandle(timed_out=True)

    (finding, *_) = survey(Silent(lambda host, text: None).remote(), ["h"], needs)
    assert finding.error == "does not answer within 1020 s; look at it"


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
    assert ask_and_identify(str(daemon), {"prefix": "status"}, 10, (os.geteuid(),)) == (
        {"cluster_fsid": "x", "whoami": 4},
        os.getpid(),
    )


def test_sockets_are_those_of_the_processes_called_ceph_osd(daemon: Path, tmp_path: Path) -> None:
    """As a container has them: its own root, its own list of sockets."""
    proc, other = tmp_path / "proc" / "71", tmp_path / "proc" / "8"
    for process, name in ((proc, "ceph-osd"), (other, "bash")):
        (process / "net").mkdir(parents=True)
        (process / "comm").write_text(name + "\n")
        (process / "status").write_text(f"Name:\t{name}\nUid:\t{os.getuid()}\t0\t0\t0\n")
    (proc / "net/unix").write_text("Num\n0: 2 0 10000 1 1 7 /var/run/ceph/ceph-osd.4.asok\n")
    inside = proc / "root/var/run/ceph"
    inside.mkdir(parents=True)
    os.link(daemon, inside / "ceph-osd.4.asok")
    found = list(sockets_on_host.candidates(str(tmp_path / "proc")))
    assert found == [str(inside / "ceph-osd.4.asok")]


def test_sockets_of_an_osd_are_found_whatever_they_are_called(daemon: Path, tmp_path: Path) -> None:
    """The option admin_socket takes any name; what another process has open is not looked at."""
    proc = tmp_path / "proc" / "71"
    for folder in ("net", "fd", "root/srv"):
        (proc / folder).mkdir(parents=True)
    (proc / "comm").write_text("ceph-osd\n")
    (proc / "status").write_text(f"Name:\tceph-osd\nUid:\t{os.getuid()}\t0\t0\t0\n")
    table = "Num\n0: 2 0 10000 1 1 7 /srv/four of ours\n1: 2 0 10000 1 1 8 /srv/other\n"
    (proc / "net/unix").write_text(table + "2: 2 0 10000 1 1 9 @abstract\n")
    os.symlink("socket:[7]", proc / "fd/3")
    os.symlink("socket:[9]", proc / "fd/4")
    for name in ("four of ours", "other"):
        os.link(daemon, proc / "root/srv" / name)
    found = list(sockets_on_host.candidates(str(tmp_path / "proc")))
    assert found == [str(proc / "root/srv/four of ours")]


def test_a_socket_is_asked_also_at_the_end_of_a_long_path(daemon: Path, tmp_path: Path) -> None:
    """108 bytes are all that the kernel takes; seen through /proc, a path gets longer."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    os.link(daemon, folder / daemon.name)
    path = str(folder / daemon.name)
    answer, _ = ask_and_identify(path, {"prefix": "status"}, 10, (os.geteuid(),))
    assert answer["whoami"] == 4


def facts(*layers: dict[str, Any]) -> dict[str, Any]:
    named = {"data": layers[0]["device"]}
    return {"running": True, "named": named, "opened": {layers[0]["device"]: list(layers)}}


LINE = "0 100 crypt aes-xts-plain64 :64:logon:x 0 8:1 32768 2 allow_discards sector_size:4096"
#: A mapping of which half is plain, which nobody but a person makes.
MIXED = f"{LINE}\n100 100 linear 8:16 0"
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
    assert found == "its data device is on theirs, which is encrypted"
    for elsewhere in ("8:9", None):
        # A file, or a path that its host does not know: its bytes were not looked at.
        both["named"]["db"] = elsewhere
        found = found_fault(both, wanted, (), ("data", "db"))
        assert found == "its DB device is none that it has open"


def test_an_osd_of_which_a_part_is_not_encrypted_is_not_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume over a mapping and a bare disk, as lvmcache on a plain SSD: one was enough."""
    wanted = Luks()._wanted()
    assert isinstance(wanted, CryptTable)
    tables = {"254:1": LINE, "254:5": "0 50 linear 254:1 0\n50 50 linear 8:16 0", "254:6": MIXED}
    made = {"8:1": ("sdb1", []), "8:16": ("sdc", []), "254:1": ("dm-1", ["sdb1"]),
            "254:5": ("dm-5", ["dm-1", "sdc"]), "254:6": ("dm-6", ["sdb1", "sdc"]),
            "254:7": ("dm-7", ["dm-1"])}  # fmt: skip
    virtual = tmp_path / "sys/devices/virtual/block"
    for number, (name, slaves) in made.items():
        (virtual / name / "slaves").mkdir(parents=True)
        (virtual / name / "dev").write_text(f"{number}\n")
        if name.startswith("dm-"):
            (virtual / name / "dm").mkdir()
            (virtual / name / "dm/name").write_text(f"of-{name}")
            (virtual / name / "dm/uuid").write_text("CRYPT-LUKS2-x" if name == "dm-1" else "LVM-x")
        for slave in slaves:
            (virtual / name / "slaves" / slave).symlink_to(virtual / slave)
        (tmp_path / "sys/dev/block").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/dev/block" / number).symlink_to(virtual / name)
    monkeypatch.setattr(Layers, "table", lambda _, number: tables.get(number, ""))
    layers = Layers(str(tmp_path))
    faults = {n: found_fault(facts(*layers.below(n)), wanted, (), ("data",)) for n in made}
    bare = "it has {} open, below which is no dm-crypt"
    assert faults == {
        "8:1": bare.format("sdb1"), "8:16": bare.format("sdc"), "254:1": None, "254:7": None,
        "254:5": f"{bare.format('dm-5')} on sdc", "254:6": f"{bare.format('dm-6')} on sdc",
    }  # fmt: skip


def test_nothing_is_proved_of_a_cluster_that_we_deploy_by_saying_so(campaign_of: Make) -> None:
    with pytest.raises(UsageError, match="none is for clusters that exist already"):
        campaign_of(cluster={"proof": "none"})
    assert campaign_of(cluster={**EXISTING, "proof": "none"}).cluster.proof == "none"


def test_everything_is_done_as_the_client_that_is_named(campaign_of: Make) -> None:
    named = {**EXISTING, "conf_file": "/etc/ceph/lab.conf", "client_id": "bench"}
    osd = Osd(0, "o0", "/dev/x", "/osd", "/run/sock", "/run/pid", is_existing=True)
    site = replace(site_of(campaign_of(cluster=named).cluster), osds=(osd,))
    assert site.ceph_command == "ceph -c /etc/ceph/lab.conf --id bench"
    asked = SecureMessenger().probe(site)
    assert all('"user": "bench"' in asked[client] for client in site.active_clients)
    (volume, *_) = RbdKrbd(configuration="A").volumes(site)
    assert (volume.conf, volume.client_id) == ("/etc/ceph/lab.conf", "bench")
    text = rbd_images.attach(
        [rbd_images.Image("rbd", "v")], "/t", volume.conf, "rbd", client_id="bench"
    )
    assert '"user": "bench"' in text


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ({"client_id": "bench"}, "cluster.client_id: is for clusters that exist already"),
        ({**EXISTING, "client_id": "client.bench"}, "must be the id alone"),
        ({**EXISTING, "client_id": "a b"}, "a client's id, which is its name without `client.`"),
    ],
)
def test_who_is_no_client_of_such_a_cluster_is_told(
    campaign_of: Make, cluster: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        campaign_of(cluster=cluster)


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
        target.end([Volume("ours", "rbd", "c0", 64)], "a1")
    assert calls == called


#: An image is a file, which holds what its metadata says of its run. It ends as rbd does: by the
#: number of the error. `killed-at` names the step at which its caller is killed.
RBD = """\
[ "$1 $2" = "-c /a b/their.conf" ] || exit 22
shift 2; command=$1; shift
for last; do :; done
cd {store}
[ "$(cat killed-at 2> /dev/null)" != "$command" ] || {{ kill -9 $PPID; exit 9; }}
case $command in
create) [ ! -e "$last" ] || exit 17; mkdir -p "${{last%/*}}"; : > "$last" ;;
image-meta) [ "$1" != set ] || echo "$4" > "$2"
    [ -s "$2" ] || exit 2; [ "$1" = set ] || cat "$2" ;;
rename) [ ! -e "$2" ] || exit 17; mv "$1" "$2" ;;
info) [ -e "$last" ] || exit 2 ;;
rm) [ -e "$last" ] || exit 2
    [ ! -e "$last.watched" ] || {{ rm "$last.watched"; exit 16; }}
    rm "$last" ;;
*) exit 22 ;;
esac"""
NAMES = ["rbd/one", "rbd/two three"]


@dataclass(frozen=True)
class Store:
    """A cluster's images, and the shell text by which a campaign makes and removes them."""

    directory: Path

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)

    def make(self, run: str) -> subprocess.CompletedProcess[str]:
        return self.run(rbd_images.create(NAMES, "--size 64", "rbd -c '/a b/their.conf'", run))

    def remove(self, run: str, names: Sequence[str] = NAMES) -> subprocess.CompletedProcess[str]:
        return self.run(rbd_images.remove_images(names, "rbd -c '/a b/their.conf'", run))

    @property
    def present(self) -> list[str]:
        done = self.run(rbd_images.present(NAMES, "rbd -c '/a b/their.conf'"))
        return sorted(line.partition(" ")[2] for line in done.stdout.splitlines())

    def add(self, name: str, run: str = "") -> None:
        (self.directory / "rbd").mkdir(exist_ok=True)
        (self.directory / name).write_text(run)

    @property
    def names(self) -> list[str]:
        return sorted(str(p.relative_to(self.directory)) for p in self.directory.glob("rbd/*"))


@pytest.fixture
def store(programs: Callable[[str, str], Path], tmp_path: Path) -> Store:
    directory = tmp_path / "store"
    directory.mkdir()
    programs("rbd", RBD.format(store=directory))
    programs("sleep", "exit 0")
    return Store(directory)


def test_an_image_says_which_run_made_it_and_that_run_removes_it(store: Store) -> None:
    store.add("rbd/theirs")
    assert store.make("a1").returncode == 0
    assert store.names == ["rbd/one", "rbd/theirs", "rbd/two three"]
    assert store.present == NAMES
    assert store.remove("b2", [*NAMES, "rbd/theirs"]).returncode == 0
    assert store.present == NAMES
    assert store.remove("a1", [*NAMES, "rbd/theirs"]).returncode == 0
    assert store.names == ["rbd/theirs"]
    assert store.remove("a1").returncode == 0


def test_an_image_of_somebody_else_by_the_same_name_stays(store: Store) -> None:
    store.add("rbd/one", "b2")
    done = store.make("a1")
    assert done.returncode != 0
    assert "rbd/one was not made; if the pool has one, remove or rename it" in done.stderr
    assert store.names == ["rbd/one", "rbd/two three"]
    assert store.remove("a1").returncode == 0
    assert store.names == ["rbd/one"]


@pytest.mark.parametrize("step", ["create", "image-meta", "rename"])
def test_what_a_killed_run_had_half_made_is_removed(store: Store, step: str) -> None:
    (store.directory / "killed-at").write_text(step)
    assert store.make("a1").returncode != 0
    (store.directory / "killed-at").unlink()
    assert not set(NAMES) & set(store.names)
    assert bool(store.names) is (step != "create")
    assert store.remove("a1").returncode == 0
    assert store.names == []


def test_an_image_that_a_dead_client_watches_is_removed_when_its_watch_has_ended(
    store: Store,
) -> None:
    assert store.make("a1").returncode == 0
    (store.directory / "rbd/one.watched").touch()
    assert store.remove("a1").returncode == 0
    assert store.names == []


def test_every_image_is_tried_where_one_cannot_be_asked_about(
    programs: Callable[[str, str], Path], store: Store
) -> None:
    assert store.make("a1").returncode == 0
    unreachable = 'case "$*" in *" rbd/one"*) exit 110 ;; esac\n'
    programs("rbd", unreachable + RBD.format(store=store.directory))
    assert store.remove("a1").returncode != 0
    assert store.names == ["rbd/one"]


@pytest.mark.parametrize("run", ["a1", ""])
def test_a_dead_run_that_is_the_users_own_has_its_images_removed(
    campaign_of: Make, run: str
) -> None:
    """One that an archive alone tells of has no name by which anything could be proved."""
    calls: list[str] = []
    hosts = FakeHosts(lambda host, command: calls.append("rbd rm") or "")
    campaign = campaign_of(cluster=EXISTING)
    cluster = cast(Any, Cluster(calls, ()))
    target_of(campaign.cluster).clear(cluster, hosts.remote(), campaign, run)
    removing = ["rbd rm"] if run else []
    assert calls == ["shutdown", *removing, "cleanup", "purge"]
    for scripts in hosts.calls:
        assert all("RUN=a1" in text and "rbd/cbt-" in text for text in scripts.values())


#: Of what `ceph osd dump` of 16.2 says.
_FSID = "bfdf63f4-6581-45a5-a043-ccb5810db781"
_DUMP = f"""cat <<'END'
epoch 13
fsid {_FSID}
created 2026-11-22T23:54:57.509310+0000
pool 1 'device_health_metrics' replicated size 2 min_size 1 crush_rule 0 object_hash rjenkins
pool 2 'rbd' replicated size 2 min_size 1 crush_rule 0 object_hash rjenkins pg_num 16 pgp_num 16
max_osd 2
END"""
#: With room for all that a campaign may want.
_ROOMY = """case "$*" in *" df "*) echo '{"name":"rbd","max_avail":1125899906842624}'; exit ;; esac
""" + _DUMP  # fmt: skip


def needs_of_existing(campaign: Campaign) -> list[Requirement]:
    site, cells = site_of(campaign.cluster), cells_of(campaign)
    return target_of(campaign.cluster).requirements(campaign, site, cells)


#: What `ceph` of 16.2 says where it finds no key.
_NO_KEY = """\
2026-11-22T23:55:49.600+0000 7fe089f1b6c0 -1 auth: unable to find a keyring on \
/etc/ceph/lab.client.bench.keyring,/etc/ceph/lab.keyring,/etc/ceph/keyring,/etc/ceph/keyring.bin,: \
(2) No such file or directory
2026-11-22T23:55:49.600+0000 7fe089f1b6c0 -1 AuthRegistry(0x7fe08405b630) no keyring found at \
/etc/ceph/lab.client.bench.keyring,/etc/ceph/lab.keyring,/etc/ceph/keyring,/etc/ceph/keyring.bin,, \
disabling cephx
[errno 2] RADOS object not found (error connecting to the cluster)"""


@pytest.mark.parametrize(
    ("ceph", "sentence"),
    [
        (_DUMP.replace("'rbd'", "'rbdx'"), "has no pool rbd; make it"),
        (
            f"cat >&2 <<'END'\n{_NO_KEY}\nEND\nexit 1",
            "takes a key, and that of client.bench is not in /etc/ceph/lab.client.bench.keyring,"
            "/etc/ceph/lab.keyring,/etc/ceph/keyring,/etc/ceph/keyring.bin; put it there",
        ),
        ("exit 124", "does not answer within 60 s; is it up, and are these its monitors"),
        (
            "echo '[errno 95] error connecting to the cluster' >&2; exit 1",
            "takes a key, and none of client.bench is where Ceph looks for it",
        ),
        (
            "echo '[errno 13] RADOS permission denied' >&2; exit 1",
            "does not let client.bench in: [errno 13] RADOS permission denied",
        ),
    ],
)
def test_why_the_head_is_not_let_in_is_one_sentence(
    campaign_of: Make, programs: Callable[[str, str], Path], store: Store, ceph: str, sentence: str
) -> None:
    programs("rbd", "exit 99")
    programs("ceph", ceph)
    named = {**EXISTING, "conf_file": "/etc/ceph/lab.conf", "client_id": "bench"}
    (need, _) = needs_of_existing(campaign_of(cluster=named))
    said = store.run(f"set -eu\n{need.script}").stdout
    assert need.judge(said) == f"the cluster of /etc/ceph/lab.conf {sentence}"


@pytest.mark.parametrize("used", [70, 80, None])
def test_a_cluster_that_others_write_to_is_not_filled(
    campaign_of: Make, programs: Callable[[str, str], Path], store: Store, used: Optional[int]
) -> None:
    """A zero too many in vol_size, and the prefill stopped everybody who wrote to the cluster.

    Each of two pools on the same OSDs is told all their room, so what they take adds up.
    """
    profiles = {"rbd": {}, "more": {"pg_size": 1, "pgp_size": 1}}
    section = {**EXISTING, "pool_profiles": profiles}
    both = [{"op_size": 4096}, {"op_size": 8192, "pool_profile": "more"}]
    campaign = campaign_of(cluster=section, benchmarks={"rbd_single_client": both})
    volumes = volumes_of(campaign, cells_of(campaign))
    assert len({volume.pool for volume in volumes}) == 2
    takes = sum(volume.size_mb for volume in volumes)
    left = (100 * takes // (used or 1)) << 20
    told = {"pools": [{"name": volume.pool, "id": 2, "stats": {"max_avail": left}}
                      for volume in volumes]}  # fmt: skip
    answer = json.dumps(told if used else {"pools": []}, separators=(",", ":"))
    programs("rbd", "exit 2")
    more = _DUMP.replace("max_osd", "pool 3 'more' replicated size 2\nmax_osd")
    programs("ceph", f'case "$*" in *" df "*) echo; echo \'{answer}\'; exit ;; esac\n{more}')
    (need, _) = needs_of_existing(campaign)
    said = need.judge(store.run(f"set -eu\n{need.script}").stdout)
    wrong = {
        70: None,
        80: "has too little room: volumes take 78 % of what ceph df has left for their pools, and "
        "may take 75 %; lower vol_size",
        None: "does not tell client.admin how much room pool more has; ceph df has to",
    }[used]
    assert said == (wrong and f"the cluster of /etc/ceph/ceph.conf {wrong}")


@pytest.mark.parametrize(("vol_size", "is_refused"), [(256, False), (6553600, True)])
def test_nor_is_it_filled_by_cbt_s_own_benchmarks(
    campaign_of: Make, programs: Callable[[str, str], Path], store: Store,
    vol_size: int, is_refused: bool,
) -> None:  # fmt: skip
    """Their pools are made by the run, so none was asked for its room."""
    campaign = campaign_of(
        cluster=EXISTING,
        benchmarks={"rbd_single_client": ..., "librbdfio": {"vol_size": vol_size, "time": 1}},
    )
    programs("rbd", "exit 2")
    pools = [{"name": name, "max_avail": size << 20} for name, size in (("a", 9000), ("b", 800))]
    answer = json.dumps({"pools": pools}, separators=(",", ":"))
    programs("ceph", f'case "$*" in *" df "*) echo \'{answer}\'; exit ;; esac\n{_DUMP}')
    (need, _) = needs_of_existing(campaign)
    said = need.judge(store.run(f"set -eu\n{need.script}").stdout)
    assert bool(said and "has too little room" in said) is is_refused, said


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (f"echo {_FSID}", None),
        (
            "echo '/etc/ceph/ceph.conf: no monitor answers within 20 s' >&2",
            "client.admin is not let in: /etc/ceph/ceph.conf: no monitor answers within 20 s",
        ),
        ("exit 127", "client.admin is not let in:"),
    ],
)
def test_every_client_is_let_in_by_its_own_files(
    campaign_of: Make,
    programs: Callable[[str, str], Path],
    store: Store,
    printed: str,
    sentence: Optional[str],
) -> None:
    programs("python3", printed)
    (_, need) = needs_of_existing(campaign_of(cluster=EXISTING))
    assert need.hosts == ("c0",)
    assert need.judge(store.run(f"set -eu\n{need.script}").stdout) == sentence


def test_head_and_clients_are_let_into_the_same_cluster(campaign_of: Make) -> None:
    """A client of another would write over an image there, by the name that campaigns give."""
    needs = needs_of_existing(campaign_of(cluster=EXISTING))
    other = f"12345678{_FSID[8:]}"

    def looked(of_client: str) -> list[Optional[str]]:
        said = {"head": _FSID, "c0": of_client}
        hosts = FakeHosts(
            lambda host, text: f"@cbt-crypto-requirement {host == 'c0':d}\n{said[host]}"
        )
        return [
            f.error for f in survey(hosts.remote(), ["head", "c0"], needs) if f.column == "cluster"
        ]

    assert looked(_FSID) == [None, None]
    assert looked(other) == [None, None, (
        "its ceph.conf is of the cluster 12345678..., and that of head of bfdf63f4...; give both "
        "the same"
    )]  # fmt: skip


def test_what_this_machine_does_not_have_of_such_a_cluster_is_its_hosts(campaign_of: Make) -> None:
    """Whoever drives the campaign need not be the head."""
    elsewhere = {"conf_file": "/etc/ceph/on-the-head.conf"}
    assert cells_of(campaign_of(cluster={**EXISTING, **elsewhere}))
    with pytest.raises(UsageError, match="no such ceph"):
        cells_of(campaign_of(cluster=elsewhere))


def test_what_is_there_by_a_name_that_the_campaign_wants_is_said_before_anything(
    campaign_of: Make, programs: Callable[[str, str], Path], store: Store
) -> None:
    """Not in the middle of a prefill, by rbd's words."""
    programs("rbd", RBD.format(store=store.directory).replace("/a b/their", "/etc/ceph/ceph"))
    programs("ceph", _ROOMY)
    campaign = campaign_of(cluster=EXISTING)
    cells = cells_of(campaign)
    (need, _) = needs_of_existing(campaign)
    names = [volume.image for volume in volumes_of(campaign, cells)]
    assert len(names) == len(set(names)) >= 1
    assert need.judge(store.run(need.script).stdout) is None
    for name in names:
        store.add(name)
    assert (need.judge(store.run(need.script).stdout) or "").startswith(
        f"image {min(names)} is on the cluster already, and this campaign would make it"
    )


@pytest.mark.parametrize(
    ("rbd", "why"),
    [("echo no such luck >&2; exit 110", "no such luck"), ("exit 124", "no answer")],
)
def test_images_that_cannot_be_asked_for_are_not_taken_to_be_none(
    campaign_of: Make, programs: Callable[[str, str], Path], store: Store, rbd: str, why: str
) -> None:
    programs("rbd", rbd)
    programs("ceph", _ROOMY)
    campaign = campaign_of(cluster=EXISTING)
    (need, _) = needs_of_existing(campaign)
    first = min(volume.image for volume in volumes_of(campaign, cells_of(campaign)))
    assert need.judge(store.run(need.script).stdout) == (
        f"rbd info does not tell whether there is an image {first}: {why}; fix that"
    )


def test_a_host_that_the_cluster_alone_names_is_held_before_it_is_touched(
    campaign_of: Make, tmp_path: Path
) -> None:
    """Another campaign's OSDs there were killed and its drives wiped: nobody asked for its lock.

    And after a kill nothing was cleared there.
    """
    holder = {"user": "alice", "host": "lab", "run": "another", "keeper": 7, "archive": "/a"}
    asked: list[tuple[str, str]] = []

    def say(host: str, command: str) -> str:
        asked.append((host, command))
        if "osd metadata" in command:
            osds = [{"id": 3, "hostname": "alpha", "osd_data": "/var/lib/ceph/osd/ceph-3"}]
            return f"f-s-i-d\n{json.dumps(osds)}"
        if "hostname -s" in command:
            return "alpha\nalpha\nalpha"
        if '"action": "hold"' in command:
            return f"busy {json.dumps({'resource': ['tmp_dir', '/t'], 'holder': holder})}"
        return found(3) if '"osds"' in command else "free"

    campaign = campaign_of(cluster={**EXISTING, "osds": ..., "tmp_dir": "/t"})
    section, engine = campaign.cluster, embedded()
    Journal(tmp_path, "ours").begin(campaign, {}, engine)
    engine.settings.cluster.clear()
    engine.settings.cluster.update(yaml.safe_load(section.model_dump_json(exclude_unset=True)))
    engine.settings.cluster["archive_dir"] = str(tmp_path)
    stacks = {"A": Stack(())}
    target = existing.ExistingCluster(engine, FakeHosts(say).remote(), section, stacks)
    with (
        marked_processes.named("ours"),
        pytest.raises(UsageError, match=r"^alpha: tmp_dir /t is in"),
    ):
        target.change_to(Deploy("A", Transition.NONE, ""), Transition.NONE)
    held = [host for host, command in asked if '"action": "hold"' in command]
    assert held == ["alpha"]
    assert not [command for _, command in asked if "make-without" in command]
    said: list[str] = []
    (left,) = take_down.own_left_over(tmp_path)
    take_down.show_plan(tmp_path, [left], said.append, commands=True)
    assert "  alpha: directory /t" in said and "alpha" in left.describe()
    steps = [line.removeprefix("# alpha: ") for line in said if line.startswith("# alpha: ")]
    assert len(steps) >= 2, "its processes and its directory"


def test_a_host_that_was_found_is_left_alone_once_somebody_else_has_it(
    campaign_of: Make, tmp_path: Path
) -> None:
    """Its keeper had died, and another campaign's OSDs there were killed at the end of this one."""
    holder = {"user": "bob", "host": "x", "run": "another", "keeper": 7, "archive": "/a"}
    taken: list[str] = []

    def say(host: str, command: str) -> str:
        if "osd metadata" in command:
            osds = [{"id": 3, "hostname": "alpha", "osd_data": "/var/lib/ceph/osd/ceph-3"}]
            return f"f-s-i-d\n{json.dumps(osds)}"
        if "hostname -s" in command:
            return "alpha\nalpha\nalpha"
        if '"action": "hold"' in command or '"action": "check"' in command:
            busy = json.dumps({"resource": ["tmp_dir", "/t"], "holder": holder})
            return f"busy {busy}" if host in taken else "held"
        return found(3) if '"osds"' in command else "free"

    campaign = campaign_of(cluster={**EXISTING, "osds": ..., "tmp_dir": "/t"})
    engine, remote, who = embedded(), FakeHosts(say).remote(), this_run(tmp_path)
    Journal(tmp_path, "ours").begin(campaign, {}, engine)
    document = yaml.safe_load(campaign.cluster.model_dump_json(exclude_unset=True))
    engine.settings.cluster.clear()
    engine.settings.cluster.update(document, archive_dir=str(tmp_path))
    target = existing.ExistingCluster(engine, remote, campaign.cluster, {"A": Stack(())})
    target.cluster.remote = remote
    with (
        marked_processes.named("ours"),
        hosts_held(remote, whole_site(campaign), "ours", who) as hold,
    ):
        target.change_to(Deploy("A", Transition.NONE, ""), Transition.NONE)
        hold.check()
        taken.append("alpha")
        with pytest.raises(LostHold, match=r"^alpha: tmp_dir /t is in use by "):
            hold.check()
        taken.clear()
        target.end([], "ours")
        hold.check()


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
