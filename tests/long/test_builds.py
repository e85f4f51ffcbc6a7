"""Two builds of real Ceph as configurations: the host's packages, and a copy below a prefix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def _ran(tmp_path: Path, configurations: Any, **more: Any) -> tuple[int, str, Path]:
    """A campaign's exit status, what it printed, and its archive."""
    cluster = {
        "head": "localhost", "clients": ["localhost"], "osds": ["localhost"],
        "mons": {"localhost": {"a": "127.0.0.1:13471"}}, "mgrs": {"localhost": {"x": None}},
        "osds_per_node": 2, "osd_file_size": "4G", "tmp_dir": f"{tmp_path}/cluster",
        "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}},
        "settings": {"osd_memory_target": "900M"}, "rebuild": "needed", "control": False,
        "configurations": configurations,
    }  # fmt: skip
    load = {"vol_size": 64, "time": 4, "ramp": 1, "op_size": 4096, "mode": "randread", "iodepth": 8}
    load.update(more)
    file, archive = tmp_path / "builds.yaml", tmp_path / "archive"
    file.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_single_client": load}}))
    command = [sys.executable, str(ROOT / "cbt.py"), "-a", str(archive), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    return done.returncode, done.stdout + done.stderr, archive


def _builds(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Configuration, and what is proved of its build, of each cell."""
    for path in sorted(archive.glob("results/*/id-*/proof.json")):
        proof = json.loads(path.read_text())
        for one in proof["overlays"]:
            if one["overlay"] == "ceph_build":
                yield proof["configuration"], one


def _notes(path: str) -> str:
    told = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True)
    return told.stdout


def test_each_runs_what_it_says(prefix: Path, tmp_path: Path) -> None:
    copy = {"ceph_build": {"prefix": str(prefix), "clients": True}}
    status, output, archive = _ran(tmp_path, {"packages": {"ceph_build": {}}, "copy": copy})
    assert status == 0, output
    builds = list(_builds(archive))
    assert [configuration for configuration, _ in builds] == ["packages", "copy"]
    for configuration, build in builds:
        assert build["proved"], build
        where = str(prefix) if configuration == "copy" else "/usr/"
        daemons = build["evidence"]["daemons"]
        assert sorted(daemons) == ["mgr.x", "mon.a", "osd.0", "osd.1"]
        for about in daemons.values():
            assert about["exe"].startswith(where)
            assert all(path.startswith((where, "/lib/")) for path in about["mapped"]), about
        for osd in ("osd.0", "osd.1"):
            assert daemons[osd]["builds"]["ceph-osd"] in _notes("/usr/bin/ceph-osd")
        libraries = build["evidence"]["client_libraries"]["localhost"]
        assert any("/librbd" in path for path in libraries), libraries
        assert all(str(prefix) in path for path in libraries) is (configuration == "copy")


def test_a_fio_that_takes_the_hosts_libraries_all_the_same_is_found(
    prefix: Path, tmp_path: Path
) -> None:
    """As whatever stands in the place of fio may; fio itself, asked by ldd, looks right."""
    fio = tmp_path / "other" / "fio"
    fio.parent.mkdir()
    fio.write_text('#!/bin/sh\nunset LD_LIBRARY_PATH\nexec fio "$@"\n')
    fio.chmod(0o755)
    copy = {"ceph_build": {"prefix": str(prefix), "clients": True}}
    status, output, archive = _ran(tmp_path, {"copy": copy}, cmd_path=str(fio))
    assert status == 1, output
    ((_, build),) = _builds(archive)
    assert not build["proved"]
    assert "a client process on localhost: it runs /" in build["reason"]
    assert f"which is not below {prefix}" in build["reason"]
