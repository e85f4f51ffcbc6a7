"""Scenarios without Ceph on loop devices of this machine: measured, proved, and all torn down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
import yaml
from loops import loop_device

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A loop device of 2.5 GiB, sparse."""
    if os.geteuid() != 0:
        pytest.fail("loop devices take root: run the e2e tests as root")
    with loop_device(tmp_path_factory.mktemp("disk") / "disk", 2500 << 20) as device:
        yield device


class Machine:
    """A directory of one campaign on one drive."""

    def __init__(self, directory: Path, device: str) -> None:
        self.directory = directory
        self.tmp_dir = directory / "tmp_dir"
        self.archive = directory / "archive"
        self.device = device

    def run(
        self, cluster: Mapping[str, Any] = MappingProxyType({}), **benchmarks: Any
    ) -> subprocess.CompletedProcess[str]:
        config = self.directory / "campaign.yaml"
        section = {
            "head": "localhost",
            "clients": ["localhost"],
            "tmp_dir": str(self.tmp_dir),
            "drives": {"Loop": {"host": "localhost", "device": self.device, "plp": False}},
            **cluster,
        }
        config.write_text(yaml.safe_dump({"cluster": section, "benchmarks": benchmarks}))
        return subprocess.run(
            [sys.executable, str(ROOT / "cbt.py"), "-a", str(self.archive), str(config)],
            capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip

    def cells(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """cell.json and proof.json of each."""
        found = sorted(self.archive.glob("results/*/id-*/cell.json"))
        return [
            (json.loads(path.read_text()), json.loads(path.with_name("proof.json").read_text()))
            for path in found
        ]

    def is_clean(self) -> bool:
        probed = subprocess.run(
            ["blkid", "-p", self.device], capture_output=True, text=True, check=False
        )
        mounts = Path("/proc/mounts").read_text()
        return not (self.tmp_dir.exists() or probed.stdout or str(self.tmp_dir) in mounts)


@pytest.fixture
def machine(tmp_path: Path, loop: str) -> Machine:
    return Machine(tmp_path, loop)


def reasons(proof: dict[str, Any]) -> dict[str, str]:
    return {verdict["overlay"]: verdict["reason"] for verdict in proof["overlays"]}


def test_osds_and_files_on_one_drive_after_another_with_a_control(
    machine: Machine, tmp_path: Path
) -> None:
    """No campaign with `osd_drives` came beyond its first deployment."""
    with loop_device(tmp_path / "other", 2500 << 20) as other:
        cluster = {
            "mons": {"localhost": {"a": "127.0.0.1:13371"}},
            "mgrs": {"localhost": {"x": None}},
            "drives": {
                "A": {"host": "localhost", "device": machine.device},
                "B": {"host": "localhost", "device": other},
            },
            "osd_drives": ["A", "B"],
            "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 1}},
            "settings": {"osd_memory_target": "900M"},
            "baseline": {"drive": "A"},
        }
        load = {"vol_size": 64, "iodepth": 2, "time": 3, "ramp": 0, "op_size": 65536}
        done = machine.run(
            cluster, fdatasync={"size": 1, "loops": 1}, rbd_single_client={**load, "mode": "read"}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert not subprocess.run(
            ["blkid", "-p", other], capture_output=True, text=True, check=False
        ).stdout
    measured: dict[str, dict[str, str]] = {}
    for cell, proof in machine.cells():
        assert cell["state"] == "finished" and proof["proved"]
        (carrier,) = cell["storage"].values()
        ((layer, *_), *_) = carrier["devices"]
        measured.setdefault(cell["scenario"], {})[cell["parameters"]["drive"]] = layer["device"]
    own = Path(machine.device).name
    drives = {"A": own, "control": own, "B": Path(other).name}
    assert measured == {"fdatasync": drives, "rbd_single_client": drives}
    assert "control" in (machine.archive / "report.md").read_text()
    assert machine.is_clean()


#: Makes fio one that does something once, at its first cell.
_ONCE = """#!/bin/sh
case "$*" in *--version*|*--enghelp*) exec fio "$@" ;; esac
mkdir {folder}/first 2>/dev/null || exec fio "$@"
{once}
"""
_LEAVES_ONE = """
cd "$(findmnt -rno TARGET | grep {folder})"
sleep 300 >/dev/null 2>&1 &
echo $! > {folder}/left
exit 1
"""
#: What is mounted is kept by somebody else's namespace, also when it is unmounted here.
_KEPT = """
env -u CBT_CRYPTO_MARK setsid unshare --mount sleep 300 >/dev/null 2>&1 &
echo $! > {folder}/left
until readlink /proc/$!/exe | grep sleep; do sleep 0.1; done
exec fio "$@"
"""


def states_of_two(machine: Machine, tmp_path: Path, once: str) -> tuple[dict[str, str], str]:
    """Of a drive each, where `once` happened beside the first cell, and what was printed."""
    program = tmp_path / "fio"
    program.write_text(_ONCE.format(folder=tmp_path, once=once.format(folder=tmp_path)))
    program.chmod(0o755)
    with loop_device(tmp_path / "other", 2500 << 20) as other:
        drives = {
            name: {"host": "localhost", "device": device}
            for name, device in (("A", machine.device), ("B", other))
        }
        fio = {"size": 1, "loops": 1, "cmd_path": str(program)}
        done = machine.run({"drives": drives, "control": False}, fdatasync=fio)
    assert done.returncode == 1, done.stdout + done.stderr
    found = [json.loads(path.read_text()) for path in machine.archive.rglob("cell.json")]
    states = {cell["parameters"]["drive"]: cell["state"] for cell in found}
    return states, done.stdout + done.stderr


def test_what_a_failed_cell_left_on_a_drive_keeps_no_other_drive_from_being_measured(
    machine: Machine, tmp_path: Path
) -> None:
    """`umount` said that the target is busy, and the cells of all other drives were lost."""
    states, said = states_of_two(machine, tmp_path, _LEAVES_ONE)
    assert states == {"A": "failed", "B": "finished"}, said
    assert not psutil.pid_exists(int((tmp_path / "left").read_text()))
    assert machine.is_clean()


def test_a_drive_that_somebody_keeps_busy_keeps_no_other_from_being_measured(
    machine: Machine, tmp_path: Path
) -> None:
    """As a container does that starts while a file system is mounted: it has a copy of the mount.

    What was to be freed could not be wiped, and the cells of all other drives were lost.
    """
    states, said = states_of_two(machine, tmp_path, _KEPT)
    pid = int((tmp_path / "left").read_text())
    assert states == {"A": "finished", "B": "finished"}, said
    assert f"is mounted in the mount namespace of sleep (process {pid})" in said
    assert not machine.is_clean()
    psutil.Process(pid).kill()
    command = [sys.executable, "-m", "cbt_crypto", "cleanup", "--yes", str(machine.archive)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    assert machine.is_clean()


def test_a_raw_device_with_both_engines(machine: Machine) -> None:
    fast = {"time": 2, "size": 64, "op_size": 65536, "mode": "write"}
    done = machine.run(raw_device={**fast, "ioengine": ["libaio", "io_uring"]})
    assert done.returncode == 0, done.stdout + done.stderr
    cells = machine.cells()
    assert [cell["state"] for cell, _ in cells] == ["finished"] * 2
    for cell, proof in cells:
        assert cell["osd_hosts"] == cell["clients"] == ["localhost"]
        opened = f"fio had {machine.device} open, which is on {machine.device}"
        assert reasons(proof)["drive"] == f"drive Loop on localhost: {opened}"
        assert reasons(proof)["luks"] == "1 of 1 drives have no dm-crypt below"
    assert machine.is_clean()


@pytest.mark.alone
def test_processor_time_of_one_thread_is_what_fio_says_of_itself(machine: Machine) -> None:
    """libaio works in the thread that fio asks the kernel about: two accounts of the same."""
    done = machine.run(raw_device={"time": 8, "ramp": 1, "size": 64, "mode": "randread"})
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((machine.archive / "report.json").read_text())
    ((section,),) = (table["sections"] for table in report["tables"])
    (cell,) = section["cells"]
    figures = cell["figures"]
    cores = 1e-4 * figures["iops"]
    ours = [cores * figures[f"client_cpu_{state}_us_per_io"] for state in ("user", "sys")]
    fios = [figures[f"fio_{state}_cpu_percent"] for state in ("usr", "sys")]
    print(ours, fios)
    assert sum(fios) > 0.5
    # fio's helper thread, and what starts in the first second, are in ours alone
    assert sum(ours) == pytest.approx(sum(fios), rel=0.15, abs=2)
    assert ours[1] == pytest.approx(fios[1], rel=0.2, abs=2)


def test_a_drive_is_discarded_written_over_and_steady_before_it_is_measured(
    machine: Machine,
) -> None:
    """By what the kernel counts of the device, and what is left of its file."""
    mib, passes = 64, 4
    load = {
        "time": 2, "size": mib, "op_size": 1 << 20, "mode": "write", "precondition": 2,
        "precondition_random": 1, "precondition_op_size": 65536, "steady_state": 1,
        "steady_state_rounds": 6,
    }  # fmt: skip
    sectors = Path(f"/sys/block/{Path(machine.device).name}/stat")
    discarded = int(sectors.read_text().split()[13])
    done = machine.run(raw_device=load, cluster={"discard": True, "wipe": True})
    assert done.returncode == 0, done.stdout + done.stderr
    size = int(Path(f"/sys/block/{Path(machine.device).name}/size").read_text())
    assert int(sectors.read_text().split()[13]) - discarded >= size - 8, "all behind the tag"
    ((cell, _),) = machine.cells()
    rounds = cell["steady_state"]
    assert 5 <= len(rounds["iops"]) <= 6 and min(rounds["iops"]) > 0
    assert rounds["reached"] == (rounds["range_percent"] <= 20 and rounds["slope_percent"] <= 10)
    ((name, drive),) = cell["overwritten"].items()
    assert name == f"localhost {Path(machine.device).name}"
    assert drive["size_bytes"] == size * 512
    # each round wrote what its own fio says, for about a second
    by_rounds = sum(rounds["iops"]) * (1 << 20)
    written = drive["written_bytes"] - passes * (mib << 20)
    assert written > by_rounds / 2
    assert machine.is_clean()


def test_fdatasync_has_its_own_latencies(machine: Machine) -> None:
    # etcd's own size: ten thousand syncs, of which a p99 takes all
    done = machine.run(fdatasync={"size": 22, "loops": 1})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "syncs after writes" in done.stdout
    report = json.loads((machine.archive / "report.json").read_text())
    (table,) = report["tables"]
    sections = {section["direction"]: section["cells"][0] for section in table["sections"]}
    assert sections["sync"]["figures"]["clat_ns_p99"] > 0
    assert machine.is_clean()


def test_a_real_etcd(machine: Machine, etcd_benchmark: str) -> None:
    if shutil.which("etcd") is None:
        pytest.skip("needs etcd: Debian's etcd-server")
    load = {"total": 1000, "connections": 5, "etcd_clients": 10, "filesystem": "xfs"}
    done = machine.run(etcd={**load, "benchmark_cmd": etcd_benchmark})
    assert done.returncode == 0, done.stdout + done.stderr
    ((cell, proof),) = machine.cells()
    assert cell["processes"][0]["kind"] == "etcd_benchmark"
    assert "etcd had " in reasons(proof)["drive"]
    report = json.loads((machine.archive / "report.json").read_text())
    sections = report["tables"][0]["sections"]
    figures = {section["direction"]: section["cells"][0]["figures"] for section in sections}
    puts, syncs = figures["write"], figures["sync"]
    assert puts["iops"] > 0 and puts["clat_ns_p50"] > 0
    # A put waits for a sync of the journal, which several puts share.
    assert 0 < syncs["clat_ns_mean"] < puts["clat_ns_mean"]
    assert machine.is_clean()


def test_a_device_with_data_is_refused(machine: Machine) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", "-L", "theirs", machine.device], check=True)
    try:
        done = machine.run(raw_device={"time": 1, "size": 64})
    finally:
        subprocess.run(["wipefs", "-q", "-a", machine.device], check=True)
    assert done.returncode == 2
    assert f"{machine.device} carries data (ext4)" in done.stderr
    assert not machine.tmp_dir.exists()
