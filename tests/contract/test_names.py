"""Every name of docs/contract.md is there and can be called so, in each engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_crypto.engine.upstream.checkout import Checkout

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
#: Module -> name -> the arguments it is called with, by position.
CONTRACT: dict[str, dict[str, list[str]]] = {
    "settings": {
        "initialize": ["ctx"],
        "getnodes": ["clients", "osds"],
    },
    "common": {
        "pdsh": ["nodes", "command", "False"],
        "pdcp": ["nodes", "flags", "local", "remote"],
        "rpdcp": ["nodes", "flags", "remote", "local"],
        "sync_files": ["remote", "local"],
        "make_remote_dir": ["remote"],
        "clean_remote_dir": ["remote"],
        "mkdir_p": ["path"],
    },
    "monitoring": {"start": ["directory"], "stop": ["directory"], "monitor": ["directory"]},
    "cluster.ceph": {
        "Ceph": ["config"],
        "Ceph.initialize": [],
        "Ceph.shutdown": [],
        "Ceph.cleanup": [],
        "Ceph.setup_fs": [],
        "Ceph.distribute_conf": [],
        "Ceph.make_mons": [],
        "Ceph.start_mgrs": [],
        "Ceph.make_osds": [],
        "Ceph.check_health": [],
        "Ceph.mkpool": ["name", "profile", "application"],
    },
    "benchmark.benchmark": {
        "Benchmark": ["archive_dir", "cluster", "config"],
        "Benchmark.exists": [],
        "Benchmark.initialize": [],
        "Benchmark.run": [],
        "Benchmark.cleanup": [],
    },
}


def faults(checkout: str) -> object:
    program = ROOT / "tests" / "programs" / "describe_engine.py"
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(CONTRACT), checkout],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_embedded_engine_has_every_name() -> None:
    assert faults("") == {}


def test_an_upstream_checkout_has_every_name(checkout: Checkout) -> None:
    assert faults(str(checkout.path)) == {}


def test_a_name_that_is_missing_would_be_seen() -> None:
    """The program that looks must be able to find a fault."""
    program = ROOT / "tests" / "programs" / "describe_engine.py"
    contract = {"common": {"pdsh": ["nodes"], "nonesuch": [], "mkdir_p": ["a", "b"]}}
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(contract), ""],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert set(found) == {"common.pdsh", "common.nonesuch", "common.mkdir_p"}
    assert found["common.nonesuch"] == "is not there"


def test_the_document_names_them_all() -> None:
    text = (ROOT / "docs" / "contract.md").read_text()
    documented = set(re.findall(r"`(?:[a-z.]+\.)?([A-Za-z_]+)\(", text))
    wanted = {path.rpartition(".")[2] for names in CONTRACT.values() for path in names}
    assert wanted - documented == set()
