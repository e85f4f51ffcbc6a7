"""From host names alone to a proved table, by four commands: what docs/first-hour.cast was made by.

On four nodes that are namespaces, and on three virtual machines, where LUKS is among it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_crypto.report import build

PROJECT = Path(__file__).resolve().parents[2]
_VMS = [
    "--kind",
    "vm",
    "--nodes",
    "3",
    "--disks",
    "2",
    "--disk-size",
    "4G",
    "--memory",
    "1280M",
    "--cpus",
    "1",
]

pytestmark = [pytest.mark.lab, pytest.mark.timeout(7200)]


@pytest.mark.parametrize(
    ("options", "configurations"),
    [
        pytest.param([], {"Unencrypted", "Secure messenger"}, id="four namespaces"),
        pytest.param(
            list(_VMS),
            {"Unencrypted", "LUKS", "LUKS, no workqueues", "Secure messenger",
             "LUKS + secure messenger"},
            id="three virtual machines",
        ),
    ],
)  # fmt: skip
def test_the_commands_of_the_first_hour(
    options: list[str], configurations: set[str], tmp_path: Path
) -> None:
    if not options and os.geteuid() != 0:
        pytest.skip("namespace nodes need root")
    cast = tmp_path / "first-hour.cast"
    command = [str(PROJECT / "docs/record_first_hour.sh"), str(cast), str(tmp_path), *options]
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, env={**os.environ, "PATH": programs}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    report = build(tmp_path / "archive")
    ran = [cell for cell in report.cells if cell.state != "missing"]
    assert {cell.name for cell in ran} == configurations | {"control"}
    for cell in ran:
        assert cell.state == "measured", (cell.name, cell.reason)
        assert len(cell.runs) == 3
        assert all(run.proof is not None and run.proof.proved for run in cell.runs)
        assert cell.is_baseline or cell.comparisons["iops"].level == "rounds"
    header, *events = map(json.loads, cast.read_text(encoding="utf-8").splitlines())
    shown = "".join(text for _, _, text in events)
    assert header["version"] == 2
    for said in ("campaign.yaml: good", " left ±", "so far", "Report: "):
        assert said in shown
