"""What the recorder of each host says of a run's window, its events, and the latency's cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

import numpy as np

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed, Problem
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.cycles import Cycle, cycle_of
from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.record import Floats
from cbt_crypto.results.cell.window import Window, used_per_second
from cbt_crypto.results.readers.recording import Recording, ThreadSeries, read_recording

#: A RocksDB thread that takes more of a second compacts, or flushes; idle ones take a tick at most.
_WORKING = 0.05
#: Classes whose work is an event, as RocksDB names its pools: low compacts, high flushes.
_EVENTS = {"rocksdb:low": "compaction", "rocksdb:high": "memtable flush"}

#: What an operation is called as a mark that an OSD says took a second or longer.
SLOW = "slow operation"


@dataclass(frozen=True)
class ThreadUse:
    """Cores of a class of threads; `busiest` is its busiest thread's, by the median second.

    `waits` is how many of them waited for a CPU, in the mean; None where that was not counted.
    """

    user: float
    sys: float
    busiest: float
    name: str = ""
    waits: Optional[float] = None


@dataclass(frozen=True)
class DiskUse:
    """One device: the share of the time in which it had work, and how much it had on average."""

    busy: float
    queue: float
    flushes_per_s: float


@dataclass(frozen=True)
class HostRecord:
    """One host over the window: shares of all CPUs' time and of links.

    `top_cpu` is of the busiest CPU in the median second.
    """

    host: str
    has_osds: bool
    has_clients: bool
    seconds: float
    cpus: int
    every: int
    busy: float
    top_cpu: float
    #: User and system cores of all processes.
    cores: tuple[float, float]
    switches_per_s: float
    sent_bytes_per_s: float
    ghz: Optional[float] = None
    threads: Mapping[str, ThreadUse] = field(default_factory=dict)
    disks: Mapping[str, DiskUse] = field(default_factory=dict)
    links: Mapping[str, float] = field(default_factory=dict)
    #: Idle state -> share of all CPUs' time, over all that was recorded.
    idle: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """Something that happened on a host, or an OSD, by the head's clock in s since the epoch."""

    what: str
    host: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Recorded:
    """What was recorded beside a run; nothing for archives without."""

    hosts: tuple[HostRecord, ...] = ()
    marks: tuple[Mark, ...] = ()
    cycles: tuple[Cycle, ...] = ()


def recorded(
    folder: Folder,
    cell: CellDocument,
    window: Window,
    series: Mapping[str, Series],
    problems: list[Problem],
) -> Recorded:
    """Of every host that has a recording; one that cannot be read is a problem.

    `series` are the run's; their cycles are sought in every archive, what shares them in these.
    """
    hosts, marks = [], list(_slow(cell, window))
    boots: dict[str, list[HostRecord]] = {}
    cores: dict[str, Floats] = {}
    for host in dict.fromkeys((*cell.osd_hosts, *cell.clients)):
        name = f"recording.{host}"
        if name not in folder.names:
            continue
        try:
            recording = read_recording(folder.path(name))
        except Malformed as error:
            problems.append(Problem(name, str(error)))
            continue
        times = recording.epoch_s - cell.clock_offset_s.get(host, 0.0)
        middles = (times[1:] + times[:-1]) / 2
        inside = slice(*np.searchsorted(middles, (window.start_s, window.end_s)).tolist())
        seconds = float(np.diff(times)[inside].sum())
        if window.shortfall(seconds):
            problems.append(Problem(name, str(window.shortfall(seconds))))
            continue
        hosts.append(_record(host, cell, recording, inside, seconds))
        boots.setdefault(recording.boot or host, []).append(hosts[-1])
        if host in cell.osd_hosts:
            marks += list(_marks(host, recording, times, inside))
            for kind, threads in recording.threads.items():
                used = np.concatenate(([0.0], np.cumsum(threads.cpu_s.sum(axis=1))))
                if series:
                    each = used_per_second([(times, used)], window)
                    cores[kind] = cores.get(kind, 0.0) + each
    found = (cycle_of(name, one.clat_ns_mean, cores) for name, one in series.items())
    hosts = [one for together in boots.values() for one in _with_others(together)]
    return Recorded(tuple(hosts), tuple(marks), tuple(one for one in found if one is not None))


def _record(
    host: str, cell: CellDocument, recording: Recording, inside: slice, seconds: float
) -> HostRecord:
    spans = np.maximum(np.diff(recording.epoch_s)[inside], 1e-3)
    cpu = recording.cpu_s[inside].sum(axis=0)
    total = max(float(cpu.sum()), 1e-9)
    plain = {name: values[inside] for name, values in recording.plain.items()}
    links = {name: rows[inside].sum(axis=0) for name, rows in recording.links.items()}
    all_s = float(np.ptp(recording.epoch_s)) * recording.cpus
    return HostRecord(
        host=host,
        has_osds=host in cell.osd_hosts,
        has_clients=host in cell.clients,
        seconds=seconds,
        cpus=recording.cpus,
        every=recording.every,
        # user, sys, idle, iowait, irq, softirq, steal
        busy=float(cpu[0] + cpu[1] + cpu[4] + cpu[5]) / total,
        top_cpu=float(np.median(recording.top_cpu_s[inside] / spans)),
        switches_per_s=float(np.nansum(plain["ctxt"])) / seconds,
        sent_bytes_per_s=sum(float(row[2]) for row in links.values()) / seconds,
        ghz=None if np.isnan(plain["mhz"]).all() else float(np.nanmean(plain["mhz"])) / 1000,
        cores=(float(cpu[0]) / seconds, float(cpu[1]) / seconds),
        threads={
            kind: _threads(of_kind, inside, spans) for kind, of_kind in recording.threads.items()
        },
        disks={name: _disk(rows[inside], seconds) for name, rows in recording.disks.items()},
        links={
            name: float(max(row[0] / limits[0], row[2] / limits[1])) / seconds
            for name, row in links.items()
            if all(limits := recording.link_bytes_per_s.get(name, (0.0, 0.0)))
        },
        idle={name: idle / all_s for name, idle in recording.idle_s.items()} if all_s else {},
    )


def _threads(threads: ThreadSeries, inside: slice, spans: Floats) -> ThreadUse:
    user, system = (threads.cpu_s[inside].sum(axis=0) / spans.sum()).tolist()
    busiest = float(np.median(threads.busiest_s[inside] / spans)) if len(spans) else 0.0
    waits = None if threads.waits_s is None else float(threads.waits_s[inside].sum() / spans.sum())
    return ThreadUse(user, system, busiest, threads.names[0] if threads.names else "", waits)


def _with_others(hosts: Sequence[HostRecord]) -> Iterator[HostRecord]:
    """`other`: what `hosts`, on one kernel, used and no class has; many processes end unseen."""
    known = [use for one in hosts for kind, use in one.threads.items() if kind != "other"]
    taken = sum(use.user for use in known), sum(use.sys for use in known)
    for host in hosts:
        user, system = (max(all_ - ours, 0.0) for all_, ours in zip(host.cores, taken))
        seen = host.threads.get("other", ThreadUse(0.0, 0.0, 0.0))
        threads = {**host.threads, "other": replace(seen, user=user, sys=system)}
        yield replace(host, threads=threads)


def _disk(rows: Floats, seconds: float) -> DiskUse:
    _, _, read_ms, write_ms, _, _, busy_ms, flushes = rows.sum(axis=0).tolist()
    return DiskUse(
        busy=busy_ms / 1000 / seconds,
        queue=(read_ms + write_ms) / 1000 / seconds,
        flushes_per_s=flushes / seconds,
    )


def _slow(cell: CellDocument, window: Window) -> Iterator[Mark]:
    for op in cell.slow_ops:
        start = op.began - cell.clock_offset_s.get(op.host, 0.0)
        if start < window.end_s and start + op.seconds > window.start_s:
            yield Mark(SLOW, f"{op.osd} ({op.what})", start, start + op.seconds)


def _marks(host: str, recording: Recording, times: Floats, inside: slice) -> Iterator[Mark]:
    """Stretches of seconds in which RocksDB's own threads worked."""
    for kind, what in _EVENTS.items():
        threads = recording.threads.get(kind)
        if threads is None:
            continue
        spans = np.maximum(np.diff(times), 1e-3)
        works = threads.cpu_s.sum(axis=1) / spans > _WORKING
        works[: inside.start] = works[inside.stop :] = False
        edges = np.flatnonzero(np.diff(np.concatenate(([False], works, [False]))))
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist()):
            yield Mark(what, host, float(times[first]), float(times[last]))
