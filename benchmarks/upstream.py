"""Benchmarks that upstream CBT runs by itself, named in a campaign's file by upstream's names.

Their options are upstream's, passed on as they are; here is only what a campaign must know.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Optional

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self, TypeGuard, override

from cbt_crypto.archive.documents import KEPT
from cbt_crypto.benchmarks.base import ClientProcess, OpSize, Scenario, Volume
from cbt_crypto.benchmarks.rbd import NEEDS_KRBD, kernel_needed, needs_module
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, rbd_images
from cbt_crypto.hosts.requirement import Requirement, program_needed
from cbt_crypto.hosts.site import Site


class OfUpstream(Scenario):
    """A benchmark of upstream CBT's own: it needs a checkout, named by `--cbt`."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, strict=True)

    #: The program that loads the cluster, and the option that gives the path of another.
    program: ClassVar[str]
    program_option: ClassVar[str] = "cmd_path"
    #: How its results are read: `results.process_output`.
    kind: ClassVar[str] = "fio"
    #: What upstream waits for by default, turned off unless the file says otherwise.
    defaults: ClassVar[Mapping[str, Any]] = {}
    #: What upstream's object has besides its options.
    attributes: ClassVar[Mapping[str, Any]] = {}
    #: Options that are none of upstream's.
    ours: ClassVar[frozenset[str]] = frozenset({"configuration"})
    #: Options that cells without them are not named by, as before there were any.
    unnamed: ClassVar[frozenset[str]] = frozenset()
    #: Options that are mappings for upstream.
    mappings: ClassVar[tuple[str, ...]] = ("prefill",)
    #: In a command line of `program`: the number that upstream puts into file names, if any.
    volume_pattern: ClassVar[str] = "()"
    #: Of the files with results, before the number: upstream makes JSON of it where it can.
    results: ClassVar[str] = "json_output"
    #: Whether upstream's `initialize` makes nothing, and whether `prefill` is another step.
    initialize_only_waits: ClassVar[bool] = False
    fills_apart: ClassVar[bool] = False
    #: Whether `program` is started by upstream on clients, and its ending is noted.
    is_noted: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_value_each(self) -> Self:
        for key, value in (self.model_extra or {}).items():
            if isinstance(value, dict) and key not in self.mappings:
                raise ValueError(f"{key} is a mapping; give one value, or a list of values")
        return self

    @property
    def path(self) -> str:
        """The program, where the file gives a path; else its name."""
        return str((self.model_extra or {}).get(self.program_option, self.program))

    def options(self) -> dict[str, Any]:
        """The options for upstream's object."""
        return {**self.defaults, **self.model_dump(mode="json", exclude=set(self.ours))}

    @model_serializer(mode="wrap")
    def _named(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        options: dict[str, Any] = handler(self)
        return {k: v for k, v in options.items() if v is not None or k not in self.unnamed}

    def adapt(self, theirs: Any) -> None:
        """Set what upstream's object has besides its options."""
        for name, value in self.attributes.items():
            setattr(theirs, name, value)

    def mounted(self, site: Site, rbd: str) -> Mapping[Volume, str]:
        """Images to be made for upstream -> text that mounts and fills one, for its client."""
        return {}

    def before(self) -> Optional[str]:
        """What each client runs before a cell; None for nothing."""
        return None

    def guard(self, tmp_dir: str) -> str:
        """Shell text that fails on a client whose devices must not be overwritten."""
        return ""

    def after(self, tmp_dir: str) -> str:
        """Shell text that tears down on clients what upstream leaves there."""
        return ""

    def phases(self) -> tuple[tuple[str, str], ...]:
        """What one run does, one after another: a word of the command line, and the folder."""
        return (("", ""),)

    def is_load(self, words: str) -> bool:
        """Whether a process of `program` with these arguments loads the cluster."""
        return True

    def volume_numbers(self) -> tuple[str, ...]:
        """The numbers that upstream gives to the processes of each client: none to a single one."""
        return ("",)

    def required_programs(self) -> Sequence[str]:
        """The one that loads the cluster."""
        return (self.path,)

    @property
    @override
    def needs_rbd_engine(self) -> bool:
        return False

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """All processes, on every client."""
        return tuple(ClientProcess(h, n) for h in site.clients for n in self.volume_numbers())


class Radosbench(OfUpstream):
    """Upstream CBT's rados bench: writes, then reads what was written; its options are taken."""

    name: ClassVar[str] = "radosbench"
    program: ClassVar[str] = "rados"
    kind: ClassVar[str] = "rados_bench"
    volume_pattern: ClassVar[str] = r"--run-name\s+\S*-(\d+)(?:\s|$)"
    initialize_only_waits: ClassVar[bool] = True

    concurrent_procs: int = Field(1, ge=1, le=1000, description="processes on each client")
    concurrent_ops: int = Field(16, ge=1, le=65536, description="IOs in flight per process")
    op_size: int = Field(4194304, ge=512, le=1 << 30, description="bytes of one IO")
    write_only: bool = Field(False, description="do not read afterwards")
    readmode: Literal["seq", "rand"] = Field("seq", description="how objects are read")

    mode: Literal["write", "rw"] = Field(
        "rw", description="what it does, for the tables; `write_only` decides"
    )

    @model_validator(mode="before")
    @classmethod
    def _mode_of_write_only(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("write_only") is True:
            return {**given, "mode": "write"}
        return given

    def phases(self) -> tuple[tuple[str, str], ...]:
        """Writes, and reads unless `write_only`."""
        modes = ("write",) if self.write_only else ("write", self.readmode)
        return tuple((mode, f"{mode}/") for mode in modes)

    def is_load(self, words: str) -> bool:
        """Whether it is the load: upstream also asks rados for its version."""
        return " bench " in f" {words} "

    def volume_numbers(self) -> tuple[str, ...]:
        """One for each process."""
        return tuple(str(n) for n in range(self.concurrent_procs))


class Kept(OfUpstream):
    """A benchmark whose output is kept in the archive, and not read: the report says so."""

    kind: ClassVar[str] = KEPT
    mappings: ClassVar[tuple[str, ...]] = ("prefill", "auth", "workloads")


class Hsbench(Kept):
    """Upstream CBT's hsbench on gateways that are there: S3."""

    name: ClassVar[str] = "hsbench"
    program: ClassVar[str] = "hsbench"
    fills_apart: ClassVar[bool] = True


class Getput(Kept):
    """Upstream CBT's getput on gateways that are there: Swift."""

    name: ClassVar[str] = "getput"
    program: ClassVar[str] = "getput"


class Elbencho(Kept):
    """Upstream CBT's elbencho on gateways that are there: S3. Only later checkouts have it."""

    name: ClassVar[str] = "elbencho"
    program: ClassVar[str] = "elbencho"


class Cosbench(Kept):
    """Upstream CBT's COSBench on gateways that are there, by the controller that it names."""

    name: ClassVar[str] = "cosbench"
    #: What asks the controller, which has no program of its own on clients.
    program: ClassVar[str] = "curl"
    is_noted: ClassVar[bool] = False


_NEEDS_FUSE = shell.call(__file__, "has_fuse")
#: Drivers of CBT's client endpoints -> what a client lacks for it, or ok.
DRIVERS: Mapping[str, str] = {
    "librbd": "echo ok",
    "rbd-kernel": NEEDS_KRBD,
    "rbd-nbd": needs_module("nbd", "block/nbd0", "network block devices", "driver"),
    "rbd-fuse": _NEEDS_FUSE,
    "cephfs-fuse": _NEEDS_FUSE,
    "cephfs-kernel": shell.call(__file__, "has_cephfs"),
}
#: Of drivers, what a client starts.
_STARTED: Mapping[str, tuple[str, ...]] = {
    "librbd": (),
    "rbd-kernel": ("mkfs.xfs", "rbd"),
    "rbd-nbd": ("mkfs.xfs", "rbd-nbd"),
    "rbd-fuse": ("mkfs.xfs", "rbd-fuse"),
    "cephfs-fuse": ("ceph-fuse",),
    "cephfs-kernel": ("mount.ceph",),
}


class UpstreamFio(OfUpstream):
    """fio, with a process for each number in the names of its logs."""

    program: ClassVar[str] = "fio"
    # With bins, so that percentiles of several processes can be had.
    attributes: ClassVar[Mapping[str, Any]] = {"fio_out_format": "json+,normal"}

    op_size: OpSize = Field(4194304, description="bytes of one IO")
    mode: str = Field("write", pattern="^[a-z]+$", description="fio's rw")
    iodepth: int = Field(16, ge=1, le=65536, description="IOs in flight per fio process")


class Fio(UpstreamFio):
    """Upstream CBT's fio on client endpoints: RBD images, XFS on such images, or CephFS."""

    name: ClassVar[str] = "fio"
    volume_pattern: ClassVar[str] = r"--name=\S*-(\d+)-\d+(?:\s|$)"
    fills_apart: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"time_based": True, "log_avg_msec": 1000}
    ours: ClassVar[frozenset[str]] = frozenset({"configuration", "mds_hosts"})
    unnamed: ClassVar[frozenset[str]] = frozenset({"mds_hosts"})

    client_endpoints: str = Field(description="a name of CBT's section client_endpoints")
    driver: Literal[
        "librbd", "rbd-kernel", "rbd-nbd", "rbd-fuse", "cephfs-fuse", "cephfs-kernel"
    ] = Field(description="taken from the section client_endpoints")
    mds_hosts: Optional[str] = Field(
        None, description="taken from cluster.mdss, for CephFS that is made; with commas"
    )
    endpoints_per_client: int = Field(
        1, ge=1, le=1000, description="taken from the section client_endpoints"
    )

    @property
    @override
    def needs_rbd_engine(self) -> bool:
        return self.driver == "librbd"

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        driver = self.driver
        needs = kernel_needed(driver, DRIVERS[driver], _STARTED[driver], site.clients)
        if self.mds_hosts:
            needs.append(program_needed("ceph-mds", tuple(self.mds_hosts.split(","))))
        return needs

    @override
    def after(self, tmp_dir: str) -> str:
        return "" if self.driver == "librbd" else rbd_images.unmount_below(f"{tmp_dir}/mnt")

    def volume_numbers(self) -> tuple[str, ...]:
        """One process for each endpoint."""
        return tuple(str(n) for n in range(self.endpoints_per_client))


#: A path that no shell and no program takes for more than one; /dev/shm has no devices.
_DEVICE = re.compile(r"/dev/(?!shm/)(\w[\w.:+=@-]*/)*\w[\w.:+=@-]*", re.ASCII)


class OnDevices(UpstreamFio):
    """fio on block devices of the clients, which upstream overwrites without a question."""

    program_option: ClassVar[str] = "fio_cmd"
    ours: ClassVar[frozenset[str]] = frozenset({"configuration", "wipe"})
    volume_pattern: ClassVar[str] = r"--write_\w+_log=\S*/output\.(\d+)"

    block_devices: str = Field(
        "/dev/vdb", description="block devices of each client, with commas; they are overwritten"
    )
    concurrent_procs: int = Field(
        0, ge=0, le=1000, description="processes on each client; one for each device when 0"
    )
    wipe: bool = Field(False, description="overwrite devices that carry data")

    @field_validator("block_devices")
    @classmethod
    def _paths(cls, value: str) -> str:
        for device in value.split(","):
            if not _DEVICE.fullmatch(device.strip()):
                raise ValueError("takes paths of devices below /dev/, with commas between them")
        return value

    @model_validator(mode="after")
    def _named_by_a_log(self) -> Self:
        extra = self.model_extra or {}
        if not any(extra.get(f"log_{kind}", True) for kind in ("iops", "bw", "lat")):
            raise ValueError("one of log_iops, log_bw and log_lat has to stay on")
        return self

    @property
    @override
    def devices(self) -> tuple[str, ...]:
        return tuple(device.strip() for device in self.block_devices.split(","))

    @override
    def options(self) -> dict[str, Any]:
        return {**super().options(), "concurrent_procs": len(self.volume_numbers())}

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        """What proves OSDs' devices proves these; they are noted when the run begins."""
        asked = replace(site, wipe=self.wipe, discard=False)
        return [
            destroy.device_guard(asked, host, device, destroy.BLOCK_DEVICES)
            for host in site.clients
            for device in self.devices
        ]

    @override
    def guard(self, tmp_dir: str) -> str:
        """Claim devices that are unused, the ones seen before, and blank unless `wipe`."""
        return destroy.lend(tmp_dir, self.devices)

    @override
    def after(self, tmp_dir: str) -> str:
        return destroy.empty(tmp_dir, self.devices)

    def volume_numbers(self) -> tuple[str, ...]:
        """One for each process."""
        return tuple(str(n) for n in range(self.concurrent_procs or len(self.devices)))


class Rawfio(OnDevices):
    """Upstream CBT's fio on block devices of the clients."""

    name: ClassVar[str] = "rawfio"


class Kvmrbdfio(OnDevices):
    """Upstream CBT's fio on ext4, which it makes on block devices of the clients."""

    name: ClassVar[str] = "kvmrbdfio"
    results: ClassVar[str] = "output"


#: Upstream's name for rbdfio's pool, and the beginning of that of its images.
_KERNEL = "cbt-kernelrbdfio"


class Rbdfio(UpstreamFio):
    """Upstream CBT's fio on XFS on an image a client, which the kernel has mapped.

    Ours takes the place of its preparation, which maps by the cluster in /etc/ceph.
    """

    name: ClassVar[str] = "rbdfio"
    results: ClassVar[str] = "output"
    initialize_only_waits: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"log_avg_msec": 1000}
    # Upstream's own sets it for every mapped image of a client, also for other people's.
    attributes: ClassVar[Mapping[str, Any]] = {"set_client_param": lambda *_: None}

    concurrent_procs: int = Field(1, ge=1, le=1000, description="files of each client's fio")
    vol_size: int = Field(65536, ge=2048, le=1 << 30, description="MiB of each client's image")
    client_ra: int = Field(128, ge=0, le=1 << 20, description="KiB that the kernel reads ahead")

    @override
    def adapt(self, theirs: Any) -> None:
        super().adapt(theirs)
        theirs.names = f"--output-format=json+ {theirs.names}"
        # Upstream's own gives each file the size of all.
        theirs.vol_size = self.vol_size // self.concurrent_procs

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        return kernel_needed("krbd", NEEDS_KRBD, _STARTED["rbd-kernel"], site.clients)

    @override
    def mounted(self, site: Site, rbd: str) -> Mapping[Volume, str]:
        size = int(self.vol_size // self.concurrent_procs * 0.9)
        fill = f"{shlex.quote(self.path)} --ioengine=libaio --rw=write --bs=4M --size={size}M"
        names = (f'--name="$place/{_KERNEL}-{n}"' for n in range(self.concurrent_procs))
        place = f"{site.tmp_dir}/mnt/{_KERNEL}-$(hostname -s)"
        fill = f"{fill} {' '.join(names)} > /dev/null"
        images = [Volume(f"{_KERNEL}-{h}", _KERNEL, h, self.vol_size) for h in site.clients]
        how = (site, rbd, self.client_ra, place, fill)
        return {image: rbd_images.mount_filled(image.pool, image.name, *how) for image in images}

    @override
    def after(self, tmp_dir: str) -> str:
        return rbd_images.detach_all(tmp_dir)


class Librbdfio(OfUpstream):
    """Upstream CBT's fio on RBD images; every option of upstream's is taken."""

    name: ClassVar[str] = "librbdfio"
    program: ClassVar[str] = "fio"
    volume_pattern: ClassVar[str] = r"--rbdname=\S*-(\d+)(?:\s|$)"
    defaults: ClassVar[Mapping[str, Any]] = {
        "time_based": True,
        "idle_monitor_sleep": 0,
        "wait_pgautoscaler_timeout": 0,
        "log_avg_msec": 1000,
        # With bins, so that percentiles of several processes can be had.
        "fio_out_format": "json+,normal",
    }
    ours: ClassVar[frozenset[str]] = frozenset({"configuration", "pre_workload_script", "workload"})
    unnamed: ClassVar[frozenset[str]] = frozenset(
        {"workload", "pre_workload_script", "total_iodepth"}
    )

    workload: Optional[str] = Field(
        None, description="the workload's name; filled in where the section has `workloads`"
    )
    pre_workload_script: Optional[str] = Field(
        None, description="command that each client runs before each cell"
    )
    total_iodepth: Optional[int] = Field(
        None, ge=1, le=1 << 20, description="IOs in flight on each client, divided among volumes"
    )
    volumes_per_client: int = Field(1, ge=1, le=1000, description="images on each client")
    vol_size: int = Field(16384, ge=4, le=1 << 30, description="MiB of each image")
    iodepth: int = Field(16, ge=1, le=65536, description="IOs in flight per fio process")
    op_size: OpSize = Field(4194304, description="bytes of one IO")
    mode: str = Field("write", pattern="^[a-z]+$", description="fio's rw")

    @model_validator(mode="before")
    @classmethod
    def _depth_of_total(cls, given: Any) -> Any:
        """`iodepth` is what a volume gets of `total_iodepth`, which wins for upstream too."""
        if not isinstance(given, dict):
            return given
        total, volumes = given.get("total_iodepth"), given.get("volumes_per_client", 1)
        if not _is_count(total) or not _is_count(volumes):
            return given
        return {**given, "iodepth": total // min(volumes, total)}

    def options(self) -> dict[str, Any]:
        """Without the depth of one volume where that of all is given."""
        options = super().options()
        if self.total_iodepth is not None:
            del options["iodepth"]
        return options

    @property
    @override
    def needs_rbd_engine(self) -> bool:
        return True

    def before(self) -> Optional[str]:
        """What each client runs before a cell."""
        return self.pre_workload_script

    def volume_numbers(self) -> tuple[str, ...]:
        """One process for each image; upstream uses fewer where the total depth is less."""
        volumes = min(self.volumes_per_client, self.total_iodepth or self.volumes_per_client)
        return tuple(str(n) for n in range(volumes))


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
