"""Two virtual machines: what the kernel's client writes, as RADOS and the wire have it.

A known pattern is written to every volume that is measured. Encrypted by the client it is in no
object and in no packet; by the wire, in objects alone; on the disk, in both.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cbt_crypto.lab import access, lifecycle, run
from cbt_crypto.lab.shape import Kind, Lab, Shape, Steps

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

NAME = f"places-test-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=2, disks=2, disk_size=2 * 2**30, memory=3 * 2**30, cpus=2)
HERE = Path(__file__).parent
CONFIG = HERE.parents[1] / "configs" / "lab" / "three_places.yaml"
LEFT = """
ls /sys/bus/rbd/devices 2> /dev/null || :
dmsetup ls | grep -v '^No devices' || :
ls /run/cbt-crypto /dev/shm/cbt-crypto 2> /dev/null || :
# The kernel's threads, children of 2, are its own: one of the module libceph stays with it.
ps --ppid 2 --deselect -o comm= | grep -E 'ceph|fio' || :
"""
#: Configuration -> whether the pattern is in objects, and on the wire.
EXPECTED = {
    "Unencrypted": (True, True),
    "On the client": (False, False),
    "On the wire": (True, False),
    "On the disk": (True, True),
    "Everywhere": (False, False),
}


@dataclass
class Ran:
    """The campaign, what the lab's wire showed of it, and the lab."""

    lab: Lab
    archive: Path
    status: int
    output: str
    wire: Any

    def cells(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Configuration, and what the client found in objects, with the name of the pattern."""
        for path in sorted(self.archive.glob("results/0*/id-*/cell.json")):
            cell = json.loads(path.read_text())
            told = json.loads(path.with_name("objects.node0").read_text())
            yield cell["configuration"], {**told, "name": path.parent.name}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, watch: Any) -> Iterator[Ran]:
    directory = tmp_path_factory.mktemp("places")
    config, archive = directory / "three_places.yaml", directory / "archive"
    client = "/root/client/krbd_pattern_client.py"
    config.write_text(
        CONFIG.read_text().replace("    vol_size", f"    cmd_path: {client}\n    vol_size")
    )
    try:
        with Steps(Console(file=io.StringIO())) as steps:
            lab, _ = lifecycle.up(NAME, SHAPE, steps)
        source = {"krbd_pattern_client.py": HERE / "krbd_pattern_client.py"}
        run.put(lab, lab.head, "/root/client", source)
        words = ["lab", "run", str(config), "-a", str(archive), "--name", NAME]
        with watch.Wire(lab) as wire:
            command = [sys.executable, "-m", "cbt_crypto", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        yield Ran(lab, archive, done.returncode, done.stdout + done.stderr, wire)
    finally:
        lifecycle.down(NAME)


def test_every_cell_is_proved(ran: Ran) -> None:
    assert ran.status == 0, ran.output
    proofs = [json.loads(p.read_text()) for p in ran.archive.glob("results/0*/id-*/proof.json")]
    assert len(proofs) >= 2 * len(EXPECTED)
    assert all(proof["proved"] for proof in proofs)


def test_the_pattern_is_where_it_should_be_and_nowhere_else(ran: Ran) -> None:
    seen = {name for name, _ in ran.cells()}
    assert set(EXPECTED) <= seen
    for configuration, told in ran.cells():
        in_objects, on_wire = EXPECTED.get(configuration, EXPECTED["Unencrypted"])
        assert told["units"] == (told["of"] if in_objects else 0), (configuration, told)
        units = ran.wire.units.get(told["name"], set())
        # A frame may be lost by who listens, and units may be cut by its edges.
        assert (len(units) > told["of"] / 2) if on_wire else not units, configuration


def test_what_client_processes_pay_is_known(ran: Ran, report_cells: Any) -> None:
    for cell in report_cells(ran.archive):
        # Of whole hosts there is none where an emulated processor lost count of its time.
        assert cell["figures"]["client_cpu_us_per_io"] > 0


def test_nothing_stays(ran: Ran) -> None:
    for node in ran.lab.nodes:
        assert access.run(ran.lab, node, LEFT).split() == []
