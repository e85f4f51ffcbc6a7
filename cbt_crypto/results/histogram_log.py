"""fio's histogram logs: the latency bins of every second."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

import numpy as np

from cbt_crypto.results.bounded import Stream
from cbt_crypto.results.digits import DigitText, Ints, separators
from cbt_crypto.results.histogram import bin_latencies_ns
from cbt_crypto.results.problem import Malformed

#: Bins of a line, unless `log_hist_coarseness` joins 2, 4, 8, ... of them.
BINS = 1856
#: Time, direction and block size, ahead of the bins.
_BEFORE = 3
_HEAD = re.compile(rb" ?\d{1,16}")
#: Empty bins, as they stand at the beginning and at the end of a line's bins.
_LEADING, _TRAILING = b" 0," * BINS, b", 0" * BINS


@dataclass(frozen=True)
class HistogramLog:
    """Every bin that is not empty, as parallel arrays.

    `counts` IOs of the line `lines` fell into the bin number `bins`, whose middle is
    `middles_ns[bins]`. `times_ms` and `directions` have one entry a line. `torn` lines were left
    out.
    """

    times_ms: Ints
    directions: Ints
    lines: Ints
    bins: Ints
    counts: Ints
    middles_ns: Ints
    torn: int


def read_histogram_log(path: Path) -> HistogramLog:
    """Read a clat_hist log. Raises Malformed when it holds no whole line."""
    parts: list[_Part] = []
    width = 0
    for text in Stream(path).lines():
        width = width or _width(text)
        parts.append(_parse(text, width))
    heads = [part.heads for part in parts]
    if not heads or not sum(map(len, heads)):
        raise Malformed("holds no whole line of a histogram log")
    firsts = np.cumsum([0, *map(len, heads[:-1])])
    head = np.concatenate(heads)
    return HistogramLog(
        times_ms=head[:, 0],
        directions=head[:, 1],
        lines=np.concatenate([part.lines + first for part, first in zip(parts, firsts)]),
        bins=np.concatenate([part.bins for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        middles_ns=_middles(width - _BEFORE),
        torn=sum(part.torn for part in parts),
    )


@dataclass(frozen=True)
class _Part:
    heads: Ints
    lines: Ints
    bins: Ints
    counts: Ints
    torn: int


def _width(text: bytes) -> int:
    """Fields of the first line whose number of bins is one that fio writes."""
    for line in text.split(b"\n", 100)[:100]:
        width = line.count(b",") + 1
        if width - _BEFORE in {BINS >> coarseness for coarseness in range(7)}:
            return width
    raise Malformed("holds no whole line of a histogram log")


def _middles(bins: int) -> Ints:
    """The middle in ns of each bin of a line."""
    joined = BINS // bins
    fine = bin_latencies_ns(np.arange(BINS))
    if joined == 1:
        return fine
    return (fine[::joined] + fine[joined - 1 :: joined]) // 2


def _parse(text: bytes, width: int) -> _Part:
    """The lines of `text` with `width` fields whose numbers are all right.

    Most bins of a line are empty, and nearly all of these stand at its two ends: only what is
    between them is looked at number by number.
    """
    lines = text.split(b"\n")
    # what stands behind the last newline is no whole line
    torn = bool(lines.pop())
    cut = [_cut(line, width - _BEFORE) for line in lines]
    whole = [line for line in cut if line is not None]
    part = _numbers(whole)
    return replace(part, torn=len(lines) - len(part.heads) + torn)


@dataclass(frozen=True)
class _Line:
    """A line without the empty bins at its ends: `filled` begins with bin number `first`."""

    head: tuple[int, ...]
    first: int
    filled: bytes
    fields: int


def _cut(line: bytes, bins: int) -> Optional[_Line]:
    """None when the line has not its head and that many bins."""
    *head, counts = line.split(b",", _BEFORE)
    if len(head) != _BEFORE or not all(_HEAD.fullmatch(word) for word in head):
        return None
    first = _repeats(counts.startswith, _LEADING, min(bins - 1, len(counts) // 3))
    rest = counts[3 * first :]
    last = _repeats(rest.endswith, _TRAILING, min(bins - first - 1, len(rest) // 3))
    filled = rest[: len(rest) - 3 * last]
    fields = filled.count(b",") + 1
    if first + fields + last != bins:
        return None
    return _Line(tuple(map(int, head)), first, filled, fields)


def _repeats(matches: Callable[[bytes], bool], repeated: bytes, most: int) -> int:
    """How often the first three bytes of `repeated` stand at that end, found by halving."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if matches(repeated[: 3 * middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _numbers(lines: list[_Line]) -> _Part:
    """The counts of lines that are cut, without those in which one is no number."""
    digits = DigitText(b"".join(line.filled + b"\n" for line in lines))
    ends = separators(digits.bytes)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))[: len(ends)]
    counts, right = digits.numbers(starts, ends)
    fields = np.array([line.fields for line in lines], np.int64)
    rows = np.repeat(np.arange(len(lines)), fields)
    offsets = np.array([line.first for line in lines], np.int64) - (np.cumsum(fields) - fields)
    bins = np.arange(len(rows)) + np.repeat(offsets, fields)
    good = np.ones(len(lines), np.bool_)
    good[rows[~right]] = False
    kept = good[rows] & (counts > 0)
    heads = np.array([line.head for line in lines], np.int64).reshape(-1, _BEFORE)
    place = np.cumsum(good) - 1
    return _Part(heads[good], place[rows[kept]], bins[kept], counts[kept], 0)
