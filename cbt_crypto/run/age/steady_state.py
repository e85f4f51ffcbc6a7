"""Runs a cell's load in rounds until it is in a steady state, as SNIA's PTS has it.

fio has `steadystate` too, but tests either deviation or slope, and each process stops by itself:
what several clients do together may be steady, or not, whatever each of them sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cbt_crypto.benchmarks.age import WINDOW, Aged
from cbt_crypto.benchmarks.base import ClusterCommands, Scenario, WrapClient
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site

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
    """The last rounds; None for too few, or where nothing was done.

    The slope is what the line of least squares climbs, or falls, from the first to the last.
    """
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
    """Run rounds; what they did, as cell.json has it. None where the file asks for none.

    Raises RunError for a client whose load failed.
    """
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
        return float(printed.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise RunError(f"{host}: a round before the steady state left no IOPS") from None
