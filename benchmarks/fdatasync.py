"""A journal as etcd writes one: small appends, each followed by fdatasync."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from cbt_crypto.benchmarks import base
from cbt_crypto.benchmarks.base import ClusterCommands, WrapClient
from cbt_crypto.benchmarks.drive import FileSystemScenario, FioOnDrive, capacity
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostScripts, Site

#: MiB of a file system beside what is in it.
_ROOM_MB = 300


class Fdatasync(FioOnDrive, FileSystemScenario):
    """One fio that appends to a file and calls fdatasync after each write."""

    name: ClassVar[str] = "fdatasync"

    op_size: int = Field(2300, ge=1, le=1 << 30, description="bytes of one write")
    size: int = Field(22, ge=1, le=1 << 30, description="MiB that are written in one loop")
    loops: int = Field(10, ge=1, le=1_000_000, description="times they are written")

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """Room for the file."""
        (drive,) = site.drives
        return (*super().requirements(site), capacity(drive, self.size + _ROOM_MB))

    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        """fio in the file system; what it opens is noted meanwhile."""
        (drive,) = site.drives
        fio = wrap(drive.host, f"$SUDO {self.fio_command(drive.mount_point)}")
        work = (
            self.watch(site, drive),
            base.run(0, fio),
            "wait",
        )
        cell = self.mounted(drive, site.tmp_dir, "\n".join(work))
        return {drive.host: f"cd {shlex.quote(run_dir)}\n{cell}"}

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
