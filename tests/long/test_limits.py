"""What limited a cell is named, and nothing else: on real Ceph, each limit is made three times.

The cluster has a network namespace whose `lo` sends 100 Mbit/s, and its files on a loop device
over a file that one cell's OSDs may write slowly only.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from loops import loop_lock
from neighbour import busy
from one_machine import cluster_section

from cbt_crypto.report.build import build
from cbt_crypto.report.why import limit_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TIMES = 3
_IO = {"time": 6, "ramp": 3, "vol_size": 64}
#: Operation size -> what is the limit of its cell; each cell has a size of its own.
LIMITS = {
    16384: "",
    8192: "other processes",
    32768: "a device",
    65536: "a network link",
    4096: "a client's thread",
}
BENCHMARKS = {
    "rbd_single_client_sync": {**_IO, "mode": "randwrite", "op_size": [16384, 8192]},
    "rbd_single_client": {**_IO, "iodepth": 16, "mode": "randwrite", "op_size": [32768, 65536]},
    "rbd_multi_client": {
        **_IO, "iodepth": 8, "mode": "randread", "op_size": 4096, "volumes_per_client": 1,
    },
}  # fmt: skip
#: What has fio compute for 4 ms on each of its reads.
_BUSY_READS = ROOT / "tests" / "programs" / "busy_reads.c"
_THROTTLE = Path("/sys/fs/cgroup/blkio")
_SHAPED = "ip link set lo up && tc qdisc add dev lo root tbf rate 100mbit burst 256k limit 10m"
_WRITES_A_SECOND = 30


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system on a loop device, whose own IO goes past the page cache to the disk below."""
    folder = tmp_path_factory.mktemp("limits")
    file, mounted = folder / "disk", folder / "mounted"
    mounted.mkdir()
    with file.open("wb") as opened:
        opened.truncate(12 << 30)
    with loop_lock():
        attach = ["losetup", "--find", "--show", "--direct-io=on", str(file)]
        device = subprocess.check_output(attach, text=True).strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        subprocess.run(["mount", device, str(mounted)], check=True)
        try:
            yield mounted
        finally:
            subprocess.run(["umount", str(mounted)], check=True)
    finally:
        with loop_lock():
            subprocess.run(["losetup", "--detach", device], check=True)


def hogs() -> AbstractContextManager[None]:
    """A busy loop on each CPU that the OSDs' messengers may use."""
    loop = ["sh", "-c", "while :; do :; done"]
    cpus = sorted(os.sched_getaffinity(0))
    return busy(["taskset", "-c", str(cpu), *loop] for cpu in cpus)


class SlowDisk:
    """OSDs in a group of their own, which may write so often to what is below the loop device."""

    def __init__(self, disk: Path) -> None:
        number = os.stat(disk.parent).st_dev
        self.device = f"{os.major(number)}:{os.minor(number)}"
        self.disk = disk
        self.group = _THROTTLE / f"cbt-crypto-limits-{os.getpid()}"

    @contextlib.contextmanager
    def throttled(self) -> Iterator[None]:
        self.group.mkdir(exist_ok=True)
        for pid_file in self.disk.glob("**/osd.*.pid"):
            (self.group / "cgroup.procs").write_text(pid_file.read_text().strip())
        self.limit(_WRITES_A_SECOND)
        try:
            yield
        finally:
            self.limit(0)

    def limit(self, writes_a_second: int) -> None:
        (self.group / "blkio.throttle.write_iops_device").write_text(
            f"{self.device} {writes_a_second}"
        )


def measured(op_size: int, tmp_dir: Path) -> bool:
    """Whether the cell of that size runs now."""
    mark = f"CBT_CRYPTO_MARK={tmp_dir}@".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = process.joinpath("cmdline").read_bytes().split(b"\0")
            asked = f"--bs={op_size}B".encode() in words and b"--time_based" in words
            if asked and mark in process.joinpath("environ").read_bytes():
                return True
    return False


@pytest.fixture(scope="module")
def named(disk: Path) -> dict[int, list[str]]:
    """Operation size -> what was named as the limit of each of its cells."""
    cluster = cluster_section(
        disk, 13371, control=False, order="sequential", iterations=TIMES,
        pool_profiles={"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 1}},
    )  # fmt: skip
    busy_fio, library = disk / "fio", disk / "busy_reads.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, _BUSY_READS], check=True)
    busy_fio.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec fio "$@"\n')
    busy_fio.chmod(0o755)
    client = {**BENCHMARKS["rbd_multi_client"], "fio_cmd": str(busy_fio)}
    document = {"cluster": cluster, "benchmarks": {**BENCHMARKS, "rbd_multi_client": client}}
    config, archive, said = disk / "campaign.yaml", disk / "archive", disk / "said"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    command = [sys.executable, str(ROOT / "cbt.py"), "-a", str(archive), str(config)]
    shaped = ["unshare", "--net", "sh", "-c", f'{_SHAPED} && exec "$@"', "sh", *command]
    slow = SlowDisk(disk)
    made: dict[int, Callable[[], AbstractContextManager[None]]]
    made = {8192: hogs, 32768: slow.throttled}
    with said.open("wb") as output, subprocess.Popen(shaped, stdout=output, stderr=output) as run:
        try:
            while run.poll() is None:
                for op_size, begin in made.items():
                    if measured(op_size, disk / "cluster"):
                        with begin():
                            while run.poll() is None and measured(op_size, disk / "cluster"):
                                time.sleep(0.3)
                time.sleep(0.3)
        finally:
            run.terminate()
            run.wait(60)
            if slow.group.exists():
                slow.group.rmdir()
    assert run.returncode == 0, said.read_text()
    found = {}
    for cell in build(archive).cells:
        kinds = [limit.kind if (limit := limit_of(one)) else "" for one in cell.runs]
        # Beside a test that fails, it says why.
        print(cell.dimensions, kinds, *(one.recorded for one in cell.runs), sep="\n")
        found[int(str(cell.dimensions["op_size"]))] = kinds
        if cell.dimensions["op_size"] == 32768:
            assert any("slow operation" in text for text in cell.warnings), cell.warnings
    return found


@pytest.mark.parametrize(("op_size", "limit"), LIMITS.items(), ids=str)
def test_only_the_limit_that_was_made_is_named(
    named: dict[int, list[str]], op_size: int, limit: Any
) -> None:
    assert named[op_size] == [limit] * TIMES
