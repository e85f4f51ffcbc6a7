"""fio's latency histogram: bins that can be added up, and percentiles of the sum.

Bins are exact up to 128 ns, then 64 an octave: 1.6 % wide at most.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.archive.files import Malformed, Stream
from cbt_crypto.results.cell.record import Floats, Ints
from cbt_crypto.results.readers.number_columns import (
    NEWLINE,
    ZERO,
    DigitText,
    separators,
    starts_of,
)

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

    @property
    def total(self) -> int:
        """How many IOs are counted."""
        return int(self.counts.sum())

    def percentile_ns(self, percent: float) -> float:
        """The middle of the bin that holds this percentile, as fio picks it; NaN when empty."""
        if not self.total:
            return float("nan")
        reached = np.cumsum(self.counts)
        at = int(np.searchsorted(reached, percent / 100 * self.total, side="left"))
        at = max(at, int(np.flatnonzero(self.counts)[0]))
        return float(self.latencies_ns[min(at, len(reached) - 1)])


def from_bins(bins: dict[int, int]) -> Histogram:
    """From the `bins` of fio's json+ output: latency in ns -> count."""
    latencies = np.array(sorted(bins), np.int64)
    counts = np.array([bins[int(latency)] for latency in latencies], np.int64)
    return Histogram(latencies, counts)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of histograms, bin by bin."""
    parts = list(histograms)
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
    middle = bottom + ((1 << octave) >> 1)
    return np.where(index < 2 * _OCTAVE, index, middle)


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
#: Bytes looked at together: most logs are smaller, so their lines are never copied.
_PIECE = 4 << 20
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
    parts: list[_Piece] = []
    width = counts = 0
    for text in Stream(path, piece=_PIECE).lines():
        width = width or _width(text)
        parts.append(_parse(text, width))
        counts += len(parts[-1].counts)
        if counts > MOST_COUNTS:
            raise Malformed("holds too many latencies, so it was not read")
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
class _Piece:
    heads: Ints
    lines: Ints
    bins: Ints
    counts: Ints
    torn: int


def _width(text: bytes) -> int:
    """Fields of the first line whose number of bins is one that fio writes."""
    for line in islice(io.BytesIO(text), 100):
        width = line.count(b",") + 1
        if width - _BEFORE in {BINS >> coarseness for coarseness in range(7)}:
            return width
    raise Malformed("holds no whole line of a histogram log")


def _middles(bins: int) -> Ints:
    joined = BINS // bins
    fine = bin_latencies_ns(np.arange(BINS))
    if joined == 1:
        return fine
    return (fine[::joined] + fine[joined - 1 :: joined]) // 2


def _parse(text: bytes, width: int) -> _Piece:
    """The lines of `width` right numbers; between each end's empty bins only is parsed."""
    bins = width - _BEFORE
    characters = np.frombuffer(text, np.uint8)
    ends: list[int] = np.flatnonzero(characters == NEWLINE).tolist()
    spans = _spans(text, ends)
    filled = _filled(np.flatnonzero(characters > ZERO), spans)
    cut = [_cut(text, span, bounds, bins) for span, bounds in zip(spans, filled)]
    part = _numbers([line for line in cut if line is not None], bins)
    # what stands behind the last newline is no whole line
    unfinished = not text.endswith(b"\n")
    return replace(part, torn=len(ends) - len(part.heads) + unfinished)


class _Span(NamedTuple):
    """A line of the text: its head is `[start, head)`, a comma follows, and it ends at `end`."""

    start: int
    head: int
    end: int


def _spans(text: bytes, ends: list[int]) -> list[_Span]:
    spans = []
    start = 0
    for end in ends:
        comma = start - 1
        for _ in range(_BEFORE):
            comma = text.find(b",", comma + 1, end)
            if comma < 0:
                break
        else:
            spans.append(_Span(start, comma, end))
        start = end + 1
    return spans


def _filled(digits: Ints, spans: list[_Span]) -> list[tuple[int, int]]:
    """The first and last of `digits` but 0 behind each head; twice the line's end without."""
    heads, ends = [span.head for span in spans], np.array([span.end for span in spans], np.int64)
    first, last = np.searchsorted(digits, heads), np.searchsorted(digits, ends) - 1
    is_empty = first > last
    padded = np.append(digits, 0)
    digit_ends = [np.where(is_empty, ends, padded[of]).tolist() for of in (first, last)]
    return list(zip(*digit_ends))


class _CutLine(NamedTuple):
    """A line without the empty bins at its ends: `first` of them before `filled`, `last` behind."""

    head: bytes
    first: int
    filled: bytes
    last: int


def _cut(text: bytes, span: _Span, filled: tuple[int, int], bins: int) -> Optional[_CutLine]:
    """None where something else than empty bins stands before or behind the filled ones."""
    start, (left, right) = span.head + 1, filled
    first = min((left - start) // 3, bins - 1)
    stop = text.find(b",", right, span.end)
    if stop < 0:
        stop = span.end
    last = (span.end - stop) // 3
    is_empty_ahead = text.startswith(_LEADING[: 3 * first], start)
    if not is_empty_ahead or text[stop : span.end] != _TRAILING[: 3 * last]:
        return None
    return _CutLine(text[span.start : span.head], first, text[start + 3 * first : stop], last)


def _numbers(lines: list[_CutLine], bins: int) -> _Piece:
    heads, is_head, _ = _fields([line.head for line in lines])
    counts, is_count, fields = _fields([line.filled for line in lines])
    first = np.array([line.first for line in lines], np.int64)
    last = np.array([line.last for line in lines], np.int64)
    rows = np.repeat(np.arange(len(lines)), fields)
    good = is_head.reshape(-1, _BEFORE).all(axis=1) & (first + fields + last == bins)
    good[rows[~is_count]] = False
    numbers = np.arange(len(rows)) + np.repeat(first - (np.cumsum(fields) - fields), fields)
    positive = good[rows] & (counts > 0)
    renumbered = np.cumsum(good) - 1
    kept_heads = heads.reshape(-1, _BEFORE)[good]
    return _Piece(kept_heads, renumbered[rows[positive]], numbers[positive], counts[positive], 0)


def _fields(lines: list[bytes]) -> tuple[Ints, NDArray[np.bool_], Ints]:
    """The numbers of all lines in a row, which of them are right, and how many a line has."""
    digits = DigitText(b"".join(line + b"\n" for line in lines))
    ends = separators(digits.bytes)
    numbers, right = digits.numbers(starts_of(ends), ends)
    return numbers, right, np.diff(np.flatnonzero(digits.bytes[ends] == NEWLINE), prepend=-1)
