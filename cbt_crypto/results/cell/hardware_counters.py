"""What processors counted in a cell's window: energy by RAPL, events by perf, and its stacks."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

import numpy as np

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed, Problem, Stream, one_line, read_samples
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.record import Floats
from cbt_crypto.results.cell.window import Sampled, Window, used_per_second

#: More than one package or its memory can take, in W: such a step is a damaged or reset counter.
_IMPLAUSIBLE_W = 5000.0
#: No counter of the kernel is larger, and a time with more digits is none.
_LARGEST = 1 << 63


@dataclass(frozen=True)
class EnergySeries:
    """Joules of packages and memory since the first sample, on the host's clock.

    A gap of more than `longest_gap_s` may hide a whole turn of a counter.
    """

    epoch_s: Floats
    joules: Floats
    longest_gap_s: float


@dataclass(frozen=True)
class EnergyUse:
    """What one host took over `seconds` of the window, in J."""

    host: str
    seconds: float
    joules: float

    @property
    def watts(self) -> float:
        """The mean power over the window, in W."""
        return self.joules / self.seconds


class HostEnergy(Sampled[EnergySeries]):
    """One host's counters of energy."""

    def use(self, window: Window) -> Optional[EnergyUse]:
        """The part of the window that the samples cover; None when they do not, or have gaps."""
        times = self.times_s
        start, end = max(window.start_s, float(times[0])), min(window.end_s, float(times[-1]))
        if end <= start or _longest_gap(times, start, end) > self.series.longest_gap_s:
            return None
        first, last = np.interp([start, end], times, self.series.joules).tolist()
        return EnergyUse(self.host, end - start, last - first)


@dataclass(frozen=True)
class _Zone:
    name: str
    range_uj: int

    @property
    def counts(self) -> bool:
        """Packages hold their cores and graphics, and psys holds packages: those are no more."""
        return self.name.startswith("package-") or self.name == "dram"


def read_energy(path: Path) -> EnergySeries:
    """Read a file of samples. Raises Malformed for one that cannot be trusted as a whole."""
    lines = read_samples(path)
    zones = _zones([line for line in lines if line.startswith(b"#")])
    samples = [_sample(line, zones) for line in lines if not line.startswith(b"#")]
    if len(samples) < 2:
        raise Malformed("holds fewer than two samples of the energy")
    times = np.array([time for time, _ in samples])
    if (np.diff(times) <= 0).any():
        raise Malformed("has samples whose times go backwards")
    counted = np.array([values for _, values in samples], np.float64)
    counting = [index for index, zone in enumerate(zones) if zone.counts]
    ranges = np.array([zones[index].range_uj for index in counting], np.float64)
    steps = np.diff(counted[:, counting], axis=0)
    steps += np.where(steps < 0, ranges, 0.0)
    if (steps / 1e6 > _IMPLAUSIBLE_W * np.diff(times)[:, None]).any():
        raise Malformed(f"has a counter that jumps by more than {_IMPLAUSIBLE_W:.0f} W can make")
    joules = np.concatenate((np.zeros(1), np.cumsum(steps.sum(axis=1)) / 1e6))
    return EnergySeries(times, joules, float(ranges.min()) / 1e6 / _IMPLAUSIBLE_W)


def energy_of_osds(folder: Folder, cell: CellDocument, problems: list[Problem]) -> list[HostEnergy]:
    """What was counted on OSD hosts; a host without a file has no counters, as most have not."""
    energies = []
    files = {host: f"energy.{host}" for host in cell.osd_hosts}
    present = set(folder.names) & set(files.values())
    for host, name in files.items():
        try:
            if name in present:
                offset = cell.clock_offset_s.get(host, 0.0)
                energies.append(HostEnergy(host, read_energy(folder.path(name)), offset))
        except Malformed as error:
            problems.append(Problem(name, str(error)))
    if present and len(present) < len(files):
        without = [host for host, name in files.items() if name not in present]
        sentence = f"energy was not counted on {', '.join(without)}, so there is no figure of it"
        problems.append(Problem("", sentence))
    return energies


def energy_used(
    counted: Sequence[HostEnergy], cell: CellDocument, window: Window, problems: list[Problem]
) -> tuple[EnergyUse, ...]:
    """Of every OSD host, over the window; empty unless the samples of all of them cover it."""
    what = "the record of its energy"
    uses = [u for s in counted for u in window.whole(s.host, s.use(window), what, problems)]
    return tuple(uses) if len(uses) == len(cell.osd_hosts) else ()


def watts_per_second(hosts: Sequence[HostEnergy], window: Window) -> Optional[Floats]:
    """The power of all hosts together in each second of the window; None without hosts."""
    if not hosts or window.seconds < 1:
        return None
    return used_per_second(((host.times_s, host.series.joules) for host in hosts), window)


def _zones(header: Sequence[bytes]) -> list[_Zone]:
    zones = []
    for line in header:
        words = line.decode("utf-8", "replace").split()
        # `# zone intel-rapl:0 262143328850 package-0`
        if words[:2] != ["#", "zone"] or len(words) != 5:
            raise Malformed("has a header that names no zone and its range")
        zones.append(_Zone(words[4], _number(words[3])))
    if not any(zone.counts for zone in zones):
        raise Malformed("has no zone of a package or of memory")
    if any(zone.range_uj == 0 for zone in zones):
        raise Malformed("has a zone whose counter has no range")
    return zones


def _sample(line: bytes, zones: Sequence[_Zone]) -> tuple[float, list[int]]:
    words = line.decode("ascii", "replace").split(" ")
    if len(words) != len(zones) + 1:
        raise Malformed(f"has a sample that is not a time and {len(zones)} counters")
    values = [_number(word) for word in words[1:]]
    if any(value > zone.range_uj for value, zone in zip(values, zones)):
        raise Malformed("has a counter beyond its range")
    return _time(words[0]), values


def _number(word: str) -> int:
    value = int(word) if word.isascii() and word.isdigit() and len(word) < 20 else _LARGEST
    if value >= _LARGEST:
        raise Malformed("has a counter that is no number")
    return value


def _time(word: str) -> float:
    seconds, _, fraction = word.partition(".")
    return float(_number(seconds) + _number(fraction or "0") / 10 ** len(fraction or "0"))


def _longest_gap(times: Floats, start: float, end: float) -> float:
    """The longest time between two samples that both have a part of [start, end] between them."""
    touching = (times[1:] > start) & (times[:-1] < end)
    gaps: list[float] = np.diff(times)[touching].tolist()
    return max(gaps, default=math.inf)


_COUNTED = ("cycles", "instructions")
_STARTED = re.compile(r"^# started on (.+)$", re.MULTILINE)
_ELAPSED = re.compile(r"^[ \t]*(\d+(?:\.\d*)?) seconds time elapsed", re.MULTILINE)
_NUMBER = re.compile(r"\d[\d,]*(?=[ \t]|$)")
_TIME = re.compile(r"\d+\.\d+")
_OVERHEAD = re.compile(
    r"^[ \t]*(?:[\d.]+%[ \t]+)?(\d+(?:\.\d*)?)%[ \t].*\[[k.]\] (\S+)", re.MULTILINE
)
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
    """perf's counts a second of one node over the window, and the share of crypto.

    `total_s`: how long it counted, where it told a total and no intervals.
    """

    host: str
    per_second: dict[str, float] = field(default_factory=dict)
    crypto_percent: Optional[float] = None
    total_s: Optional[float] = None


def read_perf(
    folder: Folder, host: str, window: Window, started: Optional[float]
) -> Optional[PerfUse]:
    """The figures in perf.<host>, or None; Malformed. `started`: about when, head's clock."""
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
    """Read `perf stat -o`, any form, without unsupported events; Malformed if empty."""
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
    """Crypto's samples in percent, of a whole perf report's first event; else Malformed."""
    first = text.split("# Samples:")[:2][-1]
    overheads = list(_OVERHEAD.finditer(first))
    if not overheads or not _AFTER_LAST.search(first, overheads[-1].end()):
        raise Malformed("is cut off among its symbols")
    shares = (match.groups() for match in overheads)
    return sum(float(percent) for percent, symbol in shares if _CRYPTO.search(symbol))


def _local(started: Optional[re.Match[str]]) -> Optional[float]:
    if started is None:
        return None
    try:
        when = datetime.strptime(started.group(1).strip(), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return when.replace(tzinfo=timezone.utc).timestamp()


def _intervals(text: str) -> list[tuple[float, str, Optional[float]]]:
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
    text = line.partition("#")[0]
    return next((e for e in _COUNTED if re.search(rf"(?<![\w-]){e}(?![\w-])", text)), None)


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
    """Counts a second in [low, high], by share of edge intervals; a torn one is left out."""
    count = seconds = begin = 0.0
    for part in parts:
        inside = min(part.end_s, high) - max(begin, low)
        if event in part.counts and inside > 0 and part.end_s > begin:
            count += part.counts[event] * inside / (part.end_s - begin)
            seconds += inside
        begin = part.end_s
    return count / seconds if seconds > 0 else None


#: What `hosts.stacks_on_host` writes has less of each; a stack has a hundred frames at most.
_STACKS_BYTES, _MOST_STACKS, _MOST_FRAMES, _LONGEST_FRAME = 16 << 20, 4000, 128, 128
#: The seconds of a campaign's longest cells, and samples of one by all CPUs.
_LAST_SECOND, _MOST_A_SECOND = 10 * 86_400, 1e7
_IN_SECOND = re.compile(rb"(\d{1,6}):(\d{1,8})")


@dataclass(frozen=True)
class StackSamples:
    """Stack, outermost first, parted by `;` -> samples in the window; `hz` a second of a CPU."""

    hz: float
    samples: Mapping[str, float]


def read_stacks(path: Path, window: Window, offset_s: float) -> StackSamples:
    """Read what a host folded; seconds at the window's edges count by their share. Malformed."""
    lines = (line for piece in Stream(path, _STACKS_BYTES).lines() for line in piece.splitlines())
    try:
        header = json.loads(next(lines, b""))
        hz, began, seconds = (float(header[key]) for key in ("hz", "t", "seconds"))
        error = header["error"]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise Malformed("does not begin as stacks do") from None
    if error:
        raise Malformed(f"has no stacks, as perf says: {error}")
    if not (1 <= hz <= 1e5 and 0 <= seconds <= _LAST_SECOND and math.isfinite(began)):
        raise Malformed("has a number that cannot be")
    start, end = (edge + offset_s - began for edge in (window.start_s, window.end_s))
    if shortfall := window.shortfall(min(end, seconds) - max(start, 0.0)):
        raise Malformed(shortfall)
    samples: dict[str, float] = {}
    for number, line in enumerate(lines):
        name, _, counts = line.partition(b"\t")
        if number >= _MOST_STACKS or name.count(b";") > _MOST_FRAMES:
            raise Malformed("has more stacks or frames than are written")
        frames = one_line(name.decode("utf-8", "replace")).split(";")
        stack = ";".join(frame[:_LONGEST_FRAME] for frame in frames)
        count = samples.get(stack, 0.0) + sum(
            int(found[2]) * max(0.0, min(int(found[1]) + 1, end) - max(int(found[1]), start))
            for found in map(_IN_SECOND.fullmatch, counts.split())
            if found is not None
        )
        if count > _MOST_A_SECOND * max(window.seconds, 1):
            raise Malformed("has more samples than CPUs can take")
        if count:
            samples[stack] = count
    return StackSamples(hz, samples)


def stacks_of_osds(
    folder: Folder, cell: CellDocument, window: Window, problems: list[Problem]
) -> Optional[StackSamples]:
    """Of all OSD hosts together; None unless each of them has them, at one frequency."""
    read = []
    for host in cell.osd_hosts:
        name = f"stacks.{host}"
        try:
            if name in folder.names:
                offset = cell.clock_offset_s.get(host, 0.0)
                read.append(read_stacks(folder.path(name), window, offset))
        except Malformed as error:
            problems.append(Problem(name, str(error)))
    if not read or len(read) < len(cell.osd_hosts) or len({one.hz for one in read}) > 1:
        return None
    together: Counter[str] = Counter()
    for one in read:
        together.update(one.samples)
    return StackSamples(read[0].hz, dict(together))
