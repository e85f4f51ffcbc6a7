"""What one block measured: IOPS after its warm-up, from fio's logs on the host that collected them.

The report reads the same logs, with clocks and gaps, for its figures. Here it is about when to
stop, and about where the warm-up ends, which the report then takes from cell.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

_DIRECTIONS = {"0": "read", "1": "write"}

#: Direction -> number of the interval -> IOPS.
_Rates = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Block:
    """IOPS by direction, `warmup_s` seconds after the start left out.

    `series` is of both directions together, an entry for each interval of the log, warm-up
    included.
    """

    warmup_s: float
    iops: Mapping[str, float]
    series: tuple[float, ...] = ()


def read_block(
    directory: Path,
    processes: Iterable[Mapping[str, Any]],
    interval_ms: int,
    warmup_s: float = 0.0,
) -> Optional[Block]:
    """The block whose files are in `directory`; None where a process left no log of its IOPS.

    `processes` are those of cell.json, `interval_ms` is what a line of their logs stands for.
    `warmup_s` is left out of every block of a load alike, at most half of it: where each block's
    own seconds decide, those that stalled are left out as if they were warm-up.
    """
    parts = [_process(directory, process, interval_ms) for process in processes]
    length = min((_length(part) for part in parts), default=0)
    if not length:
        return None
    names = sorted({name for part in parts for name in part})
    rates = {
        name: [sum(part.get(name, {}).get(n, 0.0) for part in parts) for n in range(length)]
        for name in names
    }
    series = tuple(sum(values) for values in zip(*rates.values()))
    cut = min(round(warmup_s * 1000 / interval_ms), length // 2)
    iops = {name: sum(values[cut:]) / (length - cut) for name, values in rates.items()}
    return Block(cut * interval_ms / 1000, iops, series)


def _process(directory: Path, process: Mapping[str, Any], interval_ms: int) -> _Rates:
    """What all jobs of one process did, by the interval since its first line."""
    pattern = f"{process['logs']}_iops.*.log.{process['host']}"
    lines = [line for path in sorted(directory.glob(pattern)) for line in _lines(path)]
    if not lines:
        return {}
    begun = min(at for at, _, _ in lines)
    rates: _Rates = {}
    for at, value, name in lines:
        by_interval = rates.setdefault(name, {})
        number = round((at - begun) / interval_ms)
        by_interval[number] = by_interval.get(number, 0.0) + value
    return rates


def _lines(path: Path) -> Iterable[tuple[int, float, str]]:
    """Time in ms, IOPS and direction of each whole line."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = [word.strip() for word in line.split(",")]
        is_whole = len(words) > 2 and words[0].isdigit() and words[1].isdigit()
        if is_whole and words[2] in _DIRECTIONS:
            yield int(words[0]), float(words[1]), _DIRECTIONS[words[2]]


def _length(rates: _Rates) -> int:
    return max((max(values) + 1 for values in rates.values()), default=0)
