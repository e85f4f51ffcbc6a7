"""fio's latency histogram: bins that can be added up, and percentiles of the sum.

Bins are exact up to 128 ns, then 64 an octave: 1.6 % wide at most.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Optional

import numpy as np

from cbt_crypto.archive.files import Malformed, Stream
from cbt_crypto.results.cell.record import Floats, Ints
from cbt_crypto.results.readers.number_columns import ZERO, number_fields

#: The percentiles that records, reports and intervals have, by their key, as `clat_ns_p999`.
PERCENTILES = {
    f"clat_ns_p{percent:g}".replace(".", ""): percent
    for percent in (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
}
#: Bins to an octave.
_OCTAVE = 64


@dataclass(frozen=True)
class Histogram:
    """`counts` IOs took `latencies_ns`, the middle of their bins; both ascending, same length."""

    latencies_ns: Ints
    counts: Ints

    @cached_property
    def _reached(self) -> Ints:
        return np.cumsum(self.counts)

    @property
    def total(self) -> int:
        """How many IOs are counted."""
        return int(self._reached[-1]) if len(self.counts) else 0

    def percentile_ns(self, percent: float) -> float:
        """The middle of the bin that holds this percentile, as fio picks it; NaN when empty."""
        if not self.total:
            return float("nan")
        at = int(self._reached.searchsorted(percent / 100 * self.total))
        at = max(at, int(self._reached.searchsorted(0, side="right")))
        return float(self.latencies_ns[min(at, len(self.counts) - 1)])


def from_bins(bins: dict[int, int]) -> Histogram:
    """From the `bins` of fio's json+ output: latency in ns -> count."""
    return Histogram(*np.array(sorted(bins.items()), np.int64).reshape(-1, 2).T)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of histograms, bin by bin."""
    parts = list(histograms)
    if len(parts) == 1 and (np.diff(parts[0].latencies_ns) > 0).all():
        return parts[0]
    if not parts:
        return Histogram(np.empty(0, np.int64), np.empty(0, np.int64))
    every = np.concatenate([part.latencies_ns for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    latencies, where = np.unique(every, return_inverse=True)
    summed = np.zeros(len(latencies), np.int64)
    np.add.at(summed, where, counts)
    return Histogram(latencies, summed)


def bin_latencies_ns(indices: Sequence[int] | Ints) -> Ints:
    """The middle, in ns, of the bins with these indices, as they stand in a histogram log."""
    index = np.asarray(indices, np.int64)
    octave = np.maximum(index // _OCTAVE - 1, 0)
    bottom = (_OCTAVE + index % _OCTAVE) << octave
    return np.where(index < 2 * _OCTAVE, index, bottom + ((1 << octave) >> 1))


def percentile_columns(counts: Floats, latencies_ns: Ints) -> dict[str, Floats]:
    """Percentiles and maximum of many histograms (rows; NaN if empty), by record column."""
    reached = np.cumsum(counts, axis=1)
    total = reached[:, -1:]
    empty = total[:, 0] <= 0

    def at(share: float) -> Floats:
        index = (reached < share * total).sum(axis=1)
        values = latencies_ns[np.minimum(index, len(latencies_ns) - 1)].astype(np.float64)
        return np.where(empty, np.nan, values)

    columns = {name: at(percent / 100) for name, percent in PERCENTILES.items()}
    last = counts.shape[1] - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    columns["clat_ns_max"] = np.where(empty, np.nan, latencies_ns[last])
    return columns


#: Bins of a line, unless `log_hist_coarseness` joins 2, 4, 8, ... of them.
BINS = 1856
#: Time, direction and block size, ahead of the bins.
_BEFORE = 3
#: Bins that are not empty, of all lines; each takes 48 bytes while it is read. A day of seconds
#: with 200 bins for each direction has 35 million.
MOST_COUNTS = 100_000_000
#: Empty bins, as they stand at the beginning and at the end of a line's bins.
_LEADING, _TRAILING = b" 0," * BINS, b", 0" * BINS


@dataclass(frozen=True)
class HistogramLog:
    """Every bin that is not empty, as parallel arrays: `counts` IOs of a line and a bin.

    `times_ms` and `directions` have an entry a line; `torn` lines were left out.
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
    parts: list[HistogramLog] = []
    width = counts = 0
    for text in Stream(path).lines():
        width = width or _width(text)
        parts.append(_parse(text, width))
        counts += len(parts[-1].counts)
        if counts > MOST_COUNTS:
            raise Malformed("holds too many latencies, so it was not read")
    if not sum(len(part.times_ms) for part in parts):
        raise Malformed("holds no whole line of a histogram log")
    firsts = np.cumsum([0, *(len(part.times_ms) for part in parts[:-1])])
    lines = np.concatenate([part.lines + first for part, first in zip(parts, firsts)])
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("times_ms", "directions", "bins", "counts")
    }
    return replace(parts[0], **joined, lines=lines, torn=sum(part.torn for part in parts))


def _width(text: bytes) -> int:
    """Fields of the first line whose number of bins is one that fio writes."""
    for line in islice(io.BytesIO(text), 100):
        width = line.count(b",") + 1
        if width - _BEFORE in {BINS >> coarseness for coarseness in range(7)}:
            return width
    raise Malformed("holds no whole line of a histogram log")


@lru_cache(maxsize=8)
def _middles(bins: int) -> Ints:
    joined = BINS // bins
    fine = bin_latencies_ns(np.arange(BINS))
    return fine if joined == 1 else (fine[::joined] + fine[joined - 1 :: joined]) // 2


def _parse(text: bytes, width: int) -> HistogramLog:
    """The lines of `width` right numbers; between each end's empty bins only is parsed."""
    characters = np.frombuffer(text, np.uint8)
    spans = _spans(text)
    filled = _filled(np.flatnonzero(characters > ZERO), spans)
    cut = [_cut(text, span, bounds, width - _BEFORE) for span, bounds in zip(spans, filled)]
    log = _numbers([line for line in cut if line is not None], width)
    # what stands behind the last newline is no whole line
    unfinished = not text.endswith(b"\n")
    return replace(log, torn=text.count(b"\n") - len(log.times_ms) + unfinished)


#: A line of the text: its head is `[start, head)`, a comma follows, and it ends at `end`.
_Span = tuple[int, int, int]


def _spans(text: bytes) -> list[_Span]:
    spans, start, find = [], 0, text.find
    while (end := find(b"\n", start)) >= 0:
        # Of fewer commas one is -1.
        first = find(b",", start, end)
        second = find(b",", first + 1, end)
        head = find(b",", second + 1, end)
        if first >= 0 <= second and head >= 0:
            spans.append((start, head, end))
        start = end + 1
    return spans


def _filled(digits: Ints, spans: list[_Span]) -> list[tuple[int, int]]:
    """The first and last of `digits` but 0 behind each head; twice the line's end without."""
    table = np.array(spans, np.int64).reshape(-1, 3)
    heads, ends = table[:, 1], table[:, 2]
    first, last = np.searchsorted(digits, heads), np.searchsorted(digits, ends) - 1
    is_empty = first > last
    padded = np.append(digits, 0)
    digit_ends = [np.where(is_empty, ends, padded[of]).tolist() for of in (first, last)]
    return list(zip(*digit_ends))


#: A line without the empty bins at the ends of its bins, and how many those are in front and all.
_CutLine = tuple[bytes, int, int]


def _cut(text: bytes, span: _Span, filled: tuple[int, int], bins: int) -> Optional[_CutLine]:
    """None where something else than empty bins stands before or behind the filled ones."""
    (begin, head, end), (left, right) = span, filled
    start = head + 1
    first = min((left - start) // 3, bins - 1)
    stop = text.find(b",", right, end)
    if stop < 0:
        stop = end
    last = (end - stop) // 3
    is_empty_ahead = text.startswith(_LEADING[: 3 * first], start)
    if not is_empty_ahead or text[stop:end] != _TRAILING[: 3 * last]:
        return None
    return text[begin:start] + text[start + 3 * first : stop] + b"\n", first, first + last


def _numbers(lines: list[_CutLine], width: int) -> HistogramLog:
    text = b"".join(line for line, _, _ in lines)
    numbers, rows, fields, are_numbers = number_fields(text)
    first, empty = np.array([line[1:] for line in lines], np.int64).reshape(-1, 2).T
    good = are_numbers & (fields + empty == width)
    starts = np.cumsum(fields) - fields
    time, direction = numbers[starts[good]], numbers[starts[good] + 1]
    numbers[starts[:, np.newaxis] + np.arange(_BEFORE)] = 0
    counted = np.flatnonzero(numbers > 0)
    of, counts = rows[counted], numbers[counted]
    bins = counted + (first - starts - _BEFORE)[of]
    if not good.all():
        kept = good[of]
        of, bins, counts = (np.cumsum(good) - 1)[of[kept]], bins[kept], counts[kept]
    return HistogramLog(time, direction, of, bins, counts, _middles(width - _BEFORE), 0)
