"""The patches offered to upstream CBT on real Ceph, each alone, by upstream's own cbt.py.

In a node of the lab, where nothing of this package is: a virtual machine for LUKS, a namespace for
the rest. What is on the disks of the machine is read from outside, in their files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import pytest
import yaml
from real_labs import running_lab
from upstream_patches import alone, apply, clone

from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.lab import access, run
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(7200)]

_DISKS = [f"/dev/disk/by-partlabel/osd-device-{number}-data" for number in range(2)]
_FLAGS = ["no_read_workqueue", "no_write_workqueue"]
#: Of Reef, all that a cluster can do without: loading them takes an emulated processor minutes.
_NO_MODULES = (
    "alerts crash devicehealth influx insights iostat localpool mirroring nfs orchestrator "
    "osd_perf_query osd_support progress prometheus rbd_support restful selftest snap_schedule "
    "stats telegraf telemetry test_orchestrator volumes zabbix"
)
_CONF = f"""\
[global]
    mon data avail warn = 1
    auth cluster required = cephx
    auth service required = cephx
    auth client required = cephx
    keyring = /etc/ceph/ceph.keyring
    mon host = v1:{{address}}:6789
    osd pool default size = 2
    osd crush chooseleaf type = 0
    mon allow pool delete = true
    osd memory target = 900000000
    log file = /tmp/cbt/ceph/log/$name.log
    mon data = /tmp/cbt/ceph/mon.$id
    mgr data = /tmp/cbt/ceph/mgr.$id
    admin socket = /var/run/ceph/$cluster-$name.asok
[mon]
    keyring = /tmp/cbt/ceph/mon.$id/keyring
[mgr]
    keyring = /tmp/cbt/ceph/mgr.$id/keyring
    mgr disabled modules = {_NO_MODULES}
[osd]
    osd class dir = /usr/lib/x86_64-linux-gnu/rados-classes
    keyring = /tmp/cbt/ceph/osd.$id/keyring
    osd data = /tmp/cbt/ceph/osd.$id
    bluestore block size = 4294967296
"""
#: A plain cluster's OSDs take the disks from ceph.conf, as CBT's users have it.
_ON_DISKS = "".join(
    f"[osd.{n}]\n    bluestore block path = {disk}\n" for n, disk in enumerate(_DISKS)
)
# CBT ends without a targetcli that works, and writes to the kernel; a login for each command is
# slow on an emulated processor.
_READY = """
printf '#!/bin/sh\\nexit 0\\n' > /usr/local/sbin/targetcli; chmod 755 /usr/local/sbin/targetcli
printf '%s\\n' 'Host *' 'ControlMaster auto' 'ControlPath /run/ssh-%C' 'ControlPersist 600' \\
    >> /root/.ssh/config
echo 'Defaults rlimit_core=user' > /etc/sudoers.d/core; chmod 440 /etc/sudoers.d/core
echo 'Set disable_coredump false' >> /etc/sudo.conf
: > /root/core_pattern; mount --bind /root/core_pattern /proc/sys/kernel/core_pattern
"""
_RUN = """
cd /root/try/{checkout}; mkdir -p /run/ceph; export PYTHONPATH=/root/try/site
if python3 -c 'import cbt_crypto' 2> /dev/null; then echo 'our package is here'; exit 1; fi
status=0
{command} > /root/{name}.log 2>&1 || status=$?
echo "status $status"; cat /root/{name}.log
"""
_OPEN = """
for pid in $(pgrep -x ceph-osd); do
    for fd in /proc/$pid/fd/*; do
        file=$(readlink $fd) && [ -b "$file" ] && echo "$file" || :
    done
done | sort -u
"""
_LEFT = "dmsetup ls --target crypt; ls /run/cbt-luks"
_WRITERS = """
cp -r /root/{mode} /root/{mode}-writers
cd /root/{mode}-writers/results/*/id-*
rm -r *_reader*.node0
"""

Files = Mapping[str, Union[Path, str]]


def on_node0(cluster: dict[str, Any], address: str) -> dict[str, Any]:
    """A cluster section whose only host is the lab's."""
    return {
        **cluster,
        # With a user every command goes through pdsh and ssh, as to other hosts.
        "user": "root",
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node0"],
        "mons": {"node0": {"a": f"{address}:6789"}},
        "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2,
        "clusterid": "ceph",
        "use_existing": False,
        "iterations": 1,
        "fs": "tmpfs",
        "conf_file": "/root/try/ceph.conf",
        "tmp_dir": "/tmp/cbt",
        "ceph-run_cmd": "env",
        "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}},
    }


class Node:
    """The one node of a lab, with checkouts of upstream's in it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.address = self.sh("getent ahostsv4 node0 | awk 'NR == 1 { print $1 }'").strip()

    def sh(self, script: str) -> str:
        return access.run(self.lab, self.lab.head, script)

    def carry(self, site: Path, checkouts: Files, conf: str, plans: Mapping[str, Any]) -> None:
        """Checkouts by patch, the packages that they require, a ceph.conf, and test plans."""
        texts = {f"{name}.yaml": yaml.safe_dump(plan) for name, plan in plans.items()}
        conf = conf.format(address=self.address)
        files = {"site": site, **checkouts, "ceph.conf": conf, **texts}
        run.put(self.lab, self.lab.head, "/root/try", files)
        self.sh(_READY)

    def run(self, checkout: str, name: str, command: str) -> tuple[int, str]:
        """Exit status and output of a command of upstream's."""
        said = self.sh(_RUN.format(checkout=checkout, name=name, command=command))
        status, _, log = said.partition("\n")
        return int(status.split()[1]), log

    def cbt(self, checkout: str, name: str) -> tuple[int, str]:
        """Run cbt.py with a plan, whose archive is /root/NAME."""
        return self.run(checkout, name, f"python3 ./cbt.py -a /root/{name} /root/try/{name}.yaml")


@pytest.fixture(scope="module")
def checkouts(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A clone with one patch, and what that needs below it."""

    def make(name: str) -> Path:
        return apply(clone(checkout, tmp_path_factory.mktemp(name) / "cbt"), *alone(name))

    return make


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[[Shape], Node]]:
    with contextlib.ExitStack() as labs:

        def start(shape: Shape) -> Node:
            name = f"patched-{shape.kind.value}-{os.getpid()}"
            return Node(labs.enter_context(running_lab(name, shape)))

        yield start


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Node, Path], Path]:
    """What a checkout's requirements.txt lists, for the node's Python."""

    def install(node: Node, checkout: Path) -> Path:
        path = tmp_path_factory.mktemp("site")
        version = node.sh("python3 -c 'import sys; print(*sys.version_info[:2])'").split()
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(path)]
        chosen = ["--only-binary=:all:", "--python-version", ".".join(version)]
        # Newer ones want a processor with cmpxchg16b, which QEMU's emulation gets wrong.
        requirements = ["-r", str(checkout / "requirements.txt"), "tqdm", "numpy<2.4"]
        subprocess.run([*pip, *chosen, *requirements], check=True)
        return path

    return install


@pytest.fixture(scope="module")
def machine(
    checkouts: Callable[[str], Path], started: Callable[[Shape], Node],
    site: Callable[[Node, Path], Path],
) -> Node:  # fmt: skip
    """A virtual machine with two disks, the patch luks, a plan with LUKS and one without."""
    checkout = checkouts("luks")
    size = 4 << 30
    node = started(Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=size, memory=size, cpus=2))
    cluster = {**on_node0({}, node.address), "is_teuthology": True}
    load = {
        "pool_profile": "rbd",
        "time": 10,
        "op_size": 65536,
        "concurrent_ops": 4,
        "concurrent_procs": 1,
        "write_only": True,
    }
    luks = {"devices": _DISKS, "sector_size": 4096, "flags": _FLAGS}
    encrypted, plain = {**cluster, "luks": luks}, {**cluster, "iterations": 0}
    plans = {
        name: {"cluster": section, "benchmarks": {"radosbench": load}}
        for name, section in (("encrypted", encrypted), ("plain", plain))
    }
    node.carry(site(node, checkout), {"luks": checkout}, _CONF + _ON_DISKS, plans)
    return node


def begins_with(node: Node, number: int) -> bytes:
    """What the OSD's partition begins with, in the file that is the disk."""
    node.sh("sync; sync")
    disk = node.lab.node_dir(node.lab.head) / "disks" / f"osd-device-{number}"
    with disk.open("rb") as file:
        file.seek(1 << 20)
        return file.read(22)


def test_osds_on_luks_and_then_without_it(machine: Node) -> None:
    status, log = machine.cbt("luks", "encrypted")
    assert status == 0, log
    for number in range(2):
        said = rf"luks: osd.{number} is on /dev/dm-{number}: aes-xts-plain64 on \d+:\d+, 512 bits, "
        assert re.search(rf"{said}sectors of 4096, {' '.join(_FLAGS)}", log), log
        assert begins_with(machine, number).startswith(b"LUKS\xba\xbe\x00\x02")
    assert machine.sh(_OPEN).split() == ["/dev/dm-0", "/dev/dm-1"]
    assert "Bandwidth (MB/sec)" in machine.sh("cat /root/encrypted/results/*/id-*/write/output.*")
    key = 'od -An -tx1 -w64 /run/cbt-luks/cbt-luks-0/key | tr -d " "'
    assert machine.sh(f'grep -rlF "$({key})" /root/encrypted /root/encrypted.log || :') == ""

    status, log = machine.cbt("luks", "plain")
    assert status == 0, log
    assert "luks: osd." not in log
    assert machine.sh(_LEFT).split() == ["No", "devices", "found"]
    for number in range(2):
        assert begins_with(machine, number) == b"bluestore block device"


def test_what_somebody_needs_is_left_as_it_is(machine: Node) -> None:
    """The OSDs of the run before, whose cluster ends, and whose devices are not CBT's to format."""
    before = [begins_with(machine, number) for number in range(2)]
    assert before == [b"bluestore block device"] * 2
    status, log = machine.cbt("luks", "encrypted")
    assert status != 0
    assert f"luks: {_DISKS[0]} holds data or a signature, or is below 32 MiB" in log
    assert [begins_with(machine, number) for number in range(2)] == before


@pytest.fixture(scope="module")
def namespace(
    checkouts: Callable[[str], Path], started: Callable[[Shape], Node],
    site: Callable[[Node, Path], Path],
) -> Node:  # fmt: skip
    """A namespace with three patches, the example of messenger-modes, and a plan for cpusets."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("a lab of namespaces needs root and iproute2")
    parts = {key: checkouts(key) for key in ("messenger-modes", "cpusets", "percent-of-baseline")}
    size = 4 << 30
    node = started(
        Shape(kind=Kind.NAMESPACE, nodes=1, disks=0, disk_size=size, memory=size, cpus=2)
    )
    example_file = parts["messenger-modes"] / "example" / "messenger-modes.yaml"
    example = yaml.safe_load(example_file.read_text())
    small = {
        **example["benchmarks"]["librbdfio"],
        "vol_size": 64,
        "volumes_per_client": 2,
        "time": 4,
    }
    cluster = on_node0(example["cluster"], node.address)
    load = {**small, "workloads": {"few": {"mode": "randwrite", "op_size": 4096, "iodepth": [4]}}}
    confined = {**cluster, "cpusets": {"osds": [0, 1], "clients": 1}}
    del confined["messenger_mode"]
    plans = {
        **{
            mode: {
                "cluster": {**cluster, "messenger_mode": mode},
                "benchmarks": {"librbdfio": small},
            }
            for mode in ("crc", "secure")
        },
        "cpusets": {"cluster": confined, "benchmarks": {"librbdfio": load}},
    }
    node.carry(site(node, parts["messenger-modes"]), parts, _CONF, plans)
    # What CBT writes below /sys would be this machine's.
    node.sh("mount -o remount,bind,ro /sys")
    return node


def test_the_example_of_messenger_modes_in_both(namespace: Node) -> None:
    for mode in ("crc", "secure"):
        status, log = namespace.cbt("messenger-modes", mode)
        assert status == 0, log
        for number in range(2):
            said = re.search(rf"{mode}: osd.{number} encrypted (\d+) of (\d+) bytes", log)
            assert said, log
            assert int(said[1]) == (int(said[2]) if mode == "secure" else 0) < int(said[2]) + 1
        asked = "ceph -c /tmp/cbt/ceph/ceph.conf config show osd.0 ms_cluster_mode"
        assert namespace.sh(asked).strip() == mode
        figures = namespace.sh(f"grep -l iops /root/{mode}/results/*/id-*/*/*/*/*/json_output*")
        assert len(figures.split()) >= 6


def test_the_table_of_percents_over_both_archives(namespace: Node) -> None:
    """Of one mode: upstream's report takes files that every workload has, and no others."""
    for mode in ("crc", "secure"):
        namespace.sh(_WRITERS.format(mode=mode))
    tool = "PYTHONPATH=/root/try/site:. python3 tools/generate_comparison_performance_report.py"
    archives = "--baseline /root/crc-writers --archives /root/secure-writers"
    words = f"{tool} {archives} --output_directory /root/percents"
    status, log = namespace.run("percent-of-baseline", "percents-log", words)
    assert status == 0, log
    report = namespace.sh("cat /root/percents/*.md")
    row = r"^\|4K Random Write\|(\w+)\.node0\|1\|(\d+)\|\d+/id-\w+\|\d+\|(?:[\d.]+%\|){3}$"
    found = re.findall(row, report, re.M)
    assert found == [("many_writers", "128"), ("one_writer", "128"), ("sync_writer", "1")], report


def test_osds_and_fio_keep_to_their_cpus(namespace: Node) -> None:
    status, log = namespace.cbt("cpusets", "cpusets")
    assert status == 0, log
    for number in range(2):
        assert re.search(rf"all \d+ threads of osd.{number} run on CPUs {number}\n", log), log
    assert "taskset -c 1 /usr/bin/fio" in log
    each = "for pid in $(pgrep -x ceph-osd); do taskset -acp $pid | sed 's/.*: //' | sort -u; done"
    assert sorted(namespace.sh(each).split()) == ["0", "1"]
