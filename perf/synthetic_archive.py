"""Archives of any size with known figures, in the layout of docs/archive.md.

The tests take small ones, whose every figure is known, and `perf/report_speed` takes one of a
published campaign's size. Files are as fio 3.33 and collectl 4.3 write them.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

HZ = 100
_BINS = 1856
_DIRECTION = {"randread": 0, "read": 0, "randwrite": 1, "write": 1}


@dataclass(frozen=True)
class Load:
    """What one client process does in one cell: its IOPS, and its latency in ms."""

    iops: float
    latency_ms: float
    #: Standard deviation of the IOPS of one second, in percent.
    noise_percent: float = 2.0


@dataclass(frozen=True)
class SyntheticScenario:
    """Client processes of one scenario and what is varied in it."""

    name: str
    clients: int = 1
    processes_per_client: int = 1
    op_sizes: Sequence[int] = (4 << 20, 4096)
    modes: Sequence[str] = ("randread", "randwrite")
    iodepth: int = 128
    #: More parameters of its cells, such as the drive that it works on.
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SyntheticCell:
    """The dimensions of one cell."""

    scenario: SyntheticScenario
    configuration: str
    op_size: int
    mode: str
    iteration: int


#: What a process of a cell does.
LoadOf = Callable[[SyntheticCell], Load]
#: CPU percent by state of the OSD nodes in a cell.
CpuOf = Callable[[SyntheticCell], Mapping[str, float]]


@dataclass(frozen=True)
class SyntheticCampaign:
    """A whole archive. The first configuration is the baseline."""

    scenarios: Sequence[SyntheticScenario]
    configurations: Sequence[str]
    load: LoadOf
    cpu: CpuOf = field(default=lambda cell: {"user": 20.0, "sys": 10.0, "softirq": 1.0})
    #: Power of each OSD node in W, by its RAPL counters; None for machines without any.
    watts: Optional[Callable[[SyntheticCell], float]] = None
    seconds: int = 20
    ramp: int = 2
    iterations: int = 1
    osd_hosts: int = 1
    threads: int = 8
    processes_per_host: int = 20
    emulated: bool = False
    #: All cells at the same time of day, so that equal files are written once and linked.
    at_once: bool = False
    seed: int = 1
    #: Iterations as rounds, each of every configuration on a deployment of its own.
    rounds: bool = False


def write_archive(campaign: SyntheticCampaign, root: Path) -> Path:
    """Write `campaign` below `root`, which must not hold one yet; return `root`."""
    writer = _Writer(campaign, root)
    cells = list(_cells(campaign))
    planned = [writer.write_cell(cell, number) for number, cell in enumerate(cells)]
    results = root / "results"
    _write_json(
        results / "plan.json",
        {
            "format": 1,
            "title": "synthetic",
            "baseline": {"dimension": "configuration", "value": campaign.configurations[0]},
            "configurations": {name: {} for name in campaign.configurations},
            "cells": planned,
        },
    )
    hosts = {name: ["clients"] for name in writer.clients} | {n: ["osds"] for n in writer.osds}
    _write_json(
        results / "environment.json",
        {
            "format": 1,
            "started": 1.7e9,
            "engine": {"name": "embedded", "version": "0.1.0", "commit": None},
            "commit": None,
            "ceph_conf": {name: "[global]\n" for name in campaign.configurations},
            "hosts": {
                name: {"roles": roles, "emulated": campaign.emulated, "threads": campaign.threads}
                for name, roles in hosts.items()
            },
        },
    )
    return root


def _cells(campaign: SyntheticCampaign) -> list[SyntheticCell]:
    cells = _one_by_one(campaign)
    return sorted(cells, key=lambda cell: cell.iteration) if campaign.rounds else cells


def _one_by_one(campaign: SyntheticCampaign) -> list[SyntheticCell]:
    return [
        SyntheticCell(scenario, configuration, op_size, mode, iteration)
        for configuration in campaign.configurations
        for scenario in campaign.scenarios
        for iteration in range(campaign.iterations)
        for op_size in scenario.op_sizes
        for mode in scenario.modes
    ]


class _Writer:
    def __init__(self, campaign: SyntheticCampaign, root: Path) -> None:
        self.campaign = campaign
        self.root = root
        self.clients = [f"client{n}" for n in range(max(s.clients for s in campaign.scenarios))]
        self.osds = [f"osd{n}" for n in range(campaign.osd_hosts)]
        self._random = np.random.default_rng(campaign.seed)
        self._written: dict[tuple[Any, ...], Path] = {}

    def write_cell(self, cell: SyntheticCell, number: int) -> dict[str, Any]:
        """Write the files of one cell; return its entry in the plan."""
        campaign, scenario = self.campaign, cell.scenario
        name = f"id-{number:08x}"
        path = f"results/{cell.iteration:08d}/{name}"
        folder = self.root / path
        folder.mkdir(parents=True)
        length = campaign.ramp + campaign.seconds
        begun = 1_700_000_000 + (0 if campaign.at_once else number * (length + 10))
        start = begun + campaign.ramp
        load = campaign.load(cell)
        processes = []
        for host in self.clients[: scenario.clients]:
            for volume in range(scenario.processes_per_client):
                self._client(folder, cell, load, f"{volume}", host, start)
                processes.append(
                    {
                        "host": host,
                        "volume": str(volume),
                        "exit_status": 0,
                        "json": f"json_output.{volume}.{host}",
                        "logs": f"output.{volume}",
                    }
                )
        for host in (*self.osds, *self.clients[: scenario.clients]):
            self._collectl(folder, cell, host, begun, length)
        if campaign.watts is not None:
            for host in self.osds:
                text = energy_samples(campaign.watts(cell), begun, length)
                (folder / f"energy.{host}").write_text(text)
        identity = {
            "id": name,
            "iteration": cell.iteration,
            "scenario": scenario.name,
            "configuration": cell.configuration,
            "parameters": {
                "op_size": cell.op_size,
                "mode": cell.mode,
                "iodepth": scenario.iodepth,
                **scenario.parameters,
                "time": campaign.seconds,
                "ramp": campaign.ramp,
            },
        }
        _write_json(
            folder / "cell.json",
            {
                "format": 1,
                **identity,
                "definition": "synthetic",
                "state": "finished",
                "reason": None,
                "started": float(begun),
                "ended": float(begun + length),
                "clients": self.clients[: scenario.clients],
                "osd_hosts": self.osds,
                "clock_offset_s": {},
                "processes": processes,
                "deployment": f"{cell.iteration}-{cell.configuration}" if campaign.rounds else None,
            },
        )
        _write_json(
            folder / "proof.json",
            {"format": 1, "configuration": cell.configuration, "proved": True, "overlays": []},
        )
        return {**identity, "path": path}

    def _client(
        self, folder: Path, cell: SyntheticCell, load: Load, volume: str, host: str, start: int
    ) -> None:
        seconds, direction = self.campaign.seconds, _DIRECTION[cell.mode]
        rates = self._random.normal(load.iops, load.iops * load.noise_percent / 100, seconds)
        rates = np.maximum(rates, 0)
        rates *= load.iops / rates.mean()
        times = (start + 1 + np.arange(seconds)) * 1000
        latency = load.latency_ms * 1e6 * load.iops / np.maximum(rates, load.iops / 100)
        bins = latency_bins(load.latency_ms, round(load.iops * seconds))
        output = fio_json(cell.mode, cell.op_size, load.iops, seconds, start, bins)
        (folder / f"json_output.{volume}.{host}").write_text(output)
        (folder / f"output.{volume}.{host}").write_text("")
        kinds = {"bw": rates * cell.op_size / 1024, "iops": rates, "clat": latency, "lat": latency}
        for kind, values in kinds.items():
            text = _log(times, values, direction)
            (folder / f"output.{volume}_{kind}.1.log.{host}").write_text(text)
        key = ("hist", load, direction, start)
        target = folder / f"output.{volume}_clat_hist.1.log.{host}"
        self._once(key, target, lambda: histogram_log(times, bins, direction, cell.op_size))

    def _collectl(
        self, folder: Path, cell: SyntheticCell, host: str, begun: int, length: int
    ) -> None:
        directory = folder / f"collectl.{host}"
        directory.mkdir()
        states = dict(self.campaign.cpu(cell))
        key = ("collectl", tuple(sorted(states.items())), begun)
        target = directory / f"{host}-20231114-000000.raw.gz"
        self._once(key, target, lambda: self._raw(states, begun, length))

    def _raw(self, states: Mapping[str, float], begun: int, length: int) -> bytes:
        text = collectl_raw(
            states, begun, length, self.campaign.threads, self.campaign.processes_per_host
        )
        # a daemon that a signal ended leaves no trailer
        return gzip.compress(text, 6, mtime=0)[:-8]

    def _once(self, key: tuple[Any, ...], target: Path, make: Callable[[], bytes]) -> None:
        if key in self._written:
            os.link(self._written[key], target)
            return
        target.write_bytes(make())
        if self.campaign.at_once:
            self._written[key] = target


def latency_bins(mean_ms: float, ios: int) -> dict[int, int]:
    """Middles of fio's bins in ns -> counts: a log-normal latency of about that mean."""
    index = np.arange(_BINS)
    octave = np.maximum(index // 64 - 1, 0)
    middle = np.where(index < 128, index, ((64 + index % 64) << octave) + ((1 << octave) >> 1))
    with np.errstate(divide="ignore"):
        distance = (np.log(middle) - np.log(mean_ms * 1e6) + 0.08) / 0.4
    share = np.exp(-(distance**2) / 2)
    share = np.where(index < 128, 0, share / share.sum())
    counts = np.floor(share * ios).astype(np.int64)
    counts[int(np.argmax(share))] += ios - int(counts.sum())
    return {int(middle[i]): int(counts[i]) for i in np.flatnonzero(counts)}


def fio_json(
    mode: str, op_size: int, iops: float, seconds: int, start: int, bins: Mapping[int, int]
) -> str:
    """What fio writes with json+ for one process and one job."""
    ios = round(iops * seconds)
    values = np.array(sorted(bins))
    reached = np.cumsum([bins[int(v)] for v in values])

    def at(percent: float) -> int:
        place = np.searchsorted(reached, percent / 100 * reached[-1])
        return int(values[min(int(place), len(values) - 1)])

    mean = float(np.average(values, weights=[bins[int(v)] for v in values]))
    percents = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
    latency = {
        "min": int(values[0]),
        "max": int(values[-1]),
        "mean": mean,
        "stddev": mean / 2,
        "N": int(reached[-1]),
    }
    full = {
        **latency,
        "percentile": {f"{percent:.6f}": at(percent) for percent in percents},
        "bins": {str(int(v)): bins[int(v)] for v in values},
    }
    nothing = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    active = {
        "io_bytes": ios * op_size,
        "io_kbytes": ios * op_size // 1024,
        "bw_bytes": round(iops * op_size),
        "bw": round(iops * op_size / 1024),
        "iops": iops,
        "runtime": seconds * 1000,
        "total_ios": ios,
        "slat_ns": nothing,
        "clat_ns": full,
        "lat_ns": latency,
    }
    idle = {
        "io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "runtime": 0, "total_ios": 0,
        "slat_ns": nothing, "clat_ns": nothing, "lat_ns": nothing,
    }  # fmt: skip
    is_write = _DIRECTION[mode] == 1
    document = {
        "fio version": "fio-3.33",
        "timestamp": start + seconds,
        "timestamp_ms": (start + seconds) * 1000 + 300,
        "time": "Tue Nov 14 22:13:20 2023",
        "global options": {"ioengine": "rbd", "rw": mode, "log_avg_msec": "1000"},
        "jobs": [
            {
                "jobname": f"rbd-{mode}",
                "groupid": 0,
                "error": 0,
                "elapsed": seconds + 3,
                "job options": {"name": f"rbd-{mode}", "bs": str(op_size)},
                "read": idle if is_write else active,
                "write": active if is_write else idle,
                "job_runtime": seconds * 1000,
                "usr_cpu": 21.5,
                "sys_cpu": 4.5,
                "ctx": ios,
            }
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _log(times: NDArray[np.int64], values: NDArray[np.float64], direction: int) -> str:
    pairs = zip(times.tolist(), np.rint(values).astype(np.int64).tolist())
    return "".join(f"{time}, {value}, {direction}, 0, 0\n" for time, value in pairs)


def histogram_log(
    times: NDArray[np.int64], bins: Mapping[int, int], direction: int, op_size: int
) -> bytes:
    """A clat_hist log: the bins of the whole run, spread evenly over the times."""
    index = np.arange(_BINS)
    octave = np.maximum(index // 64 - 1, 0)
    middle = np.where(index < 128, index, ((64 + index % 64) << octave) + ((1 << octave) >> 1))
    total = np.zeros(_BINS, np.int64)
    total[np.searchsorted(middle, sorted(bins))] = [bins[value] for value in sorted(bins)]
    reached = total[None, :] * (np.arange(len(times) + 1)[:, None]) // len(times)
    lines = []
    for time, counts in zip(times.tolist(), np.diff(reached, axis=0).tolist()):
        lines.append(f"{time}, {direction}, {op_size}, {', '.join(map(str, counts))}\n")
    return "".join(lines).encode()


def collectl_raw(
    states: Mapping[str, float], begun: int, length: int, threads: int, processes: int
) -> bytes:
    """A raw file: a sample a second of every thread, and of every process each ten seconds."""
    names = ("user", "nice", "sys", "idle", "iowait", "irq", "softirq", "steal")
    share = np.array([states.get(name, 0.0) for name in names]) / 100
    share[3] = 1 - share.sum()
    parts = [_RAW_HEADER.format(begun=begun, threads=threads)]
    for second in range(length + 1):
        ticks = np.rint(share * HZ * second).astype(np.int64)
        one = " ".join(map(str, ticks.tolist()))
        parts.append(f">>> {begun + second}.001 <<<\n")
        parts.append(f"cpu  {' '.join(map(str, (ticks * threads).tolist()))} 0 0\n")
        parts.extend(f"cpu{number} {one} 0 0\n" for number in range(threads))
        parts.append(_RAW_OTHER)
        sent = 1_000_000 * second
        parts.append(f"Net   eth0: {sent} {second} 0 0 0 0 0 0 {sent} {second} 0 0 0 0 0 0\n")
        if second % 10 == 0:
            parts.extend(_process_lines(number, second) for number in range(processes))
    parts.append(f">>> {begun + length + 1}.001 <<<\ncpu  1 2")
    return "".join(parts).encode()


def energy_samples(watts: float, begun: int, length: int) -> str:
    """A sample a second of a package and its memory, whose counters turn over on the way."""
    limit = 10_000_000_000
    used = [round(share * watts * 1e6) for share in (0.75, 0.25)]
    lines = [f"# zone intel-rapl:0 {limit} package-0", f"# zone intel-rapl:0:1 {limit} dram"]
    for second in range(length + 2):
        counted = tuple((limit - one + one * second) % limit for one in used)
        lines.append(f"{begun + second}.250000000 {counted[0]} {counted[1]}")
    return "\n".join(lines) + "\n"


def _process_lines(number: int, second: int) -> str:
    name = ("ceph-osd", "kworker/u9:1-kcryptd", "dmcrypt_write/25", "bash")[min(number, 3)]
    ticks = second * (40, 20, 10, 0)[min(number, 3)]
    pid = 1000 + number
    stat = f"S 1 1 1 0 -1 4194560 311 669 0 7 {ticks} {ticks // 4} 0 0 20 0 13 0 11 42717184 2984"
    return f"proc:{pid} stat {pid} ({name}) {stat}\n" + _RAW_PROCESS.replace("PID", str(pid))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


_RAW_HEADER = """\
################################################################################
# Collectl:   V4.3.1-1  HiRes: 1  Options: -s+mYZ -i 1:10 -F0 -f collectl
# Host:       node  DaemonOpts:
# Booted:     1699990000.51 [20231114-13:38:40]
# Distro:     debian 12.11  Platform:
# Date:       20231114-135404  Secs: {begun} TZ: +0000
# SubSys:     cdnmYZ Options:  Interval: 1:10 NumCPUs: {threads}  NumBud: 0 Flags: ix
# Filters:    NfsFilt:  EnvFilt:  TcpFilt: ituc
# HZ:         100  Arch: x86_64-linux-gnu-thread-multi PageSize: 4096
# Cpu:        GenuineIntel Speed(MHz): 2499.982 Cores: {threads}  Siblings: {threads} Nodes: 1
# Kernel:     6.1.0  Memory: 24684096 kB  Swap: 0 kB
# NumDisks:   1 DiskNames: vda
# NumNets:    2 NetNames: lo:?? eth0:10000
# NumSlabs:   235 Version: 2.1
################################################################################
"""
_RAW_OTHER = """\
intr 273666
ctxt 471534
processes 8804
procs_running 1
procs_blocked 0
disk  254       0 vda 53694 10514 2980146 17015 25689 36975 3226376 5206 0 11784 24181 6082
load 0.04 0.11 0.08 1/309 8803
""" + "".join(f"Counter{number}:  {number * 12345} kB\n" for number in range(95))
_RAW_PROCESS = "".join(
    f"proc:PID {line}\n"
    for line in (
        "Tgid:\tPID", "Uid:\t0\t0\t0\t0", "VmPeak:\t   49924 kB", "VmSize:\t   41716 kB",
        "VmRSS:\t   12224 kB", "VmData:\t   34280 kB", "voluntary_ctxt_switches:\t331",
        "nonvoluntary_ctxt_switches:\t44", "cmd /usr/bin/program --foreground --cluster ceph",
        "io rchar: 0", "io wchar: 0", "io syscr: 0", "io syscw: 0", "io read_bytes: 0",
        "io write_bytes: 0", "io cancelled_write_bytes: 0",
    )
)  # fmt: skip
