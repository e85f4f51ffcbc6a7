"""Every figure of a report, defined once: tables, files, page, gate and docs take it from here."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.archive.documents import LARGEST
from cbt_crypto.report import wording
from cbt_crypto.report.figures import of_runs
from cbt_crypto.report.figures.of_runs import Of
from cbt_crypto.report.model import ReportCell, Table
from cbt_crypto.results.cell.client import STATES
from cbt_crypto.results.cell.node import BUSY_STATES, SHOWN_STATES
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.cell.within_run import Within
from cbt_crypto.results.readers.histogram import PERCENTILES

_GIB = 1 << 30
#: Keys that others ask for by name.
FROM_MEMORY = "reads_from_memory_percent"
OVERWRITTEN = "drives_overwritten_times"


class Test(enum.Enum):
    """What tells whether two configurations differ in a figure."""

    RATIO = "ratio of means"
    #: Nothing says how far another value would be, so that a percent has no interval.
    NONE = "none"


class Where(enum.IntEnum):
    """The tables that have a column of a figure; each has those of the ones before it too."""

    TERMINAL = 1
    MARKDOWN = 2
    PAGE = 3


@dataclass(frozen=True)
class Column:
    """How tables show a figure, in `scale` of its unit; `{nodes}` is whose CPU it is.

    `decimals` None: three digits. A terminal has the `short` headings by `rank` until full.
    """

    heading: str
    where: Where = Where.MARKDOWN
    scale: float = 1.0
    decimals: Optional[int] = None
    short: str = ""
    rank: int = 9
    only_drives: bool = False

    @property
    def heading_on_terminal(self) -> str:
        """Short enough for a terminal."""
        return self.short or self.heading

    def text(self, value: Optional[float]) -> str:
        """The value as tables show it; `-` for none."""
        if value is None or self.decimals is None:
            return wording.number(None if value is None else value * self.scale)
        return f"{value * self.scale:.{self.decimals}f}"


@dataclass(frozen=True)
class Metric:
    """One figure: `key` with the unit of the value, `unit` for people, `better` 1, -1 or 0.

    `made` makes it from a cell's runs in a direction, or None; `about` and `several` say how.
    `varies` is its name in `Within`. Without a `column` it is in files and the page's list.
    """

    key: str
    label: str
    unit: str
    better: int
    made: Of
    about: str
    several: str = "mean"
    varies: str = ""
    test: Test = Test.RATIO
    column: Optional[Column] = None

    def of(self, runs: Sequence[Run], direction: str) -> Optional[float]:
        """Return the figure of a cell; None for none, and for one so large or small as none is."""
        value = self.made(runs, direction)
        is_one = value is not None and (value == 0 or 1 / LARGEST <= abs(value) <= LARGEST)
        return value if is_one else None

    @property
    def is_judged(self) -> bool:
        """Whether a percent of it has a verdict."""
        return bool(self.better) and self.test is not Test.NONE

    def log_sd(self, within: Optional[Within]) -> Optional[float]:
        """Return how sure a run is of it, as the standard deviation of its logarithm."""
        return None if within is None else within.log_sd.get(self.varies)


_CPU = "OSD hosts' CPU"
_PER_IO, _PER_GIB = "osd_cpu_us_per_io", "osd_cpu_s_per_gib"
_MS = 1e-6


def _percentile(key: str, percent: float) -> Metric:
    where, rank = (Where.TERMINAL, 3) if percent == 99 else (Where.PAGE, 9)
    return Metric(
        key, f"p{percent:g} latency", "ns", -1, of_runs.percentile(key),
        "from the added histogram bins of all processes", "from all bins", varies=key,
        column=Column(f"p{percent:g} ms", where, _MS, rank=rank),
    )  # fmt: skip


#: In the order in which tables and files show them.
METRICS = (
    Metric(
        "iops", "IOPS", "1/s", 1, of_runs.throughput("iops"), "completed IOs/s of all processes",
        varies="iops", column=Column("IOPS", Where.TERMINAL, rank=1),
    ),
    Metric(
        "iops_variation_percent", "IOPS, variation from second to second", "%", 0,
        of_runs.variation("iops"),
        "standard deviation of the IOPS of single seconds, in percent of their mean",
        column=Column("IOPS sd %", Where.PAGE, decimals=1),
    ),
    Metric(
        "bandwidth_bytes_per_s", "bandwidth", "B/s", 1,
        of_runs.throughput("bandwidth_bytes_per_s"), "completed bytes/s of all processes",
        varies="iops",
        column=Column("MB/s", Where.TERMINAL, 1e-6, rank=4),
    ),
    Metric(
        "clat_ns_mean", "mean latency", "ns", -1, of_runs.mean_latency,
        "mean of fio's completion latencies, weighted by IOs", "mean over all IOs",
        varies="clat_ns_mean", column=Column("mean ms", Where.TERMINAL, _MS, rank=2),
    ),
    *(_percentile(key, percent) for key, percent in PERCENTILES.items()),
    Metric(
        "clat_ns_max", "max latency", "ns", -1, of_runs.max_latency, "largest of fio's maxima",
        "largest", test=Test.NONE, column=Column("max ms", Where.PAGE, _MS),
    ),
    *(
        Metric(
            f"fio_{part}_cpu_percent", f"fio's CPU, {part}", "% of a thread", 0,
            of_runs.of_fio(f"fio_{part}_cpu_percent"),
            "sum of what fio's jobs report about themselves; 100 is one thread",
            column=Column(f"fio {part} %", decimals=1, only_drives=True),
        )
        for part in ("usr", "sys")
    ),
    *(
        Metric(
            f"osd_cpu_{state}_percent", f"{_CPU}, {state}", "%", -1, of_runs.percent(state),
            "share of all hardware threads' time in this state",
            varies=f"osd_cpu_{state}_percent",
            column=Column(
                f"{{nodes}} CPU {state} %", Where.TERMINAL, decimals=1, short=f"{state} %", rank=6
            )
            if state in STATES
            else None,
        )
        for state in SHOWN_STATES
    ),
    *(
        Metric(
            f"osd_cpu_{state}_cores", f"{_CPU}, {state}", "cores", -1, of_runs.cores(state),
            "CPU seconds per second in this state", varies=f"osd_cpu_{state}_percent",
        )
        for state in SHOWN_STATES
    ),
    Metric(
        "osd_cpu_busy_cores", f"{_CPU}, busy", "cores", -1,
        of_runs.cpu(lambda nodes: nodes.busy_cores), "user, sys, irq and softirq together",
        varies="osd_cpu_busy_cores",
    ),
    Metric(
        _PER_IO, f"{_CPU} per IO", "µs", -1,
        of_runs.cpu_per("iops", 1e6), "busy CPU time per IO, reads and writes together",
        varies=_PER_IO,
        column=Column("{nodes} CPU µs/IO", Where.TERMINAL, short="CPU µs/IO", rank=5),
    ),
    Metric(
        _PER_GIB, f"{_CPU} per GiB", "s", -1,
        of_runs.cpu_per("bandwidth_bytes_per_s", _GIB), "busy CPU time per GiB moved",
        varies=_PER_IO,
    ),
    *(
        Metric(
            f"client_cpu_{state}_us_per_io", f"client processes' CPU per IO, {state}", "µs", -1,
            of_runs.of_processes((state,), "iops", 1e6),
            "time of the client processes, all their threads, in this state, per IO",
            varies=f"client_cpu_{state}_us_per_io",
            column=Column(f"client CPU {state} µs/IO"),
        )
        for state in STATES
    ),
    Metric(
        "client_cpu_us_per_io", "client processes' CPU per IO", "µs", -1,
        of_runs.of_processes(STATES, "iops", 1e6), "user and system time together, per IO",
        varies="client_cpu_us_per_io",
    ),
    Metric(
        "client_cpu_s_per_gib", "client processes' CPU per GiB", "s", -1,
        of_runs.of_processes(STATES, "bandwidth_bytes_per_s", _GIB),
        "user and system time together, per GiB moved", varies="client_cpu_us_per_io",
    ),
    *(
        Metric(
            f"client_hosts_cpu_{state}_us_per_io", f"client hosts' CPU per IO, {state}", "µs", -1,
            of_runs.of_hosts((state,)),
            "time of whole hosts with client processes, where no OSD is on them, in this state",
            varies=f"client_hosts_cpu_{state}_us_per_io",
        )
        for state in STATES
    ),
    Metric(
        "client_hosts_cpu_us_per_io", "client hosts' CPU per IO", "µs", -1,
        of_runs.of_hosts(BUSY_STATES),
        "all CPU time of these hosts, with the kernel's RBD client and dm-crypt",
        varies="client_hosts_cpu_us_per_io", column=Column("client hosts' CPU µs/IO"),
    ),
    Metric(
        "osd_power_w", "OSD hosts' power", "W", -1, of_runs.energy(),
        "mean power of all OSD hosts together", varies="osd_power_w",
        column=Column("{nodes} W"),
    ),
    Metric(
        "osd_energy_j_per_io", "OSD hosts' energy per IO", "J", -1,
        of_runs.energy("iops"), "their energy per IO, reads and writes together",
        varies="osd_energy_j_per_io",
        column=Column("{nodes} mJ/IO", scale=1e3),
    ),
    Metric(
        "osd_energy_j_per_gib", "OSD hosts' energy per GiB", "J", -1,
        of_runs.energy("bandwidth_bytes_per_s", _GIB), "their energy per GiB moved",
        varies="osd_energy_j_per_io",
        column=Column("{nodes} J/GiB", Where.PAGE),
    ),
    *(
        Metric(
            f"osd_cpu_share_{kind}_percent", f"share of {words} in it", "%", 0,
            of_runs.share(kind), f"share of {words} in the busy time",
        )
        for kind, words in (
            ("ceph_osd", "ceph-osd"),
            ("dmcrypt", "dm-crypt's threads"),
            ("neighbours", "the neighbours' load"),
        )
    ),
    Metric(
        "osd_cpu_share_rest_percent", "share of the rest in it", "%", 0, of_runs.cpu(of_runs.rest),
        "the remaining share of the busy time",
    ),
    Metric(
        FROM_MEMORY, "reads from OSDs' memory", "%", 0,
        of_runs.stored(lambda used: used.from_memory_percent, "read"),
        "of the bytes that BlueStore looked up for reads, those in its buffers "
        "(`buffer_hit_bytes`)",
        column=Column("reads from memory %", Where.TERMINAL, decimals=1, short="mem %", rank=7),
    ),
    Metric(
        "osd_drive_read_bytes_per_byte", "bytes read from drives per byte read", "B/B", 0,
        of_runs.stored(lambda used: of_runs.of_drives(used.drive_read, used.client_read), "read"),
        "bytes read from the OSDs' devices for each byte that clients read",
    ),
    Metric(
        "osd_drive_written_bytes_per_byte", "bytes written to drives per byte written", "B/B", 0,
        of_runs.stored(
            lambda used: of_runs.of_drives(used.drive_written, used.client_written), "write"
        ),
        "bytes written to them for each byte that clients wrote: with replicas, log and compaction",
    ),
    Metric(
        "idle_osds_cpu_percent", "CPU of the idle OSDs beside them", "% of a thread", 0,
        of_runs.told("idle", "cpu_percent"),
        "with `layout: side_by_side`, processor time of all OSDs of other groups, ramp included",
    ),
    Metric(
        "idle_osds_drive_bytes_per_s", "drive traffic of the idle OSDs beside them", "B/s", 0,
        of_runs.told("idle", "drive_bytes_per_s"),
        "bytes that these idle OSDs read from and wrote to drives",
    ),
    Metric(
        "other_clients_iops", "IOPS of other clients", "1/s", 0,
        of_runs.mean_of_runs(lambda run, _: of_runs.other_clients_iops(run))(),
        "with `use_existing`, an estimate of what the OSDs did beyond the campaign's own IOs",
    ),
    Metric(
        "steady_state_rounds", "rounds until the steady state", "rounds", 0, of_runs.rounds,
        "rounds of the workload before the cell, until it was steady or they ran out",
        column=Column("rounds to steady state", decimals=1),
    ),
    Metric(
        OVERWRITTEN, "drives written over before", "times", 0,
        of_runs.mean_of_runs(lambda run, _: run.overwritten)(),
        "bytes written to all drives between their deployment and the cell, over their sizes",
        column=Column("times drives were overwritten", decimals=1),
    ),
    *(
        Metric(
            f"recovery_osd_{way}_s", f"time to clean, OSD {words}", "s", -1,
            of_runs.told("disturbance", f"clean_after_{way}_s"),
            f"seconds until all placement groups were clean after an OSD {went}",
            column=Column(f"OSD {words}, s to clean", decimals=1),
        )
        for way, words, went in (("out", "out", "went out"), ("in", "back", "came back"))
    ),
    Metric(
        "scrub_s", "time to scrub", "s", -1, of_runs.told("disturbance", "scrubbed_after_s"),
        "seconds until all placement groups were scrubbed", column=Column("scrub, s", decimals=1),
    ),
    Metric(
        "recovery_iops", "IOPS during recovery or scrub", "1/s", 1, of_runs.meanwhile("iops"),
        "IOPS of the whole seconds of the recovery, or of the scrub",
        column=Column("meanwhile, IOPS"),
    ),
    Metric(
        "recovery_clat_ns_mean", "mean latency during recovery or scrub", "ns", -1,
        of_runs.meanwhile("clat_ns_mean"), "mean latency of these seconds",
        column=Column("meanwhile, mean ms", scale=_MS),
    ),
    Metric(
        "before_recovery_clat_ns_mean", "mean latency before", "ns", -1,
        of_runs.before("clat_ns_mean"), "mean latency of the seconds before it",
        column=Column("before it, mean ms", scale=_MS),
    ),
    Metric(
        "client_cpu_idle_percent", "client hosts' CPU, idle", "%", 0, of_runs.idle(),
        "the idle share of all threads of hosts with client processes",
    ),
    *(
        Metric(
            f"osd_{event}_per_io", f"OSD hosts' {event} per IO", event, -1,
            of_runs.counted(event), "counts of `perf stat -a` on the OSD hosts, per IO",
        )
        for event in ("cycles", "instructions")
    ),
    Metric(
        "osd_crypto_percent", "share of cycles in crypto symbols", "%", 0, of_runs.crypto,
        "share of samples in `perf report` that fall into symbols of ciphers",
    ),
)  # fmt: skip

BY_KEY = {metric.key: metric for metric in METRICS}


def columns(table: Table, where: Where) -> list[tuple[Metric, Column]]:
    """The columns that `table` has there: of figures that any of its cells has."""
    known = {key for cell in table.cells for key in cell.figures}
    return [
        (metric, metric.column)
        for metric in METRICS
        if metric.column is not None
        and metric.column.where <= where
        and (metric.key in known or metric.key == "iops")
        and (table.is_of_drives or not metric.column.only_drives)
    ]


def log_sds(within: Within) -> dict[str, float]:
    """How sure a run is of each figure, by key."""
    known = ((metric.key, metric.log_sd(within)) for metric in METRICS)
    return {key: sd for key, sd in known if sd is not None}


def left_out(cells: Iterable[ReportCell], where: Where) -> str:
    """One sentence for the foot of such a table about figures that it withholds; empty for none."""
    keys = {key for cell in cells for key in cell.withheld}
    labels = [metric.label for metric in METRICS
              if metric.key in keys and metric.column and metric.column.where <= where]  # fmt: skip
    if not labels:
        return ""
    fewest = of_runs.FEWEST_BEYOND
    return f"Not shown, as fewer than {fewest} IOs were slower: {', '.join(labels)}"


def without(figures: Mapping[str, float], keys: Iterable[str]) -> dict[str, float]:
    """The figures but those of `keys`."""
    return {key: value for key, value in figures.items() if key not in set(keys)}
