"""What an engine offers, as types: `docs/contract.md` in words that a type checker reads.

An engine is the embedded one or a checkout of upstream CBT; a `BoundStack` says what changes.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Protocol

from typing_extensions import TypedDict

from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.cluster_overlays.stack import BoundStack, Stack
from cbt_crypto.hosts.remote import Execution, Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.cluster import StacksProfile

#: The `cluster` section, as the file and an engine's settings have it.
Section = Mapping[str, object]


class Settings(Protocol):
    """The campaign's file as dicts."""

    @property
    def cluster(self) -> MutableMapping[str, object]:
        """The `cluster` section; whoever goes on with another campaign may change it."""

    @property
    def monitoring_profiles(self) -> MutableMapping[str, object]:
        """The `monitoring_profiles` section: name of a profile -> its options, as CBT has them."""

    def initialize(self, ctx: argparse.Namespace) -> None:
        """Read `ctx.config_file`; note it in `ctx.archive`. Raises RunError."""

    def getnodes(self, *roles: str) -> str:
        """The hosts of these roles, each once: `user@a,user@b`."""


class Monitoring(Protocol):
    """What watches the hosts while a cell is measured."""

    def prepare(self, directory: str) -> None:
        """Start already what takes long to start, for a `monitor` of that directory to come."""

    def stop(self, directory: str) -> None:
        """End what runs for a directory; safe to repeat."""

    def monitor(self, directory: str, lead_s: float = 0) -> AbstractContextManager[None]:
        """Every profile runs while the block does, and writes below `directory` on its hosts.

        The first `lead_s` seconds of the block need no samples.
        """


class Cluster(Protocol):
    """A Ceph cluster below one directory, and that directory on every host."""

    #: What runs its scripts.
    remote: Remote

    @property
    def config(self) -> Section:
        """The section that it was made from."""

    @property
    def tmp_dir(self) -> str:
        """What the run directories of benchmarks are below."""

    @property
    def tmp_conf(self) -> str:
        """The path of ceph.conf, the same on every host."""

    @property
    def conf_text(self) -> str:
        """What was deployed as ceph.conf; empty before that."""

    @property
    def ceph_cmd(self) -> str:
        """The `ceph` that works on it."""

    @property
    def rbd_cmd(self) -> str:
        """The `rbd` that works on it."""

    @property
    def up_from(self) -> Mapping[int, int]:
        """OSD -> epoch of the OSD map since which it is up, as `check_health` last found it."""

    @property
    def placed(self) -> Mapping[str, Collection[int]]:
        """Pool -> OSDs that its placement groups are on, of pools with a device class of their own.

        As `check_health` last found it.
        """

    def initialize(self) -> None:
        """Tear down what is there, and deploy anew, until every OSD is up. Raises RunError."""

    def adopt(self, site: Site) -> None:
        """Work beside a cluster that is there already; only our own directories are made anew."""

    def restart(self) -> None:
        """Stop the daemons, distribute ceph.conf again, and start them on their data."""

    def check_health(self) -> None:
        """Wait until every OSD is up and every placement group of our pools is active+clean."""

    def mkpool(self, name: str, profile: str, application: str) -> None:
        """Make a pool by one of `pool_profiles`; nothing when we have made it already."""

    def shutdown(self) -> None:
        """End every process that carries our mark, on every host, and tear the overlays down."""

    def cleanup(self) -> None:
        """Remove the cluster's files and the BlueStore labels on its devices."""

    def purge(self) -> None:
        """Remove our directory on every host, if it is ours."""


#: Makes a cluster of a section; the stack changes what is deployed. Touches nothing.
MakeCluster = Callable[[Section, BoundStack], Cluster]


class Benchmark(Protocol):
    """Where the files of one benchmark object go, here and on the nodes."""

    @property
    def archive_dir(self) -> str:
        """Its directory in the archive."""

    @property
    def run_dir(self) -> str:
        """Its directory on every node."""

    def initialize(self) -> None:
        """Make both; note the config."""

    def run(self) -> None:
        """Start anew with empty directories on the nodes."""

    def cleanup(self) -> None:
        """Remove them on the nodes; the archive is kept."""


class ProcessOutcome(TypedDict, total=False):
    """How one client process ended, and where its results are below the cell's directory."""

    host: str
    volume: str
    exit_status: Optional[int]
    kind: str
    json: str
    logs: str


class CellOutcome(TypedDict, total=False):
    """What is known of a cell when its processes have ended; part of cell.json.

    Times are in seconds of the epoch by the head's clock; others' are `clock_offset_s` ahead.
    """

    started: float
    ended: float
    clock_offset_s: dict[str, float]
    processes: list[ProcessOutcome]
    neighbours: Mapping[str, object]
    deployment: Optional[str]
    block: Optional[Mapping[str, object]]
    rate_iops: int
    caches: Mapping[str, object]
    storage: Mapping[str, object]
    osd_perf: Mapping[str, float]
    slow_ops: Sequence[Mapping[str, object]]
    group: str
    slices: int
    idle: Mapping[str, Mapping[str, object]]
    overwritten: Mapping[str, object]
    steady_state: Mapping[str, object]
    recovery: Mapping[str, object]
    scrub: Mapping[str, object]
    beside: Mapping[str, object]


def outcome(
    ran: tuple[float, float],
    offsets: Mapping[str, float],
    head: str,
    processes: list[ProcessOutcome],
) -> CellOutcome:
    """`ran` is from when to when by this program's clock, of which hosts' are `offsets` ahead."""
    started, ended = (at + offsets[head] for at in ran)
    ahead = {host: round(offset - offsets[head], 4) for host, offset in offsets.items()}
    return CellOutcome(started=started, ended=ended, clock_offset_s=ahead, processes=processes)


@dataclass(frozen=True)
class LiveFigures:
    """IOPS of all clients together at this moment, and the mean latency in seconds.

    latency_s: by Little's law, IOs in flight by IOPS; None where the former are not fixed.
    """

    iops: float
    latency_s: Optional[float] = None

    def __str__(self) -> str:
        """`12,345 IOPS, mean 2.07 ms`."""
        words = [f"{self.iops:,.0f} IOPS"]
        if self.latency_s is not None:
            ms = 1000 * self.latency_s
            words.append(f"mean {ms:,.0f} ms" if ms >= 100 else f"mean {ms:.3g} ms")
        return ", ".join(words)


#: What is to be looked at beside the proof: name -> each host's script.
Looks = Mapping[str, HostScripts]
#: Name -> what each host's script printed.
Looked = Mapping[str, HostOutputs]


class CellBenchmark(ABC):
    """What runs one cell, in this order: `fill`, `initialize`, `run`, `collect`.

    `outcome` is there after `run`; `cleanup` ends one that goes no further.
    """

    #: What had passed drives before the cell and after it; set by who measures.
    counted: Sequence[Mapping[str, Any]] = ()
    #: Who is told what the clients do while they run; nobody when None.
    tell: Optional[Callable[[LiveFigures], None]] = None
    #: Its directories: in the archive, and on every node.
    archive_dir: str
    run_dir: str

    def __init__(self, work: CellWork) -> None:
        self.cluster = work.cluster
        self.scenario = work.scenario
        self.site = work.site
        self.stack = work.stack
        self.remote = work.remote
        self.outcome: CellOutcome = {}

    def fill(self, volumes: Sequence[Volume]) -> None:  # noqa: B027 - may be nothing
        """Make and fill the volumes that are not there yet, unless `initialize` does."""

    @abstractmethod
    def initialize(self) -> None:
        """Make its directories, here and on the nodes."""

    def looks_before(self) -> Looks:
        """What else hosts do and say, in the call that proves what is before `run`."""
        return {}

    @abstractmethod
    def run(self) -> None:
        """Measure the cell: from its ramp to the last client process. Raises RunError."""

    def note(self, before: Looked) -> None:  # noqa: B027 - may be nothing
        """Complete `outcome` with what hosts said to that, when `run` has ended."""

    def collect(self) -> None:  # noqa: B027 - may be nothing
        """Bring its files to the archive, unless `run` did; in a thread, while the next runs."""

    @abstractmethod
    def cleanup(self) -> None:
        """Remove its files from the nodes."""


@dataclass(frozen=True)
class CellWork:
    """One cell for a benchmark: what it runs, where, and in which configuration."""

    #: The campaign's archive.
    archive_dir: str
    cluster: Cluster
    #: Of CBT's benchmark object.
    config: Section
    scenario: Scenario
    site: Site
    stack: Stack
    remote: Remote
    #: The run whose images these are, on a cluster that stays.
    run: str = ""
    #: How the stacks of threads are sampled, if they are.
    call_stacks: Optional[StacksProfile] = None


@dataclass(frozen=True)
class Engine:
    """Who executes a campaign. `checkout` is where it is, of one that is no part of this package.

    name: `embedded` or `upstream`. commit: the engine's git commit where it is a checkout.
    """

    name: str
    version: str
    commit: Optional[str]
    settings: Settings
    common: Execution
    monitoring: Monitoring
    #: A cluster that is deployed, and one that is there already.
    Ceph: MakeCluster
    ExistingCeph: MakeCluster
    #: The campaign's archive, the cluster, the config of CBT's benchmark object.
    Benchmark: Callable[[str, Cluster, Section], Benchmark]
    checkout: Optional[Path] = None
    #: Makes what runs a benchmark which is the engine's own; None when it has none.
    native: Optional[Callable[[CellWork], CellBenchmark]] = None
    #: A sentence for each thing in a campaign that this engine cannot do.
    problems: Callable[[Campaign], Iterable[str]] = lambda _: ()
    #: What this engine needs of hosts, beyond what every campaign needs.
    requirements: Callable[[Campaign], Iterable[Requirement]] = lambda _: ()

    def remote(self, section: ClusterSection) -> Remote:
        """What runs scripts on the hosts of a campaign, as its user."""
        return Remote(self.common, section.tmp_dir, section.user)
