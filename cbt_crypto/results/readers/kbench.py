"""kbench's summary (volumes of Kubernetes), in its old and new form.

IOPS are of 4 KiB at depth 64, bandwidth of 128 KiB at 64, latency of 4 KiB at 1 (in 2021: 4), so a
line's figures are not of one load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import FioOutput, Job, Side

HEADING = b"FIO Benchmark Summary"
#: It compares two volumes in one table, or repeats latencies as percentiles.
_OTHER = re.compile(r"FIO Benchmark (?:Compar|.*P99)")
_FIGURES = {"IOPS": "iops", "Bandwidth": "bandwidth", "Latency": "latency"}
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
    """A job for each mode, named as fio's rw, as of one second; Malformed if one is missing."""
    text = data.decode("utf-8", "replace")
    if HEADING.decode() not in text:
        raise Malformed("holds no summary of kbench's")
    figures: _Figures = {}
    for figure, pattern, pair in _pairs(text):
        for mode, value in zip(_PATTERNS[pattern], pair):
            figures.setdefault((mode, _FIGURES[figure]), _number(value))
    modes = [mode for modes in _PATTERNS.values() for mode in modes]
    return FioOutput("kbench", None, tuple(_job(mode, figures) for mode in modes))


def _pairs(text: str) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Figure, pattern, and the two numbers, of reads and of writes."""
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


def _number(text: str) -> float:
    digits = text.replace(",", "")
    if not digits or len(digits) > _DIGITS:
        raise Malformed(f"holds {text[:40]!r} where a number belongs")
    return float(digits)


def _job(mode: str, figures: _Figures) -> Job:
    missing = [name for name in _FIGURES.values() if not figures.get((mode, name))]
    if missing:
        raise Malformed(f"is not a whole summary of kbench's: {mode} has no {missing[0]}")
    iops, latency = figures[mode, "iops"], figures[mode, "latency"]
    bandwidth = figures[mode, "bandwidth"] * 1024
    side = Side(
        direction="write" if mode.endswith("write") else "read",
        ios=round(iops),
        bytes=round(bandwidth),
        iops=iops,
        bandwidth_bytes_per_s=bandwidth,
        runtime_s=1.0,
        clat_ns_mean=latency,
        clat_ns_max=latency,
        percentiles_ns={},
    )
    return Job(mode, None, 0, {"rw": mode}, 0.0, 0.0, (side,))
