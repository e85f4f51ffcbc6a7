"""The scenario seam: how clients load a cluster, as pure values like the overlays.

Fields are options of the YAML file. Hooks return shell text. See `docs/write-a-scenario.md`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Optional, Union

from pydantic import BaseModel, ConfigDict, Field

from cbt_crypto.hosts.ceph_conf import ADMIN
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostScripts, Site, VolumeEncryption
from cbt_crypto.results.until import MeasureUntil

#: The baseline's measured maximum is asked for in percent of it.
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)%$")

Iops = Annotated[int, Field(ge=1, le=1 << 40)]
SHARE = r"^(?:0*[1-9]\d?(?:\.\d+)?|0*\.\d+|0*100(?:\.0+)?)%$"
Share = Annotated[str, Field(pattern=SHARE)]
#: `max`, IOPS of all processes together, or percent of what the baseline did at `max`.
Rate = Union[Literal["max"], Iops, Share]
#: Bytes of one IO. Drives have sectors of 512 bytes: 4000 is refused by them, or becomes two IOs.
OpSize = Annotated[int, Field(ge=512, le=1 << 30, multiple_of=512)]


def share_of(rate: Rate) -> Optional[float]:
    """50 % as 0.5; None for a rate that is no percent."""
    match = _PERCENT.match(rate) if isinstance(rate, str) else None
    return float(match[1]) / 100 if match else None


def depths(total: Optional[int], iodepth: int, volumes: int) -> tuple[int, ...]:
    """IOs in flight of each process of a client; a total is shared as CBT does."""
    if total is None:
        return (iodepth,) * volumes
    each, more = divmod(total, volumes)
    by_volume = (each + (n < more) for n in range(volumes))
    return tuple(depth for depth in by_volume if depth)


def options(rate: Rate, processes: int, mode: str, rwmixread: int) -> dict[str, object]:
    """fio's options for the part of one of `processes`, all jobs of all of them alike."""
    if not isinstance(rate, int):
        return {}
    rate_of_process = rate / processes
    if mode in ("rw", "randrw"):
        parts = (rate_of_process * rwmixread / 100, rate_of_process * (100 - rwmixread) / 100)
        return {"rate_iops": ",".join(str(max(1, round(part))) for part in parts)}
    return {"rate_iops": max(1, round(rate_of_process))}


#: (host, shell command) -> the command as the overlays want it started there.
WrapClient = Callable[[str, str], str]

#: The OSDs' caches before a cell: emptied, filled by reading the volumes, or left alone.
CacheState = Literal["drop", "warm", "as_is"]

#: An OSD that goes out and comes back, or a scrub of all placement groups.
Disturbance = Literal["recovery", "scrub", "deep_scrub"]

Seconds = Annotated[int, Field(ge=1, le=2_592_000)]


@dataclass(frozen=True)
class Volume:
    """An image, or drive, that a client process works on. The same name: the same contents."""

    name: str
    pool: str
    client: str
    size_mb: int
    #: The block device that it is on, where it is no image of a cluster.
    device: str = ""
    #: The pool of its data, where that is another one.
    data_pool: str = ""
    #: Where its host keeps the proof that this device is ours.
    tmp_dir: str = ""
    #: How often it is written from end to end before it is measured.
    passes: int = 1
    #: What its client lays over it; and the ceph.conf by which a client maps it, and as whom.
    encryption: Optional[VolumeEncryption] = None
    conf: str = ""
    client_id: str = ADMIN

    @property
    def image(self) -> str:
        """What rbd calls it."""
        return f"{self.pool}/{self.name}"

    @property
    def written_mb(self) -> int:
        """MiB that are written until it is filled, and as old as it is to be."""
        return self.size_mb * self.passes


@dataclass(frozen=True)
class ClientProcess:
    """One client process: host, CBT's number `volume` in its files' names, and `kind` of reader.

    Its results are in `<results>.<volume>`.
    """

    host: str
    volume: str
    kind: str = "fio"
    results: str = "json_output"


@dataclass(frozen=True)
class ClusterCommands:
    """How ceph's own commands are called on this cluster, configuration included."""

    ceph: str
    rbd: str
    environment: str
    #: Who its clients are: `bench` is client.bench; and the name by which they find their keys.
    client_id: str = ADMIN
    cluster_name: str = "ceph"
    #: The run that images say they are of: on a cluster that stays.
    run: str = ""
    #: Seconds that making or removing all images may take.
    images_s: int = 600
    #: Whether librbd's cache was asked for, in the file or in its ceph.conf.
    rbd_cache: bool = False


class Scenario(BaseModel):
    """How clients load the cluster. Options that every scenario has are fields here."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, strict=True, defer_build=True
    )

    #: The name in the YAML file.
    name: ClassVar[str]
    #: Whether it works on a Ceph cluster. None is deployed when no scenario does.
    needs_cluster: ClassVar[bool] = True

    configuration: str = Field(
        description="names from cluster.configurations; all of them when absent"
    )
    pool_profile: str = Field("rbd", description="the pool profile, and the pool's name")
    time: Union[Seconds, MeasureUntil] = Field(
        300,
        description="seconds to measure; or a mapping, to measure until a precision is "
        "reached: {precision: 1%, min: 30, max: 300, block: 10}",
    )
    ramp: int = Field(
        0,
        ge=0,
        le=2_592_000,
        description="seconds of the same workload before `time` begins, which do not count",
    )

    @property
    def takes_encryption(self) -> bool:
        """Whether its clients can encrypt their volumes: `Site.volume_encryption`."""
        return False

    @property
    def uses_client_libraries(self) -> bool:
        """Whether its clients take Ceph from libraries, and not from their kernel."""
        return True

    @property
    def drive_name(self) -> Optional[str]:
        """The drive of `cluster.drives` that it works on; None for a cluster."""
        return None

    @property
    def devices(self) -> tuple[str, ...]:
        """Paths of the clients' own devices that it overwrites; none as a rule."""
        return ()

    @property
    def until(self) -> Optional[MeasureUntil]:
        """When to stop; None for a fixed time."""
        return self.time if isinstance(self.time, MeasureUntil) else None

    @property
    def disturbance(self) -> Optional[tuple[Disturbance, int]]:
        """What the cluster does under the workload, and seconds behind the ramp when it begins."""
        return None

    @property
    def data_pool(self) -> str:
        """The pool profile of its volumes' data; empty where it is that of their headers."""
        return ""

    @property
    def target_rate(self) -> Rate:
        """IOPS of all processes together, as the file asks for them."""
        return "max"

    @property
    def measured_s(self) -> int:
        """Seconds that one run of the workload measures."""
        return self.time.block if isinstance(self.time, MeasureUntil) else self.time

    @property
    def run_s(self) -> int:
        """Seconds that one run of the workload takes: its ramp, and what is measured."""
        return self.ramp + self.measured_s

    @property
    def slowest_fill_mb_per_s(self) -> float:
        """A volume that is filled more slowly than this, beside a deployment's time, is not."""
        return 1.0

    @property
    def settling_s(self) -> int:
        """Seconds of load, at least, before what is measured of a cell."""
        return 0

    def active_clients(self, clients: Sequence[str]) -> tuple[str, ...]:
        """The hosts, of those the campaign names, that run this scenario's processes."""
        return tuple(clients)

    @property
    def needs_rbd_engine(self) -> bool:
        """Whether its program is a fio that must have the rbd engine."""
        return self.needs_cluster

    def required_programs(self) -> Sequence[str]:
        """Programs that must be on each active client."""
        return ()

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """What else hosts must offer; `site` is that of its cells."""
        return ()

    def volumes(self, site: Site) -> tuple[Volume, ...]:
        """The images this scenario needs; made and prefilled when they are not there yet."""
        return ()

    def create(self, volumes: Sequence[Volume], commands: ClusterCommands) -> str:
        """Shell text for the head that makes `volumes`."""
        return ""

    def prefill_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        """Shell text for the clients that fills `volumes` with large writes."""
        return {}

    def cache_state(self, site: Site) -> CacheState:
        """What the OSDs' caches hold when a cell begins."""
        return "as_is"

    def warm_scripts(
        self, volumes: Sequence[Volume], run_dir: str, commands: ClusterCommands
    ) -> HostScripts:
        """Shell text for the clients that reads all of `volumes` once."""
        return {}

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """The client processes of one cell."""
        raise NotImplementedError

    def in_flight(self, site: Site) -> Optional[int]:
        """IOs in flight at any moment, of all processes; None where that is not fixed."""
        return None

    def measure(
        self, site: Site, run_dir: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        """Shell text that runs the processes of one cell on each active client; it exits with 0.

        Results and `run_dir/exit_status.<volume>` have CBT's file names.
        """
        raise NotImplementedError


#: fio's options by name; None for one without a value.
Job = Mapping[str, object]


def command(program: str, job: Job) -> str:
    """The command of one fio, quoted, that runs in a directory of ours."""
    words = [f"--{key}" if value is None else f"--{key}={value}" for key, value in job.items()]
    # Where anybody may make fio-dump-status, anybody has fio print its figures so far as results.
    return " ".join(shlex.quote(word) for word in ("env", "TMPDIR=.", program, *words))


def results(n: int, log_avg_msec: int) -> dict[str, object]:
    """Options for `json_output.<n>` and logs `output.<n>_*`, averaged, with histograms."""
    return {
        # A line a second on its standard output, which `run` below keeps apart.
        "eta": "always",
        "output-format": "json+",
        "output": f"json_output.{n}",
        "log_avg_msec": log_avg_msec,
        "log_hist_msec": log_avg_msec,
        "log_unix_epoch": 1,
        **{f"write_{kind}_log": f"output.{n}" for kind in ("bw", "iops", "lat", "hist")},
    }


def run(n: int, fio: str) -> str:
    """Shell text that runs one fio: `exit_status.<n>`, `output.<n>`, meanwhile `live.<n>`."""
    words = f"tr '\\r' '\\n' < live.{n} | grep -av -e '^Jobs: ' -e '^$' || :; cat errors.{n}"
    return (
        f"s=0; {fio} > live.{n} 2> errors.{n} || s=$?; {{ {words}; }} > output.{n}; "
        f"rm -f live.{n} errors.{n}; echo $s > exit_status.{n}"
    )
