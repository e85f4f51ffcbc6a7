"""Scenarios that work in a file system, made and mounted on their drive for each cell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from cbt_crypto.benchmarks.drive.base import DROP_CACHES, DriveScenario
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Drive, Site


class FileSystemScenario(DriveScenario):
    """Works in a fresh file system. The work is counted and not timed."""

    time: int = Field(300, ge=1, le=2_592_000, description="seconds that it may take at most")
    ramp: int = Field(0, ge=0, le=0, description="0: the work is counted and not timed")
    mode: Literal["write"] = Field("write", description="it writes")
    filesystem: Literal["ext4", "xfs"] = Field("ext4", description="what is made on the drive")

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """What makes the file system."""
        (drive,) = site.drives
        package = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}[self.filesystem]
        program = f"mkfs.{self.filesystem}"
        script = (
            f"PATH=$PATH:/usr/sbin:/sbin\ncommand -v {program} > /dev/null && echo ok || "
            f"echo '{program} is missing; install {package}'"
        )
        return (*super().requirements(site), Requirement(program, (drive.host,), script))

    def mounted(self, drive: Drive, tmp_dir: str, work: str) -> str:
        """Shell text that does `work` in a fresh file system on the drive, caches dropped."""
        path, mount_point = shlex.quote(drive.path), shlex.quote(drive.mount_point)
        return "\n".join(
            (
                "PATH=$PATH:/usr/sbin:/sbin",
                destroy.file_system(tmp_dir, self.filesystem, drive.path),
                f"mkdir -p {mount_point}",
                f"$SUDO mount {path} {mount_point}",
                f"trap '$SUDO umount {mount_point}' EXIT",
                DROP_CACHES,
                work,
            )
        )
