"""A machine of two NUMA nodes, on which Ceph pins an OSD to the node of its drive and network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_labs import running_lab

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.remote import preamble
from cbt_crypto.lab import access
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

#: Minutes of an emulated machine each, as every configuration is deployed anew.
long = pytest.mark.skipif("NUMA_LONG" not in os.environ, reason="takes long: set NUMA_LONG=1")
NAME = f"numa-{os.getpid()}"
SHAPE = Shape(
    kind=Kind.VM, nodes=1, disks=3, disk_size=3 << 30, memory=4 << 30, cpus=2, numa=2
)  # fmt: skip
#: Of each core, two hyperthreads.
SMT = Shape(**{**SHAPE.model_dump(), "cpus": 4, "threads": 2})
DEVICES = [f"/dev/disk/by-partlabel/osd-device-{n}-data" for n in (0, 1)]
CLUSTER = {
    "head": "node0", "clients": ["node0"], "osds": ["node0"],
    "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}}, "osds_per_node": 2,
    "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 1}},
    "settings": {"osd_memory_target": "900M"}, "rebuild": "needed",
}  # fmt: skip
LOAD = {"vol_size": 64, "iodepth": 2, "time": 4, "ramp": 0, "op_size": 4096, "mode": "randread"}
SHIM = Path(__file__).parents[1] / "programs" / "getifaddrs.c"
#: Node of each OSD's drive. Both network cards are on node 1, as osd.0's drive.
DRIVES = "cat /sys/block/$(lsblk -ndo PKNAME {device})/device/device/numa_node"
CARD = "ip -o -4 address | awk '/10[.]231[.]0/ {print $2}'"
#: What each OSD says of its nodes, and the CPUs that its threads may use, each list once.
LOOK = """
for pid in $(pgrep -x ceph-osd); do
    id=$(tr '\\0' ' ' < /proc/$pid/cmdline | sed -n 's/.*\\(-i\\|--id\\) *\\([0-9]*\\).*/\\2/p')
    echo osd.$id $(sed -n 's/Cpus_allowed_list:\\t//p' /proc/$pid/task/*/status | sort -u)
done
cd /var/lib/cbt-crypto/ceph/log 2>/dev/null && grep -H 'set_numa_affinity' osd.?.log || :
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as started:
        yield started


def on(lab: Lab, script: str) -> str:
    return access.run(lab, lab.head, script).strip()


def test_drives_and_the_network_card_say_on_which_node_they_are(lab: Lab) -> None:
    assert on(lab, "cat /sys/devices/system/node/node*/cpulist").split() == ["0", "1"]
    nodes = [on(lab, DRIVES.format(device=device)) for device in DEVICES]
    assert nodes == ["1", "0"]
    assert on(lab, f"cat /sys/class/net/$({CARD})/device/numa_node") == "1"
    assert on(lab, "lsblk -ndo SERIAL $(findmnt -no SOURCE / | sed 's/p1$//')") == "system"


def test_a_drive_that_is_open_by_its_character_device(lab: Lab) -> None:
    """As a virtual machine has it that gets the drive's commands: no process had the disk open."""
    name = on(lab, f"lsblk -ndo PKNAME {DEVICES[0]}").replace("nvme", "ng")
    hold = f"exec 9<>/dev/{name}\nsleep 60 >/dev/null 2>&1 &\nexec 9>&-"
    look = f"{preamble('/tmp/numa')}\n{destroy.look('/tmp/numa', DEVICES[0], 'osd_devices')}"
    said = on(lab, f"CBT_HOST=node0\n{hold}\n({look}) || :\nkill $!")
    assert "is held open by sleep (process" in said


@pytest.fixture
def pinning(lab: Lab, tmp_path: Path) -> Iterator[None]:
    """Ceph with its pick_iface fixed: as 18.2.7 is, it pins no OSD, whatever the machine.

    Its log then says `set_numa_affinity unable to identify public interface '' numa node`.
    """
    library = tmp_path / "getifaddrs.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SHIM)], check=True)
    transfer.put(lab, lab.head, "/usr/local/lib/numa", {library.name: library})
    on(lab, f"echo /usr/local/lib/numa/{library.name} > /etc/ld.so.preload")
    yield
    on(lab, "rm /etc/ld.so.preload")


def campaign(
    tmp_path: Path, cluster: dict[str, Any], lab: Lab, wanted: AbstractSet[str] = frozenset()
) -> tuple[list[Any], set[str]]:
    """The proofs of a campaign of short cells, and the lines of LOOK until all `wanted` were there.

    Each look takes seconds of the emulated machine.
    """
    config, archive, seen = tmp_path / "numa.yaml", tmp_path / "archive", set()
    document = {"cluster": {**CLUSTER, **cluster}, "benchmarks": {"rbd_single_client": LOAD}}
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    command = [sys.executable, "-m", "cbt_crypto", "lab", "run", "--no-report", "--name", lab.name]
    with subprocess.Popen([*command, "-a", str(archive), str(config)]) as process:
        while process.poll() is None:
            if not wanted <= seen:
                seen |= set(on(lab, LOOK).splitlines())
            time.sleep(10)
    assert process.returncode == 0
    proofs = [json.loads(path.read_text()) for path in archive.rglob("proof.json")]
    assert all(proof["proved"] for proof in proofs)
    return proofs, seen


def cpus_of(proof: dict[str, Any]) -> dict[str, Any]:
    (cpuset,) = (one for one in proof["overlays"] if one["overlay"] == "cpuset")
    return dict(cpuset["evidence"])


def nodes_of(proof: dict[str, Any]) -> dict[str, Any]:
    return {osd: about.get("numa_node") for osd, about in cpus_of(proof).items()}


@pytest.mark.usefixtures("pinning")
def test_a_baseline_whose_osds_ceph_pins_is_measured(lab: Lab, tmp_path: Path) -> None:
    # Turns on one cluster: what was confined goes back to the node that Ceph chose.
    configurations = {"Plain": {}, "Confined": {"cpuset": {"osd_cores": 1, "numa": 0}}}
    turns: dict[str, Any] = {"order": "interleaved", "iterations": 2, "control": False}
    turns["configurations"] = configurations
    proofs, seen = campaign(tmp_path, turns, lab, {"osd.0 1"})
    said = "\n".join(sorted(seen))
    assert "set_numa_affinity" in said
    assert "osd.0 1" in seen, f"Ceph did not pin osd.0: {said}"
    assert len(proofs) == 4, "two turns of each"
    for proof in proofs:
        node = None if proof["configuration"] == "Confined" else 1
        assert nodes_of(proof) == {"osd.0": node, "osd.1": None}, proof["configuration"]
        # Confined to node 0, osd.0 is remote to its drive on node 1.
        remote = [osd for osd, about in cpus_of(proof).items() if about.get("remote_drives")]
        assert remote == ([] if node == 1 else ["osd.0"])


@long
@pytest.mark.usefixtures("pinning")
def test_the_quickstart_s_configurations(lab: Lab, tmp_path: Path) -> None:
    quickstart = yaml.safe_load((Path(__file__).parents[2] / "configs/quickstart.yaml").read_text())
    configurations = quickstart["cluster"]["configurations"]
    proofs, _ = campaign(tmp_path, {"configurations": configurations, "iterations": 1}, lab)
    assert {proof["configuration"] for proof in proofs} == {*configurations, "control"}
    # A mapping is on the node of its drive.
    assert all(nodes_of(proof) == {"osd.0": 1, "osd.1": None} for proof in proofs)


@long
@pytest.mark.usefixtures("pinning")
def test_hci_tuning_in_small(lab: Lab, tmp_path: Path) -> None:
    db_device = {"devices": "/dev/disk/by-partlabel/osd-device-2-data", "size": "1G"}
    cluster = {
        "configurations": {
            "No-O, No-C": {},
            "O, No-C": {"db_device": db_device},
            "No-O, C=1": {"cpuset": {"osd_cores": 1, "numa": "one", "clients": "rest"}},
        },
        "neighbours": {"hosts": ["node0"], "cpu": 1, "cpu_load": 10, "least_percent": 10},
        "iterations": 1,
    }
    proofs, _ = campaign(tmp_path, cluster, lab)
    wanted = {*cluster["configurations"], "control"}
    assert {proof["configuration"] for proof in proofs} == wanted


@long
def test_whole_cores_and_one_hyperthread_of_each(tmp_path: Path) -> None:
    with running_lab(f"smt-{os.getpid()}", SMT) as lab:
        siblings = on(lab, "cat /sys/devices/system/cpu/cpu*/topology/thread_siblings_list")
        assert siblings.split() == ["0-1", "0-1", "2-3", "2-3"]
        core = {"osd_cores": 1, "numa": 1}
        configurations = {
            "Everywhere": {},
            "Whole core": {"cpuset": core},
            "One thread": {"cpuset": {**core, "smt": False, "clients": "rest"}},
        }
        wanted = {"osd.0 0-3", "osd.0 2-3", "osd.0 2"}
        proofs, seen = campaign(tmp_path, {"configurations": configurations}, lab, wanted)
    found: dict[str, set[str]] = {}
    for proof in proofs:
        threads = [about["threads"] for name, about in cpus_of(proof).items() if "osd" in name]
        found.setdefault(proof["configuration"], set()).update(*threads)
    assert found["Everywhere"] == found["control"] == {"0-3"}
    assert (found["Whole core"], found["One thread"]) == ({"2-3"}, {"2"})
    # what the machine itself says of its OSDs' threads
    assert wanted <= seen
