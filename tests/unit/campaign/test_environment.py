"""What a run can be judged by later: the script here, and the facts of a known machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_hosts import FakeHosts, in_a_shell

from cbt_crypto.archive.documents import CHANGED
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.cluster_overlays.tuned import Tuned
from cbt_crypto.engine.choice import embedded
from cbt_crypto.engine.embedded import common
from cbt_crypto.engine.upstream.checkout import git
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.run.environment import (
    SCRIPT,
    EnvironmentFile,
    authentication,
    ceph_of,
    collect,
    host_facts,
)

pytestmark = pytest.mark.unit

OSD = Osd(0, "localhost", "/dev/x", "/d", "/a", "/p")
SITE = Site("/t", "/c", "localhost", ("c0",), (OSD,), mons=("m0",))

PRINTED = """\
kernel\t6.12.0
os\tDebian GNU/Linux 13 (trixie)
virtualization\tqemu
lscpu.Model name\tAMD EPYC 7742 64-Core Processor
lscpu.Socket(s)\t2
lscpu.Core(s) per socket\t64
lscpu.CPU(s)\t256
lscpu.NUMA node(s)\t8
smt\ton
governor\tperformance schedutil
aes\tyes
memory_kb\t131072
load\t0.42
tuned\tnetwork-latency
mitigation.spectre_v2\tMitigation: Retpolines; IBPB: conditional
version.fio\tfio-3.39
a line that is no fact
"""


def test_facts_of_a_machine() -> None:
    facts = host_facts(SITE, "localhost", PRINTED)
    assert (facts["sockets"], facts["cores"], facts["threads"]) == (2, 128, 256)
    assert facts["roles"] == ["head", "osds"]
    assert facts["emulated"] is True
    assert facts["memory_bytes"] == 128 << 20
    assert facts["mitigations"] == {"spectre_v2": "Mitigation: Retpolines; IBPB: conditional"}
    assert facts["versions"] == {"fio": "fio-3.39"}
    assert facts["aes"] is True
    assert facts["load_before"] == 0.42


def test_hardware_of_a_machine() -> None:
    printed = """\
command_line\tBOOT_IMAGE=/vmlinuz-6.1 root=UUID=4a6 ro intel_idle.max_cstate=1
cstates\tPOLL C1
vaes\tno
network.eth0.driver\tmlx5_core
network.eth0.speed\t100000
network.eth0.numa\t1
network.eth1.driver\tvirtio_net
network.eth1.speed\t-1
@device /dev/sda
model HUC101818CS4200
"""
    facts = host_facts(SITE, "localhost", printed)
    assert facts["cstates"] == "POLL C1" and facts["vaes"] is False
    assert facts["networks"] == {
        "eth0": {"driver": "mlx5_core", "speed_mbit_per_s": 100000, "numa_node": 1},
        "eth1": {"driver": "virtio_net", "speed_mbit_per_s": None},
    }
    assert facts["drives"]["/dev/sda"]["model"] == "HUC101818CS4200"


def test_a_password_in_the_kernel_s_command_line() -> None:
    """It was in environment.json as it is, and in a report that hides names, too."""
    printed = "command_line\troot=UUID=4a6 rd.iscsi.password=topsecret1 ro rd.iscsi.username=bob\n"
    facts = host_facts(SITE, "localhost", printed)
    assert facts["command_line"] == "root=UUID=4a6 rd.iscsi.password=*** ro rd.iscsi.username=bob"


def test_firmware_and_offloads_of_a_network_card(tmp_path: Path) -> None:
    """The script's own sed, on what ethtool printed on machines with such cards."""
    printed = Path(__file__).parents[1] / "data/hardware/ethtool_"
    (tmp_path / "ethtool").write_text(f"#!/bin/sh\ncat {printed}${{1#-}}.txt\n")
    (tmp_path / "ethtool").chmod(0o755)
    names = SCRIPT[SCRIPT.index("offloads=") : SCRIPT.index("for card in")]
    ask = SCRIPT[SCRIPT.index('say "network.$name.firmware"') : SCRIPT.index("# What OSDs")]
    say = 'say() { printf \'%s\\t%s\\n\' "$1" "$(echo $2)"; }'
    script = f"{say}\n{names}for name in eth0; do\n{ask}"
    done = subprocess.run(
        ["sh", "-euc", script], capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    (card,) = host_facts(SITE, "localhost", done.stdout)["networks"].values()
    assert card == {
        "firmware": "14.23.1020",
        "offloads": "rx-checksumming tx-checksumming tcp-segmentation-offload "
        "generic-receive-offload hw-tc-offload",
    }


def test_a_machine_that_says_nothing() -> None:
    facts = host_facts(SITE, "m0", "")
    assert facts["roles"] == ["mons"]
    assert facts["cores"] is None
    assert facts["virtualization"] == "unknown"
    assert facts["emulated"] is False


@pytest.mark.parametrize("kind", ["kvm", "none", "docker", "microsoft"])
def test_hardware_behind_a_hypervisor_is_not_emulated(kind: str) -> None:
    assert host_facts(SITE, "m0", f"virtualization\t{kind}\n")["emulated"] is False


def test_this_machine() -> None:
    site = Site("/t", "/c", "localhost", ("localhost",), ())
    found = collect(Remote(common, "/t"), site, embedded(), ())
    facts = found["hosts"]["localhost"]
    assert facts["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert facts["memory_bytes"] > 0
    cpus = Path("/sys/devices/system/node/node0/cpulist")
    if cpus.exists():
        assert facts["nodes"]["0"].startswith(f"CPUs {cpus.read_text().strip()}, ")
        assert "GiB, distances 10" in facts["nodes"]["0"]
    for name, card in facts["networks"].items():
        assert card["mtu"] == int(Path(f"/sys/class/net/{name}/mtu").read_text())
    assert found["engine"]["name"] == "embedded"


@pytest.mark.parametrize("is_measured", [True, False])
def test_an_upgrade_between_two_starts_is_noted(tmp_path: Path, is_measured: bool) -> None:
    """Hosts were described once: a report gave the old versions for cells of the new ones, too."""
    said = {"kernel": "6.1.0", "fio": "fio-3.33"}

    def say(host: str, command: str) -> str:
        return f"kernel\t{said['kernel']}\nversion.fio\t{said['fio']}\nload\t{said['kernel'][0]}\n"

    def start() -> dict[str, Any]:
        campaign: Any = SimpleNamespace(
            cluster=ClusterSection(head="a", clients=["a"]), document={}
        )
        remote = FakeHosts(say).remote()
        file = EnvironmentFile(tmp_path, remote, embedded(), campaign)
        site = Site("/t", "/c", "localhost", (), ())
        target: Any = SimpleNamespace(conf_text="[global]\n", site=site, variant=())
        for configuration in ("A", "B"):
            file.note(configuration, target)
        environment: dict[str, Any] = json.loads(
            (tmp_path / "results/environment.json").read_text()
        )
        return environment

    first = start()
    cell = tmp_path / "results" / "00000000" / "id-0123456789abcdef" / "cell.json"
    if is_measured:
        cell.parent.mkdir(parents=True)
        cell.write_text("{}")
    assert "before" not in start()["hosts"]["localhost"], "nothing was upgraded"
    said["kernel"] = "6.12.0"
    upgraded = start()
    assert upgraded["started"] == first["started"] and set(upgraded["ceph_conf"]) == {"A", "B"}
    facts = upgraded["hosts"]["localhost"]
    assert (facts["kernel"], facts["versions"]["fio"]) == ("6.12.0", "fio-3.33")
    then = [{key: before[key] for key in said} for before in facts.get("before", ())]
    assert then == ([{"kernel": "6.1.0", "fio": "fio-3.33"}] if is_measured else [])
    said["fio"] = "fio-3.39"
    again = start()["hosts"]["localhost"].get("before", [])
    assert len(again) == 2 * is_measured and again[:1] == facts.get("before", [])


HOST = """\
lscpu.Model name\tEPYC 7742
lscpu.CPU(s)\t128
smt\ton
governor\tpowersave
tuned\tbalanced
cstates\tPOLL C1
command_line\tBOOT_IMAGE=/vmlinuz-6.1 root=UUID=4a6 ro
memory_kb\t131000000
mitigation.spectre_v2\tMitigation: Retpolines
network.eth0.speed\t25000
network.eth0.mtu\t1500
"""
#: Pieces of it -> what they are after the change, and what is to be said of it.
CHANGES = {
    "EPYC 7742": ("EPYC 9654", "CPU"),
    "CPU(s)\t128": ("CPU(s)\t64", "threads"),
    "smt\ton": ("smt\toff", "SMT"),
    "powersave": ("performance", "governor"),
    "tuned\tbalanced": ("tuned\tnetwork-latency", "TuneD profile"),
    "POLL C1": ("POLL", "C-states"),
    " ro": (" ro mitigations=off", "kernel command line"),
    "\t131000000": ("\t65000000", "memory"),
    "Mitigation: Retpolines": ("Vulnerable", "mitigations"),
    "25000": ("100000", "network cards"),
    "vmlinuz-6.1": ("vmlinuz-6.12", None),
    "131000000": ("130990000", None),
    "mtu\t1500": ("mtu\t9000", None),
}


@pytest.mark.parametrize("tunes", [True, False], ids=["with tuned", "without"])
@pytest.mark.parametrize("piece", CHANGES)
def test_what_was_changed_between_two_starts_is_noted(
    tmp_path: Path, piece: str, tunes: bool
) -> None:
    """A report gave the new hardware and settings for cells of the old ones, too, and no caveat."""
    said = HOST
    campaign: Any = SimpleNamespace(cluster=ClusterSection(head="a", clients=["a"]), document={})
    site = Site("/t", "/c", "localhost", (), ())
    target: Any = SimpleNamespace(conf_text="", site=site, variant=())
    cell = tmp_path / "results" / "00000000" / "id-0123456789abcdef" / "cell.json"
    cell.parent.mkdir(parents=True)
    cell.write_text("{}")

    def start() -> list[str]:
        remote = FakeHosts(lambda host, command: said).remote()
        file = EnvironmentFile(tmp_path, remote, embedded(), campaign)
        file.describe([Stack([Tuned(profile="network-latency", roles=("mons",))])] * tunes)
        return file.note("A", target)

    assert start() == start() == []
    now, name = CHANGES[piece]
    said = said.replace(piece, now)
    if tunes and name in ("governor", "TuneD profile", "C-states"):
        name = None  # as the campaign itself changes it
    assert start() == ([f"localhost: {name}"] if name else [])
    hosts = json.loads((tmp_path / "results/environment.json").read_text())["hosts"]
    before = hosts["localhost"].get("before", [])
    assert [CHANGED[key] for entry in before for key in entry if key in CHANGED] == [name][
        : bool(name)
    ]
    assert start() == [], "once"


def test_what_watches_hosts_is_noted_where_it_changes(tmp_path: Path) -> None:
    """Stacks were added midway: rows with and without perf were compared, and nothing said it."""
    site = Site("/t", "/c", "localhost", (), ())
    target: Any = SimpleNamespace(conf_text="", site=site, variant=())
    cell = tmp_path / "results" / "00000000" / "id-0123456789abcdef" / "cell.json"
    cell.parent.mkdir(parents=True)
    cell.write_text("{}")
    section = ClusterSection(head="a", clients=["a"])
    found = []
    for watchers in (None, None, {"stacks": {"frequency": 99}}, None):
        document = {"monitoring_profiles": watchers}
        campaign: Any = SimpleNamespace(cluster=section, document=document)
        remote = FakeHosts(lambda host, command: HOST).remote()
        file = EnvironmentFile(tmp_path, remote, embedded(), campaign)
        found.append(file.note("A", target))
    changed = ["localhost: monitoring_profiles"]
    assert found == [[], [], changed, changed]


def test_an_upgrade_while_a_run_goes_on_is_noted(
    tmp_path: Path, programs: Callable[[str, str], Path]
) -> None:
    """Each rebuild starts what is installed by then, and a report gave the first for all cells."""
    cell = tmp_path / "results" / "00000000" / "id-0123456789abcdef" / "cell.json"
    cell.parent.mkdir(parents=True)
    cell.write_text("{}")
    hosts = FakeHosts(in_a_shell)
    campaign: Any = SimpleNamespace(cluster=ClusterSection(head="a", clients=["a"]), document={})
    file = EnvironmentFile(tmp_path, hosts.remote(), embedded(), campaign)
    site = Site("/t", "/c", "localhost", (), ())
    target: Any = SimpleNamespace(conf_text="", site=site, variant=())
    asked: list[int] = []
    programs("fio", "echo fio-3.33")
    for version in ("fio-3.33", "fio-3.33", "fio-3.39"):
        if version == "fio-3.39":
            programs("fio", f"echo {version}")
        assert file.note("A", target, rebuilt=True) == (
            ["localhost: fio"] if version == "fio-3.39" else []
        )
        asked.append(len(hosts.calls))
    assert asked == [2, 3, 5], "a whole look only where something was replaced"
    about = json.loads((tmp_path / "results/environment.json").read_text())["hosts"]["localhost"]
    assert about["versions"]["fio"] == "fio-3.39"
    assert [before["fio"] for before in about["before"]] == ["fio-3.33"]


def test_another_version_of_this_program_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def versions(version: str) -> dict[str, Any]:
        monkeypatch.setattr("cbt_crypto.run.environment.__version__", version)
        remote = FakeHosts(lambda host, command: "kernel\t6.1\n").remote()
        hosts = collect(remote, Site("/t", "/c", "localhost", (), ()), embedded(), ())["hosts"]
        found: dict[str, Any] = hosts["localhost"]["versions"]
        return found

    assert (versions("0.1.0"), versions("9.9")) == ({"cbt-crypto": "0.1.0"}, {"cbt-crypto": "9.9"})


@pytest.mark.parametrize(
    ("hosts", "version"),
    [
        ({"a": {"versions": {"ceph": "ceph version 18.2.7 (0a) reef"}}}, "18.2.7"),
        ({"a": {}}, ""),
        (["ceph"], ""),
        (None, ""),
    ],
)
def test_the_ceph_that_was_measured(tmp_path: Path, hosts: object, version: str) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "environment.json").write_text(json.dumps({"hosts": hosts}))
    assert ceph_of(tmp_path) == version and ceph_of(tmp_path / "none") == ""


def test_a_directory_that_is_no_checkout(tmp_path: Path) -> None:
    assert git(tmp_path, "rev-parse", "HEAD") is None


#: Of `ceph mon dump --format json`, 20.2.4; then 18.2.
TENTACLE = """{"epoch": 1, "auth_epoch": 0, "auth_service_cipher": {"name": "aes256k", "value": 2},
 "auth_allowed_ciphers": [{"name": "aes256k", "value": 2}],
 "auth_preferred_cipher": {"name": "aes256k", "value": 2}}"""


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (
            TENTACLE,
            {
                "auth_service_cipher": "aes256k",
                "auth_allowed_ciphers": ["aes256k"],
                "auth_preferred_cipher": "aes256k",
            },
        ),
        ('{"epoch": 1}', {"auth_service_cipher": "aes"}),
        ("", {}),
        ("[]", {}),
    ],
)
def test_the_ciphers_in_force_are_asked_of_the_monitors(printed: str, found: object) -> None:
    def say(host: str, command: str) -> str:
        assert host == "localhost" and "ceph -c /c mon dump" in command
        return printed

    remote = FakeHosts(say).remote()
    assert authentication(remote, SITE) == found
    assert authentication(remote, replace(SITE, osds=())) == {}
