"""A host's RAPL counters, as `hosts.samplers.energy` sampled them, as energy and power.

A counter is in microjoules and begins anew at 0 when it has reached its range, which takes a busy
processor some ten minutes. docs/archive.md has the format, docs/figures.md what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed, Problem, read_document
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.arrays import Floats
from cbt_crypto.results.cell.host_samples import Sampled
from cbt_crypto.results.cell.window import Window

#: More than one package or its memory can take, in W: such a step is a damaged or reset counter.
_IMPLAUSIBLE_W = 5000.0
#: No counter of the kernel is larger, and a time with more digits is none.
_LARGEST = 1 << 63


@dataclass(frozen=True)
class EnergySeries:
    """Joules that packages and memory took since the first sample; times on the host's clock.

    A gap of more than `longest_gap_s` between samples may hide a whole turn of a counter.
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
    # A signal ends the sampler, and a full disk may: what follows the last newline is torn.
    lines = read_document(path).split(b"\n")[:-1]
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
    uses = []
    for host_energy in counted:
        use = host_energy.use(window)
        shortfall = window.shortfall(use.seconds if use else 0.0)
        if use is None or shortfall:
            problems.append(
                Problem("", f"{host_energy.host}: the record of its energy {shortfall}")
            )
        else:
            uses.append(use)
    return tuple(uses) if len(uses) == len(cell.osd_hosts) else ()


def watts_per_second(hosts: Sequence[HostEnergy], window: Window) -> Optional[Floats]:
    """The power of all hosts together in each second of the window; None without hosts."""
    if not hosts or window.seconds < 1:
        return None
    used = [np.interp(window.grid_s, host.times_s, host.series.joules) for host in hosts]
    watts: Floats = np.diff(np.sum(used, axis=0))
    return watts


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
