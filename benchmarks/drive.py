"""Scenarios on a drive without Ceph: what they share, such as a file system, and the raw device."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar, Literal, Optional

from pydantic import Field

from cbt_crypto.benchmarks import base
from cbt_crypto.benchmarks.age import Aged
from cbt_crypto.benchmarks.base import ClientProcess, ClusterCommands, Scenario, Volume, WrapClient
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, lvm_and_md, opened_on_host
from cbt_crypto.hosts.requirement import Requirement, engine_of_fio, program_needed
from cbt_crypto.hosts.site import Drive, HostScripts, Site

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
    sentence = f"drive {drive.name} is smaller than size: {size_mb} (MiB); lower it"
    script = shell.call(__file__, "has_room", str(size_mb), sentence, *drive.devices)
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
        program = program_needed(f"mkfs.{self.filesystem}", (drive.host,))
        return (*super().requirements(site), program)

    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        """Do `work` in a fresh file system on the drive, with the caches dropped."""
        (drive,) = site.drives
        mount_point = shlex.quote(drive.mount_point)
        text = (
            f"cd {shlex.quote(run_dir)}",
            "PATH=$PATH:/usr/sbin:/sbin",
            f"mkdir -p {mount_point}",
            destroy.file_system(site.tmp_dir, self.filesystem, drive.path, drive.mount_point),
            f"trap '$SUDO umount {mount_point}' EXIT",
            DROP_CACHES,
            *self.work(site, drive, wrap),
        )
        return {drive.host: "\n".join(text)}

    def work(self, site: Site, drive: Drive, wrap: WrapClient) -> Sequence[str]:
        """Shell text that works below the drive's mount point, in the directory of a run."""
        raise NotImplementedError


#: MiB that LUKS's header takes of a device, and MD's superblock: the last of a drive is not ours.
_HEADER_MB = 32


class RawDevice(FioOnDrive, Aged):
    """One fio process straight on a drive, with direct IO and the caches dropped before it."""

    name: ClassVar[str] = "raw_device"

    mode: Literal["write", "randwrite", "read", "randread"] = Field(
        "randread", description="fio's rw"
    )
    op_size: base.OpSize = Field(4096, description="bytes of one IO")
    iodepth: int = Field(1, ge=1, le=65536, description="IOs in flight")
    ioengine: Literal["libaio", "io_uring"] = Field(
        "libaio", description="how fio asks the kernel for IO"
    )
    size: int = Field(16384, ge=4, le=1 << 30, description="MiB that are worked on, from 1 MiB on")
    prefill: bool = Field(
        True, description="write them once from end to end before the drive is measured"
    )

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """Room for `size` beside a header, and fio's engine."""
        (drive,) = site.drives
        return (
            *super().requirements(site),
            capacity(drive, self.size + _HEADER_MB),
            engine_of_fio(self.fio_cmd, self.ioengine, (drive.host,)),
        )

    def volumes(self, site: Site) -> tuple[Volume, ...]:
        """What is filled of the drive."""
        if not self.prefill and not self.passes:
            return ()
        return tuple(
            Volume(
                name=f"{drive.path} {self.size}{self.contents}",
                pool="",
                client=drive.host,
                size_mb=self.size,
                device=drive.path,
                tmp_dir=site.tmp_dir,
                passes=int(self.prefill) + self.passes,
            )
            for drive in site.drives
        )

    def prefill_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        """One large sequential write, as unwritten blocks read too fast; then preconditioning."""
        fill = [{"rw": "write", "bs": 1 << 20}] if self.prefill else []
        texts = {}
        for volume in volumes:
            passes = (self._one_pass(job, volume) for job in (*fill, *self.overwrites))
            guard = destroy.overwrite(volume.tmp_dir, volume.device)
            texts[volume.client] = "\n".join((f"cd {shlex.quote(run_dir)}", guard, *passes))
        return texts

    def _one_pass(self, what: base.Job, volume: Volume) -> str:
        job = {**self._base(volume.device, "prefill"), **what, "iodepth": 16}
        fio = f"$SUDO {base.command(self.fio_cmd, job)}"
        return f"{fio} > prefill.out 2>&1 || {{ tail -n 5 prefill.out >&2; exit 1; }}"

    def _base(self, path: str, name: str) -> base.Job:
        engine = {"ioengine": self.ioengine, "direct": 1, "invalidate": 1}
        # The first MiB says that the drive is ours, until the end: fio stays behind it.
        # A colon would end the name of one file for fio.
        file = path.replace(":", "\\:")
        return {"name": name, "filename": file, "size": f"{self.size}M", "offset": "1M", **engine}

    def in_flight(self, site: Site) -> Optional[int]:
        """Of its one process."""
        return self.iodepth

    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        """Drop the caches, then fio; what it opens is noted meanwhile."""
        (drive,) = site.drives
        fio = wrap(drive.host, f"$SUDO {self.fio_command(drive.path)}")
        lines = (
            f"cd {shlex.quote(run_dir)}",
            DROP_CACHES,
            destroy.overwrite(site.tmp_dir, drive.path),
            self.watch(site, drive),
            base.run(0, fio),
            "wait",
        )
        return {drive.host: "\n".join(lines)}

    def fio_command(self, path: str) -> str:
        """The fio that measures, on the device at `path`."""
        job = {
            **self._base(path, f"raw-{self.mode}"),
            "rw": self.mode,
            "bs": self.op_size,
            "iodepth": self.iodepth,
            "time_based": None,
            "runtime": self.measured_s,
            "ramp_time": self.ramp,
            **base.results(0, self.log_avg_msec),
        }
        return base.command(self.fio_cmd, job)
