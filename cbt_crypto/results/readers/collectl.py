"""collectl's raw files: differences of the kernel's counters between two samples.

A signal ends the daemon, so a last sample cut in the middle is normal and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cbt_crypto.archive.files import Malformed, Stream
from cbt_crypto.results.cell.record import Floats, Ints

#: The counters of a processor line, in its order; all in ticks of 1/`hz` s over all threads.
CPU_STATES = ("user", "nice", "sys", "idle", "iowait", "irq", "softirq", "steal")
_MARK = b"\n>>> "
_NET = b"\nNet"
_PROCESSES = b"\nproc:"
#: How the names begin of processes that `node.KINDS` tells apart, or that may become such; as
#: they stand in a copy of /proc/PID/stat. Most processes are others, so these are searched for,
#: by their bracket first: an expression that begins with one character is the fastest to search.
_PROCESS_LINE = re.compile(rb"\((?:ceph-osd|kworker|kcryptd|dmcrypt|stress-ng)")
_WORKERS = (b"kworker", b"kcryptd", b"dmcrypt")
#: Bytes of `proc:PID stat PID `, which stands before that.
_LONGEST_BEFORE = 64
_NUMBER_OF_CPUS = re.compile(rb"NumCPUs:\s*(\d+)")
_HZ = re.compile(rb"\bHZ:\s*(\d+)")
_NETS = re.compile(rb"NetNames:([^\n]*)")
_NET_SPEED = re.compile(rb"([^\s:]+):(\d+)")
#: A sample of the largest machines, with a line for each process, has some megabytes.
_SAMPLE_LIMIT = 32 << 20
#: Counters that are kept of all samples; one takes up to 250 bytes. A day with twenty links each
#: second, and a thousand kernel workers each tenth, has eleven million.
MOST_COUNTERS = 16_000_000


@dataclass(frozen=True)
class ProcessSample:
    """Ticks used so far by each process that may be told apart: (pid, name) -> user + sys."""

    epoch_s: float
    ticks: dict[tuple[int, str], int]


@dataclass(frozen=True)
class NodeSeries:
    """One host's samples on its clock: `cpu` in ticks by sample and `CPU_STATES`.

    `net_bytes`: interface -> received and sent; `net_speed`: bytes/s where known.
    """

    epoch_s: Floats
    cpu: Ints
    threads: int
    hz: int
    processes: tuple[ProcessSample, ...] = ()
    net_bytes: dict[str, Ints] = field(default_factory=dict)
    net_bytes_per_s_limit: dict[str, float] = field(default_factory=dict)
    truncated: bool = False


def read_collectl(path: Path, with_processes: bool = True) -> NodeSeries:
    """Read `.raw` or `.raw.gz`, perhaps with processes; Malformed below two whole samples."""
    stream = Stream(path)
    header = b""
    times: list[float] = []
    cpu: list[list[int]] = []
    processes: list[ProcessSample] = []
    net: list[dict[str, tuple[int, int]]] = []
    counters = 0
    for sample in _samples(stream):
        if not header:
            header = sample
            continue
        parsed = _cpu_line(sample)
        if parsed is None:
            continue
        epoch_s, ticks = parsed
        times.append(epoch_s)
        cpu.append(ticks)
        # Processes come after the network, and are most of the text.
        listed = sample.find(_PROCESSES)
        try:
            net.append(_network(sample, listed if listed >= 0 else len(sample)))
            if with_processes and listed >= 0:
                processes.append(ProcessSample(epoch_s, _processes(sample, listed)))
                counters += len(processes[-1].ticks)
        except ValueError:
            raise Malformed("holds a counter that is no number") from None
        counters += len(ticks) + len(net[-1])
        if counters > MOST_COUNTERS:
            raise Malformed("holds too many samples, so it was not read")
    if len(times) < 2:
        raise Malformed("holds fewer than two samples of the processors")
    try:
        return NodeSeries(
            epoch_s=np.array(times),
            cpu=np.array(cpu, np.int64),
            threads=_header_number(_NUMBER_OF_CPUS, header, "the number of CPUs"),
            hz=_header_number(_HZ, header, "the tick rate (HZ)"),
            processes=tuple(processes),
            net_bytes=_network_columns(net),
            net_bytes_per_s_limit=_network_limits(header),
            truncated=stream.truncated,
        )
    except OverflowError:
        raise Malformed("holds a counter of more than 64 bits") from None


def _samples(stream: Stream) -> Iterator[bytes]:
    """The header, then each sample up to the next time stamp; the last may not be whole."""
    rest = b""
    for piece in stream:
        # a mark may lie across the two
        searched = max(0, len(rest) - len(_MARK))
        rest += piece
        start = 0
        for mark in _lines(rest, _MARK, searched, len(rest)):
            yield rest[start:mark]
            start = mark + len(_MARK)
        rest = rest[start:]
        if len(rest) > _SAMPLE_LIMIT:
            raise Malformed("has no time stamp for 32 MiB, so it is not collectl's")


def _lines(text: bytes, begun: bytes, start: int, end: int) -> Iterator[int]:
    """Where `begun` is, a newline first: its next character is rare, and found the fastest."""
    first = begun[1:2]
    at = text.find(first, start, end)
    while at >= 0:
        if at and text.startswith(begun, at - 1):
            yield at - 1
        at = text.find(first, at + 1, end)


def _cpu_line(sample: bytes) -> tuple[float, list[int]] | None:
    """Time and ticks of the line of all processors together; None where there is none."""
    start = sample.find(b"\ncpu ")
    if start < 0:
        return None
    try:
        epoch_s = float(sample[: sample.index(b" ")])
        ticks = list(map(int, _line(sample, start + 5).split()))
    except ValueError:
        return None
    return (epoch_s, ticks[: len(CPU_STATES)]) if len(ticks) >= len(CPU_STATES) else None


def _line(text: bytes, start: int) -> bytes:
    end = text.find(b"\n", start)
    return text[start : end if end >= 0 else None]


def _processes(sample: bytes, listed: int) -> dict[tuple[int, str], int]:
    """What processes used so far, from the lines with its copies of /proc/PID/stat."""
    ticks: dict[tuple[int, str], int] = {}
    for line in _PROCESS_LINE.finditer(sample, listed):
        bracket = line.start()
        # Of a line without end, not all for each bracket in it.
        begin = sample.rfind(b"\n", max(0, bracket - _LONGEST_BEFORE), bracket) + 1
        if begin:
            _add_process(ticks, sample[begin:bracket], _line(sample, bracket + 1))
    return ticks


def _add_process(ticks: dict[tuple[int, str], int], before: bytes, line: bytes) -> None:
    """Add one process; `before` and `line` are what stands before and behind its bracket."""
    pid = before[:-1].rpartition(b" ")[2]
    name, bracket, rest = line.rpartition(b") ")
    # user and sys time are the 14th and 15th field; `rest` begins with the 3rd
    words = rest.split(None, 13)
    if bracket and before == b"proc:" + pid + b" stat " + pid + b" " and len(words) > 13:
        # The kernel's own threads have process 2 for a parent; anybody may take their names.
        if name.startswith(_WORKERS) and words[1] != b"2":
            return
        ticks[int(pid), name.decode("utf-8", "replace")] = int(words[11]) + int(words[12])


def _network(sample: bytes, end: int) -> dict[str, tuple[int, int]]:
    counted = {}
    for at in _lines(sample, _NET, 0, end):
        name, colon, rest = _line(sample, at + len(_NET)).partition(b":")
        words = rest.split(None, 9)
        if colon and len(words) > 8:
            counted[name.strip().decode("utf-8", "replace")] = int(words[0]), int(words[8])
    return counted


def _network_columns(samples: list[dict[str, tuple[int, int]]]) -> dict[str, Ints]:
    """Interfaces that are in every sample; the loopback is no network."""
    names = set(samples[0]).intersection(*samples) - {"lo"}
    return {
        name: np.array([sample[name] for sample in samples], np.int64) for name in sorted(names)
    }


def _network_limits(header: bytes) -> dict[str, float]:
    """collectl writes a link's speed in Mbit/s behind its name where it can find it."""
    names = _NETS.search(header)
    speeds = _NET_SPEED.findall(names.group(1)) if names else []
    return {
        name.decode("utf-8", "replace"): int(mbit) * 1e6 / 8 for name, mbit in speeds if int(mbit)
    }


def _header_number(pattern: re.Pattern[bytes], header: bytes, what: str) -> int:
    match = pattern.search(header)
    if match is None or int(match.group(1)) < 1:
        raise Malformed(f"does not say {what}")
    return int(match.group(1))
