"""How figures are made of the measurements of a cell; metric.py says which there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Concatenate, ParamSpec

from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.node import KINDS, NodesUse, StorageUse
from cbt_crypto.results.cell.record import Floats, Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.readers.fio import SYNC
from cbt_crypto.results.readers.histogram import PERCENTILES, merge

#: Makes a figure from the measurements of one cell in one direction.
Of = Callable[[Sequence[Run], str], Optional[float]]


_Choice = ParamSpec("_Choice")


def mean_of_runs(
    value: Callable[Concatenate[Run, str, _Choice], Optional[float]],
) -> Callable[_Choice, Of]:
    """Mean over runs, of what further arguments choose; None unless every run tells."""

    def figure(*args: _Choice.args, **kwargs: _Choice.kwargs) -> Of:
        def of(runs: Sequence[Run], direction: str) -> Optional[float]:
            values = [value(run, direction, *args, **kwargs) for run in runs]
            known = [one for one in values if one is not None]
            return float(np.mean(known)) if known and len(known) == len(runs) else None

        return of

    return figure


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


@mean_of_runs
def of_processes(
    run: Run, direction: str, states: Sequence[str], rate: str, scale: float
) -> Optional[float]:
    """CPU time of client processes in these states for each IO or byte; None unless all tell."""
    if not run.clients:
        return None
    cores = sum(use.cores[state] for use in run.clients for state in states)
    return per(scale * cores, total_rate(run, rate))


@mean_of_runs
def of_hosts(run: Run, direction: str, states: Sequence[str]) -> Optional[float]:
    """CPU time of whole client hosts for each IO or byte; None where OSDs share such a host."""
    use = _client_nodes(run)
    osd_hosts = {node.host for node in run.osd_nodes.nodes} if run.osd_nodes else None
    if use is None or osd_hosts is None or osd_hosts & {node.host for node in use.nodes}:
        return None
    return per(1e6 * sum(use.cores(state) for state in states), total_rate(run, "iops"))


@mean_of_runs
def idle(run: Run, direction: str) -> Optional[float]:
    """Of all threads of the hosts with client processes, in percent; None unless all tell."""
    use = _client_nodes(run)
    return None if use is None else use.percent("idle")


def _client_nodes(run: Run) -> Optional[NodesUse]:
    return NodesUse.of_hosts(run.nodes, {record.host for record in run.records})


_Bools = NDArray[np.bool_]


@mean_of_runs
def told(run: Run, direction: str, part: str, field: str) -> Optional[float]:
    """What a part of a run says by itself; None where the run has no such part."""
    return getattr(getattr(run, part), field, None)


def meanwhile(field: str) -> Of:
    """Of the whole seconds in which it was going on: IOPS, or their mean or p99 latency."""
    return _seconds(field, True)


def before(field: str) -> Of:
    """Of the seconds before it began."""
    return _seconds(field, False)


@mean_of_runs
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


@mean_of_runs
def throughput(run: Run, direction: str, field: str) -> Optional[float]:
    """None where nobody counts it: syncs have no bytes, and kbench tells one figure of a test."""
    records = records_of(run, direction)
    # A run that did no IO at all is part of what a row does.
    is_told = any(getattr(each, field) for each in records) or not any(r.ios for r in records)
    return rate(run, direction, field) if records and is_told else None


@mean_of_runs
def variation(run: Run, direction: str, field: str) -> Optional[float]:
    """How much the seconds of a run differ, in percent of their mean; None unless all tell."""
    series = run.series.get(direction)
    if series is None or not series.is_whole or len(series.iops) < 2:
        return None
    seconds = getattr(series, field)
    return per(100 * float(seconds.std(ddof=1)), float(seconds.mean()))


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


def cpu(value: Callable[[NodesUse], Optional[float]]) -> Of:
    """Of all OSD nodes together; None unless every run has their samples."""
    return mean_of_runs(lambda run, _: None if run.osd_nodes is None else value(run.osd_nodes))()


@mean_of_runs
def cpu_per(run: Run, direction: str, rate: str, scale: float) -> Optional[float]:
    """Busy time of all OSD nodes for each IO or byte, in s by `scale`."""
    nodes = run.osd_nodes
    return None if nodes is None else per(scale * nodes.busy_cores, total_rate(run, rate))


def percent(state: str) -> Of:
    """Of all threads of the OSD nodes."""
    return cpu(lambda nodes: nodes.percent(state))


def cores(state: str) -> Of:
    """Threads' worth of time of the OSD nodes."""
    return cpu(lambda nodes: nodes.cores(state))


def share(kind: str) -> Of:
    """Of the busy time, in percent."""

    def share(nodes: NodesUse) -> Optional[float]:
        cores = nodes.process_cores(kind)
        return None if cores is None or not nodes.busy_cores else 100 * cores / nodes.busy_cores

    return cpu(share)


def rest(nodes: NodesUse) -> Optional[float]:
    """Of the busy time, what no process accounts for, in percent."""
    cores = [nodes.process_cores(kind) for kind in KINDS]
    attributed = sum(used for used in cores if used is not None)
    if None in cores or not nodes.busy_cores:
        return None
    return max(100 - 100 * attributed / nodes.busy_cores, 0.0)


@mean_of_runs
def counted(run: Run, direction: str, event: str) -> Optional[float]:
    """What perf counted on the OSD nodes, for each IO; None unless it counted on every node."""
    counts = [use.per_second[event] for use in run.perf if event in use.per_second]
    if run.osd_nodes is None or len(counts) != len(run.osd_nodes.nodes):
        return None
    return per(sum(counts), total_rate(run, "iops"))


@mean_of_runs
def energy(run: Run, direction: str, rate: str = "", scale: float = 1.0) -> Optional[float]:
    """Power of all OSD nodes, in W; with a `rate`, energy for each IO or byte, in J by `scale`."""
    watts = sum(use.watts for use in run.osd_energy) if run.osd_energy else None
    return per(scale * watts, total_rate(run, rate)) if rate and watts is not None else watts


@mean_of_runs
def stored(
    run: Run, direction: str, value: Callable[[StorageUse], Optional[float]], own: str
) -> Optional[float]:
    """Of all OSDs, mean over runs; None unless every run tells. `own` is the direction it is of."""
    return None if direction != own or run.storage is None else value(run.storage)


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
