"""Plain and LUKS side by side on a cluster in a virtual machine: dm-crypt under one group alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from luks_campaigns import cells, run_campaign, steps
from real_labs import running_lab

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


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    archive = tmp_path_factory.mktemp("luks-beside") / "archive"
    with running_lab(NAME, SHAPE):
        run_campaign(
            NAME, archive, settings={"osd_memory_target": "1800M"}, layout="side_by_side",
            turns=TURNS, configurations=CONFIGURATIONS,
        )  # fmt: skip
        yield archive


def test_it_deploys_and_prefills_once(archive: Path) -> None:
    kinds = steps(archive)
    assert kinds.count(("deploy", "rebuild")) == kinds.count(("prefill", None)) == 1
    assert kinds.count(("deploy", "restart")) == 0
    assert len({cell["deployment"] for cell in cells(archive)}) == 1


def test_dm_crypt_is_under_one_group_s_osds_and_no_other_s(archive: Path) -> None:
    """By what the kernel counted: layers of block devices that each OSD had open."""
    measured = cells(archive)
    assert len(measured) == TURNS * len(CONFIGURATIONS)
    mapped: dict[str, set[bool]] = {}
    for cell in measured:
        assert cell["state"] == "finished" and cell["proof"]["proved"]
        for name, osd in {**cell["storage"], **cell["idle"]}.items():
            layers = [layer.get("mapping") or "" for opened in osd["devices"] for layer in opened]
            is_mapped = any(layer.endswith(f"-{name}-data") for layer in layers)
            mapped.setdefault(name, set()).add(is_mapped)
            is_of_luks = (name in cell["storage"]) is cell["configuration"].startswith("LUKS")
            assert is_mapped is is_of_luks, (cell["configuration"], name, layers)
    assert sorted(map(sorted, mapped.values())) == [[False], [False], [True], [True]]


def test_both_slices_of_a_drive_are_used(archive: Path) -> None:
    (first, *_) = cells(archive)
    drives: dict[str, list[str]] = {}
    for name, osd in {**first["storage"], **first["idle"]}.items():
        drives.setdefault(osd["devices"][0][-1]["device"], []).append(name)
    assert sorted(map(len, drives.values())) == [2, 2]


def test_flags_change_live_within_the_group(archive: Path) -> None:
    for cell in cells(archive):
        proof = next(o for o in cell["proof"]["overlays"] if o["overlay"] == "luks")
        shown = json.dumps(proof["evidence"])
        wanted = cell["configuration"] == "LUKS, no workqueues"
        assert ("no_read_workqueue" in shown) is wanted, (cell["configuration"], shown)
