"""What a node did in a window: its processors, its processes and its network."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np

from cbt_crypto.archive.documents import CellDocument, OsdStorage
from cbt_crypto.results.cell.record import Floats
from cbt_crypto.results.cell.window import Sampled, Window, used_per_second
from cbt_crypto.results.readers.collectl import CPU_STATES, NodeSeries, ProcessSample

#: The states that the report shows; `user` includes nice, as both are user time.
SHOWN_STATES = ("user", "sys", "iowait", "irq", "softirq", "steal")
#: The states in which a thread works for someone.
BUSY_STATES = ("user", "sys", "irq", "softirq")
#: Processor time counted by itself. kcryptd's workers carry its name while they work for it.
KINDS = {
    "ceph_osd": re.compile(r"ceph-osd"),
    "dmcrypt": re.compile(r"kcryptd|dmcrypt"),
    "neighbours": re.compile(r"stress-ng"),
}
#: A sample this much outside of the window still belongs to the second at its edge.
_EDGE_S = 0.05


@dataclass(frozen=True)
class NodeUse:
    """One node over `seconds` of the window: CPU by state, cores by kind, the busiest link.

    None where processes were not sampled twice, or a link's speed is unknown. `accounted` is the
    share of threads' time that the states add up to: far from 1, counters are damaged.
    """

    host: str
    threads: int
    seconds: float
    cpu_seconds: Mapping[str, float]
    process_cores: Optional[Mapping[str, float]] = None
    network_percent: Optional[float] = None
    accounted: float = 1.0

    def percent(self, states: Sequence[str]) -> float:
        """Share of the threads' time in these states, 0 to 100."""
        return 100 * sum(self.cpu_seconds[s] for s in states) / (self.threads * self.seconds)


@dataclass(frozen=True)
class NodesUse:
    """Several nodes together over the window."""

    nodes: tuple[NodeUse, ...]

    @classmethod
    def of_hosts(cls, uses: Iterable[NodeUse], hosts: Collection[str]) -> Optional[NodesUse]:
        """Those of `hosts`; None unless there are any and each of them tells."""
        nodes = tuple(use for use in uses if use.host in hosts)
        return cls(nodes) if nodes and len(nodes) == len(hosts) else None

    @property
    def threads(self) -> int:
        """Hardware threads of all nodes."""
        return sum(node.threads for node in self.nodes)

    def percent(self, state: str) -> float:
        """Share of all threads' time in a state, 0 to 100."""
        return 100 * self.cores(state) / self.threads

    def cores(self, state: str) -> float:
        """Threads' worth of time in a state: CPU seconds a second, all nodes together."""
        return sum(node.cpu_seconds[state] / node.seconds for node in self.nodes)

    @property
    def busy_cores(self) -> float:
        """Threads' worth of work: user, sys, irq and softirq."""
        return sum(self.cores(state) for state in BUSY_STATES)

    def process_cores(self, kind: str) -> Optional[float]:
        """Threads' worth of one kind of processes; None unless every node was sampled."""
        cores = [n.process_cores[kind] for n in self.nodes if n.process_cores is not None]
        return sum(cores) if len(cores) == len(self.nodes) else None


class NodeSamples(Sampled[NodeSeries]):
    """One host's processors, processes and network."""

    def use(self, window: Window) -> Optional[NodeUse]:
        """None when there are not two samples inside of the window."""
        times = self.times_s
        inside = (times >= window.start_s - _EDGE_S) & (times <= window.end_s + _EDGE_S)
        places = np.flatnonzero(inside)
        if len(places) < 2 or times[places[-1]] <= times[places[0]]:
            return None
        first, last = int(places[0]), int(places[-1])
        # counters are read on between samples, so that the seconds are those of the clients' IOs
        start, end = max(window.start_s, float(times[0])), min(window.end_s, float(times[-1]))
        cpu = self.series.cpu
        ticks = np.array([np.diff(np.interp([start, end], times, counter))[0] for counter in cpu.T])
        named = dict(zip(CPU_STATES, (ticks / self.series.hz).tolist()))
        named["user"] += named["nice"]
        seconds = end - start
        return NodeUse(
            host=self.host,
            threads=self.series.threads,
            seconds=seconds,
            cpu_seconds={state: max(named[state], 0.0) for state in (*SHOWN_STATES, "idle")},
            process_cores=self._process_cores(window),
            network_percent=self._network_percent(first, last),
            accounted=float(ticks.sum()) / (self.series.hz * self.series.threads * seconds),
        )

    def _process_cores(self, window: Window) -> Optional[dict[str, float]]:
        low = window.start_s + self.offset_s - _EDGE_S
        high = window.end_s + self.offset_s + _EDGE_S
        samples = [sample for sample in self.series.processes if low <= sample.epoch_s <= high]
        if len(samples) < 2:
            return None
        seconds = samples[-1].epoch_s - samples[0].epoch_s
        if seconds <= 0 or self.series.hz <= 0:  # only a damaged file says so
            return None
        ticks = {kind: 0 for kind in KINDS}
        for before, after in zip(samples, samples[1:]):
            _add_ticks(ticks, before, after)
        return {kind: used / self.series.hz / seconds for kind, used in ticks.items()}

    def _network_percent(self, first: int, last: int) -> Optional[float]:
        seconds = float(self.times_s[last] - self.times_s[first])
        shares = [
            100 * float((counted[last] - counted[first]).max()) / seconds / limit
            for name, limit in self.series.net_bytes_per_s_limit.items()
            if (counted := self.series.net_bytes.get(name)) is not None
        ]
        return max(shares, default=None)


def _add_ticks(ticks: dict[str, int], before: ProcessSample, after: ProcessSample) -> None:
    """Add what each kind used between two samples; a worker counts by its name at the end."""
    used_before = {pid: used for (pid, _), used in before.ticks.items()}
    for (pid, name), used in after.ticks.items():
        for kind, pattern in KINDS.items():
            if pattern.search(name):
                ticks[kind] += max(used - used_before.get(pid, 0), 0)


def percent_per_second(nodes: Sequence[NodeSamples], window: Window) -> dict[str, Floats]:
    """Percent of all nodes' threads in each shown state, for each second of the window."""
    if not nodes or window.seconds < 1:
        return {}
    threads = sum(node.series.threads for node in nodes)
    percents = {}
    for state in SHOWN_STATES:
        names = ("user", "nice") if state == "user" else (state,)
        columns = [CPU_STATES.index(name) for name in names]
        counters = [
            (node.times_s, node.series.cpu[:, columns].sum(axis=1) / node.series.hz)
            for node in nodes
        ]
        percents[state] = 100 * used_per_second(counters, window) / threads
    return percents


@dataclass(frozen=True)
class StorageUse:
    """Bytes of all OSDs while clients ran, ramp included; `hit`, `missed`: BlueStore's reads.

    Drives' bytes are None where a host does not tell.
    """

    hit: int
    missed: int
    client_read: int
    client_written: int
    drive_read: Optional[int]
    drive_written: Optional[int]

    @property
    def from_memory_percent(self) -> Optional[float]:
        """The share of what was read that BlueStore had in its memory; None without reads."""
        served = self.hit + self.missed
        return 100 * self.hit / served if served else None


@dataclass(frozen=True)
class IdleUse:
    """What other groups' OSDs took meanwhile on the same hosts; percent of one CPU, bytes."""

    osds: int
    cpu_percent: float
    own_cpu_percent: float
    drive_bytes_per_s: float
    own_drive_bytes_per_s: float


@dataclass(frozen=True)
class OtherWork:
    """What a shared cluster did from before clients started (`seconds`) until they ended.

    `client_ops` include the campaign's, of `own_seconds`; the rest are placement groups.
    """

    client_ops: int
    recovery_ops: int
    seconds: float
    own_seconds: float
    scrubbing: int
    recovering: int


def other_work(cell: CellDocument) -> Optional[OtherWork]:
    """None of a cluster that the campaign deployed, or where an OSD did not tell."""
    told, osds = cell.beside, cell.storage.values()
    ops, recovered = (
        [osd.counters.get(name) for osd in osds] for name in ("client_ops", "recovery_ops")
    )
    if told is None or not osds or None in ops or cell.started is None or cell.ended is None:
        return None
    done, moved = (sum(count or 0 for count in counts) for counts in (ops, recovered))
    own = cell.ended - cell.started
    return OtherWork(done, moved, told.seconds, own, told.scrubbing, told.recovering)


_COUNTED = ("buffer_hit_bytes", "buffer_miss_bytes", "client_read_bytes", "client_written_bytes")


def storage_use(cell: CellDocument) -> Optional[StorageUse]:
    """None where an OSD did not tell, or nobody asked."""
    osds = list(cell.storage.values())
    are_all = {osd.host for osd in osds} == set(cell.osd_hosts)
    if not (osds and are_all and all(n in osd.counters for osd in osds for n in _COUNTED)):
        return None
    hit, missed, read, written = (sum(osd.counters[n] for osd in osds) for n in _COUNTED)
    drives = _of_drives(cell.storage) or (None, None)
    return StorageUse(hit, missed, read, written, *drives)


def idle_use(cell: CellDocument) -> Optional[IdleUse]:
    """None where no group idled, or an OSD did not tell."""
    seconds = next((osd.seconds for osd in cell.idle.values()), None)
    sides = [(_cpu_ms(side), _of_drives(side)) for side in (cell.idle, cell.storage)]
    (idle_ms, idle_bytes), (own_ms, own_bytes) = sides
    if not seconds or idle_ms is None or own_ms is None or not idle_bytes or not own_bytes:
        return None
    cpu, own_cpu = (ms / 10 / seconds for ms in (idle_ms, own_ms))
    return IdleUse(
        len(cell.idle), cpu, own_cpu, sum(idle_bytes) / seconds, sum(own_bytes) / seconds
    )


def _cpu_ms(osds: Mapping[str, OsdStorage]) -> Optional[int]:
    told = [osd.cpu_ms for osd in osds.values()]
    known = [ms for ms in told if ms is not None]
    return sum(known) if len(known) == len(told) else None


def times_overwritten(cell: CellDocument) -> Optional[float]:
    """How often all drives together had been written over before the cell; None where unknown."""
    drives = cell.overwritten.values()
    size = sum(drive.size_bytes for drive in drives)
    return sum(drive.written_bytes for drive in drives) / size if size else None


def _of_drives(osds: Mapping[str, OsdStorage]) -> Optional[tuple[int, int]]:
    """Bytes read and written: at each device that is open, once; of OSDs on files by process."""
    moved: dict[object, tuple[int, int]] = {}
    for name, osd in osds.items():
        tops = [layers[0] for layers in osd.devices if layers]
        for top in tops:
            moved[osd.host, top.device] = (top.read_bytes, top.written_bytes)
        if not tops:
            if osd.process is None:
                return None
            moved[name] = (osd.process.read_bytes, osd.process.written_bytes)
    return sum(r for r, _ in moved.values()), sum(w for _, w in moved.values())
