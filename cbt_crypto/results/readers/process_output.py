"""What client processes left, by the kind that cell.json gives them: fio's, or another tool's.

`rados bench`: upstream CBT's summary. etcd's tool: a rate and latencies. kbench: both its forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isinf
from typing import Optional

from cbt_crypto.archive.files import Malformed, check_values
from cbt_crypto.results.readers import fio
from cbt_crypto.results.readers.fio import FioOutput, Job, Side

_JSON = re.compile(rb"^\{", re.MULTILINE)
_NORMAL = re.compile(rb"^(?:<[^>\n]*> )?.*: \(groupid=", re.MULTILINE)


def parse_output(data: bytes) -> FioOutput:
    """fio's JSON where there is any, else its normal output. Raises Malformed."""
    if not _JSON.search(data) and _NORMAL.search(data):
        return fio.parse_fio_normal(data)
    return fio.parse_fio_json(data)


_RADOS_MARK = "Total time run"
_MIB = 1 << 20


def parse_rados_bench(data: bytes) -> FioOutput:
    """One job of one direction, without percentiles; Malformed without its figures."""
    check_values(data)
    try:
        summary = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"is not JSON: {error}") from None
    if not isinstance(summary, dict):
        raise Malformed("is not a mapping")
    direction = "write" if "Total writes made" in summary else "read"

    def told(name: str) -> float:
        if name not in summary:
            raise Malformed(f"has no number for {name!r}")
        return _number(summary[name])

    ios = int(told(f"Total {direction}s made"))
    seconds = told(_RADOS_MARK)
    bandwidth = told("Bandwidth (MB/sec)") * _MIB
    if ios <= 0 or seconds <= 0:
        raise Malformed("tells of no IO")
    side = Side(
        *(direction, ios, _number(ios / seconds), seconds),
        bytes=round(_number(bandwidth * seconds)),
        bandwidth_bytes_per_s=bandwidth,
        clat_ns_mean=told("Average Latency(s)") * 1e9,
        clat_ns_max=told("Max latency(s)") * 1e9,
    )
    return FioOutput("rados bench", None, (Job("rados", None, 0, {}, 0.0, 0.0, (side,)),))


def _number(value: object) -> float:
    """Of a text or a number; Malformed if negative, not finite, or more than 64 bits hold."""
    try:
        number = float(value) if isinstance(value, (str, int, float)) else -1.0
    except (ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < 2**63:
        said = value if isinstance(value, (str, int, float)) else type(value).__name__
        raise Malformed(f"holds {str(said)[:40]!r} where a number belongs")
    return number


#: "  Requests/sec:	7996.3959", "  Total:	2.5011 secs."
_SUMMARY = re.compile(r"^\s+(Total|Slowest|Fastest|Average|Stddev|Requests/sec):\s+([\d.]+)")
#: "  99.9% in 0.3126 secs."
_PERCENTILE = re.compile(r"^\s+([\d.]+)% in ([\d.]+) secs\.")
#: A bar of its histogram: "  0.0402 [998]	|...".
_BAR = re.compile(r"^\s+[\d.]+ \[(\d{1,15})\]")
#: The scenario's own line behind it.
_ENDED = re.compile(r"^ended ([\d.]+)")
#: Of its metrics: `..._bucket{le="0.001"} 105`, as far as `+Inf`, and `..._sum 3.2`.
_WAL_FSYNC = re.compile(
    r"^etcd_disk_wal_fsync_duration_seconds_"
    r'(?:bucket\{le="(\d{1,15}(?:\.\d{1,15})?(?:e[+-]\d\d)?|\+Inf)"\}|sum) (\S+)$'
)
#: "  [105] 	rpc error: ..." behind this heading.
_ERRORS = "Error distribution:"
#: Of the syncs: those that tables show.
_PERCENTILES = (50.0, 95.0, 99.0, 99.9)


def parse_etcd_benchmark(data: bytes) -> FioOutput:
    """One job of puts, without bytes, and of etcd's own syncs; Malformed if a request failed."""
    text = data.decode("utf-8", "replace")
    if _ERRORS in text:
        lines = text.partition(_ERRORS)[2].strip().splitlines()
        raise Malformed(f"tells of requests that failed: {(lines or ['?'])[0].strip()[:200]}")
    lines = text.splitlines()
    summary = {match[1]: _number(match[2]) for match in map(_SUMMARY.match, lines) if match}
    percentiles = {
        _number(match[1]): _number(match[2]) * 1e9
        for match in map(_PERCENTILE.match, lines)
        if match
    }
    requests = sum(int(match[1]) for match in map(_BAR.match, lines) if match)
    missing = {"Total", "Slowest", "Average", "Requests/sec"} - summary.keys()
    if missing or not percentiles or not requests:
        lacking = sorted(missing)[0] if missing else "a distribution of latencies"
        raise Malformed(f"is not the whole output of etcd's benchmark tool: it lacks {lacking}")
    ended = next((match for match in map(_ENDED.match, lines) if match), None)
    side = Side(
        direction="write",
        ios=int(_number(requests)),
        iops=summary["Requests/sec"],
        runtime_s=summary["Total"],
        clat_ns_mean=summary["Average"] * 1e9,
        clat_ns_max=summary["Slowest"] * 1e9,
        percentiles_ns=percentiles,
    )
    job = Job("put", None, 0, {}, 0.0, 0.0, (side, *_etcd_syncs(lines, side.runtime_s)))
    return FioOutput("etcd benchmark", _number(ended[1]) if ended else None, (job,), "")


def _etcd_syncs(lines: Iterable[str], runtime_s: float) -> Iterator[Side]:
    """The syncs of etcd's journal, in percentiles as Prometheus takes them from a histogram."""
    found = [(match[1], _number(match[2])) for match in map(_WAL_FSYNC.match, lines) if match]
    buckets = sorted((float(upper), count) for upper, count in found if upper)
    seconds = [value for upper, value in found if upper is None]
    if not found or not runtime_s:
        return
    bounds, counts = ([bucket[n] for bucket in buckets] for n in (0, 1))
    is_whole = len(seconds) == 1 and isinf([0.0, *bounds][-1]) and len({*bounds}) == len(bounds)
    if not is_whole or counts != sorted(counts) or any(count % 1 for count in counts):
        raise Malformed("holds no whole histogram of etcd's syncs")
    if count := counts[-1]:
        yield Side(
            *(fio.SYNC, int(count), _number(count / runtime_s), runtime_s),
            clat_ns_mean=_number(seconds[0] / count * 1e9),
            percentiles_ns={p: _quantile(buckets, p / 100 * count) * 1e9 for p in _PERCENTILES},
        )


def _quantile(buckets: Sequence[tuple[float, float]], rank: float) -> float:
    """In a straight line through the bucket; its lower bound in the last, which has no upper."""
    lower, below = 0.0, 0.0
    for upper, count in buckets[:-1]:
        if count >= rank:
            return lower + (upper - lower) * (rank - below) / (count - below)
        lower, below = upper, count
    return lower


KBENCH_HEADING = b"FIO Benchmark Summary"
#: It compares two volumes in one table, or repeats latencies as percentiles.
_OTHER = re.compile(r"FIO Benchmark (?:Compar|.{0,200}P99)")
_FIGURES = {"IOPS": "iops", "Bandwidth": "bandwidth", "Latency": "latency"}
#: Test -> bytes of one IO.
_KBENCH_BYTES = {"iops": 4096, "bandwidth": 128 << 10, "latency": 4096}
_PATTERNS = {"Random": ("randread", "randwrite"), "Sequential": ("read", "write")}
_PAIR = r"\s*([\d,]+)\s*(?:KiB/sec|ns)?\s*/\s*([\d,]+)"
#: "IOPS (Read/Write)", with a line for each pattern behind it.
_OF_FIGURE = re.compile(r"^\s*(IOPS|Bandwidth|Latency)\b.*\(Read/Write\)")
_PATTERN_LINE = re.compile(rf"^\s*(Random|Sequential):{_PAIR}")
#: The old form: "Random Read/Write", with a line for each figure behind it.
_OF_PATTERN = re.compile(r"^\s*(Random|Sequential) Read/Write\s*$")
_FIGURE_LINE = re.compile(rf"^\s*(?:Average )?(IOPS|Bandwidth|Latency):{_PAIR}")
#: Printed figures have no more digits than this.
_DIGITS = 15

_Figures = dict[tuple[str, str], float]


def parse_kbench(data: bytes) -> FioOutput:
    """A job `TEST MODE` for each, as of one second, with that test's figure; Malformed if not all.

    IOPS are of 4 KiB at depth 64, bandwidth of 128 KiB at 64, latency of 4 KiB at 1 (in 2021: 4).
    """
    text = data.decode("utf-8", "replace")
    if KBENCH_HEADING.decode() not in text:
        raise Malformed("holds no summary of kbench's")
    figures: _Figures = {}
    for figure, pattern, pair in _kbench_pairs(text):
        for mode, value in zip(_PATTERNS[pattern], pair):
            figures.setdefault((mode, _FIGURES[figure]), _kbench_number(value))
    modes = [mode for modes in _PATTERNS.values() for mode in modes]
    jobs = (_kbench_job(test, mode, figures) for test in _KBENCH_BYTES for mode in modes)
    return FioOutput("kbench", None, tuple(jobs))


def _kbench_pairs(text: str) -> Iterator[tuple[str, str, tuple[str, str]]]:
    figure: Optional[str] = None
    pattern: Optional[str] = None
    for line in text.splitlines():
        if _OTHER.search(line):
            return
        if heading := _OF_FIGURE.match(line):
            figure, pattern = heading[1], None
        elif heading := _OF_PATTERN.match(line):
            figure, pattern = None, heading[1]
        elif figure and (row := _PATTERN_LINE.match(line)):
            yield figure, row[1], (row[2], row[3])
        elif pattern and (row := _FIGURE_LINE.match(line)):
            yield row[1], pattern, (row[2], row[3])


def _kbench_number(text: str) -> float:
    digits = text.replace(",", "")
    if not digits or len(digits) > _DIGITS:
        raise Malformed(f"holds {text[:40]!r} where a number belongs")
    return float(digits)


def _kbench_job(test: str, mode: str, figures: _Figures) -> Job:
    told = figures.get((mode, test))
    if not told:
        raise Malformed(f"is not a whole summary of kbench's: {mode} has no {test}")
    size = _KBENCH_BYTES[test]
    iops = {"iops": told, "bandwidth": told * 1024 / size}.get(test, 0.0)
    side = Side(
        *("write" if mode.endswith("write") else "read", round(iops) or 1, iops, 1.0),
        bytes=round(iops * size),
        bandwidth_bytes_per_s=iops * size,
        clat_ns_mean=told if test == "latency" else 0.0,
    )
    return Job(f"{test} {mode}", None, 0, {"rw": mode, "bs": str(size)}, 0.0, 0.0, (side,))


#: Kind of a process -> reader of its results. What is read has the shape of fio's output.
READERS: Mapping[str, Callable[[bytes], FioOutput]] = {
    "fio": parse_output,
    "etcd_benchmark": parse_etcd_benchmark,
    "rados_bench": parse_rados_bench,
    "kbench": parse_kbench,
}
#: Between a kind and the numbers of the jobs that count, in a file with several loads.
NUMBERED = ":"


def read_output(kind: str, data: bytes) -> FioOutput:
    """The results of a process. Raises Malformed, also for a kind that is not known."""
    kind, _, numbers = kind.partition(NUMBERED)
    reader = READERS.get(kind)
    if reader is None:
        raise Malformed(f"is of a process of kind {kind!r}, which this version cannot read")
    output = reader(data)
    if not numbers:
        return output
    chosen = set(numbers.split(","))
    jobs = tuple(job for number, job in enumerate(output.jobs) if str(number) in chosen)
    if not jobs:
        raise Malformed(f"holds no job {numbers!r}")
    return replace(output, jobs=jobs)


def read_results(kind: str, data: bytes) -> FioOutput:
    """The results of a process that did IO. Raises Malformed, also where one of its jobs failed."""
    output = read_output(kind, data)
    failed = next((job for job in output.jobs if job.error), None)
    if failed is not None:
        raise Malformed(f"says that job {failed.name} ended with error {failed.error}")
    if not any(job.sides for job in output.jobs):
        raise Malformed("says that no IO was done")
    return output
