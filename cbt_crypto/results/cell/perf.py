"""perf's text files: what `perf stat` counted, and where `perf report` saw the cycles go.

A record that `perf record` wrote can be read only with the symbols of the machine it comes from;
`perf report --stdio --no-children -g none` there makes the text that is read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Optional

from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.window import Window

_COUNTED = ("cycles", "instructions")
_STARTED = re.compile(r"^# started on (.+)$", re.MULTILINE)
_ELAPSED = re.compile(r"^\s*(\d+\.?\d*) seconds time elapsed", re.MULTILINE)
_NUMBER = re.compile(r"\d[\d,]*")
_TIME = re.compile(r"\d+\.\d+")
_OVERHEAD = re.compile(r"^\s*(?:[\d.]+%\s+)?(\d+\.?\d*)%\s+.*\[[k.]\] (\S+)", re.MULTILINE)
#: perf ends its list of symbols with an empty line.
_AFTER_LAST = re.compile(r"\n[ \t]*\n")
#: Ciphers, their modes and the kernel's and OpenSSL's names for what runs them.
_CRYPTO = re.compile(
    r"aes|xts|gcm|ghash|crypt|chacha|poly1305|sha(1|256|512)|cipher|_evp_|pclmul", re.IGNORECASE
)
_RECORD_MAGIC = b"PERFILE2"
#: Time zones differ by whole quarters of an hour.
_QUARTER_S = 900


@dataclass(frozen=True)
class Counted:
    """What perf stat counted, event -> count, up to `end_s` after its start."""

    end_s: float
    counts: dict[str, float]


@dataclass(frozen=True)
class PerfStat:
    """One perf stat file. `started_s` is the local time of its start, as if it were UTC."""

    started_s: Optional[float]
    parts: tuple[Counted, ...]
    is_interval: bool


@dataclass(frozen=True)
class PerfUse:
    """perf's figures of one node over the window: counts a second, and the share of crypto.

    `total_s` is how long perf stat counted where it told a total and no intervals: the counts are
    of all that time then.
    """

    host: str
    per_second: dict[str, float] = field(default_factory=dict)
    crypto_percent: Optional[float] = None
    total_s: Optional[float] = None


def read_perf(
    folder: Folder, host: str, window: Window, started: Optional[float]
) -> Optional[PerfUse]:
    """The figures of the files in perf.<host>; None when there are none.

    `started` is about when perf began, on the head's clock. Raises Malformed, naming the file.
    """
    per_second: dict[str, float] = {}
    crypto = total_s = None
    for name in folder.names:
        if name.startswith("."):
            continue
        try:
            text = _text(folder.read(name) or b"")
            if "Performance counter stats" in text or _intervals(text):
                stat = parse_perf_stat(text)
                per_second.update(_rates(stat, window, started))
                total_s = total_s if stat.is_interval else stat.parts[0].end_s
            elif "# Samples:" in text or _OVERHEAD.search(text):
                crypto = crypto_percent(text)
        except Malformed as error:
            raise Malformed(f"{folder.label(name)} {error}") from None
    has_figures = per_second or crypto is not None
    return PerfUse(host, per_second, crypto, total_s) if has_figures else None


def _text(data: bytes) -> str:
    if not data.strip():
        raise Malformed("is empty")
    if data.startswith(_RECORD_MAGIC):
        raise Malformed(
            "is a binary record; `perf report --stdio --no-children -g none` on its host makes"
            " a text that can be read"
        )
    return data.decode("utf-8", "replace")


def parse_perf_stat(text: str) -> PerfStat:
    """Read `perf stat -o`, with or without `-I`, for people or with `-x,`.

    Events that the machine cannot count are left out. Raises Malformed when there is nothing.
    """
    started = _STARTED.search(text)
    rows = _intervals(text)
    if rows:
        by_time: dict[float, dict[str, float]] = {}
        for time, event, count in rows:
            counted = by_time.setdefault(time, {})
            if count is not None:
                counted[event] = counted.get(event, 0.0) + count
        parts = tuple(Counted(time, by_time[time]) for time in sorted(by_time))
        return PerfStat(_local(started), parts, True)
    elapsed = _ELAPSED.search(text)
    if elapsed is None:
        raise Malformed("is cut off: perf stat did not say how long it ran")
    return PerfStat(_local(started), (Counted(float(elapsed.group(1)), _totals(text)),), False)


def crypto_percent(text: str) -> float:
    """The share of samples in crypto symbols, 0 to 100, of the first event of a perf report.

    Raises Malformed when nothing shows that its last symbol was the last.
    """
    first = text.split("# Samples:")[:2][-1]
    overheads = list(_OVERHEAD.finditer(first))
    if not overheads or not _AFTER_LAST.search(first, overheads[-1].end()):
        raise Malformed("is cut off among its symbols")
    shares = (match.groups() for match in overheads)
    return sum(float(percent) for percent, symbol in shares if _CRYPTO.search(symbol))


def _local(started: Optional[re.Match[str]]) -> Optional[float]:
    try:
        when = (
            datetime.strptime(started.group(1).strip(), "%a %b %d %H:%M:%S %Y") if started else None
        )
    except ValueError:
        return None
    return None if when is None else when.replace(tzinfo=timezone.utc).timestamp()


def _intervals(text: str) -> list[tuple[float, str, Optional[float]]]:
    """Time, event and count (None where not supported) of each line of `-I`."""
    rows = []
    for line in text.splitlines():
        words = line.split(",") if line.count(",") > 4 and ", " not in line else line.split(None, 1)
        if not words or not _TIME.fullmatch(words[0].strip()):
            continue
        event = _event(line)
        if event is not None:
            rows.append((float(words[0].strip()), event, _count(line, words)))
    return rows


def _event(line: str) -> Optional[str]:
    """The event of ours that a line counts; `cycles:u` counts as cycles."""
    for event in _COUNTED:
        if re.search(rf"(?<![\w-]){event}(?![\w-])", line.split("#", maxsplit=1)[0]):
            return event
    return None


def _count(line: str, words: list[str]) -> Optional[float]:
    if len(words) > 2:
        count = words[1].strip()
        return float(count) if count.isdecimal() else None
    match = _NUMBER.match(words[1].strip()) if len(words) > 1 else None
    return float(match.group().replace(",", "")) if match else None


def _totals(text: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for line in text.splitlines():
        event, count = _event(line), _NUMBER.match(line.strip())
        if event is not None and count is not None and not line.startswith("#"):
            totals[event] = totals.get(event, 0.0) + float(count.group().replace(",", ""))
    return totals


def _rates(stat: PerfStat, window: Window, started: Optional[float]) -> dict[str, float]:
    """Counts a second: of the window where there are intervals, else of all the time."""
    low, high = 0.0, float("inf")
    if stat.is_interval and stat.started_s is not None and started is not None:
        zone = round((stat.started_s - started) / _QUARTER_S) * _QUARTER_S
        low = window.start_s - (stat.started_s - zone)
        high = low + window.seconds
    events = {event for part in stat.parts for event in part.counts}
    rates = {event: _rate(event, stat.parts, low, high) for event in sorted(events)}
    return {event: rate for event, rate in rates.items() if rate is not None}


def _rate(event: str, parts: Sequence[Counted], low: float, high: float) -> Optional[float]:
    """Counts a second in [low, high], of an interval at its edge the share inside.

    Only intervals that counted it are looked at: a file cut short may end amid one.
    """
    count = seconds = begin = 0.0
    for part in parts:
        inside = min(part.end_s, high) - max(begin, low)
        if event in part.counts and inside > 0 and part.end_s > begin:
            count += part.counts[event] * inside / (part.end_s - begin)
            seconds += inside
        begin = part.end_s
    return count / seconds if seconds > 0 else None
