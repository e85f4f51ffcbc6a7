"""CBT's fio on a kernel's clients, under LUKS and the secure messenger: krbd, and CephFS.

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

pytestmark = [pytest.mark.lab, pytest.mark.timeout(4500)]

NAME = f"kernel-endpoints-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**32, memory=5 * 2**30, cpus=2)
_LOAD = {"time": 5, "op_size": 65536, "mode": "randwrite", "iodepth": 4}
CAMPAIGN = {
    "cluster": section(
        use_existing=False,
        configurations={"Plain": {}, "Encrypted": {"luks": {}, "secure_messenger": {}}},
        baseline="Plain",
        mdss={"node0": {"a": None}},
        rebuild="configuration",
    ),
    "client_endpoints": {
        "files": {
            "driver": "rbd-kernel",
            "endpoints_per_client": 2,
            "endpoint_size": 512,
            "pool_profile": "rbd",
        },
        "cephfs": {"driver": "cephfs-kernel", "endpoints_per_client": 2, "pool_profile": "rbd"},
    },
    "benchmarks": {
        "fio": [
            {"client_endpoints": "files", "size": 32, **_LOAD},
            {"client_endpoints": "cephfs", "size": 32, **_LOAD},
        ],
        "rbdfio": {"vol_size": 2048, "pool_profile": "rbd", **_LOAD},
    },
}
#: How many fio processes a client has.
PROCESSES = {"files": 2, "cephfs": 2, None: 1}


def test_fio_of_cbt_on_kernel_endpoints_is_measured_and_proved(
    checkout: Checkout, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    with running_lab(NAME, SHAPE) as lab:
        run_file(NAME, archive, CAMPAIGN, "--cbt", str(checkout.path), limit_s=3600)
        left = access.run(
            lab, lab.head, "ls /sys/bus/rbd/devices; grep -E 'rbd|cbt|ceph' /proc/mounts || :"
        )
    assert left.strip() == "", "nothing is mapped or mounted any more"
    measured = cells(archive)
    assert sorted(cell["configuration"] for cell in measured) == ["Encrypted"] * 3 + ["Plain"] * 3
    for cell in measured:
        assert cell["state"] == "finished" and cell["proof"]["proved"]
        found = {proof["overlay"]: proof["present"] for proof in cell["proof"]["overlays"]}
        wanted = cell["configuration"] == "Encrypted"
        assert found["luks"] is wanted and found["secure_messenger"] is wanted
        endpoints = cell["parameters"].get("client_endpoints")
        statuses = [process["exit_status"] for process in cell["processes"]]
        assert statuses == [0] * PROCESSES[endpoints]
