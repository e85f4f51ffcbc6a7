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
#: The smallest drives that `init` takes for OSDs: an emulated machine fills volumes at 7 MB/s.
_VMS = "--kind vm --nodes 3 --disks 1 --disk-size 1200M --memory 2G --cpus 1"
_ON_NAMESPACES = ("Unencrypted", "Secure messenger")
_ON_VMS = ("Unencrypted", "LUKS", "Secure messenger")

pytestmark = [pytest.mark.lab, pytest.mark.timeout(7200)]


@pytest.mark.parametrize(
    ("options", "configurations"),
    [
        pytest.param("", _ON_NAMESPACES, id="four namespaces"),
        pytest.param(_VMS, _ON_VMS, id="three virtual machines"),
    ],
)
def test_the_commands_of_the_first_hour(
    options: str, configurations: tuple[str, ...], tmp_path: Path
) -> None:
    if not options and os.geteuid() != 0:
        pytest.skip("namespace nodes need root")
    cast = tmp_path / "first-hour.cast"
    command = [
        str(PROJECT / "docs/record_first_hour.sh"),
        str(cast),
        str(tmp_path),
        *options.split(),
    ]
    # The control is one more deployment a round, which an emulated machine takes minutes for.
    names = configurations if options else (*configurations, "control")
    wanted = (f"sync / {name} / randread" for name in names)
    only = " ".join(f"--only '{pattern}'" for pattern in wanted) if options else ""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, env={**os.environ, "PATH": programs, "ONLY": only}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    report = build(tmp_path / "archive")
    ran = [cell for cell in report.cells if cell.state != "missing"]
    assert {cell.name for cell in ran} == set(names)
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
