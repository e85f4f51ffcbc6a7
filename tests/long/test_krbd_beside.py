"""The kernel's client in a virtual machine: each group is mapped as it speaks; and files on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from luks_campaigns import cells, run_campaign, run_file, section, steps
from real_labs import running_lab

from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = f"krbd-beside-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**32, memory=5 * 2**30, cpus=2)
#: What the client encrypts shares the OSDs of what is plain; the messenger has its own.
CONFIGURATIONS: dict[str, Any] = {
    "plain": {},
    "client": {"rbd_encryption": {}},
    "secure": {"secure_messenger": {}},
}
TURNS = 2


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as started:
        yield started


@pytest.fixture(scope="module")
def archive(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("krbd-beside") / "archive"
    run_campaign(
        NAME, archive, "rbd_krbd", settings={"osd_memory_target": "1800M"},
        layout="side_by_side", turns=TURNS, configurations=CONFIGURATIONS,
    )  # fmt: skip
    return archive


def test_every_turn_is_proved(archive: Path) -> None:
    """What the client encrypts was measured plain, and crc groups' images were mapped secure."""
    measured = cells(archive)
    assert len(measured) == TURNS * len(CONFIGURATIONS)
    for cell in measured:
        assert cell["state"] == "finished" and cell["proof"]["proved"], cell["configuration"]
    groups = {cell["configuration"]: cell["group"] for cell in measured}
    assert groups == {"plain": "group0", "client": "group0", "secure": "group1"}
    assert steps(archive).count(("deploy", "rebuild")) == 1


def test_one_configuration_s_images_alone_are_dm_crypt(archive: Path) -> None:
    for cell in cells(archive):
        (proof,) = [o for o in cell["proof"]["overlays"] if o["overlay"] == "rbd_encryption"]
        is_wanted = cell["configuration"] == "client"
        assert (proof["present"], proof["proved"]) == (is_wanted, True)
        assert ("through dm-crypt over RBD, as configured" in proof["reason"]) is is_wanted


def test_kbench_works_on_a_file_of_a_mapped_image(lab: Lab, tmp_path: Path) -> None:
    """Plain and encrypted by the client; what the proof says is what the kernel had mounted."""
    load = {
        "filesystem": ["ext4", "xfs"], "vol_size": 32, "time": 5, "ramp": 1, "test": "latency",
        "mode": "randwrite",
    }  # fmt: skip
    settings = {"osd_memory_target": "1800M"}
    configurations = {name: CONFIGURATIONS[name] for name in ("plain", "client")}
    cluster = section(configurations=configurations, settings=settings, rebuild="needed")
    archive = tmp_path / "archive"
    run_file(NAME, archive, {"cluster": cluster, "benchmarks": {"rbd_kbench": load}})
    left = access.run(lab, lab.head, "ls /sys/bus/rbd/devices; grep -E 'rbd|cbt' /proc/mounts || :")
    assert left.strip() == "", "nothing is mapped or mounted any more"
    measured = cells(archive)
    assert len(measured) == 4
    for cell in measured:
        assert cell["state"] == "finished" and cell["proof"]["proved"], cell["configuration"]
        (proof,) = [o for o in cell["proof"]["overlays"] if o["overlay"] == "rbd_encryption"]
        assert proof["present"] is (cell["configuration"] == "client")
        assert f"a file of {cell['parameters']['filesystem']} in a mapped image" in proof["reason"]
