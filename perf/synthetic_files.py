"""Files with known content as fio 3.33, collectl 4.3 and our own sampler of energy write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of a kernel's clock: what collectl's samples of CPU time count.
HZ = 100
_BINS = 1856
#: By mode, as fio's logs write it.
DIRECTION = {"randread": 0, "read": 0, "randwrite": 1, "write": 1}


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
    latency, full, nothing = _latencies(bins)
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
    job = {
        "jobname": f"rbd-{mode}",
        "groupid": 0,
        "error": 0,
        "elapsed": seconds + 3,
        "job options": {"name": f"rbd-{mode}", "bs": str(op_size)},
        "read": idle if DIRECTION[mode] else active,
        "write": active if DIRECTION[mode] else idle,
        "job_runtime": seconds * 1000,
        "usr_cpu": 21.5,
        "sys_cpu": 4.5,
        "ctx": ios,
    }
    document = {
        "fio version": "fio-3.33",
        "timestamp": start + seconds,
        "timestamp_ms": (start + seconds) * 1000 + 300,
        "time": "Tue Nov 14 22:13:20 2023",
        "global options": {"ioengine": "rbd", "rw": mode, "log_avg_msec": "1000"},
        "jobs": [job],
    }
    return json.dumps(document, indent=2) + "\n"


def _latencies(bins: Mapping[int, int]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Of these bins: as fio prints lat_ns, as it prints clat_ns, and what stands where is none."""
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
    return latency, full, nothing


def average_log(times: NDArray[np.int64], values: NDArray[np.float64], direction: int) -> str:
    """A log with an average for each time, such as bw, iops or clat."""
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
    used = np.flatnonzero(total)
    reached = total[None, used] * (np.arange(len(times) + 1)[:, None]) // len(times)
    # Most bins are empty: to write each of their numbers took a third of an archive's time.
    words, lines = ["0"] * _BINS, []
    for time, counts in zip(times.tolist(), np.diff(reached, axis=0).tolist()):
        for place, count in zip(used.tolist(), counts):
            words[place] = str(count)
        lines.append(f"{time}, {direction}, {op_size}, {', '.join(words)}\n")
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
