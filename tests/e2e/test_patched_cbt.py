"""CBT's own cbt.py with one of the patches offered to it, on real Ceph, judged by our proofs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import upstream_patches
import yaml

from cbt_crypto.engine.upstream.checkout import Checkout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
_ISOLATED = ROOT / "tests" / "programs" / "isolated.sh"
_CEPH_CONF = """
[global]
mon_host = 127.0.0.1:6789
osd_pool_default_size = 2
osd_crush_chooseleaf_type = 0
log_file = TMP/ceph/log/$name.log
[mon]
mon_data = TMP/ceph/mon.$id
[mgr]
mgr_data = TMP/ceph/mgr.$id
[osd]
osd_data = TMP/mnt/osd-device-$id-data
keyring = TMP/ceph/osd.$id/keyring
bluestore_block_create = true
bluestore_block_size = 4294967296
osd_memory_target = 1073741824
"""
_ONE_MACHINE = {
    "head": "localhost",
    "clients": ["localhost"],
    "osds": ["localhost"],
    "mons": {"localhost": {"a": "127.0.0.1:6789"}},
    "mgrs": {"localhost": {"x": None}},
}
_FIO = {
    "vol_size": 64, "volumes_per_client": 1, "mode": "randwrite", "op_size": 4096, "iodepth": 4,
    "time": 3, "idle_monitor_sleep": 0, "wait_pgautoscaler_timeout": 0, "pool_profile": "rbd",
}  # fmt: skip

_ENCRYPTED: dict[str, Any] = {"secure_messenger": {}}


def run(
    directory: Path, checkout: Checkout, patch: str, section: dict[str, Any], claim: dict[str, Any]
) -> tuple[str, str]:
    """Have CBT deploy and measure; return what it said, and what our campaign says of its cluster.

    It ends the processes of others by name, so it runs in a namespace.
    """
    tree = upstream_patches.apply(upstream_patches.clone(checkout, directory / "cbt"), patch)
    tmp_dir = directory / "tmp"
    conf = directory / "ceph.conf"
    conf.write_text(_CEPH_CONF.replace("TMP", str(tmp_dir)))
    theirs = {
        **_ONE_MACHINE, "osds_per_node": 2, "fs": "tmpfs", "iterations": 1, "clusterid": "ceph",
        "use_existing": False, "tmp_dir": str(tmp_dir), "conf_file": str(conf),
        "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}}, **section,
    }  # fmt: skip
    ours = {
        "head": "localhost", "clients": ["localhost"], "osds": ["localhost"], "control": False,
        "use_existing": True, "conf_file": f"{tmp_dir}/ceph/ceph.conf",
        "tmp_dir": f"{directory}/mine", "configurations": {"As it is": claim},
        "pool_profiles": {"cbt-librbdfio": {}},
    }  # fmt: skip
    scenario = {
        "vol_size": 64, "iodepth": 16, "time": 5, "op_size": 4096, "mode": "randread",
        "pool_profile": "cbt-librbdfio",
    }  # fmt: skip
    documents = {
        "theirs": {"cluster": theirs, "benchmarks": {"librbdfio": _FIO}},
        "ours": {"cluster": ours, "benchmarks": {"rbd_single_client": scenario}},
    }
    for name, document in documents.items():
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    programs = directory / "programs"
    programs.mkdir()
    (programs / "targetcli").symlink_to("/bin/true")
    python = shlex.quote(sys.executable)
    script = f"""
        echo 'Defaults secure_path="{programs}:{sys.exec_prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        ' > /etc/sudoers.d/path
        cd {tree} && {python} -B ./cbt.py -a {directory}/theirs {directory}/theirs.yaml 2>&1
        echo "CBT ended with $?"
        cd {ROOT} && {python} ./cbt.py --cbt embedded -a {directory}/ours {directory}/ours.yaml 2>&1
        echo "ours ended with $?"
    """
    done = subprocess.run(
        [str(_ISOLATED), str(directory), "sh", "-c", script],
        capture_output=True, text=True, check=False, timeout=800,
    )  # fmt: skip
    said, ended, judged = done.stdout.partition("CBT ended with 0\n")
    assert ended, done.stdout[-20000:] + done.stderr
    return said, judged


def test_secure_messenger(needs_ceph: None, checkout: Checkout, tmp_path: Path) -> None:
    """CBT on Ceph before Reef says that it cannot check."""
    section = {"messenger_mode": "secure"}
    said, judged = run(tmp_path, checkout, "messenger-modes", section, _ENCRYPTED)
    assert "messenger_mode secure" in said
    assert "ours ended with 0" in judged, said + judged


def test_crc_messenger(needs_ceph: None, checkout: Checkout, tmp_path: Path) -> None:
    section = {"messenger_mode": "crc"}
    _, judged = run(tmp_path, checkout, "messenger-modes", section, _ENCRYPTED)
    assert "ours ended with 1" in judged
    assert "the configuration is not proved: secure_messenger" in judged, judged


def test_cpusets(needs_ceph: None, checkout: Checkout, tmp_path: Path) -> None:
    """What our proof finds of OSDs of which nobody claims that they have CPUs of their own."""
    section = {"cpusets": {"osds": [0, 1], "clients": 1}}
    said, judged = run(tmp_path, checkout, "cpusets", section, {})
    for number in (0, 1):
        assert f"threads of osd.{number} run on CPUs {number}\n" in said, said
    assert "sudo taskset -c 1 /usr/bin/fio" in said
    assert "ours ended with 1" in judged
    assert "threads may use CPUs 0 and not 0-" in judged, judged
