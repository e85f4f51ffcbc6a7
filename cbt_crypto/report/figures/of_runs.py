"""How figures are made of the measurements of a cell; metric.py says which there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.node import KINDS, IdleUse, NodesUse, StorageUse
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
    """What all processes did together in a second of the window, by fio or by its logs."""
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
    return NodesUse.of_hosts(run.nodes, {record.host for record in run.records})


_Bools = NDArray[np.bool_]


def lasted(field: str) -> Of:
    """Seconds until all placement groups were clean, or scrubbed."""
    return mean_of_runs(lambda run, _: getattr(run.disturbance, field, None))


def meanwhile(field: str) -> Of:
    """Of the whole seconds in which it was going on: IOPS, or their mean or p99 latency."""
    return mean_of_runs(lambda run, direction: _seconds(run, direction, field, True))


def before(field: str) -> Of:
    """Of the seconds before it began."""
    return mean_of_runs(lambda run, direction: _seconds(run, direction, field, False))


def _seconds(run: Run, direction: str, field: str, is_meanwhile: bool) -> Optional[float]:
    series = run.series.get(direction)
    if run.disturbance is None or series is None:
        return None
    spans = run.disturbance.spans
    chosen = _meanwhile(series, spans) if is_meanwhile else _starts(series) + 1 <= spans[0][0]
    values, ios = getattr(series, field)[chosen], series.iops[chosen]
    if field == "iops":
        return float(values.mean()) if len(values) else None
    has_value = np.isfinite(values) & (ios > 0)
    return float(np.average(values[has_value], weights=ios[has_value])) if has_value.any() else None


def _starts(series: Series) -> Floats:
    starts: Floats = series.start_epoch_s + np.arange(len(series.iops), dtype=np.float64)
    return starts


def _meanwhile(series: Series, spans: Sequence[tuple[float, float]]) -> _Bools:
    """Seconds of which any part belongs to it: one that lasts less has at least one."""
    starts = _starts(series)
    chosen = np.zeros(len(starts), bool)
    for began, lasted_s in spans:
        chosen |= (starts + 1 > began) & (starts < began + lasted_s)
    return chosen


def throughput(field: str) -> Of:
    """None where nobody counts it: syncs have no bytes, and kbench tells one figure of a test."""

    def value(run: Run, direction: str) -> Optional[float]:
        records = records_of(run, direction)
        # A run that did no IO at all is part of what a row does.
        is_told = any(getattr(each, field) for each in records) or not any(r.ios for r in records)
        return rate(run, direction, field) if records and is_told else None

    return mean_of_runs(value)


def variation(field: str) -> Of:
    """How much the seconds of a run differ, in percent of their mean; None unless all tell."""

    def value(run: Run, direction: str) -> Optional[float]:
        series = run.series.get(direction)
        if series is None or not series.is_whole or len(series.iops) < 2:
            return None
        seconds = getattr(series, field)
        return per(100 * float(seconds.std(ddof=1)), float(seconds.mean()))

    return mean_of_runs(value)


def of_fio(field: str) -> Of:
    """All fio processes together; they do both directions, so each tells of the whole."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        sums = [sum(getattr(r, field) for r in records_of(run, direction)) for run in runs]
        return float(np.mean(sums)) if any(sums) else None

    return of


def mean_latency(runs: Sequence[Run], direction: str) -> Optional[float]:
    """Weighted by IOs."""
    parts = [part for run in runs for part in _latencies(run, direction)]
    # A run that did no IO has no latency; of two of kbench's tests nobody prints it.
    parts = [part for part in parts if all(part)]
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


def max_latency(runs: Sequence[Run], direction: str) -> Optional[float]:
    """The longest of any run."""
    known = (latency for run in runs for latency in _maxima(run, direction) if latency)
    return max(known, default=None)


def _maxima(run: Run, direction: str) -> list[float]:
    logged = run.in_window.get(direction)
    if logged is not None and logged.clat_ns_max is not None:
        return [logged.clat_ns_max]
    return [record.clat_ns_max for record in records_of(run, direction)]


def percentile(key: str) -> Of:
    """Of the merged bins of all processes and runs, else what one process alone said."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        histograms = [run.histograms[direction] for run in runs if direction in run.histograms]
        if runs and len(histograms) == len(runs):
            return merge(histograms).percentile_ns(PERCENTILES[key])
        records = [record for run in runs for record in records_of(run, direction)]
        # one process alone gave this percentile itself; of several it cannot be known
        return records[0].percentiles_ns.get(key) if len(records) == 1 else None

    return of


def rounds(runs: Sequence[Run], direction: str) -> Optional[float]:
    """How many rounds came before a cell, mean over the runs that had some."""
    counts = [len(run.steady_state.iops) for run in runs if run.steady_state is not None]
    return float(np.mean(counts)) if counts else None


def cpu(value: Callable[[NodesUse, Run], Optional[float]]) -> Of:
    """Of all OSD nodes together; None unless every run has their samples."""
    return mean_of_runs(lambda run, _: None if run.osd_nodes is None else value(run.osd_nodes, run))


def percent(state: str) -> Of:
    """Of all threads of the OSD nodes."""
    return cpu(lambda nodes, run: nodes.percent(state))


def cores(state: str) -> Of:
    """Threads' worth of time of the OSD nodes."""
    return cpu(lambda nodes, run: nodes.cores(state))


def share(kind: str) -> Of:
    """Of the busy time, in percent."""

    def share(nodes: NodesUse, run: Run) -> Optional[float]:
        cores = nodes.process_cores(kind)
        return None if cores is None or not nodes.busy_cores else 100 * cores / nodes.busy_cores

    return cpu(share)


def rest(nodes: NodesUse, run: Run) -> Optional[float]:
    """Of the busy time, what no process accounts for, in percent."""
    cores = [nodes.process_cores(kind) for kind in KINDS]
    attributed = sum(used for used in cores if used is not None)
    if None in cores or not nodes.busy_cores:
        return None
    return max(100 - 100 * attributed / nodes.busy_cores, 0.0)


def counted(event: str) -> Of:
    """What perf counted on the OSD nodes, for each IO; None unless it counted on every node."""

    def value(run: Run, direction: str) -> Optional[float]:
        counts = [use.per_second[event] for use in run.perf if event in use.per_second]
        if run.osd_nodes is None or len(counts) != len(run.osd_nodes.nodes):
            return None
        return per(sum(counts), total_rate(run, "iops"))

    return mean_of_runs(value)


def energy(value: Callable[[float, Run], Optional[float]]) -> Of:
    """Of the power of all OSD nodes, in W; None unless every run has it."""

    def of_run(run: Run, direction: str) -> Optional[float]:
        return value(sum(use.watts for use in run.osd_energy), run) if run.osd_energy else None

    return mean_of_runs(of_run)


def stored(value: Callable[[StorageUse], Optional[float]], own: str) -> Of:
    """Of all OSDs, mean over runs; None unless every run tells. `own` is the direction it is of."""

    def of_run(run: Run, direction: str) -> Optional[float]:
        return None if direction != own or run.storage is None else value(run.storage)

    return mean_of_runs(of_run)


def beside(value: Callable[[IdleUse], float]) -> Of:
    """Of the OSDs of other groups, mean over runs; None unless every run tells."""
    return mean_of_runs(lambda run, _: None if run.idle is None else value(run.idle))


def other_clients_iops(run: Run) -> Optional[float]:
    """What the cluster's OSDs did for clients that were not the campaign's; about."""
    others = run.others
    if others is None:
        return None
    own = total_rate(run, "iops") * others.own_seconds
    return max(0.0, others.client_ops - own) / others.seconds


def crypto(runs: Sequence[Run], direction: str) -> Optional[float]:
    """Mean over the OSD nodes of those runs that have a perf report."""
    shares = [use.crypto_percent for run in runs for use in run.perf]
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else None


def of_drives(moved: Optional[int], asked: int) -> Optional[float]:
    """Bytes that passed drives for each that was asked for."""
    return None if moved is None else per(moved, asked)


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
        if not has_tail(percent, ios):
            slower = f"{beyond:.0f} of {ios:,} IOs were slower than it"
            reasons[key] = f"{slower}, {FEWEST_BEYOND} are needed"
    return reasons


def has_tail(percent: float, ios: int) -> bool:
    """Whether enough IOs stand behind this percentile of all of them."""
    return round(ios * (100 - percent) / 100, 6) >= FEWEST_BEYOND


def _ios(run: Run, direction: str) -> int:
    histogram = run.histograms.get(direction)
    if histogram is not None:
        return histogram.total
    return sum(record.ios for record in records_of(run, direction))
