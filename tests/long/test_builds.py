"""Two builds of real Ceph as configurations: the host's packages, and a copy below a prefix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool", "monmaptool", "osdmaptool",
            "ceph-conf")  # fmt: skip


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """This machine's Ceph, copied: its programs, its libraries, classes, plugins and modules."""
    root = tmp_path / "opt"
    libraries = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
    if not (libraries / "rados-classes").is_dir():
        pytest.skip(f"Ceph's libraries are not in {libraries}")
    for name in PROGRAMS:
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy2(f"/usr/bin/{name}", root / "usr/bin")
    there = root / "usr/lib" / libraries.name
    shutil.copytree(libraries / "ceph", there / "ceph")
    shutil.copytree(libraries / "rados-classes", there / "rados-classes", symlinks=True)
    for pattern in ("librados*.so*", "librbd*.so*", "libceph*.so*"):
        for path in libraries.glob(pattern):
            shutil.copy2(path, there, follow_symlinks=False)
    shutil.copytree("/usr/share/ceph/mgr", root / "usr/share/ceph/mgr")
    return root


def test_each_runs_what_it_says(prefix: Path, tmp_path: Path) -> None:
    cluster = {
        "head": "localhost", "clients": ["localhost"], "osds": ["localhost"],
        "mons": {"localhost": {"a": "127.0.0.1:13471"}}, "mgrs": {"localhost": {"x": None}},
        "osds_per_node": 2, "osd_file_size": "4G", "tmp_dir": f"{tmp_path}/cluster",
        "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}},
        "settings": {"osd_memory_target": "900M"}, "rebuild": "needed", "control": False,
        "configurations": {
            "packages": {"ceph_build": {}},
            "copy": {"ceph_build": {"prefix": str(prefix), "clients": True}},
        },
    }  # fmt: skip
    load = {"vol_size": 64, "time": 4, "ramp": 1, "op_size": 4096, "mode": "randread", "iodepth": 8}
    file, archive = tmp_path / "builds.yaml", tmp_path / "archive"
    file.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_single_client": load}}))
    command = [sys.executable, str(ROOT / "cbt.py"), "-a", str(archive), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads((archive / "results/plan.json").read_text())
    for cell in plan["cells"]:
        proof = json.loads((archive / cell["path"] / "proof.json").read_text())
        (build,) = [one for one in proof["overlays"] if one["overlay"] == "ceph_build"]
        assert build["proved"], build
        where = str(prefix) if cell["configuration"] == "copy" else "/usr/"
        daemons = build["evidence"]["daemons"]
        assert sorted(daemons) == ["mgr.x", "mon.a", "osd.0", "osd.1"]
        for about in daemons.values():
            assert about["exe"].startswith(where)
            assert all(path.startswith((where, "/lib/")) for path in about["mapped"]), about
        libraries = build["evidence"]["client_libraries"]["localhost"]
        assert libraries
        assert all(str(prefix) in path for path in libraries) is (cell["configuration"] == "copy")
