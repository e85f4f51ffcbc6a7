"""CBT's own client endpoints in a kernel, under LUKS and the secure messenger: fio on XFS on krbd.

The engine is CBT's; what is proved of the messenger comes from the OSDs and the kernel's sockets.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from luks_campaigns import cells, run_file, section
from real_labs import running_lab

from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

NAME = f"kernel-endpoints-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**32, memory=5 * 2**30, cpus=2)
CAMPAIGN = {
    "cluster": section(
        use_existing=False,
        configurations={"Plain": {}, "Encrypted": {"luks": {}, "secure_messenger": {}}},
        baseline="Plain",
    ),
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
    archive = tmp_path / "archive"
    with running_lab(NAME, SHAPE) as lab:
        run_file(NAME, archive, CAMPAIGN, "--cbt", str(checkout.path))
        left = access.run(
            lab, lab.head, "ls /sys/bus/rbd/devices; grep -E 'rbd|cbt' /proc/mounts || :"
        )
    assert left.strip() == "", "nothing is mapped or mounted any more"
    measured = cells(archive)
    assert sorted(cell["configuration"] for cell in measured) == ["Encrypted", "Plain"]
    for cell in measured:
        assert cell["state"] == "finished" and cell["proof"]["proved"]
        found = {proof["overlay"]: proof["present"] for proof in cell["proof"]["overlays"]}
        wanted = cell["configuration"] == "Encrypted"
        assert found["luks"] is wanted and found["secure_messenger"] is wanted
        assert [process["exit_status"] for process in cell["processes"]] == [0, 0]
