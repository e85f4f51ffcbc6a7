"""Words and numbers for people: op sizes, modes, percents, latencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Union

from cbt_crypto.results.readers.fio import SYNC

#: What every table says when a host's processors are emulated.
EMULATED = "emulated CPU: these figures prove the pipeline, not the hardware"

#: Stands for an interval, or a range, between whose bounds everything lies.
UNKNOWN_YET = "nothing known yet"


def emulated_in(names: Sequence[str]) -> str:
    """The same where it is true of some of the archives that are compared."""
    whose = "its" if len(names) == 1 else "their"
    where = " and ".join(names)
    return f"emulated CPU in {where}: {whose} figures prove the pipeline, not the hardware"


_MODES = {
    "randread": "random reads",
    "randwrite": "random writes",
    "read": "sequential reads",
    "write": "sequential writes",
}
_MIXED = {"randrw": "random mix", "rw": "sequential mix", "readwrite": "sequential mix"}


def op_size(size: Union[int, str, float, None]) -> str:
    """4096 -> `4 KiB`; what is no number of bytes stays as it is."""
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        return str(size)
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def dimension(name: str) -> str:
    """A dimension as the heading of its values: `op_size` -> `IO size`, `device` -> `Device`."""
    words = {"op_size": "IO size"}.get(name, name.replace("_", " "))
    return words[:1].upper() + words[1:]


def mode(name: str, direction: str) -> str:
    """`randread` -> `random reads`; a mixed mode names the direction too."""
    if direction == SYNC:
        return "syncs after writes"
    if name in _MIXED:
        return f"{_MIXED[name]}, {direction}s"
    return _MODES.get(name, name)


def percent(value: float, loss: bool) -> str:
    """Two decimals, as published: percent of the baseline, or lost against it."""
    return f"{100 - value:.2f}" if loss else f"{value:.2f}"


def number(value: Optional[float]) -> str:
    """Three significant digits for small numbers, whole ones with separators for large."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals}f}"


def milliseconds(ns: Optional[float]) -> str:
    """A latency in ns, shown in ms with three significant digits; `-` when there is none."""
    return number(None if ns is None else ns / 1e6)


def megabytes(bytes_per_s: Optional[float]) -> str:
    """Throughput in MB/s, of 10^6 bytes."""
    return number(None if bytes_per_s is None else bytes_per_s / 1e6)


def thousandths(value: Optional[float]) -> str:
    """A value in J, shown in mJ with three significant digits; `-` when there is none."""
    return number(None if value is None else 1e3 * value)


def one_decimal(value: Optional[float]) -> str:
    """For percent of CPU."""
    return "-" if value is None else f"{value:.1f}"
