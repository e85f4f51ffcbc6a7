"""fio's bandwidth, IOPS and latency logs, with and without averaging."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cbt_crypto.archive.files import Malformed, Stream

if TYPE_CHECKING:
    from cbt_crypto.results.cell.record import Ints

#: fio's numbers for the direction of an entry.
DIRECTIONS = {"read": 0, "write": 1}
_FEWEST, _MOST = 4, 7
#: A number has no more digits than this.
_DIGITS = 16
#: Lines of one log; each takes up to 90 bytes while it is read. A day at 4 ms has 43 million, of
#: both directions. So many single IOs are a gigabyte of text.
_MOST_LINES = 50_000_000
#: Bytes read together: few enough for the arrays that numpy makes of them to stay in the cache.
_PIECE = 1 << 18
#: Times below this, in ms, count from the start of the job, not from 1970.
EPOCH_FROM_MS = 10**11


@dataclass(frozen=True)
class FioLog:
    """One log in the order of time: `times_ms` on the host's clock, or since the job's start.

    `values`: KiB/s, IO/s or ns, by the kind of log. `torn` lines were left out.
    """

    times_ms: Ints
    values: Ints
    directions: Ints
    block_sizes: Ints
    torn: int

    @property
    def is_relative(self) -> bool:
        """Whether times count from the start of the job (no `log_unix_epoch`)."""
        return bool(len(self.times_ms)) and int(self.times_ms[0]) < EPOCH_FROM_MS

    @property
    def is_averaged(self) -> bool:
        """Whether an entry stands for an interval; else for one IO of `block_sizes` bytes."""
        return not self.block_sizes.any()

    def side(self, direction: str) -> FioLog:
        """The entries of one direction, `read` or `write`."""
        chosen = self.directions == DIRECTIONS[direction]
        return FioLog(
            self.times_ms[chosen],
            self.values[chosen],
            self.directions[chosen],
            self.block_sizes[chosen],
            self.torn,
        )


def read_fio_log(path: Path) -> FioLog:
    """Read a bw, iops, lat, clat or slat log. Raises Malformed when no line of it is one."""
    # numpy is imported where it is used: nodes that only measure call `read_entries`.
    import numpy as np  # noqa: PLC0415

    from cbt_crypto.results.readers.number_columns import parse_columns  # noqa: PLC0415

    parts: list[Ints] = []
    torn = 0
    for text, width in _texts(path):
        columns = parse_columns(text, width)
        parts.append(columns.values[:, :4])
        torn += columns.torn
    values = np.concatenate(parts)
    if not len(values):
        raise Malformed("holds no line of a fio log")
    if (np.diff(values[:, 0]) < 0).any():
        values = values[np.argsort(values[:, 0], kind="stable")]
    time, value, direction, block_size = values.T
    return FioLog(time, value, direction, block_size, torn)


def read_entries(path: Path) -> Iterator[tuple[int, int, int]]:
    """Time, value and direction of each whole line in order, without numpy; Malformed."""
    for text, width in _texts(path):
        # What follows the last newline is torn.
        for line in text.split(b"\n")[:-1]:
            fields = [field.removeprefix(b" ") for field in line.split(b",")]
            if len(fields) == width and all(
                field.isdigit() and len(field) <= _DIGITS for field in fields
            ):
                time, value, direction = fields[:3]
                yield int(time), int(value), int(direction)


def _texts(path: Path) -> Iterator[tuple[bytes, int]]:
    """The log in pieces of whole lines, and how many fields a line has."""
    width = lines = 0
    for text in Stream(path, piece=_PIECE).lines():
        width = width or _width(text)
        lines += text.count(b"\n")
        if lines > _MOST_LINES:
            raise Malformed(f"holds more than {_MOST_LINES} lines, so it was not read")
        yield text, width
    if not width:
        raise Malformed("is empty")


def _width(text: bytes) -> int:
    """Fields in most of the first lines; versions and options differ in how many there are."""
    counts = Counter(line.count(b",") + 1 for line in text[:65536].split(b"\n", 100)[:100])
    width = counts.most_common(1)[0][0]
    if not _FEWEST <= width <= _MOST:
        raise Malformed("holds no line of a fio log")
    return width
