"""On three nodes of this machine's kernel: a tunnel, database files, OSDs that share a device, and
neighbours, in one campaign with real Ceph; each is proved, and nothing stays."""

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
from real_labs import namespaces, running_lab

from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Lab
from cbt_crypto.report import ReportOptions, build

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NAME = f"places-test-{os.getpid()}"
NODES = ("node0", "node1", "node2")
CAMPAIGN: dict[str, Any] = {
    "cluster": {
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node1", "node2"],
        "mons": {"node0": {"a": "node0"}},
        "mgrs": {"node0": {"x": None}},
        "osd_file_size": "4G",
        "osds_per_device": [1, 2],
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
        "settings": {"osd_memory_target": "900M"},
        "neighbours": {"hosts": ["node2"], "cpu": 1, "cpu_load": 20, "least_percent": 5},
        "rebuild": "needed",
        "control": False,
        "configurations": {
            "Host": {},
            "VXLAN": {
                "network": {"type": "vxlan", "subnet": "10.208.0.0/24"},
                "db_device": {"directory": "/dev/shm", "size": "1G"},
            },
        },
    },
    "benchmarks": {
        "rbd_kbench": {"vol_size": 32, "time": 4, "test": "latency", "mode": "randwrite"}
    },
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab(NAME, namespaces(3)) as started:
        yield started


@pytest.fixture(scope="module")
def archive(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the campaign, when it ran to its end."""
    directory = tmp_path_factory.mktemp("places")
    config = directory / "places.yaml"
    config.write_text(yaml.safe_dump(CAMPAIGN, sort_keys=False))
    command = [sys.executable, "-m", "cbt_crypto", "lab", "run", str(config)]
    command += ["-a", str(directory / "archive"), "--name", NAME]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / "archive"


def documents(archive: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in archive.glob(f"results/*/id-*/{name}")]


def verdicts(archive: Path, configuration: str, overlay: str) -> list[dict[str, Any]]:
    return [
        verdict
        for proof in documents(archive, "proof.json")
        if proof["configuration"] == configuration
        for verdict in proof["overlays"]
        if verdict["overlay"] == overlay
    ]


def test_every_place_was_measured_on_a_cluster_of_its_own(archive: Path) -> None:
    cells = documents(archive, "cell.json")
    assert [cell["state"] for cell in cells] == ["finished"] * 4
    assert sorted(cell["parameters"]["osds_per_device"] for cell in cells) == [1, 1, 2, 2]
    proofs = verdicts(archive, "Host", "luks")
    assert sorted(len(proof["evidence"]) for proof in proofs) == [2, 4]  # OSDs


def test_osds_talk_through_the_tunnel_and_its_counters_show_it(archive: Path) -> None:
    for verdict in verdicts(archive, "VXLAN", "network"):
        assert verdict["proved"], verdict["reason"]
        evidence = verdict["evidence"]
        for connected in evidence["connections"].values():
            assert all(address.startswith("10.208.0.") for address in connected)
        links = [link for found in evidence["links"].values() for link in found.values()]
        assert {(link["kind"], link["mtu"]) for link in links} == {("vxlan", 1450)}
    (alone,) = [
        v for v in verdicts(archive, "VXLAN", "network") if len(v["evidence"]["osd_bytes"]) == 2
    ]
    assert alone["evidence"]["tunnel_bytes"]["node1"] >= alone["evidence"]["osd_bytes"]["osd.0"] > 0


def test_databases_are_on_files_of_their_own(archive: Path) -> None:
    for verdict in verdicts(archive, "VXLAN", "db_device"):
        assert verdict["proved"], verdict["reason"]
        for found in verdict["evidence"].values():
            assert found["metadata"]["bluefs_dedicated_db"] == "1"
            assert found["links"]["block.db"].startswith("/dev/shm/cbt-crypto-")
    for verdict in verdicts(archive, "Host", "db_device"):
        assert verdict["proved"] and not verdict["present"]


def test_neighbours_ran_beside_every_cell(archive: Path) -> None:
    for cell in documents(archive, "cell.json"):
        found = cell["neighbours"]
        assert list(found) == ["node2"]
        assert found["node2"]["processes"] > 0
        assert found["node2"]["seconds"] >= 4
        assert 0 < found["node2"]["cores"] < 1


def test_a_report_compares_places(archive: Path) -> None:
    built = build(archive, ReportOptions(baseline="osds_per_device=1"))
    rows = {cell.name for table in built.tables for s in table.sections for cell in s.cells}
    assert rows == {"1", "2"}
    assert built.compared == "Osds per device"


LEFT = """
ls /sys/class/net /dev/shm
ls /run/cbt-crypto 2> /dev/null || :
pgrep -l stress-ng || :
ls -d /var/lib/cbt-crypto 2> /dev/null || :
"""


def test_nothing_stays_on_the_nodes(lab: Lab, archive: Path) -> None:
    for node in lab.nodes:
        said = access.run(lab, node, LEFT)
        assert "cbt" not in said and "stress" not in said, said
