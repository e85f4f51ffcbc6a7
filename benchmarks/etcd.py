"""What etcd does to a drive: its journal as fio writes it, and etcd under its own benchmark."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from cbt_crypto.benchmarks import base
from cbt_crypto.benchmarks.base import ClientProcess, WrapClient
from cbt_crypto.benchmarks.drive import FileSystemScenario, FioOnDrive, capacity
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import kill_script
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Drive, Site

#: MiB that etcd's log and database may take in one cell.
_ROOM_MB = 2048
#: MiB of a file system beside the file that is in it.
_FILE_ROOM_MB = 300
_STARTS_WITHIN = 60

#: Prints the lines of an answer of etcd's that hold a word, as soon as there are any.
LINES = """
import contextlib, json, signal, sys, time, urllib.request
url, word, seconds = json.loads(sys.argv[1])
ends = time.monotonic() + seconds
signal.alarm(seconds + 5)  # for one who says a byte now and then
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while time.monotonic() < ends:
    with contextlib.suppress(OSError, ValueError):
        text = direct.open(url, timeout=2).read(1 << 24).decode()
        found = [line for line in text.splitlines() if word in line]
        if found:
            sys.exit(print(*found, sep=chr(10)))
    time.sleep(0.1)
sys.exit("{} does not say {} after {} s".format(url, word, seconds))
"""

_MISSING = (
    "is missing, or is not etcd's own benchmark tool, which no distribution packages; "
    "docs/drives.md says how to build it; name it as benchmark_cmd"
)


class Fdatasync(FioOnDrive, FileSystemScenario):
    """One fio that appends to a file and calls fdatasync after each write."""

    name: ClassVar[str] = "fdatasync"

    op_size: int = Field(2300, ge=1, le=1 << 30, description="bytes of one write")
    size: int = Field(22, ge=1, le=1 << 30, description="MiB that are written in one loop")
    loops: int = Field(10, ge=1, le=1_000_000, description="times they are written")

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """Room for the file."""
        (drive,) = site.drives
        return (*super().requirements(site), capacity(drive, self.size + _FILE_ROOM_MB))

    def work(self, site: Site, drive: Drive, wrap: WrapClient) -> Sequence[str]:
        """fio in the file system; what it opens is noted meanwhile."""
        fio = wrap(drive.host, f"$SUDO {self.fio_command(drive.mount_point)}")
        return self.watch(site, drive), base.run(0, fio), "wait"

    def fio_command(self, directory: str) -> str:
        """The fio that measures: synchronous writes with fdatasync, in a file in `directory`."""
        job = {
            "name": "fdatasync",
            "directory": directory,
            "rw": self.mode,
            "ioengine": "sync",
            "fdatasync": 1,
            "bs": self.op_size,
            "size": f"{self.size}M",
            "loops": self.loops,
            **base.results(0, self.log_avg_msec),
        }
        return base.command(self.fio_cmd, job)


class Etcd(FileSystemScenario):
    """One etcd member with its data on the drive, and puts from etcd's benchmark tool."""

    name: ClassVar[str] = "etcd"
    measuring: ClassVar[str] = "etcd"

    connections: int = Field(100, ge=1, le=10_000, description="gRPC connections to etcd")
    etcd_clients: int = Field(1000, ge=1, le=100_000, description="clients that share them")
    total: int = Field(100_000, ge=1, le=1 << 40, description="puts in all")
    key_size: int = Field(8, ge=8, le=1024, description="bytes of a key")
    value_size: int = Field(256, ge=1, le=1 << 20, description="bytes of a value")
    sequential_keys: bool = Field(True, description="keys that ascend, instead of random ones")
    port: int = Field(23790, ge=1024, le=65534, description="etcd's on 127.0.0.1, and the next")
    etcd_cmd: str = Field("etcd", description="command for etcd")
    benchmark_cmd: str = Field("benchmark", description="command for etcd's benchmark tool")

    def required_programs(self) -> Sequence[str]:
        """etcd, by the name that the file gives its command."""
        return (self.etcd_cmd,)

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """Room, and etcd's own tool."""
        (drive,) = site.drives
        tool = shlex.quote(self.benchmark_cmd)
        script = (
            f"{tool} put --help 2>&1 | grep -q -e --sequential-keys && echo ok || "
            f"echo {tool} {shlex.quote(_MISSING)}"
        )
        return (
            *super().requirements(site),
            capacity(drive, _ROOM_MB),
            Requirement("etcd's benchmark tool", (drive.host,), script),
        )

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """One process of etcd's benchmark tool, on the drive's host."""
        return tuple(
            ClientProcess(drive.host, "0", "etcd_benchmark", "etcd_benchmark")
            for drive in site.drives
        )

    def work(self, site: Site, drive: Drive, wrap: WrapClient) -> Sequence[str]:
        """Run etcd on the file system, and the tool when it is healthy; the clock is printed."""
        tool = wrap(drive.host, self.benchmark_command())
        return (
            f"$SUDO {self.etcd_command(drive)} > etcd.0 2>&1 &",
            "echo $! > etcd.pid",
            self._lines("health", '"health":"true"', "/dev/null"),
            self.watch(site, drive),
            "watch=$!",
            f"s=0; {tool} > etcd_benchmark.0 2> output.0 || s=$?",
            "echo ended $(date +%s.%N) >> etcd_benchmark.0",
            f"[ $s != 0 ] || {self._lines('metrics', 'wal_fsync_duration', 'etcd_benchmark.0')}",
            'wait "$watch"',
            # It may have died long ago, and its number be another's.
            f"(\n{kill_script(pid_files=('etcd.pid',))}\n)\nwait",
            "echo $s > exit_status.0",
        )

    def _lines(self, path: str, word: str, file: str) -> str:
        asked = [f"http://127.0.0.1:{self.port}/{path}", word, _STARTS_WITHIN]
        return f">> {file} {shell.python(LINES, asked).replace('$SUDO ', '', 1).rstrip()}"

    def etcd_command(self, drive: Drive) -> str:
        """A cluster of this one member, on the loopback interface alone."""
        client = f"http://127.0.0.1:{self.port}"
        peer = f"http://127.0.0.1:{self.port + 1}"
        words = (
            self.etcd_cmd,
            "--name=drive",
            f"--data-dir={drive.mount_point}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=drive={peer}",
            "--quota-backend-bytes=8589934592",
            "--force-new-cluster",
        )
        return " ".join(map(shlex.quote, words))

    def benchmark_command(self) -> str:
        """The benchmark tool's `put` with the file's connections, clients, keys and values."""
        words = [
            self.benchmark_cmd,
            f"--endpoints=127.0.0.1:{self.port}",
            "--target-leader",
            f"--conns={self.connections}",
            f"--clients={self.etcd_clients}",
            "put",
            f"--key-size={self.key_size}",
            f"--val-size={self.value_size}",
            f"--total={self.total}",
        ]
        words += ["--sequential-keys"] if self.sequential_keys else []
        return " ".join(map(shlex.quote, words))
