"""LUKS with and without flags, in turns on one deployment in a virtual machine, proved always."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_labs import running_lab

from cbt_crypto.lab.shape import Kind, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = f"luks-turns-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**31, memory=5 * 2**29, cpus=2)
FLAGS = {
    "LUKS": set(),
    "LUKS, submit_from_crypt_cpus": {"submit_from_crypt_cpus"},
    "LUKS, no workqueues": {"no_read_workqueue", "no_write_workqueue"},
}
ROUNDS = 2


def _campaign(path: Path) -> Path:
    cluster = {
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node0"],
        "mons": {"node0": {"a": "node0"}},
        "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2,
        "osd_devices": "/dev/disk/by-partlabel/osd-device-{n}-data",
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
        "settings": {"osd_memory_target": "900M"},
        "deploy_timeout": 900,
        "rebuild": "needed",
        "order": "interleaved",
        "iterations": ROUNDS,
        "control": False,
        "configurations": {
            name: {"luks": dict.fromkeys(sorted(flags), True)} for name, flags in FLAGS.items()
        },
    }
    load = {"vol_size": 16, "iodepth": 4, "time": 5, "op_size": 4096, "mode": "randread"}
    text = yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_single_client": load}})
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The archive, and what was printed."""
    directory = tmp_path_factory.mktemp("luks-turns")
    archive = directory / "archive"
    with running_lab(NAME, SHAPE):
        command = [sys.executable, "-m", "cbt_crypto", "lab", "run"]
        config = _campaign(directory / "campaign.yaml")
        done = subprocess.run(
            [*command, str(config), "-a", str(archive), "--name", NAME],
            capture_output=True, text=True, check=False, timeout=1500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        yield archive, done.stdout


def _cells(archive: Path) -> list[dict[str, Any]]:
    found = []
    for path in archive.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        cell["proof"] = json.loads((path.parent / "proof.json").read_text())
        found.append(cell)
    return sorted(found, key=lambda cell: float(cell["started"]))


def test_it_deploys_once_and_prefills_once(ran: tuple[Path, str]) -> None:
    archive, printed = ran
    steps = json.loads((archive / "results" / "timeline.json").read_text())["steps"]
    kinds = [(step["step"], step.get("how")) for step in steps]
    assert kinds.count(("deploy", "rebuild")) == 1
    assert kinds.count(("prefill", None)) == 1
    assert kinds.count(("deploy", "restart")) == 0
    assert kinds.count(("deploy", "live")) >= ROUNDS * (len(FLAGS) - 1)
    assert printed.count("prefill ") == 1


def test_every_block_proves_its_flags_before_and_after(ran: tuple[Path, str]) -> None:
    cells = _cells(ran[0])
    assert len(cells) == ROUNDS * len(FLAGS)
    assert len({cell["deployment"] for cell in cells}) == 1
    for cell in cells:
        assert cell["state"] == "finished"
        proof = next(o for o in cell["proof"]["overlays"] if o["overlay"] == "luks")
        assert proof["proved"], proof["reason"]
        shown = json.dumps(proof["evidence"])
        wanted = FLAGS[cell["configuration"]]
        for flag in set().union(*FLAGS.values()):
            assert (flag in shown) is (flag in wanted), (cell["configuration"], shown)


def test_each_round_is_in_an_order_of_its_own(ran: tuple[Path, str]) -> None:
    cells = _cells(ran[0])
    rounds = [
        [cell["configuration"] for cell in cells if cell["iteration"] == turn]
        for turn in range(ROUNDS)
    ]
    assert [cell["iteration"] for cell in cells] == sorted(cell["iteration"] for cell in cells)
    assert all(sorted(order) == sorted(FLAGS) for order in rounds)
