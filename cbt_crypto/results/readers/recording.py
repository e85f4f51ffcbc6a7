"""What `hosts/recorder_on_host.py` writes: a JSON header, then a line a second of differences."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np

from cbt_crypto.archive.files import Malformed, read_document
from cbt_crypto.results.cell.record import Floats

FORMAT = 1
#: More kinds, names, lines, lists and mappings than a recorder writes are no recording.
_MOST_KEYS, _MOST_LINES, _MOST_LISTS = 512, 4 * 86_400, 4_000_000
#: Lines times names of one kind: a name has a row for each line, 64 bytes, also where it is in few.
#: In the 64 MiB that are read, a name in each line makes three million rows at most.
_MOST_ROWS = 20_000_000
#: The numbers of a device, in the file's order.
DISK = ("reads", "writes", "read_ms", "write_ms", "read_sectors", "write_sectors", "busy_ms",
        "flushes")  # fmt: skip
#: Those of a link.
LINK = ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")
_BIGGEST = 1e18


@dataclass(frozen=True)
class ThreadSeries:
    """One class of threads: user and system seconds a line, its busiest's, and `names`.

    `waits_s` is how long they waited for a CPU; None where that was not counted.
    """

    cpu_s: Floats
    busiest_s: Floats
    waits_s: Optional[Floats] = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recording:
    """One host's recording, on its own clock; what is not there was not counted.

    `epoch_s` begins with the header's time: other rows are of between. `cpu_s`: seconds of all CPUs
    by state, `top_cpu_s` of the busiest. Threads are read at each `every`-th line.
    """

    epoch_s: Floats
    cpus: int
    every: int
    cpu_s: Floats
    top_cpu_s: Floats
    threads: Mapping[str, ThreadSeries] = field(default_factory=dict)
    disks: Mapping[str, Floats] = field(default_factory=dict)
    links: Mapping[str, Floats] = field(default_factory=dict)
    #: What each link can receive and send; of one that sends as it likes, nothing.
    link_bytes_per_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: What was counted once a line: ctxt, mhz; NaN where not.
    plain: Mapping[str, Floats] = field(default_factory=dict)
    #: Idle state -> seconds of all CPUs, over all that was recorded.
    idle_s: Mapping[str, float] = field(default_factory=dict)
    #: Hosts with the same are nodes of one lab on one kernel, which counts for all of them.
    boot: str = ""


def read_recording(path: Path) -> Recording:
    """Read a recording; its last line may be torn. Raises Malformed."""
    # What follows the last newline is torn.
    data = read_document(path)
    if data.count(b"\n") > _MOST_LINES or sum(map(data.count, (b"[", b"{"))) > _MOST_LISTS:
        raise Malformed("holds too many samples or values, so it was not read")
    texts = data.split(b"\n")[:-1]
    try:
        header, *lines = [json.loads(text, parse_constant=_no_constant) for text in texts] or [{}]
        return _parsed(header, lines)
    except Malformed:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        reason = type(error).__name__
        raise Malformed(f"is no recording ({reason})") from None


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _parsed(header: Mapping[str, Any], lines: list[Mapping[str, Any]]) -> Recording:
    if header["format"] != FORMAT:
        raise Malformed("is of another format")
    if not lines:
        raise Malformed("holds no samples")
    tick = 1 / _number(header["hz"], 1)
    times = np.array([_number(line["t"]) for line in (header, *lines)])
    if (np.diff(times) < 0).any():
        raise Malformed("has samples whose times go backwards")
    cpu = np.array([_numbers(line["cpu"], 8) for line in lines]) * tick
    cpu[:, 1] += cpu[:, 0]
    states = [str(name)[:40] for name in header.get("idle_states", ())]
    idle_us = [_numbers(line["idle"], len(states)) for line in lines if "idle" in line]
    return Recording(
        epoch_s=times,
        cpus=max(int(_number(header["cpus"], 1)), 1),
        every=int(max(_number(line.get("every", 1)) for line in lines)),
        cpu_s=cpu[:, 1:],
        top_cpu_s=np.array([_numbers(line.get("top_cpu", (0, 0)), 2)[1] for line in lines]) * tick,
        threads=_by_name(lines, "threads", lambda rows: _threads(rows, tick)),
        disks=_by_name(lines, "disk", lambda rows: _table(rows, len(DISK))),
        links=_by_name(lines, "net", lambda rows: _table(rows, len(LINK))),
        link_bytes_per_s=_link_limits(header),
        plain={"ctxt": _plain(lines, "ctxt"), "mhz": _plain(lines, "mhz")},
        idle_s=dict(zip(states, (np.sum(idle_us, axis=0) / 1e6).tolist() if idle_us else ())),
        boot=str(header.get("boot", ""))[:40],
    )


def _link_limits(header: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """A link sends no faster than it is, and than what shapes it lets it."""
    speed = {str(name): _number(mbit) * 1e6 / 8 for name, mbit in header["link_mbit"].items()}
    sent = {str(name): _number(rate) for name, rate in header.get("shaped_bytes_per_s", {}).items()}
    known = ((name, speed.get(name, math.inf)) for name in {**speed, **sent})
    return {name: (fast, min(fast, sent.get(name, math.inf))) for name, fast in known}


def _number(value: Any, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Malformed("has something else where a number belongs")
    if not (least <= value <= _BIGGEST and math.isfinite(value)):
        raise Malformed("has a number that cannot be")
    return float(value)


def _numbers(values: Any, count: int) -> list[float]:
    # Counters that go back, as of a device that was renewed, count nothing.
    numbers = [_number(value, -_BIGGEST) for value in values]
    if len(numbers) != count:
        raise Malformed(f"has {len(numbers)} numbers where {count} belong")
    return [max(number, 0.0) for number in numbers]


def _plain(lines: list[Mapping[str, Any]], key: str) -> Floats:
    values = (line.get(key) for line in lines)
    return np.array([np.nan if value is None else _number(value) for value in values])


def _by_name(
    lines: list[Mapping[str, Any]], key: str, made: Callable[[list[Any]], Any]
) -> dict[str, Any]:
    names = dict.fromkeys(name for line in lines for name in line.get(key, ()))
    if len(names) > _MOST_KEYS or len(names) * len(lines) > _MOST_ROWS:
        raise Malformed(f"has {len(names)} names of {key} in {len(lines)} samples")
    return {str(name)[:60]: made([line.get(key, {}).get(name) for line in lines]) for name in names}


def _table(rows: list[Any], columns: int) -> Floats:
    empty = [0.0] * columns
    return np.array([empty if row is None else _numbers(row, columns) for row in rows])


def _threads(rows: list[Any], tick: float) -> ThreadSeries:
    counted: dict[str, int] = {}
    numbers, has_waits = [], False
    for row in rows:
        if row is None:
            numbers.append([0.0, 0.0, 0.0, 0.0])
            continue
        user, system, busiest, _, name, *waited = row
        has_waits |= bool(waited)
        numbers.append(_numbers((user, system, busiest, *(waited or (0,))), 4))
        counted[str(name)[:60]] = counted.get(str(name)[:60], 0) + 1
    table = np.array(numbers) * (tick, tick, tick, 1e-6)
    names = sorted(counted, key=lambda name: -counted[name])[:5]
    return ThreadSeries(table[:, :2], table[:, 2], table[:, 3] if has_waits else None, tuple(names))
