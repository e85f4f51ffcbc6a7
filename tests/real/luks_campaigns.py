"""Short campaigns on the two drives of one virtual machine, and what their cells say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml


def run_campaign(lab: str, archive: Path, scenario: str = "rbd_single_client", **own: Any) -> str:
    """What `lab run` of a short campaign prints; `own` is of its file's section `cluster`."""
    load = {"vol_size": 16, "iodepth": 4, "time": 5, "op_size": 4096, "mode": "randread"}
    return run_file(lab, archive, {"cluster": section(**own), "benchmarks": {scenario: load}})


def section(**own: Any) -> dict[str, Any]:
    """`cluster` of a file: two OSDs on the drives of node0, and what is of its `own`."""
    return {
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node0"],
        "mons": {"node0": {"a": "node0"}},
        "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2,
        "osd_devices": "/dev/disk/by-partlabel/osd-device-{n}-data",
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
        "deploy_timeout": 900,
        "control": False,
        **own,
    }


def run_file(
    lab: str, archive: Path, document: dict[str, Any], *options: str, limit_s: int = 1500
) -> str:
    """What `lab run` of a whole file prints."""
    config = archive.with_suffix(".yaml")
    config.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [sys.executable, "-m", "cbt_crypto", "lab", "run", config, "-a", archive, "--name", lab,
         *options],
        capture_output=True, text=True, check=False, timeout=limit_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cells(archive: Path) -> list[dict[str, Any]]:
    """What each cell says of itself, with its proof, in the order in which they ran."""
    found = []
    for path in archive.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        cell["proof"] = json.loads((path.parent / "proof.json").read_text())
        found.append(cell)
    return sorted(found, key=lambda cell: float(cell["started"]))


def steps(archive: Path) -> list[tuple[str, Any]]:
    """Each step of the campaign and how it was done."""
    timeline = json.loads((archive / "results" / "timeline.json").read_text())
    return [(step["step"], step.get("how")) for step in timeline["steps"]]
