"""Two OSD hosts and two clients, each with its own network and sshd: pdsh over ssh, on Reef."""

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

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
NAME = f"four-{os.getpid()}"


def _cbt_crypto(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cbt_crypto", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


@pytest.fixture
def lab() -> Iterator[str]:
    up = _cbt_crypto(
        "lab", "up", "--kind", "namespace", "--nodes", "4", "--disks", "0", "--name", NAME
    )
    assert up.returncode == 0, up.stderr
    yield NAME
    assert _cbt_crypto("lab", "down", "--name", NAME).returncode == 0


def _short(tmp_path: Path) -> Path:
    """The file of configs/lab, with seconds instead of tens of them."""
    document = yaml.safe_load((ROOT / "configs" / "lab" / "four_nodes.yaml").read_text())
    for section in document["benchmarks"].values():
        section.update(time=10, ramp=1, vol_size=64, workloads={"mode": ["randread"]})
    path = tmp_path / "four_nodes.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _verdicts(archive: Path) -> list[tuple[str, dict[str, Any]]]:
    proofs = [json.loads(path.read_text()) for path in archive.glob("results/*/id-*/proof.json")]
    return [(proof["configuration"], verdict) for proof in proofs for verdict in proof["overlays"]]


def test_a_campaign_on_four_hosts(lab: str, tmp_path: Path, report_cells: Any) -> None:
    archive = tmp_path / "archive"
    done = _cbt_crypto("lab", "run", str(_short(tmp_path)), "-a", str(archive), "--name", lab)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = _verdicts(archive)
    assert all(verdict["proved"] for _, verdict in verdicts)
    messenger = {
        name: verdict for name, verdict in verdicts if verdict["overlay"] == "secure_messenger"
    }
    assert messenger["Secure messenger"]["reason"] == "4 of 4 OSDs encrypted every byte"
    assert messenger["Unencrypted"]["reason"] == "4 of 4 OSDs encrypted no byte"
    for seen in messenger["Secure messenger"]["evidence"].values():
        assert seen["encrypted_bytes"] == seen["bytes"] > 0
    hosts = {path.name.rpartition(".")[2] for path in archive.glob("results/*/id-*/json_output.*")}
    assert hosts == {"node0", "node1"}
    # Every node was sampled to the end, after the shells had gone that pdsh started collectl with.
    cells = report_cells(archive)
    assert cells
    for cell in cells:
        assert cell["figures"].get("osd_cpu_busy_cores"), cell["warnings"]
    # No connection that was kept for reuse stays behind.
    look = "ps -e -o args= | grep '^ssh: .*mux.$' || :"
    assert _cbt_crypto("lab", "ssh", "--name", lab, "node0", look).stdout == ""
