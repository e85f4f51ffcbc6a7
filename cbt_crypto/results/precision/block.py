"""What one block measured after its warm-up, from fio's logs on the host that collected them.

The report reads the same logs, with clocks and gaps, for its figures. Here it is about when to
stop, and about where the warm-up ends, which the report then takes from cell.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

_DIRECTIONS = {"0": "read", "1": "write"}

#: Direction -> number of the interval -> IOPS.
_Rates = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Block:
    """IOPS and mean latency by direction, `warmup_s` seconds after the start left out.

    `series` is of both directions together, an entry for each interval of the log, warm-up
    included. `clat_ns_mean` is over all IOs; it is empty where a process left no log of it.
    """

    warmup_s: float
    iops: Mapping[str, float]
    series: tuple[float, ...] = ()
    clat_ns_mean: Mapping[str, float] = field(default_factory=dict)


def read_block(
    directory: Path,
    processes: Iterable[Mapping[str, Any]],
    interval_ms: int,
    warmup_s: float = 0.0,
    latency: bool = False,
) -> Optional[Block]:
    """The block whose files are in `directory`; None where a process left no log of its IOPS.

    `processes` are those of cell.json, `interval_ms` is what a line of their logs stands for.
    `warmup_s` is left out of every block of a load alike, at most half of it: where each block's
    own seconds decide, those that stalled are left out as if they were warm-up.
    """
    names_of_logs = [(process["logs"], process["host"]) for process in processes]
    parts = [_process(directory, *names, interval_ms) for names in names_of_logs]
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
    means: dict[str, float] = {}
    if latency:
        logs = [log for names in names_of_logs for log in _jobs(directory, *names)]
        means = _mean_latency(logs, interval_ms, range(cut, length))
    return Block(cut * interval_ms / 1000, iops, series, means)


def _jobs(directory: Path, logs: str, host: str) -> list[Path]:
    """The log of the IOPS of each job of one process."""
    return sorted(directory.glob(f"{logs}_iops.*.log.{host}"))


def _mean_latency(logs: Iterable[Path], interval_ms: int, counted: range) -> dict[str, float]:
    """Over all IOs of the counted intervals, by direction; nothing unless every job tells.

    `logs` are those of the IOPS, by which the means of the logs beside them are weighted.
    """
    waited: dict[str, float] = {}
    ios: dict[str, float] = {}
    for path in logs:
        beside = path.with_name(path.name.replace("_iops.", "_clat.", 1))
        if not beside.is_file():
            return {}
        rates = _by_interval(_lines(path), interval_ms)
        for name, means in _by_interval(_lines(beside), interval_ms).items():
            for number, mean in means.items():
                rate = rates.get(name, {}).get(number, 0.0) if number in counted else 0.0
                waited[name] = waited.get(name, 0.0) + rate * mean
                ios[name] = ios.get(name, 0.0) + rate
    return {name: waited[name] / ios[name] for name in sorted(waited) if ios[name]}


def _process(directory: Path, logs: str, host: str, interval_ms: int) -> _Rates:
    """What all jobs of one process did, by the interval since its first line."""
    lines = [line for path in _jobs(directory, logs, host) for line in _lines(path)]
    return _by_interval(lines, interval_ms)


def _by_interval(found: Iterable[tuple[int, float, str]], interval_ms: int) -> _Rates:
    """The sums of values by the interval since the first line."""
    lines = list(found)
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
