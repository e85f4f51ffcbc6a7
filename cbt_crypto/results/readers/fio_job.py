"""What one fio process reports, whichever format it was written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:  # it needs numpy, which nodes that only measure do not have
    from cbt_crypto.results.readers.histogram import Histogram

#: The direction of fsync and fdatasync, which carry no data.
SYNC = "sync"


@dataclass(frozen=True)
class Side:
    """What one job did in one direction, `read`, `write` or `sync`.

    `percentiles_ns` are fio's own, percent -> ns; `histogram` is None for all but `json+`.
    """

    direction: str
    ios: int
    bytes: int
    iops: float
    bandwidth_bytes_per_s: float
    runtime_s: float
    clat_ns_mean: float
    clat_ns_max: float
    percentiles_ns: dict[float, float]
    histogram: Optional[Histogram] = None


@dataclass(frozen=True)
class Job:
    """One job of a fio process. `host` is set in client/server mode only.

    `usr_cpu_percent` and `sys_cpu_percent` are of one CPU, used by the fio process itself.
    """

    name: str
    host: Optional[str]
    error: int
    options: dict[str, str]
    usr_cpu_percent: float
    sys_cpu_percent: float
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class FioOutput:
    """One output file. `before` is the text that fio or a shell printed ahead of the figures."""

    version: str
    printed_epoch_s: Optional[float]
    jobs: tuple[Job, ...]
    before: str = ""
