"""What one fio process reports: JSON (`json` and `json+`), `normal` output, and a status line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Optional

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cbt_crypto.archive.documents import Count, Number, Whole
from cbt_crypto.archive.files import Malformed, check_values, first_fault

if TYPE_CHECKING:
    from cbt_crypto.results.readers.histogram import Histogram

#: The direction of fsync and fdatasync, which carry no data.
SYNC = "sync"


@dataclass(frozen=True)
class Side:
    """What one job did in one direction: fio's `percentiles_ns`, json+'s `bins` (ns -> count)."""

    direction: str
    ios: int
    iops: float
    runtime_s: float
    clat_ns_mean: float
    # What a tool does not print is 0, or empty: nobody knows it.
    bytes: int = 0
    bandwidth_bytes_per_s: float = 0.0
    clat_ns_max: float = 0.0
    percentiles_ns: dict[float, float] = field(default_factory=dict)
    bins: Optional[dict[int, int]] = None

    @cached_property
    def histogram(self) -> Optional[Histogram]:
        """The bins, to be merged with others."""
        if self.bins is None:
            return None
        # It needs numpy, which nodes that only measure do not have.
        from cbt_crypto.results.readers.histogram import from_bins  # noqa: PLC0415

        return from_bins(self.bins)


@dataclass(frozen=True)
class Job:
    """One job of a fio process; `host` only in client/server mode, CPU in percent of one."""

    name: str
    host: Optional[str]
    error: int
    options: dict[str, str]
    usr_cpu_percent: float
    sys_cpu_percent: float
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class FioOutput:
    """One output file. `before` is the text that fio or a shell printed ahead of the figures."""

    version: str
    printed_epoch_s: Optional[float]
    jobs: tuple[Job, ...]
    before: str = ""


_START = re.compile(r"^\{", re.MULTILINE)
#: Places tried as the start of the JSON; text before it may hold a brace too.
_ATTEMPTS = 32
#: The entry that sums up all others in client/server mode.
_SUMMARY_JOB = "All clients"
_COUNT = Field(default=0, ge=0, le=2**63 - 1)
#: A latency in ns or a count of IOs; the sum of a campaign's is still a 64-bit number.
_BinNumber = Annotated[int, Field(ge=0, lt=2**53)]


class _Model(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False, frozen=True, defer_build=True)


class _Latency(_Model):
    max: Number = Field(default=0.0, ge=0)
    mean: Number = Field(default=0.0, ge=0)
    N: Optional[Count] = None
    percentile: dict[str, Number] = {}
    bins: Optional[dict[_BinNumber, _BinNumber]] = None


class _Side(_Model):
    io_bytes: int = _COUNT
    bw_bytes: Number = Field(default=0.0, ge=0)
    iops: Number = Field(default=0.0, ge=0)
    runtime: Number = Field(default=0.0, ge=0)
    total_ios: int = _COUNT
    clat_ns: _Latency = _Latency()


class _Sync(_Model):
    lat_ns: _Latency = _Latency()


class _Job(_Model):
    jobname: str = ""
    hostname: Optional[str] = None
    error: int = 0
    port: Optional[int] = None
    options: dict[str, Any] = Field(default={}, alias="job options")
    read: _Side = _Side()
    write: _Side = _Side()
    sync: _Sync = _Sync()
    usr_cpu: Number = 0.0
    sys_cpu: Number = 0.0


class _Output(_Model):
    version: str = Field(alias="fio version")
    timestamp_ms: Optional[Whole] = None
    timestamp: Optional[Whole] = None
    global_options: dict[str, Any] = Field(default={}, alias="global options")
    jobs: list[_Job] = []
    client_stats: list[_Job] = []


def parse_fio_json(data: bytes) -> FioOutput:
    """Read `--output-format=json` or `json+`, with text around it; Malformed if not whole."""
    check_values(data)
    text = data.decode("utf-8", "replace")
    document, start = _last_document(text)
    try:
        output = _Output.model_validate(document)
    except ValidationError as error:
        raise Malformed(f"is not fio's JSON: {': '.join(first_fault(error))}") from None
    names = _hosts(output.client_stats)
    of_clients = [job for job in output.client_stats if job.jobname != _SUMMARY_JOB]
    known = [*output.jobs, *of_clients]
    jobs = [_json_job(job, names, output.global_options) for job in known]
    if not jobs:
        raise Malformed("holds no job, so fio did not run one")
    printed = output.timestamp_ms
    if printed is None and output.timestamp is not None:
        printed = output.timestamp * 1000
    when = None if printed is None else printed / 1000
    return FioOutput(output.version, when, tuple(jobs), text[:start].strip())


def _last_document(text: str) -> tuple[Any, int]:
    """The last JSON object that starts a line and is whole, and where the first of them starts.

    fio prints its figures so far before, where it is told to: anybody may make fio-dump-status.
    """
    decoder = json.JSONDecoder()
    lines = text.strip().splitlines()
    reason = f"holds no JSON but {lines[0][:160]!r}" if lines else "is empty"
    found: Optional[tuple[Any, int]] = None
    place = failed = 0
    while failed < _ATTEMPTS and (match := _START.search(text, place)):
        try:
            document, place = decoder.raw_decode(text, match.start())
            found = document, found[1] if found else match.start()
        except (ValueError, RecursionError) as error:
            reason = f"is cut off or damaged: its JSON does not end well ({error})"
            found, failed, place = None, failed + 1, match.end()
    if found is None:
        raise Malformed(reason)
    return found


def _hosts(jobs: list[_Job]) -> dict[tuple[Optional[str], Optional[int]], Optional[str]]:
    servers = {(job.hostname, job.port) for job in jobs}
    ports = Counter(host for host, _ in servers)
    return {(host, port): f"{host}:{port}" if ports[host] > 1 else host for host, port in servers}


def _json_job(
    job: _Job,
    hosts: dict[tuple[Optional[str], Optional[int]], Optional[str]],
    shared: dict[str, Any],
) -> Job:
    options = {str(key): str(value) for key, value in {**shared, **job.options}.items()}
    sides = (_side("read", job.read), _side("write", job.write))
    return Job(
        name=job.jobname,
        host=hosts.get((job.hostname, job.port)),
        error=job.error,
        options=options,
        usr_cpu_percent=job.usr_cpu,
        sys_cpu_percent=job.sys_cpu,
        sides=(*(side for side in sides if side.ios), *_json_syncs(job)),
    )


def _json_syncs(job: _Job) -> Iterator[Side]:
    """fsync and fdatasync as a direction of their own; fio counts them by their latencies."""
    latency, runtime_s = job.sync.lat_ns, max(job.read.runtime, job.write.runtime) / 1000
    if latency.N and runtime_s:
        yield Side(
            *(SYNC, latency.N, latency.N / runtime_s, runtime_s),
            clat_ns_mean=latency.mean,
            clat_ns_max=latency.max,
            percentiles_ns=_json_percentiles(latency.percentile),
            bins=latency.bins,
        )


def _side(direction: str, side: _Side) -> Side:
    """IOs are those that ended, as bytes and latencies are."""
    # fio's own totals are of IOs that it issued, without what was in flight when the ramp ended.
    latency = side.clat_ns
    ended = max(latency.N or 0, side.total_ios)
    is_more = ended > side.total_ios and side.runtime > 0
    # fio makes the one of the others.
    off = abs(side.iops * side.runtime / 1000 - ended)
    if side.runtime and ended and not is_more and off > 0.05 * ended + 1:
        raise Malformed(f"says {side.iops:.6g} IOPS, and {ended} IOs in {side.runtime:.0f} ms")
    return Side(
        direction=direction,
        ios=ended,
        bytes=side.io_bytes,
        iops=1000 * ended / side.runtime if is_more else side.iops,
        bandwidth_bytes_per_s=side.bw_bytes,
        runtime_s=side.runtime / 1000,
        clat_ns_mean=latency.mean,
        clat_ns_max=latency.max,
        percentiles_ns=_json_percentiles(latency.percentile),
        bins=latency.bins,
    )


def _json_percentiles(given: dict[str, float]) -> dict[float, float]:
    try:
        return {float(percent): value for percent, value in given.items()}
    except ValueError:
        raise Malformed("names a percentile that is not a number") from None


_VERSION = re.compile(r"^fio-\d[\w.-]*", re.MULTILINE)
_JOB = re.compile(r"^(?:<[^>\n]*> )?(.*): \(groupid=\d+, jobs=\d+\): err=\s*(-?\d+)", re.MULTILINE)
_SIZE = r"(\d+(?:\.\d*)?)((?:[KMGT]i)?B)"
_DECLARED = re.compile(
    rf"^(?:<[^>\n]*> )?(.*): \(g=\d+\): rw=(\w+), bs=\(R\) {_SIZE}-{_SIZE},"
    rf" \(W\) {_SIZE}-{_SIZE}.{{0,200}}?ioengine=(\w+), iodepth=(\d+)",
    re.MULTILINE,
)
_SIDE = re.compile(
    r"^  (read|write): IOPS=[\d.]+[kMGT]?, BW=[^(\n]*\((\d+(?:\.\d*)?)([kMGT]?)B?(?:/s)?\)"
    r"\([\d.]+[KMGTP]?i?B/(\d+)msec\)",
    re.MULTILINE,
)
_LATENCY = re.compile(
    r"^ +clat \((nsec|usec|msec)\): min=.*?, max=\s*(\d+(?:\.\d*)?)([kMG]?),"
    r" avg=\s*(\d+(?:\.\d*)?)",
    re.MULTILINE,
)
_PERCENTILES, _SYNC_PERCENTILES = (
    re.compile(rf"^ +{of} percentiles \((nsec|usec|msec)\):\n((?: +\|.*\n?)+)", re.MULTILINE)
    for of in ("clat", "sync")
)
#: fio 3.42 has syncfs in the heading too.
_SYNC = re.compile(
    r"^  fsync/fdatasync/sync_file_range(?:/syncfs)?:\n"
    r" +sync \((nsec|usec|msec)\): min=.*?, max=\s*(\d+(?:\.\d*)?)([kMG]?), avg=\s*(\d+(?:\.\d*)?)",
    re.MULTILINE,
)
#: Shares of the reads and writes; syncs are counted in, so together they are more than all.
_DEPTHS = re.compile(r"^  IO depths +: (.*)$", re.MULTILINE)
_SHARE = re.compile(r"=(\d+(?:\.\d*)?)%")
_PERCENTILE = re.compile(r"(?<!\d)(\d+(?:\.\d*)?)th=\[\s*(\d+)\]")
_CPU = re.compile(r"^  cpu +: usr=(\d+(?:\.\d*)?)%, sys=(\d+(?:\.\d*)?)%", re.MULTILINE)
_ISSUED = re.compile(r"^ +issued rwts: total=(\d+),(\d+),\d+,(\d+)", re.MULTILINE)
#: fio prints some kilobytes a job.
_LIMIT = 4 << 20

_NS = {"nsec": 1.0, "usec": 1e3, "msec": 1e6}
_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_fio_normal(data: bytes) -> FioOutput:
    """Read `--output-format=normal` of fio 3.x; Malformed if a job's block is not whole."""
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
            _normal_job(match, text[match.end() : end], declared.get(match.group(1)))
            for match, end in zip(starts, ends)
            if match.group(1) != _SUMMARY_JOB
        )
    except (ValueError, OverflowError):
        raise Malformed("holds a number that is none of fio's") from None
    version = _VERSION.search(text)
    return FioOutput(version.group() if version else "", None, jobs)


def _normal_job(start: re.Match[str], block: str, declared: re.Match[str] | None) -> Job:
    name = start.group(1)
    cpu, issued = _CPU.search(block), _ISSUED.search(block)
    if cpu is None or issued is None:
        raise Malformed(f"is cut off in the block of job {name}")
    ios = {"read": int(issued.group(1)), "write": int(issued.group(2))}
    sides = tuple(_sides(name, block, ios, declared))
    syncs = _normal_syncs(block, sides, sum(ios.values()), int(issued.group(3)))
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
                percentiles_ns=_normal_percentiles(part),
            )


def _normal_syncs(block: str, sides: tuple[Side, ...], ios: int, counted: int) -> Optional[Side]:
    """fsync and fdatasync as a direction; fio prints those IOs beyond all others to 0.1 %."""
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
        *(SYNC, count, count / runtime_s, runtime_s),
        clat_ns_mean=float(latency.group(4)) * unit,
        clat_ns_max=float(latency.group(2)) * _DECIMAL[latency.group(3)] * unit,
        percentiles_ns=_normal_percentiles(block, _SYNC_PERCENTILES),
    )


def _normal_percentiles(part: str, of: re.Pattern[str] = _PERCENTILES) -> dict[float, float]:
    match = of.search(part)
    if match is None:
        return {}
    unit = _NS[match.group(1)]
    pairs = _PERCENTILE.findall(match.group(2))
    return {float(percent): int(value) * unit for percent, value in pairs}


#: `[r=12.3k,w=4567 IOPS]`, as fio writes it: in thousands, each direction that it has.
_STATUS = re.compile(r"\[((?:[rwt]=[\d.]+[kMG]?,?)+) IOPS\]")
_RATE = re.compile(r"=([\d.]+)([kMG]?)")


def iops_now(text: str) -> Optional[float]:
    """The IOPS of all directions by the last status line of a fio that runs; None where none is."""
    matches = _STATUS.findall(text)
    if not matches:
        return None
    return sum(float(number) * _DECIMAL[unit] for number, unit in _RATE.findall(matches[-1]))
