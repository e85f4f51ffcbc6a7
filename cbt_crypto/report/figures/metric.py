"""The figures of a cell: how each is made of one measurement, and of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.archive.documents import Recovery
from cbt_crypto.report.model import ReportCell
from cbt_crypto.results.cell.client import STATES
from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.node import (
    BUSY_STATES,
    KINDS,
    SHOWN_STATES,
    IdleUse,
    NodesUse,
    StorageUse,
)
from cbt_crypto.results.cell.record import Floats, Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.readers.fio import SYNC
from cbt_crypto.results.readers.histogram import PERCENTILES, merge

#: Makes a figure from the measurements of one cell in one direction.
Of = Callable[[Sequence[Run], str], Optional[float]]


def mean_of_runs(value: Callable[[Run, str], Optional[float]]) -> Of:
    """Mean over runs; None unless every run tells."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        values = [value(run, direction) for run in runs]
        known = [one for one in values if one is not None]
        return float(np.mean(known)) if known and len(known) == len(runs) else None

    return of


def records_of(run: Run, direction: str) -> list[Record]:
    """The records of one direction."""
    return [record for record in run.records if record.direction == direction]


def rate(run: Run, direction: str, field: str) -> float:
    """What all processes did together in a second of the window.

    It is the sum of what fio says; where that is of other seconds, what its logs say.
    """
    logged = run.in_window.get(direction)
    if logged is not None:
        return float(getattr(logged, field))
    return float(sum(getattr(record, field) for record in records_of(run, direction)))


def total_rate(run: Run, field: str) -> float:
    """Of reads and writes: CPU time cannot be told apart by them, and syncs are no IO."""
    directions = {record.direction for record in run.records} - {SYNC}
    return sum(rate(run, direction, field) for direction in sorted(directions))


def per(amount: float, total: float) -> Optional[float]:
    """None of nothing: etcd's benchmark, for one, tells of requests and not of bytes."""
    return amount / total if total else None


def of_processes(states: Sequence[str], rate: str, scale: float) -> Of:
    """CPU time of client processes in these states for each IO or byte; None unless all tell."""

    def value(run: Run, direction: str) -> Optional[float]:
        if not run.clients:
            return None
        cores = sum(use.cores[state] for use in run.clients for state in states)
        return per(scale * cores, total_rate(run, rate))

    return mean_of_runs(value)


def of_hosts(states: Sequence[str]) -> Of:
    """CPU time of whole client hosts for each IO or byte; None where OSDs share such a host."""

    def value(run: Run, direction: str) -> Optional[float]:
        use = _client_nodes(run)
        osd_hosts = {node.host for node in run.osd_nodes.nodes} if run.osd_nodes else None
        if use is None or osd_hosts is None or osd_hosts & {node.host for node in use.nodes}:
            return None
        return per(1e6 * sum(use.cores(state) for state in states), total_rate(run, "iops"))

    return mean_of_runs(value)


def idle() -> Of:
    """Of all threads of the hosts with client processes, in percent; None unless all tell."""

    def value(run: Run, direction: str) -> Optional[float]:
        use = _client_nodes(run)
        return None if use is None else use.percent("idle")

    return mean_of_runs(value)


def _client_nodes(run: Run) -> Optional[NodesUse]:
    """The hosts with client processes; None unless each of them tells."""
    return NodesUse.of_hosts(run.nodes, {record.host for record in run.records})


_Bools = NDArray[np.bool_]


def lasted(field: str) -> Of:
    """Seconds until all placement groups were clean, from when the OSD went out or in."""
    return mean_of_runs(
        lambda run, _: None if run.recovery is None else float(getattr(run.recovery, field))
    )


def meanwhile(field: str) -> Of:
    """Of the whole seconds in which it was going on: IOPS, or their mean or p99 latency."""
    return mean_of_runs(lambda run, direction: _seconds(run, direction, field, True))


def before(field: str) -> Of:
    """Of the seconds before the OSD went out."""
    return mean_of_runs(lambda run, direction: _seconds(run, direction, field, False))


def _seconds(run: Run, direction: str, field: str, is_meanwhile: bool) -> Optional[float]:
    series = run.series.get(direction)
    if run.recovery is None or series is None:
        return None
    chosen = _meanwhile(series, run.recovery) if is_meanwhile else _before(series, run.recovery)
    values, ios = getattr(series, field)[chosen], series.iops[chosen]
    if field == "iops":
        return float(values.mean()) if len(values) else None
    has_value = np.isfinite(values) & (ios > 0)
    return float(np.average(values[has_value], weights=ios[has_value])) if has_value.any() else None


def _starts(series: Series) -> Floats:
    starts: Floats = series.start_epoch_s + np.arange(len(series.iops), dtype=np.float64)
    return starts


def _meanwhile(series: Series, recovery: Recovery) -> _Bools:
    """Seconds of which any part belongs to it: one that lasts less has at least one."""
    starts = _starts(series)
    chosen = np.zeros(len(starts), bool)
    for began, lasted_s in (
        (recovery.out_at, recovery.clean_after_out_s),
        (recovery.in_at, recovery.clean_after_in_s),
    ):
        chosen |= (starts + 1 > began) & (starts < began + lasted_s)
    return chosen


def _before(series: Series, recovery: Recovery) -> _Bools:
    chosen: _Bools = _starts(series) + 1 <= recovery.out_at
    return chosen


_GIB = 1 << 30
#: The key of the share of reads that took no drive.
FROM_MEMORY = "reads_from_memory_percent"
#: The key of how often drives had been written over.
OVERWRITTEN = "drives_overwritten_times"
#: The key of how many rounds it took until a load was steady.
ROUNDS = "steady_state_rounds"
#: Keys of what a recovery took, and of what clients had meanwhile and before.
RECOVERY_OUT, RECOVERY_IN = "recovery_osd_out_s", "recovery_osd_in_s"
RECOVERY_IOPS, RECOVERY_LATENCY = "recovery_iops", "recovery_clat_ns_mean"
CALM_LATENCY = "before_recovery_clat_ns_mean"


@dataclass(frozen=True)
class Metric:
    """One figure. `unit` is for people; `key` carries the unit of the stored value.

    `better` is 1 where more is better, -1 where less is, and 0 where neither is, so that a
    percent of the baseline would mean nothing. `of` makes it from the measurements of one cell
    in one direction; None where they do not tell.
    """

    key: str
    label: str
    unit: str
    better: int
    of: Of


def _throughput(field: str) -> Of:
    """None where a run did nothing in that direction, as others of its load did."""
    return mean_of_runs(
        lambda run, direction: rate(run, direction, field) if records_of(run, direction) else None
    )


def _bandwidth(runs: Sequence[Run], direction: str) -> Optional[float]:
    """None where nobody counts bytes: of syncs, which have none, and of etcd's requests."""
    per_second = _throughput("bandwidth_bytes_per_s")(runs, direction)
    return None if not per_second and _throughput("iops")(runs, direction) else per_second


def _of_fio(field: str) -> Of:
    """All fio processes together; they do both directions, so each tells of the whole."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        sums = [sum(getattr(r, field) for r in records_of(run, direction)) for run in runs]
        return float(np.mean(sums)) if any(sums) else None

    return of


def _mean_latency(runs: Sequence[Run], direction: str) -> Optional[float]:
    parts = [part for run in runs for part in _latencies(run, direction)]
    # A run that did no IO has no latency.
    parts = [part for part in parts if part[1]]
    if not parts:
        return None
    means, weights = zip(*parts)
    return float(np.average(means, weights=weights))


def _latencies(run: Run, direction: str) -> list[tuple[float, float]]:
    """Means with the number of IOs behind them: of the window, else of each process."""
    logged = run.in_window.get(direction)
    if logged is not None and logged.clat_ns_mean is not None and run.window is not None:
        return [(logged.clat_ns_mean, logged.iops * run.window.seconds)]
    return [(record.clat_ns_mean, record.ios) for record in records_of(run, direction)]


def _max_latency(runs: Sequence[Run], direction: str) -> Optional[float]:
    return max((latency for run in runs for latency in _maxima(run, direction)), default=None)


def _maxima(run: Run, direction: str) -> list[float]:
    logged = run.in_window.get(direction)
    if logged is not None and logged.clat_ns_max is not None:
        return [logged.clat_ns_max]
    return [record.clat_ns_max for record in records_of(run, direction)]


def _percentile(percent: float, field: str) -> Of:
    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        histograms = [run.histograms[direction] for run in runs if direction in run.histograms]
        if runs and len(histograms) == len(runs):
            return merge(histograms).percentile_ns(percent)
        records = [record for run in runs for record in records_of(run, direction)]
        # one process alone gave this percentile itself; of several it cannot be known
        value = getattr(records[0], field) if len(records) == 1 else None
        return None if value is None else float(value)

    return of


def _rounds(runs: Sequence[Run], direction: str) -> Optional[float]:
    rounds = [len(run.steady_state.iops) for run in runs if run.steady_state is not None]
    return float(np.mean(rounds)) if rounds else None


def _cpu(value: Callable[[NodesUse, Run], Optional[float]]) -> Of:
    return mean_of_runs(lambda run, _: None if run.osd_nodes is None else value(run.osd_nodes, run))


def _percent(state: str) -> Of:
    return _cpu(lambda nodes, run: nodes.percent(state))


def _cores(state: str) -> Of:
    return _cpu(lambda nodes, run: nodes.cores(state))


def _share(kind: str) -> Of:
    """Of the busy time, in percent."""

    def share(nodes: NodesUse, run: Run) -> Optional[float]:
        cores = nodes.process_cores(kind)
        return None if cores is None or not nodes.busy_cores else 100 * cores / nodes.busy_cores

    return _cpu(share)


def _rest(nodes: NodesUse, run: Run) -> Optional[float]:
    cores = [nodes.process_cores(kind) for kind in KINDS]
    attributed = sum(used for used in cores if used is not None)
    if None in cores or not nodes.busy_cores:
        return None
    return max(100 - 100 * attributed / nodes.busy_cores, 0.0)


def _counted(event: str) -> Of:
    """What perf counted on the OSD nodes, for each IO; None unless it counted on every node."""

    def value(run: Run, direction: str) -> Optional[float]:
        counts = [use.per_second[event] for use in run.perf if event in use.per_second]
        if run.osd_nodes is None or len(counts) != len(run.osd_nodes.nodes):
            return None
        return per(sum(counts), total_rate(run, "iops"))

    return mean_of_runs(value)


def _energy(value: Callable[[float, Run], Optional[float]]) -> Of:
    """Of the power of all OSD nodes, in W; None unless every run has it."""

    def of_run(run: Run, direction: str) -> Optional[float]:
        return value(sum(use.watts for use in run.osd_energy), run) if run.osd_energy else None

    return mean_of_runs(of_run)


def _stored(value: Callable[[StorageUse], Optional[float]], own: str) -> Of:
    """Of all OSDs, mean over runs; None unless every run tells. `own` is the direction it is of."""

    def of_run(run: Run, direction: str) -> Optional[float]:
        return None if direction != own or run.storage is None else value(run.storage)

    return mean_of_runs(of_run)


def _beside(value: Callable[[IdleUse], float]) -> Of:
    """Of the OSDs of other groups, mean over runs; None unless every run tells."""
    return mean_of_runs(lambda run, _: None if run.idle is None else value(run.idle))


def _crypto(runs: Sequence[Run], direction: str) -> Optional[float]:
    """Mean over the OSD nodes of those runs that have a perf report."""
    shares = [use.crypto_percent for run in runs for use in run.perf]
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else None


def _of_drives(moved: Optional[int], asked: int) -> Optional[float]:
    return None if moved is None else per(moved, asked)


#: In the order in which tables and files show them.
METRICS = (
    Metric("iops", "IOPS", "1/s", 1, _throughput("iops")),
    Metric("bandwidth_bytes_per_s", "throughput", "B/s", 1, _bandwidth),
    Metric("clat_ns_mean", "mean latency", "ns", -1, _mean_latency),
    Metric("clat_ns_p50", "p50 latency", "ns", -1, _percentile(50, "clat_ns_p50")),
    Metric("clat_ns_p90", "p90 latency", "ns", -1, _percentile(90, "clat_ns_p90")),
    Metric("clat_ns_p95", "p95 latency", "ns", -1, _percentile(95, "clat_ns_p95")),
    Metric("clat_ns_p99", "p99 latency", "ns", -1, _percentile(99, "clat_ns_p99")),
    Metric("clat_ns_p999", "p99.9 latency", "ns", -1, _percentile(99.9, "clat_ns_p999")),
    Metric("clat_ns_max", "max latency", "ns", -1, _max_latency),
    *(
        Metric(
            f"fio_{part}_cpu_percent", f"fio's CPU, {part}", "% of a thread", 0,
            _of_fio(f"fio_{part}_cpu_percent"),
        )
        for part in ("usr", "sys")
    ),
    *(
        Metric(f"osd_cpu_{state}_percent", f"OSD nodes' CPU, {state}", "%", -1, _percent(state))
        for state in SHOWN_STATES
    ),
    *(
        Metric(f"osd_cpu_{state}_cores", f"OSD nodes' CPU, {state}", "cores", -1, _cores(state))
        for state in SHOWN_STATES
    ),
    Metric(
        "osd_cpu_busy_cores", "OSD nodes' CPU, busy", "cores", -1,
        _cpu(lambda nodes, run: nodes.busy_cores),
    ),
    Metric(
        "osd_cpu_us_per_io", "OSD nodes' CPU per IO", "us", -1,
        _cpu(lambda nodes, run: per(1e6 * nodes.busy_cores, total_rate(run, "iops"))),
    ),
    Metric(
        "osd_cpu_s_per_gib", "OSD nodes' CPU per GiB", "s", -1,
        _cpu(
            lambda nodes, run: per(
                nodes.busy_cores * _GIB, total_rate(run, "bandwidth_bytes_per_s")
            )
        ),
    ),
    *(
        Metric(
            f"client_cpu_{state}_us_per_io", f"client processes' CPU per IO, {state}", "us", -1,
            of_processes((state,), "iops", 1e6),
        )
        for state in STATES
    ),
    Metric(
        "client_cpu_us_per_io", "client processes' CPU per IO", "us", -1,
        of_processes(STATES, "iops", 1e6),
    ),
    Metric(
        "client_cpu_s_per_gib", "client processes' CPU per GiB", "s", -1,
        of_processes(STATES, "bandwidth_bytes_per_s", _GIB),
    ),
    *(
        Metric(
            f"client_hosts_cpu_{state}_us_per_io", f"client hosts' CPU per IO, {state}", "us", -1,
            of_hosts((state,)),
        )
        for state in STATES
    ),
    Metric(
        "client_hosts_cpu_us_per_io", "client hosts' CPU per IO", "us", -1,
        of_hosts(BUSY_STATES),
    ),
    Metric("osd_power_w", "OSD nodes' power", "W", -1, _energy(lambda watts, run: watts)),
    Metric(
        "osd_energy_j_per_io", "OSD nodes' energy per IO", "J", -1,
        _energy(lambda watts, run: per(watts, total_rate(run, "iops"))),
    ),
    Metric(
        "osd_energy_j_per_gib", "OSD nodes' energy per GiB", "J", -1,
        _energy(lambda watts, run: per(watts * _GIB, total_rate(run, "bandwidth_bytes_per_s"))),
    ),
    Metric(
        "osd_cpu_share_ceph_osd_percent", "share of ceph-osd in it", "%", 0, _share("ceph_osd"),
    ),
    Metric(
        "osd_cpu_share_dmcrypt_percent", "share of dm-crypt's threads in it", "%", 0,
        _share("dmcrypt"),
    ),
    Metric(
        "osd_cpu_share_neighbours_percent", "share of the neighbours' load in it", "%", 0,
        _share("neighbours"),
    ),
    Metric("osd_cpu_share_rest_percent", "share of the rest in it", "%", 0, _cpu(_rest)),
    Metric(
        FROM_MEMORY, "reads from OSDs' memory", "%", 0,
        _stored(lambda used: used.from_memory_percent, "read"),
    ),
    Metric(
        "osd_drive_read_bytes_per_byte", "bytes read from drives per byte read", "B/B", 0,
        _stored(lambda used: _of_drives(used.drive_read, used.client_read), "read"),
    ),
    Metric(
        "osd_drive_written_bytes_per_byte", "bytes written to drives per byte written", "B/B", 0,
        _stored(lambda used: _of_drives(used.drive_written, used.client_written), "write"),
    ),
    Metric(
        "idle_osds_cpu_percent", "CPU of the idle OSDs beside them", "% of a thread", 0,
        _beside(lambda idle: idle.cpu_percent),
    ),
    Metric(
        "idle_osds_drive_bytes_per_s", "drive traffic of the idle OSDs beside them", "B/s", 0,
        _beside(lambda idle: idle.drive_bytes_per_s),
    ),
    Metric(ROUNDS, "rounds until the steady state", "rounds", 0, _rounds),
    Metric(
        OVERWRITTEN, "drives written over before", "times", 0,
        mean_of_runs(lambda run, _: run.overwritten),
    ),
    Metric(
        RECOVERY_OUT, "time to clean, OSD out", "s", -1, lasted("clean_after_out_s")
    ),
    Metric(RECOVERY_IN, "time to clean, OSD back", "s", -1, lasted("clean_after_in_s")),
    Metric(RECOVERY_IOPS, "IOPS while recovering", "1/s", 1, meanwhile("iops")),
    Metric(
        RECOVERY_LATENCY, "mean latency while recovering", "ns", -1,
        meanwhile("clat_ns_mean"),
    ),
    Metric(
        CALM_LATENCY, "mean latency before", "ns", -1, before("clat_ns_mean"),
    ),
    Metric("client_cpu_idle_percent", "client hosts' CPU, idle", "%", 0, idle()),
    Metric("osd_cycles_per_io", "OSD nodes' cycles per IO", "cycles", -1, _counted("cycles")),
    Metric(
        "osd_instructions_per_io", "OSD nodes' instructions per IO", "instructions", -1,
        _counted("instructions"),
    ),
    Metric("osd_crypto_percent", "share of cycles in crypto symbols", "%", 0, _crypto),
)  # fmt: skip

BY_KEY = {metric.key: metric for metric in METRICS}

#: A percentile needs as many IOs that took longer. Their number varies by its square root from run
#: to run: of 100 by 10 %, which moves p99 between p98.8 and p99.2 at 95 %; of 10 by a third.
FEWEST_BEYOND = 100


def withheld(runs: Sequence[Run], direction: str) -> dict[str, str]:
    """The percentiles that too few IOs stand behind, each with the reason."""
    measured = [run for run in runs if run.failure is None]
    ios = sum(_ios(run, direction) for run in measured)
    reasons = {}
    for key, percent in PERCENTILES.items():
        beyond = ios * (100 - percent) / 100
        if round(beyond, 6) < FEWEST_BEYOND:
            reasons[key] = f"{beyond:.0f} of {ios:,} IOs are beyond it, {FEWEST_BEYOND} are needed"
    return reasons


def _ios(run: Run, direction: str) -> int:
    histogram = run.histograms.get(direction)
    if histogram is not None:
        return histogram.total
    return sum(record.ios for record in records_of(run, direction))


def left_out(cells: Iterable[ReportCell], shown: Iterable[str]) -> str:
    """One sentence for the foot of a table about those of the `shown` figures; empty for none."""
    keys = {key for cell in cells for key in cell.withheld}
    labels = [BY_KEY[key].label for key in shown if key in keys]
    if not labels:
        return ""
    return f"Empty where fewer than {FEWEST_BEYOND} IOs took longer: {', '.join(labels)}"


def without(figures: Mapping[str, float], keys: Iterable[str]) -> dict[str, float]:
    """The figures but those of `keys`."""
    return {key: value for key, value in figures.items() if key not in set(keys)}
