"""The names of `docs/contract.md`, gathered from whichever engine was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Protocol

from cbt_crypto.benchmarks.base import Volume
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Site


class CellBenchmark(Protocol):
    """What runs one cell, in this order: `fill`, `initialize`, `run`, `collect`.

    `outcome` is there after `run`; `cleanup` ends one that goes no further.
    """

    site: Site
    stack: Stack
    remote: Remote
    cluster: Any
    outcome: dict[str, Any]
    run_dir: str
    #: Hosts that count their energy; set by whoever knows, as most machines do not.
    energy_hosts: Sequence[str]

    def fill(self, volumes: Sequence[Volume]) -> None:
        """Make and fill the volumes that are not there yet."""

    def initialize(self) -> None:
        """Make its directories, here and on the nodes."""

    def run(self) -> None:
        """Measure."""

    def collect(self) -> None:
        """Bring its files to the archive; in a thread, while the next cell runs."""

    def cleanup(self) -> None:
        """Remove its files from the nodes."""


@dataclass(frozen=True)
class Engine:
    """An engine's modules and classes. They are Any because upstream's have no types.

    name: `embedded` or `upstream`. commit: the engine's git commit where it is a checkout.
    settings, common, monitoring: modules. Ceph, Benchmark: classes.
    """

    name: str
    version: str
    commit: Optional[str]
    settings: Any
    common: Any
    monitoring: Any
    Ceph: Any
    Benchmark: Any
    #: Makes the object that runs a benchmark which is the engine's own; None when it has none.
    native: Optional[Callable[..., CellBenchmark]] = None
    #: A sentence for each thing in a campaign that this engine cannot do.
    problems: Callable[[Any], Iterable[str]] = lambda _: ()
    #: What this engine needs of hosts, beyond what every campaign needs.
    requirements: Callable[[Any], Iterable[Requirement]] = lambda _: ()


def embedded() -> Engine:
    """The engine that comes with this package."""
    from cbt_crypto import __version__  # noqa: PLC0415 - engines are loaded when chosen
    from cbt_crypto.engine.embedded import common, monitoring, settings  # noqa: PLC0415
    from cbt_crypto.engine.embedded.benchmark import Benchmark  # noqa: PLC0415
    from cbt_crypto.engine.embedded.ceph import Ceph  # noqa: PLC0415

    return Engine("embedded", __version__, None, settings, common, monitoring, Ceph, Benchmark)
