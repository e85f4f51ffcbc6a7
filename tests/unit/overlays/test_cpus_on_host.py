"""The choice of cores and the cgroups, on the files of made-up hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from cbt_crypto.cluster_overlays import cpuset_on_host
from cbt_crypto.cluster_overlays.cpuset_on_host import (
    HostFiles,
    Impossible,
    choose,
    format_cpus,
    main,
    parse_cpus,
)
from cbt_crypto.hosts import shell

pytestmark = pytest.mark.unit

#: Two sockets of four cores with two threads each, numbered as Linux does: siblings are 8 apart.
TWO_SOCKETS = {
    0: [[0, 8], [1, 9], [2, 10], [3, 11]],
    1: [[4, 12], [5, 13], [6, 14], [7, 15]],
}
OPTIONS = {
    "osd_cores": 2,
    "per_osd": False,
    "smt": True,
    "numa": "one",
    "clients": "all",
    "client_cores": None,
}


class FakeHost:
    """Files as the kernel shows them, below a directory."""

    def __init__(self, root: Path, nodes: dict[int, list[list[int]]], allowed: str = "") -> None:
        self.root = root
        cpus = sorted(cpu for cores in nodes.values() for core in cores for cpu in core)
        self.write("sys/devices/system/cpu/online", format_cpus(cpus))
        self.write("proc/1/status", f"Name:\tinit\nCpus_allowed_list:\t{allowed or '0-127'}")
        for node, cores in nodes.items():
            for core in cores:
                for cpu in core:
                    folder = f"sys/devices/system/cpu/cpu{cpu}"
                    self.write(f"{folder}/topology/thread_siblings_list", format_cpus(core))
                    (root / folder / f"node{node}").mkdir()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{text}\n")

    def read(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def cgroup_v2(self) -> None:
        self.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory")

    def cgroup_v1(self) -> None:
        self.write("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb")
        self.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-15")
        self.write("sys/fs/cgroup/cpuset/cpuset.mems", "0-1")

    def process(self, pid: int, allowed: Sequence[str], state: str = "S (sleeping)") -> None:
        for thread, cpus in enumerate(allowed):
            status = f"State:\t{state}\nCpus_allowed_list:\t{cpus}"
            self.write(f"proc/{pid}/task/{pid + thread}/status", status)
        self.write(f"run/{pid}.pid", str(pid))

    def run(self, action: str, capsys: Any, options: Optional[dict[str, Any]]) -> str:
        arguments = {
            "action": action,
            "group": "cbt-crypto-node0",
            "options": options,
            "osds": {
                "osd.0": {"pid_file": "/run/100.pid", "socket": "/run/osd.0.asok"},
                "osd.1": {"pid_file": "/run/200.pid", "socket": "/run/osd.1.asok"},
            },
            "client": True,
        }
        main(arguments, HostFiles(str(self.root), self._set_affinity))
        printed: str = capsys.readouterr().out
        return printed.strip()

    def _set_affinity(self, thread: int, cpus: Iterable[int]) -> None:
        """As the kernel does. Threads of a made-up process have numbers from its own on."""
        (status,) = self.root.glob(f"proc/*/task/{thread}/status")
        status.write_text(f"State:\tS (sleeping)\nCpus_allowed_list:\t{format_cpus(cpus)}\n")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, TWO_SOCKETS)
    made.process(100, ["0-127"])
    made.process(200, ["0-127", "0-127"])
    return made


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-2,5", [0, 1, 2, 5]), ("7", [7]), ("", []), ("0,2-3", [0, 2, 3])]
)
def test_cpu_lists(text: str, cpus: list[int]) -> None:
    assert parse_cpus(f"{text}\n") == cpus
    assert format_cpus(reversed(cpus)) == text


def test_topology(host: FakeHost) -> None:
    assert HostFiles(str(host.root)).nodes() == TWO_SOCKETS


def test_cpus_that_init_may_not_use_are_no_cores(tmp_path: Path) -> None:
    FakeHost(tmp_path, TWO_SOCKETS, allowed="0-2,8,12")
    assert HostFiles(str(tmp_path)).nodes() == {0: [[0, 8], [1], [2]], 1: [[12]]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("0-1,8-9", "0-1,8-9")),
        ({"smt": False}, ("0-1", "0-1")),
        ({"numa": 1}, ("4-5,12-13", "4-5,12-13")),
        ({"numa": "spread"}, ("0,4,8,12", "0,4,8,12")),
        ({"numa": "spread", "osd_cores": 3}, ("0-1,4,8-9,12", "0-1,4,8-9,12")),
        ({"osd_cores": 4}, ("0-3,8-11", "0-3,8-11")),
        ({"per_osd": True}, ("0-1,8-9", "2-3,10-11")),
        ({"per_osd": True, "osd_cores": 3}, ("0-2,8-10", "4-6,12-14")),
        ({"per_osd": True, "numa": "spread"}, ("0-1,8-9", "4-5,12-13")),
        ({"per_osd": True, "numa": 1, "smt": False}, ("4-5", "6-7")),
    ],
)
def test_cores_of_osds(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    osds, clients = choose(TWO_SOCKETS, {**OPTIONS, **changes}, ["osd.0", "osd.1"])
    assert tuple(format_cpus(cpus) for cpus in osds.values()) == expected
    assert clients is None


@pytest.mark.parametrize(
    ("changes", "osds", "expected"),
    [
        ({"clients": "rest"}, ["osd.0"], "2-7,10-15"),
        ({"clients": "rest", "smt": False}, ["osd.0"], "2-7"),
        ({"clients": "rest", "client_cores": 3}, ["osd.0"], "2-4,10-12"),
        ({"clients": "rest", "client_cores": 3}, [], "0-2,8-10"),
        ({"clients": "rest"}, [], "0-15"),
        ({"client_cores": 2}, ["osd.0"], "0-1,8-9"),
        ({"client_cores": 2, "osd_cores": None}, ["osd.0"], "0-1,8-9"),
    ],
)
def test_cores_of_clients(changes: dict[str, Any], osds: list[str], expected: str) -> None:
    _, clients = choose(TWO_SOCKETS, {**OPTIONS, **changes}, osds)
    assert clients is not None
    assert format_cpus(clients) == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"osd_cores": 5},
            "osd_cores asks for 5 whole cores of one NUMA node, and free are 4 in node 0, "
            "4 in node 1; lower it, or name another numa",
        ),
        (
            {"numa": 2},
            "osd_cores asks for 2 whole cores of NUMA node 2, and free are 4 in node 0, "
            "4 in node 1; lower it, or name another numa",
        ),
        (
            {"per_osd": True, "osd_cores": 3, "numa": 0},
            "osd_cores asks for 3 whole cores of NUMA node 0, and free are 1 in node 0, "
            "4 in node 1; lower it, or name another numa",
        ),
        (
            {"osd_cores": 9, "numa": "spread"},
            "osd_cores asks for 9 whole cores, and this host has 8; lower it",
        ),
        (
            {"osd_cores": 8, "numa": "spread", "clients": "rest"},
            "client processes are to have 1 whole core, and the OSDs leave 0 of 8; "
            "lower osd_cores or client_cores",
        ),
        (
            {"clients": "rest", "client_cores": 7},
            "client processes are to have 7 whole cores, and the OSDs leave 6 of 8; "
            "lower osd_cores or client_cores",
        ),
    ],
)
def test_more_cores_than_there_are(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Impossible, match=f"^{sentence}$"):
        choose(TWO_SOCKETS, {**OPTIONS, **changes}, ["osd.0", "osd.1"])


def test_apply_in_cgroup_v2(host: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.cgroup_v2()
    host.run("apply", capsys, {**OPTIONS, "per_osd": True, "clients": "rest"})
    ours = "sys/fs/cgroup/cbt-crypto-node0"
    assert host.read("sys/fs/cgroup/cgroup.subtree_control") == "+cpuset"
    assert host.read(f"{ours}/cgroup.subtree_control") == "+cpuset"
    assert host.read(f"{ours}/osd.0/cpuset.cpus") == "0-1,8-9"
    assert host.read(f"{ours}/osd.0/cgroup.procs") == "100"
    assert host.read(f"{ours}/osd.1/cpuset.cpus") == "2-3,10-11"
    assert host.read(f"{ours}/osd.1/cgroup.procs") == "200"
    assert host.read(f"{ours}/clients/cpuset.cpus") == "4-7,12-15"
    host.write(f"{ours}/cpuset.cpus.effective", "0-15")
    host.run("apply", capsys, None)
    assert host.read(f"{ours}/osd.0/cpuset.cpus") == "0-15"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What OSDs answer; by default as Ceph 18.2 does."""
    answers = {"osd_numa_node": "-1", "osd_numa_auto_affinity": "true"}

    def ask(path: str, command: dict[str, str], timeout_s: float) -> dict[str, str]:
        if not answers:
            raise ConnectionRefusedError(path)
        assert command["prefix"] == "config get"
        return {command["var"]: answers[command["var"]]}

    monkeypatch.setattr(cpuset_on_host, "ask", ask)
    return answers


def test_ceph_may_keep_an_osd_on_a_node(
    tmp_path: Path, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`0-31,64-95` of `0-127`: what an OSD beside its drive and network card has by default."""
    nodes = {node: [[cpu, cpu + 64] for cpu in range(32 * node, 32 * node + 32)] for node in (0, 1)}
    host = FakeHost(tmp_path, nodes)
    host.process(100, ["0-31,64-95"] * 59)
    host.process(200, ["0-127"] * 59)
    facts = json.loads(host.run("show", capsys, None))
    assert facts["osds"] == {
        "osd.0": {"expected": "0-31,64-95", "numa_node": 0, "threads": {"0-31,64-95": 59}},
        "osd.1": {"expected": "0-127", "threads": {"0-127": 59}},
    }
    settings.update(osd_numa_node="0", osd_numa_auto_affinity="false")
    assert json.loads(host.run("show", capsys, None)) == facts


@pytest.mark.parametrize(
    ("allowed", "answers"),
    [
        ("4-7,12-15", {"osd_numa_node": "-1", "osd_numa_auto_affinity": "false"}),
        ("4-7,12-15", {"osd_numa_node": "0", "osd_numa_auto_affinity": "true"}),
        ("4-7,12-15", {}),
        ("4-7", {"osd_numa_node": "-1", "osd_numa_auto_affinity": "true"}),
        ("0-14", {"osd_numa_node": "-1", "osd_numa_auto_affinity": "true"}),
    ],
)
def test_cpus_that_ceph_did_not_choose_are_no_node_of_it(
    host: FakeHost, settings: dict[str, str], capsys: pytest.CaptureFixture[str],
    allowed: str, answers: dict[str, str],
) -> None:  # fmt: skip
    host.process(100, [allowed])
    settings.clear()
    settings.update(answers)
    facts = json.loads(host.run("show", capsys, None))
    assert facts["osds"]["osd.0"] == {"expected": "0-15", "threads": {allowed: 1}}


def test_our_own_group_is_no_choice_of_ceph(
    host: FakeHost, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    host.cgroup_v2()
    host.run("apply", capsys, {**OPTIONS, "osd_cores": 4})
    host.process(100, ["0-3,8-11"])
    host.write("sys/fs/cgroup/cbt-crypto-node0/osd.0/cpuset.cpus.effective", "0-3,8-11")
    facts = json.loads(host.run("show", capsys, None))
    assert facts["osds"]["osd.0"] == {"expected": "0-15", "threads": {"0-3,8-11": 1}}


def test_confined_osds_leave_the_node_that_ceph_chose_and_return_to_it(
    host: FakeHost, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    host.cgroup_v2()
    host.process(100, ["4-7,12-15"] * 2)
    ours = "sys/fs/cgroup/cbt-crypto-node0"
    for cores in (2, 1):
        options = {**OPTIONS, "osd_cores": cores, "numa": "spread"}
        host.run("apply", capsys, options)
        osd = json.loads(host.run("show", capsys, options))["osds"]["osd.0"]
        assert osd["threads"] == {osd["expected"]: 2}
    host.write(f"{ours}/cpuset.cpus.effective", "0-15")
    host.run("apply", capsys, None)
    host.write(f"{ours}/osd.0/cpuset.cpus.effective", "0-15")
    facts = json.loads(host.run("show", capsys, None))["osds"]
    assert facts["osd.0"] == {"expected": "4-7,12-15", "numa_node": 1, "threads": {"4-7,12-15": 2}}
    assert facts["osd.1"] == {"expected": "0-15", "threads": {"0-15": 2}}, "left alone"


def test_apply_in_cgroup_v1(host: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.cgroup_v1()
    host.run("apply", capsys, OPTIONS)
    ours = "sys/fs/cgroup/cpuset/cbt-crypto-node0"
    assert host.read(f"{ours}/cpuset.cpus") == "0-15"
    assert host.read(f"{ours}/osd.1/cpuset.cpus") == "0-1,8-9"
    assert host.read(f"{ours}/osd.1/cpuset.mems") == "0-1"
    assert host.read(f"{ours}/osd.1/cgroup.procs") == "200"
    assert not host.exists(f"{ours}/clients")
    host.write(f"{ours}/cpuset.effective_cpus", "0-15")
    host.run("apply", capsys, None)
    assert host.read(f"{ours}/osd.1/cpuset.cpus") == "0-15"


def test_nothing_to_release_needs_no_cgroups(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    host.run("apply", capsys, None)
    assert not host.exists("sys/fs/cgroup")


def test_check(host: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Impossible, match="no cgroup has the cpuset controller"):
        host.run("check", capsys, OPTIONS)
    host.cgroup_v1()
    assert host.run("check", capsys, OPTIONS) == "ok"


def test_threads_are_counted_by_their_cpus(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    host.process(100, ["0-1,8-9", "0-1,8-9", "0-127"])
    host.process(200, ["0-127", "0-127"], state="Z (zombie)")
    facts = json.loads(host.run("show", capsys, OPTIONS))
    assert facts == {
        "usable": "0-15",
        "osds": {
            "osd.0": {"expected": "0-1,8-9", "threads": {"0-1,8-9": 2, "0-15": 1}},
            "osd.1": {"expected": "0-1,8-9", "threads": {}},
        },
    }


@pytest.mark.parametrize(
    ("device", "numa", "drive_node", "remote"),
    [
        ("nvme0n1p1", 0, "1", {"nvme0n1": 1}),
        ("dm-0", 0, "1", {"nvme0n1": 1}),  # LUKS on that partition
        ("dm-0", 1, "1", None),
        ("dm-0", 0, "-1", None),  # a machine with one node, or a card that does not tell
        ("loop0", 0, "1", None),
    ],
)
def test_drives_of_another_node_than_the_osd_s_cpus_are_told(
    host: FakeHost, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    device: str, numa: int, drive_node: str, remote: Optional[dict[str, int]],
) -> None:  # fmt: skip
    card = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
    host.write(f"{card}/numa_node", drive_node)
    blocks = {
        "nvme0n1": f"{card}/nvme/nvme0/nvme0n1",
        "nvme0n1p1": f"{card}/nvme/nvme0/nvme0n1/nvme0n1p1",
        "dm-0": "sys/devices/virtual/block/dm-0",
        "loop0": "sys/devices/virtual/block/loop0",
    }
    host.write(f"{blocks['nvme0n1p1']}/partition", "1")
    for name, folder in blocks.items():
        (host.root / folder / "slaves").mkdir(parents=True)
        for links in ("class", "dev"):
            (host.root / "sys" / links / "block").mkdir(parents=True, exist_ok=True)
            (host.root / "sys" / links / "block" / name).symlink_to(f"../../../{folder}")
    (host.root / blocks["dm-0"] / "slaves/nvme0n1p1").symlink_to(
        host.root / "sys/class/block/nvme0n1p1"
    )
    has_open = {"100": [device], "200": []}  # by names, where the kernel has numbers
    monkeypatch.setattr(cpuset_on_host, "opened", has_open.__getitem__)
    facts = json.loads(host.run("show", capsys, {**OPTIONS, "numa": numa}))
    assert facts["osds"]["osd.0"].get("remote_drives") == remote
    assert "remote_drives" not in facts["osds"]["osd.1"]
    whole = json.loads(host.run("show", capsys, None))
    assert "remote_drives" not in whole["osds"]["osd.0"], "it may use every CPU"


def test_an_osd_without_pid_file_is_not_running(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    (host.root / "run/200.pid").unlink()
    facts = json.loads(host.run("show", capsys, None))
    assert facts["osds"]["osd.1"] == {"expected": "0-15", "threads": {}}


def test_clients_in_force(host: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.cgroup_v2()
    options = {**OPTIONS, "client_cores": 1}
    facts = json.loads(host.run("show", capsys, options))
    assert facts["clients"] == {"expected": "0,8", "in_force": None}
    host.run("apply", capsys, options)
    host.write("sys/fs/cgroup/cbt-crypto-node0/clients/cpuset.cpus.effective", "0,8")
    facts = json.loads(host.run("show", capsys, options))
    assert facts["clients"] == {"expected": "0,8", "in_force": "0,8"}


@pytest.mark.parametrize(("action", "status"), [("check", 0), ("apply", 1)])
def test_as_a_program_it_says_what_is_impossible(action: str, status: int) -> None:
    asked = {
        "action": action,
        "group": "cbt-crypto-test",
        "options": {**OPTIONS, "osd_cores": 100_000},
        "osds": {"osd.0": {"pid_file": "/nowhere/osd.0.pid", "socket": "/nowhere/osd.0.asok"}},
        "client": False,
    }
    command = [sys.executable, "-I", "-c", shell.program(cpuset_on_host), json.dumps(asked)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == status
    said = done.stdout if action == "check" else done.stderr
    assert said.startswith("osd_cores asks for 100000 whole cores of ")
    assert said.count("\n") == 1
