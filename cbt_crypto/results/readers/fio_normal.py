"""fio's `normal` output: what it prints for people.

It rounds to four digits, so IOPS are taken from the number of IOs, which it prints in full, and
bytes from that and the block size. There are no bins in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio_job import SYNC, FioOutput, Job, Side

_VERSION = re.compile(r"^fio-\d[\w.-]*", re.MULTILINE)
_JOB = re.compile(r"^(?:<[^>]*> )?(.*): \(groupid=\d+, jobs=\d+\): err=\s*(-?\d+)", re.MULTILINE)
_SIZE = r"(\d+\.?\d*)((?:[KMGT]i)?B)"
_DECLARED = re.compile(
    rf"^(?:<[^>]*> )?(.*): \(g=\d+\): rw=(\w+), bs=\(R\) {_SIZE}-{_SIZE},"
    rf" \(W\) {_SIZE}-{_SIZE}.*?ioengine=(\w+), iodepth=(\d+)",
    re.MULTILINE,
)
_SIDE = re.compile(
    r"^  (read|write): IOPS=[\d.]+[kMGT]?, BW=[^(]*\((\d+\.?\d*)([kMGT]?)B?(?:/s)?\)"
    r"\([\d.]+[KMGTP]?i?B/(\d+)msec\)",
    re.MULTILINE,
)
_LATENCY = re.compile(
    r"^ +clat \((nsec|usec|msec)\): min=.*?, max=\s*(\d+\.?\d*)([kMG]?), avg=\s*(\d+\.?\d*)",
    re.MULTILINE,
)
_PERCENTILES = re.compile(
    r"^ +clat percentiles \((nsec|usec|msec)\):\n((?: +\|.*\n?)+)", re.MULTILINE
)
#: fio 3.42 has syncfs in the heading too.
_SYNC = re.compile(
    r"^  fsync/fdatasync/sync_file_range(?:/syncfs)?:\n"
    r" +sync \((nsec|usec|msec)\): min=.*?, max=\s*(\d+\.?\d*)([kMG]?), avg=\s*(\d+\.?\d*)",
    re.MULTILINE,
)
_SYNC_PERCENTILES = re.compile(
    r"^ +sync percentiles \((nsec|usec|msec)\):\n((?: +\|.*\n?)+)", re.MULTILINE
)
#: Shares of the reads and writes; syncs are counted in, so together they are more than all.
_DEPTHS = re.compile(r"^  IO depths +: (.*)$", re.MULTILINE)
_SHARE = re.compile(r"=(\d+\.?\d*)%")
_PERCENTILE = re.compile(r"(\d+\.?\d*)th=\[\s*(\d+)\]")
_CPU = re.compile(r"^  cpu +: usr=(\d+\.?\d*)%, sys=(\d+\.?\d*)%", re.MULTILINE)
_ISSUED = re.compile(r"^ +issued rwts: total=(\d+),(\d+),\d+,(\d+)", re.MULTILINE)
#: fio prints some kilobytes a job.
_LIMIT = 4 << 20
_SUMMARY_JOB = "All clients"

_NS = {"nsec": 1.0, "usec": 1e3, "msec": 1e6}
_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_fio_normal(data: bytes) -> FioOutput:
    """Read what fio wrote with `--output-format=normal`, 3.x.

    Raises Malformed when a job's block is missing or not whole.
    """
    if len(data) > _LIMIT:
        raise Malformed("is larger than any output of fio's for people, so it was not read")
    text = data.decode("utf-8", "replace")
    starts = list(_JOB.finditer(text))
    if not starts:
        raise Malformed("is empty" if not text.strip() else "holds no job of fio's")
    declared = {match.group(1): match for match in _DECLARED.finditer(text)}
    ends = [match.start() for match in starts[1:]] + [len(text)]
    try:
        jobs = tuple(
            _job(match, text[match.end() : end], declared.get(match.group(1)))
            for match, end in zip(starts, ends)
            if match.group(1) != _SUMMARY_JOB
        )
    except (ValueError, OverflowError):
        raise Malformed("holds a number that is none of fio's") from None
    version = _VERSION.search(text)
    return FioOutput(version.group() if version else "", None, jobs)


def _job(start: re.Match[str], block: str, declared: re.Match[str] | None) -> Job:
    name = start.group(1)
    cpu, issued = _CPU.search(block), _ISSUED.search(block)
    if cpu is None or issued is None:
        raise Malformed(f"is cut off in the block of job {name}")
    ios = {"read": int(issued.group(1)), "write": int(issued.group(2))}
    sides = tuple(_sides(name, block, ios, declared))
    syncs = _syncs(block, sides, sum(ios.values()), int(issued.group(3)))
    return Job(
        name=name,
        host=None,
        error=int(start.group(2)),
        options=_options(declared),
        usr_cpu_percent=float(cpu.group(1)),
        sys_cpu_percent=float(cpu.group(2)),
        sides=sides if syncs is None else (*sides, syncs),
    )


def _options(declared: re.Match[str] | None) -> dict[str, str]:
    if declared is None:
        return {}
    sizes = {side: _block_size(declared, side) for side in ("read", "write")}
    size = sizes["write" if "write" in declared.group(2) else "read"]
    options = {"rw": declared.group(2), "iodepth": declared.group(12)}
    return options if size is None else {**options, "bs": str(size)}


def _block_size(declared: re.Match[str], side: str) -> int | None:
    """In bytes; None where it is a range."""
    low, low_unit, high, high_unit = declared.group(*((3, 4, 5, 6), (7, 8, 9, 10))[side == "write"])
    sizes = {round(float(low) * _BINARY[low_unit]), round(float(high) * _BINARY[high_unit])}
    return sizes.pop() if len(sizes) == 1 else None


def _sides(
    name: str, block: str, ios: dict[str, int], declared: re.Match[str] | None
) -> Iterator[Side]:
    starts = list(_SIDE.finditer(block))
    ends = [match.start() for match in starts[1:]] + [len(block)]
    for match, end in zip(starts, ends):
        direction = match.group(1)
        part = block[match.end() : end]
        latency, runtime_s = _LATENCY.search(part), int(match.group(4)) / 1000
        if latency is None or not runtime_s:
            raise Malformed(f"gives no completion latency for the {direction}s of job {name}")
        count = ios[direction]
        size = None if declared is None else _block_size(declared, direction)
        rounded = float(match.group(2)) * _DECIMAL[match.group(3)]
        bandwidth = rounded if size is None else count * size / runtime_s
        unit = _NS[latency.group(1)]
        if count:
            yield Side(
                direction=direction,
                ios=count,
                bytes=round(bandwidth * runtime_s),
                iops=count / runtime_s,
                bandwidth_bytes_per_s=bandwidth,
                runtime_s=runtime_s,
                clat_ns_mean=float(latency.group(4)) * unit,
                clat_ns_max=float(latency.group(2)) * _DECIMAL[latency.group(3)] * unit,
                percentiles_ns=_percentiles(part),
            )


def _syncs(block: str, sides: tuple[Side, ...], ios: int, counted: int) -> Optional[Side]:
    """fsync and fdatasync as a direction of their own, as in fio's JSON.

    fio does not print how many there were, but for versions that count them as issued: it prints
    to a tenth of a percent how many more IOs its depths saw than it issued reads and writes.
    """
    latency, depths = _SYNC.search(block), _DEPTHS.search(block)
    runtime_s = max((side.runtime_s for side in sides), default=0.0)
    if latency is None or depths is None or not runtime_s:
        return None
    more = sum(map(float, _SHARE.findall(depths.group(1)))) - 100
    count = counted or round(ios * more / 100)
    if count < 1:
        return None
    unit = _NS[latency.group(1)]
    return Side(
        direction=SYNC,
        ios=count,
        bytes=0,
        iops=count / runtime_s,
        bandwidth_bytes_per_s=0.0,
        runtime_s=runtime_s,
        clat_ns_mean=float(latency.group(4)) * unit,
        clat_ns_max=float(latency.group(2)) * _DECIMAL[latency.group(3)] * unit,
        percentiles_ns=_percentiles(block, _SYNC_PERCENTILES),
    )


def _percentiles(part: str, of: re.Pattern[str] = _PERCENTILES) -> dict[float, float]:
    match = of.search(part)
    if match is None:
        return {}
    unit = _NS[match.group(1)]
    pairs = _PERCENTILE.findall(match.group(2))
    return {float(percent): int(value) * unit for percent, value in pairs}
