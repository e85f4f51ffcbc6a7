"""Monitor and manager on hosts of their own, and a public and a cluster network: on real Ceph."""

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

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAME = f"networks-test-{os.getpid()}"
NODES = ("node0", "node1", "node2", "node3")
CLUSTER: dict[str, Any] = {
    "head": "node0", "clients": ["node0"], "mgrs": {"node2": {"x": None}}, "osds": ["node3"],
    "osds_per_node": 2, "osd_file_size": "4G", "settings": {"osd_memory_target": "900M"},
    "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
    "control": False, "configurations": {"Plain": {}, "Secure": {"secure_messenger": {}}},
}  # fmt: skip
LOAD = {"vol_size": 32, "iodepth": 8, "time": 4, "ramp": 0, "op_size": 65536, "mode": "randwrite"}
TWO = """\
[global]
public_network = 10.251.0.0/24
cluster_network = 10.252.0.0/24
"""
#: Where OSDs listen for clients, and for one another.
_LISTEN = "ss -Hltnp | grep ceph-osd | tr -s ' ' | cut -d ' ' -f 4 | sort -u"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab(NAME, namespaces(4)) as started:
        for number, node in enumerate(started.nodes):
            access.run(
                started, node,
                "link=$(ip -o -4 address | awk '$2 != \"lo\" {print $2; exit}')\n"
                f"ip address add 10.251.0.{number + 1}/24 dev $link\n"
                f"ip address add 10.252.0.{number + 1}/24 dev $link\n"
            )  # fmt: skip
        yield started


def campaign(lab: Lab, tmp_path: Path, mon: str, conf: str) -> set[str]:
    """Where OSDs listened while it ran; every cell of it was proved."""
    (tmp_path / "ceph.conf").write_text(conf)
    cluster = {
        **CLUSTER, "mons": {"node1": {"a": mon}}, "conf_file": str(tmp_path / "ceph.conf"),
    }  # fmt: skip
    config, archive = tmp_path / "campaign.yaml", tmp_path / "archive"
    document = {"cluster": cluster, "benchmarks": {"rbd_single_client": LOAD}}
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    command = [sys.executable, "-m", "cbt_crypto", "lab", "run", "--no-report", "--name", NAME]
    heard: set[str] = set()
    with subprocess.Popen([*command, "-a", str(archive), str(config)]) as process:
        while True:
            heard |= set(access.run(lab, lab.nodes[3], f"{_LISTEN} || :").split())
            try:
                process.wait(1)
                break
            except subprocess.TimeoutExpired:
                continue
    assert process.returncode == 0
    proofs = [json.loads(path.read_text()) for path in archive.rglob("proof.json")]
    assert len(proofs) == 2 and all(proof["proved"] for proof in proofs)
    return {address.rpartition(":")[0] for address in heard}


def test_a_public_and_a_cluster_network(lab: Lab, tmp_path: Path) -> None:
    assert campaign(lab, tmp_path, "10.251.0.2", TWO) == {"10.251.0.4", "10.252.0.4"}
