"""How old drives are: overwrites since their deployment, and a workload run until it is steady."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cbt_crypto.benchmarks.age import WINDOW, Aged
from cbt_crypto.benchmarks.base import ClusterCommands, Scenario, WrapClient
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
from cbt_crypto.run.cell.conditions import Reading


class Overwrites:
    """Adds up what readings of the kernel's counters say, from one deployment to the next."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        self._drives: dict[str, dict[str, int]] = {}

    def begin(self, reading: Reading) -> None:
        """A new deployment: what drives were before counts no more."""
        self._counted, self._drives = {}, {}
        self.note(reading)

    def note(self, reading: Reading) -> None:
        """Add what was written since the last reading. A counter may begin again meanwhile."""
        for name, written, size in carriers(reading):
            before = self._counted.get(name, written)
            more = written - before if written >= before else written
            drive = self._drives.setdefault(name, {"written_bytes": 0, "size_bytes": size})
            drive["written_bytes"] += more
            self._counted[name] = written

    def around(self, readings: Sequence[Reading]) -> Mapping[str, Mapping[str, int]]:
        """Drive -> `written_bytes` between these readings around a cell, and `size_bytes`."""
        before, after = readings
        self.note(before)
        written = {name: dict(drive) for name, drive in self._drives.items()}
        self.note(after)
        return written


def carriers(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """What is at the bottom (of an OSD on a file, the file): name, bytes written, size."""
    for name, told in reading.items():
        layers = [layer for stack in told["devices"] for layer in stack]
        bottoms = [layer for layer in layers if layer.get("size_bytes")]
        for layer in bottoms:
            yield f"{told['host']} {layer['device']}", *_amounts(layer)
        process = told["process"]
        if not bottoms and process and process.get("size_bytes"):
            yield f"{told['host']} {name}", *_amounts(process)


def _amounts(counted: Mapping[str, Any]) -> tuple[int, int]:
    return counted["written_bytes"], counted["size_bytes"]


#: Of the mean of a window, in percent: from its least to its most, and what its line climbs.
RANGE_PERCENT, SLOPE_PERCENT = 20.0, 10.0
#: Seconds beyond its own that a round may take.
_SLACK = 120


@dataclass(frozen=True)
class Window:
    """How alike the last rounds are, in percent of their mean."""

    range_percent: float
    slope_percent: float

    @property
    def is_steady(self) -> bool:
        """Whether both are small enough."""
        return self.range_percent <= RANGE_PERCENT and self.slope_percent <= SLOPE_PERCENT


def window_of(iops: Sequence[float]) -> Optional[Window]:
    """The last rounds with their least-squares slope; None for too few, or without work."""
    last = iops[-WINDOW:]
    mean = sum(last) / WINDOW
    if len(last) < WINDOW or mean <= 0:
        return None
    middle = (WINDOW - 1) / 2
    steps = [number - middle for number in range(WINDOW)]
    slope = sum(step * rate for step, rate in zip(steps, last)) / sum(step**2 for step in steps)
    return Window(100 * (max(last) - min(last)) / mean, 100 * abs(slope) * (WINDOW - 1) / mean)


def reach(
    remote: Remote, site: Site, scenario: Scenario, run_dir: str, commands: ClusterCommands,
    wrap: WrapClient,
) -> Optional[dict[str, Any]]:  # fmt: skip
    """Run rounds; return what they did for cell.json, or None. RunError if a client failed."""
    if not isinstance(scenario, Aged) or not scenario.steady_state:
        return None
    directory = f"{run_dir}.rounds"
    scripts = scenario.round_scripts(site, directory, commands, wrap)
    iops: list[float] = []
    window: Optional[Window] = None
    while len(iops) < scenario.most_rounds and not (window and window.is_steady):
        what = f"run round {len(iops) + 1} before the steady state"
        outputs = remote.run(scripts, what, scenario.steady_state + _SLACK)
        iops.append(round(sum(_iops(host, text) for host, text in outputs.items()), 3))
        window = window_of(iops)
    return {
        "reached": bool(window and window.is_steady),
        "round_s": scenario.steady_state,
        "iops": iops,
        "range_percent": window and round(window.range_percent, 2),
        "slope_percent": window and round(window.slope_percent, 2),
    }


def _iops(host: str, printed: str) -> float:
    try:
        iops = float(printed.strip().splitlines()[-1])
        if not 0 <= iops < 1e30:  # neither for what is no number
            raise ValueError(iops)
        return iops
    except (IndexError, ValueError):
        raise RunError(f"{host}: a round before the steady state left no IOPS") from None
