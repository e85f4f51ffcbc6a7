"""Every name of docs/contract.md is there and can be called so, in each engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.upstream.checkout import BENCHMARKS, Checkout

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


_STEPS = ("initialize", "initialize_endpoints", "prefill", "run")
_ATTRIBUTES = (
    "tmp_conf", "ceph_mon_cmd", "ceph_mgr_cmd", "ceph_osd_cmd", "rados_cmd", "ceph_cmd", "rbd_cmd",
    "rbd_nbd_cmd", "rbd_fuse_cmd", "mnt_dir", "ceph_run_cmd", "client_keyring", "client_secret",
    "health_wait", "ruleset_map", "cur_ruleset",
)  # fmt: skip
#: What is used of a checkout alone; None for what is not called.
OF_CBT: dict[str, dict[str, Any]] = {
    "client_endpoints_factory": {"ce_objects": None},
    "cluster.ceph": {
        "Ceph.make_profiles": [],
        "Ceph.rmpool": ["name", "profile"],
        "Ceph.mkimage": ["name", "1", "pool", "None", "22"],
        **dict.fromkeys(f"Ceph({{}}).{name}" for name in _ATTRIBUTES),
    },
    **{
        module: {f"{kind}.{step}": [] for step in _STEPS}
        for name, (module, kind) in BENCHMARKS.items()
        if name != "elbencho"  # which later checkouts have
    },
}


def faults(checkout: str, contract: Any = CONTRACT) -> Any:
    program = ROOT / "tests" / "programs" / "describe_engine.py"
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(contract), checkout],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_embedded_engine_has_every_name() -> None:
    assert faults("") == {}


def test_an_upstream_checkout_has_every_name(checkout: Checkout) -> None:
    assert faults(str(checkout.path)) == {}


def test_a_checkout_has_what_is_used_of_it_alone(checkout: Checkout) -> None:
    assert faults(str(checkout.path), OF_CBT) == {}


def test_what_has_moved_in_a_checkout_is_named(checkout: Checkout, tmp_path: Path) -> None:
    clone = tmp_path / "cbt"
    shutil.copytree(checkout.path, clone, ignore=shutil.ignore_patterns(".git"))
    moved = clone / "cluster" / "ceph.py"
    moved.write_text(moved.read_text().replace("rbd_nbd_cmd", "rbd_nbd_path"))
    (clone / "benchmark" / "getput.py").unlink()
    found = faults(str(clone), OF_CBT)
    assert found["cluster.ceph.Ceph({}).rbd_nbd_cmd"] == "is not there"
    assert found["benchmark.getput.Getput.run"].startswith("cannot be imported: No module named")


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
