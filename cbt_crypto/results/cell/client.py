"""One client process of a cell: its fio output and its logs, brought to the head's clock."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

import numpy as np

from cbt_crypto.archive.documents import CellDocument, Process, Scalar
from cbt_crypto.archive.files import Malformed, Problem, read_samples
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.node import BUSY_STATES, NodeSamples, percent_per_second
from cbt_crypto.results.cell.record import Floats, Record
from cbt_crypto.results.cell.window import Sampled, Window, counts_per_second, used_per_second
from cbt_crypto.results.readers.fio import SYNC, FioOutput, Job, Side
from cbt_crypto.results.readers.fio_log import FioLog, read_fio_log
from cbt_crypto.results.readers.histogram import PERCENTILES, Histogram, HistogramLog, merge
from cbt_crypto.results.readers.process_output import read_results
from cbt_crypto.units import grouped, whole

#: A window longer than this is a damaged number, not a measurement.
_LONGEST_S = 14 * 86400
#: How far the IOs of a log may be from those of the output, as a share and in seconds' worth.
_LOG_TOLERANCE, _LOG_TOLERANCE_S = 0.02, 2.0
#: What a client of fio servers prints of each of them when all is well.
_ANNOUNCED = re.compile(
    r"(?:<[^>]*>)?\s*$|<[^>]*> (?:.*: \(g=\d+\): rw=|Starting \d|.*: Laying out IO file)|hostname="
)
_Log = TypeVar("_Log", FioLog, HistogramLog)


@dataclass(frozen=True)
class Client:
    """What one process did, by direction; `shift_s` brings logs to the head's clock.

    `interval_s` is what an entry of an averaged log stands for.
    """

    process: Process
    records: tuple[Record, ...]
    histograms: Mapping[str, Histogram]
    percentiles_ns: Mapping[str, Mapping[float, float]]
    window: Optional[Window]
    iops_logs: tuple[FioLog, ...]
    latency_logs: tuple[FioLog, ...]
    shift_s: float
    interval_s: float
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Place:
    """Where the cell of a process belongs in the table of records."""

    run: str
    iteration: int
    dimensions: Mapping[str, Scalar]


def read_client(folder: Folder, process: Process, row_key: Place, offset_s: float) -> Client:
    """Read one process's output and logs; Malformed if the output has no figures.

    `offset_s` is its host's clock minus the head's; an unreadable log is a problem only.
    """
    output, problems = _output(folder, process)
    logs = Logs(folder, process)
    iops_logs = logs.read("iops", read_fio_log)
    interval_s = _interval_s(output.jobs)
    shift_s = -offset_s
    if iops_logs and iops_logs[0].is_relative and output.printed_epoch_s is not None:
        shift_s += output.printed_epoch_s - max(log.times_ms[-1] for log in iops_logs) / 1000
    window = _window(output, iops_logs, shift_s, offset_s, interval_s)
    sides = _by_direction(output.jobs)
    records = _records(process, row_key, window, output.jobs)
    if window is not None and iops_logs:
        logged = sum(counts_per_second(log, shift_s, interval_s, window).sum() for log in iops_logs)
        if unlike := _unlike(float(logged), records):
            problems.append(Problem(folder.label(f"{process.logs}_iops"), unlike))
            iops_logs = ()
    return Client(
        process=process,
        records=records,
        histograms=_histograms(sides),
        percentiles_ns={
            direction: parts[0].percentiles_ns
            for direction, parts in sides.items()
            if len(parts) == 1 and parts[0].bins is None
        },
        window=window,
        iops_logs=iops_logs,
        latency_logs=logs.read("clat", read_fio_log) or logs.read("lat", read_fio_log),
        shift_s=shift_s,
        interval_s=interval_s,
        problems=(*problems, *logs.problems),
    )


def _records(
    process: Process, row_key: Place, window: Optional[Window], jobs: tuple[Job, ...]
) -> tuple[Record, ...]:
    """A record for each active direction; client/server output holds several hosts."""
    hosts = grouped((job.host or process.host, job) for job in jobs)
    return tuple(
        Record(
            run=row_key.run,
            iteration=row_key.iteration,
            dimensions=row_key.dimensions,
            host=host,
            volume=process.volume,
            direction=direction,
            start_epoch_s=None if window is None else window.start_s,
            fio_usr_cpu_percent=sum(job.usr_cpu_percent for job in jobs_of_host),
            fio_sys_cpu_percent=sum(job.sys_cpu_percent for job in jobs_of_host),
            **_figures(sides),
        )
        for host, jobs_of_host in hosts.items()
        for direction, sides in _by_direction(jobs_of_host).items()
    )


def _unlike(logged: float, records: Iterable[Record]) -> Optional[str]:
    """The problem of an IOPS log whose number of IOs is not that of fio's output."""
    rows = [record for record in records if record.direction != SYNC]
    ios = sum(record.ios for record in rows)
    slack = _LOG_TOLERANCE * ios + _LOG_TOLERANCE_S * sum(record.iops for record in rows)
    if abs(logged - ios) <= slack:
        return None
    return f"has {logged:,.0f} IOs where fio's output has {ios:,}; it was not used"


def _output(folder: Folder, process: Process) -> tuple[FioOutput, list[Problem]]:
    name = process.json_file
    label = folder.label(name)
    try:
        data = folder.read(name)
        if data is None:
            raise Malformed("is missing")
        output = read_results(process.kind, data)
    except Malformed as error:
        raise Malformed(f"{label} {error}") from None
    problems = []
    chatter = [line for line in output.before.splitlines() if not _ANNOUNCED.match(line)]
    if chatter:
        problems.append(Problem(label, f"has text before its JSON: {chatter[0][:200]}"))
    return output, problems


class Logs:
    """The logs of one process, read one kind at a time, and what is wrong with them."""

    def __init__(self, folder: Folder, process: Process) -> None:
        self.problems: list[Problem] = []
        self._folder = folder
        self._prefix = process.logs or ""
        self._names = _beginning(f"{self._prefix}_", _beside(folder, self._prefix))
        self._host = process.host

    def read(self, kind: str, parse: Callable[[Path], _Log]) -> tuple[_Log, ...]:
        """The logs of one kind, one for each job of the process."""
        pattern = re.compile(
            rf"{re.escape(self._prefix)}_{kind}\.\d+\.log(?:\.{re.escape(self._host)})?"
        )
        logs = (self._parsed(name, parse) for name in self._names if pattern.fullmatch(name))
        return tuple(log for log in logs if log is not None)

    def _parsed(self, name: str, parse: Callable[[Path], _Log]) -> Optional[_Log]:
        label = self._folder.label(name)
        try:
            log = parse(self._folder.path(name))
        except Malformed as error:
            self.problems.append(Problem(label, str(error)))
            return None
        if log.torn:
            lines = "a torn line" if log.torn == 1 else f"{log.torn} torn lines"
            self.problems.append(Problem(label, f"has {lines}, left out"))
        return log


def _beside(folder: Folder, prefix: str) -> Sequence[str]:
    """What stands where logs with this prefix would be, named as seen from the cell's folder."""
    directory = prefix.rpartition("/")[0]
    if not prefix:
        return []
    if not directory:
        return folder.names
    return [f"{directory}/{name}" for name in folder.below(directory).names]


def _beginning(prefix: str, names: Sequence[str]) -> Sequence[str]:
    first = bisect_left(names, prefix)
    return names[first : bisect_left(names, f"{prefix}\U0010ffff")]


def _interval_s(jobs: Iterable[Job]) -> float:
    """What `log_avg_msec` says; a second where it says nothing that makes sense."""
    for job in jobs:
        if 0 < (whole(job.options.get("log_avg_msec", "")) or 0) <= 3_600_000:
            return int(job.options["log_avg_msec"]) / 1000
    return 1.0


def _window(
    output: FioOutput, logs: tuple[FioLog, ...], shift_s: float, offset_s: float, interval_s: float
) -> Optional[Window]:
    """When this process measured, ramp excluded, on the head's clock; None when nothing says.

    Logs begin with the first IO that ended. A process that stalled before it measured earlier, as
    the time says when its output was printed.
    """
    runtime_s = max(side.runtime_s for job in output.jobs for side in job.sides)
    if not 0 < runtime_s <= _LONGEST_S:
        return None
    begun = None
    if output.printed_epoch_s is not None:
        begun = output.printed_epoch_s - offset_s - runtime_s
    if logs:
        first = min(log.times_ms[0] for log in logs) / 1000 + shift_s
        start = float(first) - (interval_s if logs[0].is_averaged else 0.0)
        # fio wrote nothing in as many intervals, and prints a little after its end
        silent = 0 if begun is None else max(0, round((start - begun) / interval_s))
        # Whoever was silent throughout has no log: the two times are of different clocks.
        begun = start - (silent * interval_s if silent * interval_s < runtime_s else 0.0)
    return None if begun is None else Window(begun, begun + runtime_s)


def _by_direction(jobs: Iterable[Job]) -> dict[str, list[Side]]:
    return grouped((side.direction, side) for job in jobs for side in job.sides)


def _histograms(sides: Mapping[str, list[Side]]) -> dict[str, Histogram]:
    merged = {}
    for direction, parts in sides.items():
        histograms = [side.histogram for side in parts if side.histogram is not None]
        if len(histograms) == len(parts):
            merged[direction] = merge(histograms)
    return merged


def _figures(sides: list[Side]) -> dict[str, Any]:
    weights = [side.ios for side in sides]
    percentiles = _percentiles(sides)
    return {
        "runtime_s": max(side.runtime_s for side in sides),
        "ios": sum(weights),
        "bytes": sum(side.bytes for side in sides),
        "iops": sum(side.iops for side in sides),
        "bandwidth_bytes_per_s": sum(side.bandwidth_bytes_per_s for side in sides),
        "clat_ns_mean": float(np.average([side.clat_ns_mean for side in sides], weights=weights)),
        "percentiles_ns": {key: percentiles.get(value) for key, value in PERCENTILES.items()},
        "clat_ns_max": max(side.clat_ns_max for side in sides),
    }


def _percentiles(sides: list[Side]) -> Mapping[float, float]:
    """From merged bins; fio's own figures where there is one job and it gave no bins."""
    histogram = _histograms({"": sides}).get("")
    if histogram is not None and histogram.total:
        return {percent: histogram.percentile_ns(percent) for percent in PERCENTILES.values()}
    return sides[0].percentiles_ns if len(sides) == 1 else {}


STATES = ("user", "sys")
_HEADER = re.compile(rb"# ticks a second: (\d{1,6})")
_SAMPLE = re.compile(rb"(\d{1,12}(?:\.\d{1,9})?) (\d{1,17}) (\d{1,17})")


@dataclass(frozen=True)
class ClientSeries:
    """User and system seconds (columns `STATES`) of a host's clients so far, by its clock."""

    epoch_s: Floats
    cpu_s: Floats


@dataclass(frozen=True)
class ClientUse:
    """Cores that one host's client processes took, by state, over `seconds` of the window."""

    host: str
    seconds: float
    cores: dict[str, float]


class ClientSamples(Sampled[ClientSeries]):
    """One host's client processes."""

    def use(self, window: Window) -> Optional[ClientUse]:
        """None when no two samples touch the window."""
        times = self.times_s
        start, end = max(window.start_s, float(times[0])), min(window.end_s, float(times[-1]))
        if end <= start:
            return None
        used = [
            np.diff(np.interp([start, end], times, counter))[0] for counter in self.series.cpu_s.T
        ]
        cores = {state: float(seconds) / (end - start) for state, seconds in zip(STATES, used)}
        return ClientUse(self.host, end - start, cores)


def read_client_cpu(path: Path) -> ClientSeries:
    """Read a file of samples. Raises Malformed for one that cannot be trusted as a whole."""
    header, *lines = read_samples(path) or [b""]
    told = _HEADER.fullmatch(header)
    if told is None or int(told[1]) == 0:
        raise Malformed("does not say how many ticks a second has")
    matches = [_SAMPLE.fullmatch(line) for line in lines]
    if not all(matches) or len(matches) < 2:
        raise Malformed("holds no samples of a time and two counters")
    table = np.array([[float(word) for word in match.groups()] for match in matches if match])
    if (np.diff(table[:, 0]) <= 0).any():
        raise Malformed("has samples whose times go backwards")
    if (np.diff(table[:, 1:], axis=0) < 0).any():
        raise Malformed("has a processor time that goes backwards")
    return ClientSeries(table[:, 0], table[:, 1:] / int(told[1]))


def client_samples(
    folder: Folder, cell: CellDocument, problems: list[Problem]
) -> list[ClientSamples]:
    """Of every host with a client process; empty where one has none, as in older archives."""
    hosts = dict.fromkeys(process.host for process in cell.processes)
    present = set(folder.names)
    samples = []
    for host in hosts:
        name = f"clients_cpu.{host}"
        if name not in present:
            return []
        try:
            series = read_client_cpu(folder.path(name))
        except Malformed as error:
            problems.append(Problem(name, str(error)))
            return []
        samples.append(ClientSamples(host, series, cell.clock_offset_s.get(host, 0.0)))
    return samples


def clients_used(
    samples: Sequence[ClientSamples], window: Window, problems: list[Problem]
) -> tuple[ClientUse, ...]:
    """Of every such host, over the window; empty unless the samples of all of them cover it."""
    what = "the record of its client processes' CPU"
    uses = [u for s in samples for u in window.whole(s.host, s.use(window), what, problems)]
    return tuple(uses) if len(uses) == len(samples) else ()


def cores_per_second(
    samples: Sequence[ClientSamples],
    nodes: Sequence[NodeSamples],
    hosts: Collection[str],
    window: Window,
) -> dict[str, dict[str, Floats]]:
    """Cores by metric and state in each second: of client processes, and of all on their hosts."""
    return {
        "client_cpu": _of_processes(samples, window),
        "client_hosts_cpu": _of_hosts(nodes, hosts, window),
    }


def _of_processes(samples: Sequence[ClientSamples], window: Window) -> dict[str, Floats]:
    if not samples or window.seconds < 1:
        return {}
    return {
        state: used_per_second(((s.times_s, s.series.cpu_s[:, column]) for s in samples), window)
        for column, state in enumerate(STATES)
    }


def _of_hosts(
    nodes: Sequence[NodeSamples], hosts: Collection[str], window: Window
) -> dict[str, Floats]:
    chosen = [node for node in nodes if node.host in hosts]
    if len(chosen) != len(hosts):
        return {}
    threads = sum(node.series.threads for node in chosen)
    percents = percent_per_second(chosen, window)
    return {state: percents[state] * threads / 100 for state in BUSY_STATES if percents}
