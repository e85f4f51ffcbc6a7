"""A machine of two NUMA nodes, on which Ceph pins an OSD to the node of its drive and network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_labs import running_lab

from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = f"numa-{os.getpid()}"
SHAPE = Shape(
    kind=Kind.VM, nodes=1, disks=2, disk_size=3 << 30, memory=4 << 30, cpus=2, numa=2
)  # fmt: skip
DEVICES = [f"/dev/disk/by-partlabel/osd-device-{n}-data" for n in (0, 1)]
CLUSTER = {
    "head": "node0", "clients": ["node0"], "osds": ["node0"],
    "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}}, "osds_per_node": 2,
    "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 1}},
    "settings": {"osd_memory_target": "900M"},
    "configurations": {
        "Plain": {},
        "LUKS": {"luks": {}},
        "Confined": {"cpuset": {"osd_cores": 1, "numa": 0}},
    },
    # Turns on one cluster: what was confined goes back to the node that Ceph chose.
    "order": "interleaved", "rebuild": "needed", "iterations": 2,
}  # fmt: skip
LOAD = {"vol_size": 64, "iodepth": 2, "time": 4, "ramp": 0, "op_size": 4096, "mode": "randread"}
#: Ceph 18.2.7 looks at a host's first network interface only, which has no node: it is told one.
CONF = """\
[osd]
osd_numa_node = 1
"""
#: Node of each OSD's drive. The network card is on node 1, as osd.0's drive.
DRIVES = "cat /sys/block/$(lsblk -ndo PKNAME {device})/device/device/numa_node"
CARD = "ip -o -4 address | awk '/10[.]231[.]0/ {print $2}'"
#: The CPUs that the threads of OSDs may use, each list once.
ALLOWED = """
for pid in $(pgrep -x ceph-osd); do
    id=$(tr '\\0' ' ' < /proc/$pid/cmdline | sed -n 's/.*\\(-i\\|--id\\) *\\([0-9]*\\).*/\\2/p')
    echo osd.$id $(sed -n 's/Cpus_allowed_list:\\t//p' /proc/$pid/task/*/status | sort -u)
done
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


def test_a_baseline_whose_osds_ceph_pins_is_measured(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "numa.yaml"
    conf = tmp_path / "numa.conf"
    conf.write_text(CONF)
    cluster = {**CLUSTER, "conf_file": str(conf)}
    document = {"cluster": cluster, "benchmarks": {"rbd_single_client": LOAD}}
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    archive = tmp_path / "archive"
    command = [sys.executable, "-m", "cbt_crypto", "lab", "run", "--no-report", "--name", NAME]
    seen: dict[str, set[str]] = {}
    with subprocess.Popen([*command, "-a", str(archive), str(config)]) as campaign:
        while campaign.poll() is None:
            for line in on(lab, ALLOWED).splitlines():
                osd, _, cpus = line.partition(" ")
                seen.setdefault(osd, set()).add(cpus)
            time.sleep(3)
    for osd in ("osd.0", "osd.1"):
        assert "1" in seen[osd], f"Ceph did not pin {osd}, so this shows nothing: {seen}"
    assert campaign.returncode == 0
    proofs = [json.loads(path.read_text()) for path in archive.rglob("proof.json")]
    assert len(proofs) > 4 and all(proof["proved"] for proof in proofs)
    for proof in proofs:
        node = None if proof["configuration"] == "Confined" else 1
        assert _nodes(proof) == {"osd.0": node, "osd.1": node}, proof["configuration"]


def _nodes(proof: dict[str, Any]) -> dict[str, Any]:
    (cpuset,) = (one for one in proof["overlays"] if one["overlay"] == "cpuset")
    return {osd: about.get("numa_node") for osd, about in cpuset["evidence"].items()}
