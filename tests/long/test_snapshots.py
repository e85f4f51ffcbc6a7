"""Every snapshot of upstream that is there, on real Ceph; writes docs/snapshots.md.

CBT_HOME=DIR:DIR... .venv/bin/python -m pytest tests/long/test_snapshots.py
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_machine import cluster_section

from cbt_crypto.engine.upstream.checkout import Checkout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
_ISOLATED = ROOT / "tests" / "programs" / "isolated.sh"
_LOAD = {"vol_size": 64, "time": 5, "mode": "randread"}
_DIVIDED = {"iodepth": 1, "total_iodepth": 3, "volumes_per_client": 2}
#: What is measured: the columns of the table, and the benchmark's section.
LOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "rbd_single_client": ("rbd_single_client", {**_LOAD, "op_size": 4096, "iodepth": 8}),
    "librbdfio": ("librbdfio", {**_LOAD, "op_size": 4096, "iodepth": 8}),
    "librbdfio, workloads": (
        "librbdfio",
        {**_LOAD, "workloads": {"writes": {"mode": "randwrite", "op_size": 4096, "iodepth": [4]}}},
    ),
    "radosbench": ("radosbench", {"time": 5, "op_size": 65536}),
}
_HEAD = """\
# Snapshots of upstream CBT

Written by `tests/long/test_snapshots.py`: one campaign on real Ceph ({ceph}), with one
configuration and a proved overlay, on each snapshot of CBT. A column says what its cells gave:
figures of every process, or the reason of a failed cell. 2026-06-05 is the merge commit of a pull
request that is not on `main`, and 2026-09-15 is that tree with the monitoring package that `main`
has had since.

| snapshot | commit | monitoring | exit status | {columns} |
| --- | --- | --- | --- |{dashes}
"""


_TABLE = ROOT / "docs" / "snapshots.md"


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, str]]:
    """Snapshot -> its line; those that are not tried now keep the line that they have."""
    lines = _TABLE.read_text().splitlines(keepends=True) if _TABLE.exists() else []
    known = {line.split("|")[1].strip(): line for line in lines if line.startswith("| 2")}
    found: dict[str, str] = {}
    yield found
    if found:
        told = subprocess.run(["ceph", "--version"], capture_output=True, text=True, check=True)
        head = _HEAD.format(
            ceph=told.stdout.split()[2],
            columns=" | ".join(LOADS),
            dashes=" --- |" * len(LOADS),
        )
        _TABLE.write_text(head + "".join(sorted({**known, **found}.values())))


def campaign(directory: Path, checkout: Checkout) -> Path:
    benchmarks: dict[str, list[Any]] = {}
    for name, section in LOADS.values():
        benchmarks.setdefault(name, []).append(copy.deepcopy(section))
    workloads = benchmarks["librbdfio"][1]["workloads"]
    workloads["writes"]["pre_workload_script"] = f"echo ran >> {directory}/before"
    # Older ones do not divide a depth among volumes, and the file would be refused.
    if (checkout.path / "workloads").is_dir():
        workloads["divided"] = {**workloads["writes"], **_DIVIDED}
    configurations = {"Secure": {"secure_messenger": {}}}
    cluster = cluster_section(directory, 13393, configurations=configurations)
    path = directory / "campaign.yaml"
    path.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": benchmarks}))
    return path


def found_for(cells: list[dict[str, Any]], name: str, section: dict[str, Any]) -> str:
    """`figures`, or why there are none."""
    wanted = "workload" if "workloads" in section else None
    own = [
        cell
        for cell in cells
        if cell["scenario"] == name and ("workload" in cell["parameters"]) is (wanted is not None)
    ]
    reasons = {str(cell["reason"]) for cell in own if cell["state"] != "finished"}
    return "; ".join(sorted(reasons)) if reasons else "figures" if own else "not run"


def test_every_benchmark_gives_figures_or_its_cell_fails(
    checkout: Checkout,
    rows: dict[str, str],
    tmp_path: Path,
    report_cells: Callable[[Path], list[dict[str, Any]]],
) -> None:
    archive = tmp_path / "archive"
    command = [sys.executable, str(ROOT / "cbt.py"), "--cbt", str(checkout.path), "-a",
               str(archive), str(campaign(tmp_path, checkout))]  # fmt: skip
    done = subprocess.run(
        [str(_ISOLATED), str(tmp_path), *command],
        capture_output=True, text=True, check=False, timeout=900, cwd=ROOT,
    )  # fmt: skip
    cells = [json.loads(path.read_text()) for path in archive.glob("results/*/id-*/cell.json")]
    assert cells, done.stdout + done.stderr
    found = [found_for(cells, name, section) for name, section in LOADS.values()]
    kind = "a package" if (checkout.path / "monitoring").is_dir() else "a module"
    commit = (checkout.commit or "")[:12]
    rows[checkout.version] = (
        f"| {checkout.version} | `{commit}` | {kind} | {done.returncode} | {' | '.join(found)} |\n"
    )
    assert done.returncode == (0 if set(found) == {"figures"} else 1), done.stdout + done.stderr
    with_script = [cell for cell in cells if "workload" in cell["parameters"]]
    assert (tmp_path / "before").read_text().split() == ["ran"] * len(with_script)
    for cell in with_script:
        if cell["parameters"]["workload"] == "divided":
            assert len(cell["processes"]) == 2, "one for each volume"
    measured = report_cells(archive)
    assert len(measured) >= found.count("figures")
    assert min(cell["figures"]["iops"] for cell in measured if cell["state"] == "measured") > 0
