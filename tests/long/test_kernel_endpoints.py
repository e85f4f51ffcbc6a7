"""CBT's own client endpoints in a kernel, under LUKS and the secure messenger: fio on XFS on krbd.

The engine is CBT's; what is proved of the messenger comes from the OSDs and the kernel's sockets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from luks_campaigns import cells
from real_labs import running_lab

from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

NAME = f"kernel-endpoints-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**32, memory=5 * 2**30, cpus=2)
CAMPAIGN = {
    "cluster": {
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node0"],
        "mons": {"node0": {"a": "node0"}},
        "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2,
        "osd_devices": "/dev/disk/by-partlabel/osd-device-{n}-data",
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
        "deploy_timeout": 900,
        "use_existing": False,
        "control": False,
        "configurations": {"Plain": {}, "Encrypted": {"luks": {}, "secure_messenger": {}}},
        "baseline": "Plain",
    },
    "client_endpoints": {
        "files": {
            "driver": "rbd-kernel",
            "endpoints_per_client": 2,
            "endpoint_size": 512,
            "pool_profile": "rbd",
        }
    },
    "benchmarks": {
        "fio": {
            "client_endpoints": "files",
            "size": 32,
            "time": 5,
            "op_size": 65536,
            "mode": "randwrite",
            "iodepth": 4,
        }
    },
}


def test_fio_of_cbt_on_kernel_endpoints_is_measured_and_proved(
    checkout: Checkout, tmp_path: Path
) -> None:
    file, archive = tmp_path / "campaign.yaml", tmp_path / "archive"
    file.write_text(yaml.safe_dump(CAMPAIGN))
    with running_lab(NAME, SHAPE) as lab:
        done = subprocess.run(
            [sys.executable, "-m", "cbt_crypto", "lab", "run", "--cbt", str(checkout.path),
             "--name", NAME, "-a", archive, file],
            capture_output=True, text=True, check=False, timeout=2000,
        )  # fmt: skip
        left = access.run(
            lab, lab.head, "ls /sys/bus/rbd/devices; grep -E 'rbd|cbt' /proc/mounts || :"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert left.strip() == "", "nothing is mapped or mounted any more"
    measured = cells(archive)
    assert sorted(cell["configuration"] for cell in measured) == ["Encrypted", "Plain"]
    for cell in measured:
        assert cell["state"] == "finished" and cell["proof"]["proved"]
        found = {proof["overlay"]: proof["present"] for proof in cell["proof"]["overlays"]}
        wanted = cell["configuration"] == "Encrypted"
        assert found["luks"] is wanted and found["secure_messenger"] is wanted
        assert [process["exit_status"] for process in cell["processes"]] == [0, 0]
