"""What scenarios that work on a drive without Ceph have in common, such as a file system."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from cbt_crypto.benchmarks.base import ClientProcess, Scenario
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, lvm_and_md, opened_on_host
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Drive, Site

#: Seconds in which the measuring process must have opened its drive.
_OPENS_WITHIN = 60
DROP_CACHES = "sync; echo 3 | $SUDO tee /proc/sys/vm/drop_caches > /dev/null"


class DriveScenario(Scenario):
    """Works on one drive of `cluster.drives`, on that drive's host."""

    needs_cluster: ClassVar[bool] = False
    #: The program whose open devices prove what was measured, as the kernel calls it.
    measuring: ClassVar[str] = "fio"

    drive: str = Field(description="names from cluster.drives; all of them when absent")

    @property
    def drive_name(self) -> str:
        """The key of `cluster.drives` that it works on."""
        return self.drive

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """mdadm, where the drive is an array."""
        (drive,) = site.drives
        return (lvm_and_md.requirement(drive),) if drive.array else ()

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """One, on the drive's host."""
        return tuple(ClientProcess(drive.host, "0") for drive in site.drives)

    def watch(self, site: Site, drive: Drive) -> str:
        """Shell text that notes, in the background, what the measuring process has open."""
        parameters = {
            "program": self.measuring,
            "mark": f"{site.tmp_dir}@{drive.host}",
            "folder": drive.mount_point,
            "note": drive.note,
            "seconds": _OPENS_WITHIN,
        }
        note = shlex.quote(drive.note)
        look = shell.python(shell.program(opened_on_host), parameters)
        return f"$SUDO rm -f {note}\n(\n{look}) &"


class FioOnDrive(DriveScenario):
    """One fio is what measures."""

    log_avg_msec: int = Field(
        1000, ge=1, le=3_600_000, description="milliseconds that each line of fio's logs averages"
    )
    fio_cmd: str = Field("fio", alias="cmd_path", description="command for fio(1)")

    def required_programs(self) -> Sequence[str]:
        """fio, by the name that the file gives its command."""
        return (self.fio_cmd,)


def capacity(drive: Drive, size_mb: int) -> Requirement:
    """A drive of at least `size_mb` MiB, going by its devices."""
    devices = " ".join(map(shlex.quote, drive.devices))
    sentence = f"drive {drive.name} is smaller than size: {size_mb} (MiB); lower it"
    script = f"""\
total=0
for device in {devices}; do
    bytes=$(lsblk -bdnro SIZE "$device" 2>/dev/null) || bytes=0
    total=$((total + ${{bytes:-0}}))
done
[ $((total >> 20)) -ge {size_mb} ] && echo ok || echo {shlex.quote(sentence)}; :"""
    return Requirement(f"size of drive {drive.name}", (drive.host,), script)


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
