"""Plain and LUKS side by side on a cluster in a virtual machine: dm-crypt under one group alone."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from cbt_crypto.lab import lifecycle
from cbt_crypto.lab.progress import Steps
from cbt_crypto.lab.shape import Kind, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = f"luks-beside-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**32, memory=5 * 2**30, cpus=2)
CONFIGURATIONS: dict[str, Any] = {
    "plain": {},
    "LUKS": {"luks": {}},
    "LUKS, no workqueues": {"luks": {"no_read_workqueue": True, "no_write_workqueue": True}},
}
TURNS = 2


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
        "settings": {"osd_memory_target": "1800M"},
        "deploy_timeout": 900,
        "layout": "side_by_side",
        "turns": TURNS,
        "control": False,
        "configurations": CONFIGURATIONS,
    }
    load = {"vol_size": 16, "iodepth": 4, "time": 5, "op_size": 4096, "mode": "randread"}
    text = yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_single_client": load}})
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("luks-beside")
    archive = directory / "archive"
    try:
        with Steps(Console(file=io.StringIO())) as steps:
            lifecycle.up(NAME, SHAPE, steps)
        command = [sys.executable, "-m", "cbt_crypto", "lab", "run"]
        config = _campaign(directory / "campaign.yaml")
        done = subprocess.run(
            [*command, str(config), "-a", str(archive), "--name", NAME],
            capture_output=True, text=True, check=False, timeout=1500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        yield archive
    finally:
        lifecycle.down(NAME)


def _cells(archive: Path) -> list[dict[str, Any]]:
    found = []
    for path in archive.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        cell["proof"] = json.loads((path.parent / "proof.json").read_text())
        found.append(cell)
    return sorted(found, key=lambda cell: float(cell["started"]))


def test_it_deploys_and_prefills_once(archive: Path) -> None:
    steps = json.loads((archive / "results" / "timeline.json").read_text())["steps"]
    kinds = [(step["step"], step.get("how")) for step in steps]
    assert kinds.count(("deploy", "rebuild")) == kinds.count(("prefill", None)) == 1
    assert kinds.count(("deploy", "restart")) == 0
    assert len({cell["deployment"] for cell in _cells(archive)}) == 1


def test_dm_crypt_is_under_one_group_s_osds_and_no_other_s(archive: Path) -> None:
    """By what the kernel counted: layers of block devices that each OSD had open."""
    cells = _cells(archive)
    assert len(cells) == TURNS * len(CONFIGURATIONS)
    mapped: dict[str, set[bool]] = {}
    for cell in cells:
        assert cell["state"] == "finished" and cell["proof"]["proved"]
        for name, osd in {**cell["storage"], **cell["idle"]}.items():
            layers = [layer.get("mapping") or "" for opened in osd["devices"] for layer in opened]
            is_mapped = any(layer.endswith(f"-{name}-data") for layer in layers)
            mapped.setdefault(name, set()).add(is_mapped)
            is_of_luks = (name in cell["storage"]) is cell["configuration"].startswith("LUKS")
            assert is_mapped is is_of_luks, (cell["configuration"], name, layers)
    assert sorted(map(sorted, mapped.values())) == [[False], [False], [True], [True]]


def test_both_slices_of_a_drive_are_used(archive: Path) -> None:
    (first, *_) = _cells(archive)
    drives: dict[str, list[str]] = {}
    for name, osd in {**first["storage"], **first["idle"]}.items():
        drives.setdefault(osd["devices"][0][-1]["device"], []).append(name)
    assert sorted(map(len, drives.values())) == [2, 2]


def test_flags_change_live_within_the_group(archive: Path) -> None:
    for cell in _cells(archive):
        proof = next(o for o in cell["proof"]["overlays"] if o["overlay"] == "luks")
        shown = json.dumps(proof["evidence"])
        wanted = cell["configuration"] == "LUKS, no workqueues"
        assert ("no_read_workqueue" in shown) is wanted, (cell["configuration"], shown)
