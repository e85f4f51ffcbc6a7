"""fio on RBD images: by librbd in the scenarios of the article and of kbench, and by the kernel."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Optional

from pydantic import Field, model_validator
from typing_extensions import Self, override

from cbt_crypto.benchmarks import base
from cbt_crypto.benchmarks.age import Aged
from cbt_crypto.benchmarks.base import (
    CacheState,
    ClientProcess,
    ClusterCommands,
    Volume,
    WrapClient,
)
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.ceph_conf import ADMIN
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.requirement import Requirement, program_needed
from cbt_crypto.hosts.site import HostScripts, Site

Mode = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]

_MIB = 1 << 20


class RbdFio(Aged):
    """fio processes on RBD volumes. Subclasses say how many, where, and how deep."""

    volumes_per_client: int = Field(1, ge=1, le=1000, description="volumes on each client")
    iodepth: int = Field(1, ge=1, le=65536, description="IOs in flight per fio process")
    total_iodepth: Optional[int] = Field(
        None, ge=1, le=1 << 20,
        description="IOs in flight on each client, shared out among its volumes, instead of "
        "iodepth; CBT's key",
    )  # fmt: skip
    data_pool_profile: Optional[str] = Field(
        None, description="pool profile of the volumes' data, also the pool's name, e.g. an "
        "erasure-coded one; if the same as pool_profile, there is no second pool; CBT's key",
    )  # fmt: skip
    rate: base.Rate = Field(
        "max", description="IOPS of all processes together: as many as they can (max), a number, "
        "or percent of what the baseline did at max, e.g. [max, 50%]: an equal rate for all",
    )  # fmt: skip
    vol_size: int = Field(
        16384, ge=4, le=1 << 30, description="size of each volume in MiB, which CBT calls MB"
    )
    order: int = Field(22, ge=12, le=26, description="objects of a volume have 2**order bytes")
    op_size: base.OpSize = Field(4096, description="bytes of one IO")
    mode: Mode = Field(
        "randread", description="fio's rw: sequential or random, reads or writes or a mix"
    )
    rwmixread: int = Field(50, ge=0, le=100, description="percent of reads in mixed modes")
    compressible: Optional[int] = Field(
        None, ge=0, le=100, description="percent of what is written that compresses away; fio's "
        "own data, which does not compress, when absent",
    )  # fmt: skip
    numjobs: int = Field(1, ge=1, le=256, description="fio jobs in each process")
    prefill: bool = Field(True, description="write each volume once from end to end before use")
    prefill_op_size: int = Field(
        4 * _MIB, ge=4096, le=1 << 30, multiple_of=512,
        description="bytes of one write of the prefill",
    )  # fmt: skip
    prefill_iodepth: int = Field(
        16, ge=1, le=65536, description="writes of the prefill in flight, per volume"
    )
    cache: CacheState = Field(
        "drop",
        description="the OSDs' caches before each cell: emptied (drop), filled by reading every "
        "volume once (warm), or left as they are (as_is); with use_existing as_is when absent",
    )
    recovery: Optional[int] = Field(
        None, ge=1, le=86_400,
        description="seconds after the ramp at which an OSD is marked out; when all placement "
        "groups are clean it is marked in, and when they are clean again the recovery ends",
    )  # fmt: skip
    scrub: Optional[int] = Field(
        None, ge=1, le=86_400,
        description="seconds after the ramp at which a scrub of every placement group starts",
    )  # fmt: skip
    deep_scrub: Optional[int] = Field(
        None, ge=1, le=86_400, description="seconds after the ramp at which a deep scrub starts"
    )
    log_avg_msec: int = Field(
        1000, ge=1, le=3_600_000, description="milliseconds that each line of fio's logs averages"
    )
    fio_cmd: str = Field("fio", alias="cmd_path", description="command for fio(1)")

    @model_validator(mode="after")
    def _one_disturbance(self) -> Self:
        if sum(each is not None for each in (self.recovery, self.scrub, self.deep_scrub)) > 1:
            raise ValueError("takes one of recovery, scrub and deep_scrub; measure others apart")
        return self

    @property
    def disturbance(self) -> Optional[tuple[base.Disturbance, int]]:
        """What the file says of `recovery`, `scrub` or `deep_scrub`."""
        kinds: tuple[base.Disturbance, ...] = ("recovery", "scrub", "deep_scrub")
        return next(((kind, s) for kind in kinds if (s := getattr(self, kind)) is not None), None)

    @property
    def target_rate(self) -> base.Rate:
        """What the file says of `rate`."""
        return self.rate

    def required_programs(self) -> Sequence[str]:
        """fio, with the rbd engine."""
        return (self.fio_cmd,)

    def volumes(self, site: Site) -> tuple[Volume, ...]:
        """`volumes_per_client` for each client; scenarios share those of the same size."""
        data = site.pool(self.data_pool) if self.data_pool else ""
        suffix = f"-{data}" if data else ""
        suffix += f"-{site.group}" if site.group else ""
        suffix += self.contents
        suffix += "" if self.compressible is None else f"-compressible-{self.compressible}"
        return tuple(
            Volume(
                f"cbt-{host}-{n}-{self.vol_size}{suffix}",
                site.pool(self.pool_profile),
                host,
                self.vol_size,
                data_pool=data,
                passes=int(self.prefill) + self.passes,
            )
            for host in self.active_clients(site.clients)
            for n in range(self.volumes_per_client)
        )

    @property
    def data_pool(self) -> str:
        """What the file says of `data_pool_profile`, where that is another than the headers'."""
        data = self.data_pool_profile
        return "" if data in (None, self.pool_profile) else str(data)

    def create(self, volumes: Sequence[Volume], commands: ClusterCommands) -> str:
        """`rbd create` for each volume, a few at a time."""
        by_options: dict[str, list[str]] = defaultdict(list)
        for volume in volumes:
            options = f"--size {self.created_mb(volume)} --object-size {1 << self.order}B"
            if volume.data_pool:
                options += f" --data-pool {shlex.quote(volume.data_pool)}"
            by_options[options].append(volume.image)
        return "\n".join(
            rbd_images.create(images, options, commands.rbd, commands.run)
            for options, images in by_options.items()
        )

    def created_mb(self, volume: Volume) -> int:
        """MiB of the image that has `volume.size_mb` for the client."""
        return volume.size_mb

    def prefill_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        """One fio for each volume, all at once; then each pass of the preconditioning."""
        fill = [{"rw": "write", "bs": self.prefill_op_size}] if self.prefill else []
        scripts = self._end_to_end((*fill, *self.overwrites), volumes, run_dir, commands)
        return self.attached(scripts, volumes, commands, formats=True)

    def warm_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        """One fio for each volume, all at once, that reads the whole of it."""
        job = {"rw": "read", "bs": self.prefill_op_size}
        scripts = self._end_to_end((job,), volumes, run_dir, commands)
        return self.attached(scripts, volumes, commands)

    def attached(
        self, scripts: HostScripts, volumes: Sequence[Volume], commands: ClusterCommands,
        formats: bool = False,
    ) -> HostScripts:  # fmt: skip
        """Each script with its host's volumes attached meanwhile, where librbd does not do it."""
        return scripts

    def cache_state(self, site: Site) -> CacheState:
        """As the file has it; a cluster of somebody else's is left alone where it has nothing."""
        is_named = "cache" in self.model_fields_set
        if not is_named and any(osd.is_existing for osd in site.osds):
            return "as_is"
        return self.cache

    def _end_to_end(
        self, jobs: Sequence[base.Job], volumes: Sequence[Volume], run_dir: str,
        commands: ClusterCommands,
    ) -> HostScripts:  # fmt: skip
        """Each job on all volumes at once, one job after another; nothing without jobs."""
        if not jobs:
            return {}
        texts = {}
        for host, of_client in _by_client(volumes).items():
            lines = [f"cd {shlex.quote(run_dir)}"]
            for job in jobs:
                passes = (self._one_pass(job, volume, commands) for volume in of_client)
                lines += ["pids=", *passes, _WAIT_FOR_ALL]
            texts[host] = "\n".join(lines)
        return texts

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """One for each volume."""
        return tuple(
            ClientProcess(host, str(n))
            for host in self.active_clients(site.clients)
            for n in range(len(self.depths))
        )

    @property
    def depths(self) -> tuple[int, ...]:
        """IOs in flight of each process of a client."""
        return base.depths(self.total_iodepth, self.iodepth, self.volumes_per_client)

    def in_flight(self, site: Site) -> Optional[int]:
        """All depths; below a rate, which is not always as deep, nobody knows."""
        if self.rate != "max":
            return None
        return len(self.active_clients(site.clients)) * sum(self.depths) * self.numjobs

    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        """All processes of a host at once; each leaves its exit status beside its results."""
        by_client = _by_client(self.volumes(site))
        texts = {}
        for host, of_client in by_client.items():
            lines = [f"cd {shlex.quote(run_dir)}"]
            for n, volume in enumerate(of_client[: len(self.depths)]):
                fio = wrap(host, self.fio_command(n, volume, len(by_client), commands))
                lines.append(f"({base.run(n, fio)}) &")
            texts[host] = "\n".join((*lines, "wait"))
        return self.attached(texts, self.volumes(site), commands)

    def fio_command(
        self, n: int, volume: Volume, clients: int = 1,
        commands: Optional[ClusterCommands] = None,
    ) -> str:  # fmt: skip
        """The fio command of one process, with files `*.<n>*`, of no cluster without `commands`.

        `clients` is the number of hosts that run as many processes as this one.
        """
        jobs = clients * len(self.depths) * self.numjobs
        job: dict[str, object] = {
            "rw": self.mode,
            # With a unit, and all before the job's name: so CBT's report tools want it.
            "bs": f"{self.op_size}B",
            "iodepth": self.depths[n],
            "numjobs": self.numjobs,
            "time_based": None,
            "runtime": self.measured_s,
            "ramp_time": self.ramp,
            **base.options(self.rate, jobs, self.mode, self.rwmixread),
            **base.results(n, self.log_avg_msec),
        }
        if self.mode in ("rw", "randrw"):
            job["rwmixread"] = self.rwmixread
            job["rwmixwrite"] = 100 - self.rwmixread
        job["name"] = f"rbd-{self.mode}"
        return self.fio_of(volume, job, commands)

    def _one_pass(self, what: base.Job, volume: Volume, commands: ClusterCommands) -> str:
        job = {
            "name": "prefill",
            **what,
            "iodepth": self.prefill_iodepth,
            "size": f"{volume.size_mb}M",
            "output": f"prefill.{volume.name}",
        }
        fio = self.fio_of(volume, job, commands)
        return f'{fio} >> prefill.{volume.name}.out 2>&1 & pids="$pids $!"'

    def fio_of(self, volume: Volume, job: base.Job, commands: Optional[ClusterCommands]) -> str:
        """The command of a fio that does `job` on a volume, with the environment that it needs."""
        options = {
            "ioengine": "rbd",
            **_client(commands),
            "pool": volume.pool,
            "rbdname": volume.name,
            # With 1, fio turns librbd's cache off, whatever ceph.conf says.
            "direct": 0 if commands and commands.rbd_cache else 1,
            "invalidate": 0,
            **self._buffers(),
            **job,
        }
        fio = base.command(self.fio_cmd, options)
        return f"{commands.environment} {fio}" if commands else fio

    def _buffers(self) -> base.Job:
        """What is written, by every job alike. Refilled, so that no block repeats another."""
        if self.compressible is None:
            return {}
        return {"buffer_compress_percentage": self.compressible, "refill_buffers": None}


#: Behind commands whose ids are in `pids`.
_WAIT_FOR_ALL = """\
for pid in $pids; do
    wait "$pid" || { tail -n 5 prefill.* >&2; exit 1; }
done"""


def _by_client(volumes: Sequence[Volume]) -> Mapping[str, Sequence[Volume]]:
    by_client: dict[str, list[Volume]] = defaultdict(list)
    for volume in volumes:
        by_client[volume.client].append(volume)
    return by_client


def _client(commands: Optional[ClusterCommands]) -> base.Job:
    """fio's options of who it is.

    It would call every cluster ceph, as it lets librados find ceph.conf in the environment, and
    then librados takes no name from it. Where fio names the cluster, the client's name is whole.
    """
    client_id = commands.client_id if commands else ADMIN
    if commands is None or commands.cluster_name == "ceph":
        return {"clientname": client_id}
    return {"clustername": commands.cluster_name, "clientname": f"client.{client_id}"}


class RbdMultiClient(RbdFio):
    """Several fio processes on every client, each on its own volume, all at once."""

    name: ClassVar[str] = "rbd_multi_client"

    volumes_per_client: int = Field(
        10, ge=1, le=1000, description="volumes on each client, with a fio process each"
    )
    iodepth: int = Field(128, ge=1, le=65536, description="IOs in flight per fio process")
    clients: Optional[int] = Field(
        None, ge=1, le=10_000,
        description="how many of cluster.clients run it, from the first on; all when absent. "
        "With baseline: {clients: 1} the report says up to how many throughput grows",
    )  # fmt: skip

    def active_clients(self, clients: Sequence[str]) -> tuple[str, ...]:
        """As many of the file's clients as it names."""
        return tuple(clients[: self.clients])


class RbdSingleClient(RbdFio):
    """One fio process on the first client, with many IOs in flight."""

    name: ClassVar[str] = "rbd_single_client"

    volumes_per_client: int = Field(1, ge=1, le=1000, description="volumes on the client")
    iodepth: int = Field(128, ge=1, le=65536, description="IOs in flight per fio process")

    def active_clients(self, clients: Sequence[str]) -> tuple[str, ...]:
        """The first client of the file alone; the others idle."""
        return tuple(clients[:1])


class RbdSingleClientSync(RbdSingleClient):
    """One fio process on the first client; each IO waits for the one before it."""

    name: ClassVar[str] = "rbd_single_client_sync"

    iodepth: int = Field(1, ge=1, le=65536, description="IOs in flight per fio process")


# What failed first decides how it ends.
_ENCLOSED = """\
(
detach_all() {{
{after}
}}
trap 'status=$?; trap - EXIT; detach_all || [ $status != 0 ] || status=1; exit $status' EXIT
{before}
(
{text}
)
)"""
#: MiB that a file system takes beside a tenth of its file; XFS makes none below 300.
_FILES_MB = 320


def needs_module(module: str, shown: str, what: str, instead: str) -> str:
    """What a client's kernel lacks, or ok; with the module it has `shown` in /sys."""
    return shell.call(__file__, "needs_module", module, f"/sys/{shown}", what, instead)


def kernel_needed(
    name: str, script: str, programs: Sequence[str], clients: tuple[str, ...]
) -> list[Requirement]:
    """What clients need of their kernel, by `needs_module` or a script like it, and programs."""
    needed = (program_needed(program, clients) for program in programs)
    return [Requirement(name, clients, script), *needed]


_INSTEAD = "kernel, or a lab of virtual machines"
#: What a client lacks for the kernel's client, or ok.
NEEDS_KRBD = needs_module("rbd", "bus/rbd", "RBD client", _INSTEAD)
_NEEDS_NBD = needs_module("nbd", "block/nbd0", "network block devices", _INSTEAD)


class OfKernel(RbdSingleClient):
    """One fio process on the first client, on an image that its kernel has mapped."""

    #: Whether rbd-nbd serves the image, and not the kernel's own client; what that needs.
    on_nbd: ClassVar[bool] = False
    client_needs: ClassVar[tuple[str, str, tuple[str, ...]]] = ("krbd", NEEDS_KRBD, ("rbd",))

    filesystem: Optional[Literal["ext4", "xfs"]] = Field(
        None, description="a file system in an image that is mapped to a block device: fio works "
        "on a file in it, which is vol_size large",
    )  # fmt: skip

    @property
    @override
    def takes_encryption(self) -> bool:
        return not self.uses_client_libraries

    @property
    @override
    def uses_client_libraries(self) -> bool:
        return False

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        if self.uses_client_libraries:
            return ()
        name, script, programs = self.client_needs
        programs += (f"mkfs.{self.filesystem}",) if self.filesystem else ()
        return kernel_needed(name, script, programs, site.active_clients)

    @override
    def volumes(self, site: Site) -> tuple[Volume, ...]:
        """Those of an encrypted configuration are others, so that both can be on one cluster."""
        if self.uses_client_libraries:
            return super().volumes(site)
        encryption = site.volume_encryption
        suffix = f"-{self.filesystem}" if self.filesystem else ""
        suffix += f"-{encryption.label}" if encryption else ""
        return tuple(
            replace(
                volume, name=f"{volume.name}-krbd{suffix}", encryption=encryption,
                tmp_dir=site.tmp_dir, conf=site.conf, client_id=site.client_id,
            )
            for volume in super().volumes(site)
        )  # fmt: skip

    @override
    def created_mb(self, volume: Volume) -> int:
        files = volume.size_mb // 10 + _FILES_MB if self.filesystem else 0
        header = volume.encryption.header_mb if volume.encryption else 0
        if volume.encryption and volume.encryption.by_librbd:
            # Its data begin with an object.
            header = max(header, (1 << self.order) // _MIB)
        return volume.size_mb + files + header

    @override
    def attached(
        self, scripts: HostScripts, volumes: Sequence[Volume], commands: ClusterCommands,
        formats: bool = False,
    ) -> HostScripts:  # fmt: skip
        """Detached behind it, whatever fails."""
        if self.uses_client_libraries:
            return scripts
        by_client = _by_client(volumes)
        # A volume that nobody fills gets its header all the same.
        unfilled = dict.fromkeys(by_client, ":") if formats else {}
        texts = {}
        for host, text in {**unfilled, **scripts}.items():
            of_host = by_client[host]
            before = "\n".join(self._attached(of_host, commands, formats))
            after = rbd_images.detach([volume.name for volume in of_host], of_host[0].tmp_dir)
            texts[host] = _ENCLOSED.format(before=before, text=text, after=after)
        return texts

    def _attached(
        self, volumes: Sequence[Volume], commands: ClusterCommands, formats: bool
    ) -> Iterator[str]:
        """A script for each ceph.conf: groups side by side may speak in modes of their own."""
        for conf in dict.fromkeys(volume.conf for volume in volumes):
            of_conf = [volume for volume in volumes if volume.conf == conf]
            images = [rbd_images.Image(v.pool, v.name, v.encryption, self.on_nbd) for v in of_conf]
            place, client_id = of_conf[0].tmp_dir, of_conf[0].client_id
            yield rbd_images.attach(
                images, place, conf, commands.rbd, formats, client_id, self.filesystem
            )

    @override
    def fio_of(self, volume: Volume, job: base.Job, commands: Optional[ClusterCommands]) -> str:
        if self.uses_client_libraries:
            return super().fio_of(volume, job, commands)
        path = rbd_images.file if self.filesystem else rbd_images.path
        options = {
            "ioengine": getattr(self, "ioengine", "libaio"),
            "filename": path(volume.tmp_dir, volume.name),
            "direct": 1,
            "invalidate": 0,
            "size": f"{volume.size_mb}M",
            **self._buffers(),
            **job,
        }
        return f"$SUDO {base.command(self.fio_cmd, options)}"


class RbdKrbd(OfKernel):
    """One fio process on the first client, on an image that the kernel's client has mapped."""

    name: ClassVar[str] = "rbd_krbd"

    ioengine: Literal["libaio", "io_uring"] = Field(
        "libaio", description="how fio asks the kernel for IO"
    )


class RbdNbd(OfKernel):
    """One fio process on the first client, on a block device that librbd serves by rbd-nbd."""

    name: ClassVar[str] = "rbd_nbd"
    on_nbd: ClassVar[bool] = True
    client_needs = ("nbd", _NEEDS_NBD, ("rbd", "rbd-nbd"))

    @override
    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        # The client that overlays confine is rbd-nbd, too.
        rbd = wrap(site.active_clients[0], commands.rbd)
        return super().measure(site, run_dir, replace(commands, rbd=rbd), wrap)


#: Test -> bytes of one IO and IOs in flight.
_KBENCH_TESTS = {"iops": (4096, 64), "bandwidth": (128 << 10, 64), "latency": (4096, 1)}


class RbdKbench(OfKernel):
    """kbench's tests: IOPS (4K, depth 64), bandwidth (128K, 64), latency (4K, 1; in 2021: 4).

    They run over librbd, or with `filesystem` on a file as kbench's own.
    """

    name: ClassVar[str] = "rbd_kbench"

    test: Literal["iops", "bandwidth", "latency"] = Field(
        "iops", description="what is tested; sets op_size and iodepth where the file does not"
    )
    op_size: base.OpSize = Field(4096, description="bytes of one IO; the test's own when absent")
    iodepth: int = Field(
        64, ge=1, le=65536, description="IOs in flight; the test's own when absent"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_the_test_has_it(cls, data: Any) -> Any:
        test = data.get("test", "iops") if isinstance(data, dict) else None
        if not isinstance(test, str) or test not in _KBENCH_TESTS:
            return data
        op_size, iodepth = _KBENCH_TESTS[test]
        return {"op_size": op_size, "iodepth": iodepth, **data}

    @property
    @override
    def uses_client_libraries(self) -> bool:
        return self.filesystem is None
