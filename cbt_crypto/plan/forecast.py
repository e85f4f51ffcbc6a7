"""How long a campaign that runs will still take, and how far off that may be."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Callable, Optional

from cbt_crypto.archive.folder import beyond_the_file, steps_of
from cbt_crypto.plan.predict import Durations
from cbt_crypto.plan.steps import Measure, Plan, Step

#: What deployments and prefills may differ from a guess, and from what was seen, as a part of it.
_GUESSED, _SEEN = 0.5, 0.2
#: Steps of a kind that must have been seen before their own spread is believed.
_ENOUGH = 3


@dataclass(frozen=True)
class Left:
    """Seconds that are left, give or take `uncertainty` seconds."""

    seconds: float
    uncertainty: float

    def __str__(self) -> str:
        """`1:20:00 left ±4 min`."""
        return f"{clock(self.seconds)} left {self.give_or_take}"

    @property
    def give_or_take(self) -> str:
        """`±4 min`."""
        return f"±{_rough(self.uncertainty)}"


class Forecast:
    """Time left of a plan, by the file's own times and what its steps took so far.

    A cell counts with the deployments and prefills that stand before it in the plan.
    """

    def __init__(
        self,
        plan: Plan,
        archive: Optional[Path] = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is done yet; `archive` has the times of earlier steps, where there are any."""
        self._archive = archive
        self._now = now
        self._cells: list[list[Step]] = [[]]
        for step in plan.steps:
            self._cells[-1].append(step)
            if isinstance(step, Measure):
                self._cells.append([])
        self._since = now()
        self.learn()

    def cell_done(self) -> None:
        """The first cell that was left is measured, failed, or not needed."""
        if len(self._cells) > 1:
            del self._cells[0]
        self._since = self._now()
        self.learn()

    def learn(self) -> None:
        """Take in how long the steps took that have ended since."""
        steps = [] if self._archive is None else steps_of(self._archive)
        self._durations = Durations(steps)

    def left(self) -> Left:
        """What is left from this moment on."""
        of = self._seconds
        ahead = sum(of(step) for cell in self._cells[1:] for step in cell)
        current = sum(of(step) for step in self._cells[0])
        measuring = sum(
            step.pause_s + step.cell.scenario.ramp + step.cell.scenario.measured_s
            for cell in self._cells
            for step in cell
            if isinstance(step, Measure)
        )
        around = ahead + current - measuring
        passed = min(self._now() - self._since, current)
        return Left(ahead + current - passed, self._share() * max(0.0, around))

    def _seconds(self, step: Step) -> float:
        pause = step.pause_s if isinstance(step, Measure) else 0.0
        return self._durations.of(step) + pause

    def _share(self) -> float:
        """The part by which what the file does not say, such as a deployment, may be wrong."""
        steps = self._durations.steps
        by_kind: dict[str, list[float]] = {}
        for step in steps:
            kind = f"{step.get('step')} {step.get('how')}"
            by_kind.setdefault(kind, []).append(beyond_the_file(step))
        if not by_kind:
            return _GUESSED
        shares = [_spread(ratios) for ratios in by_kind.values() if len(ratios) >= _ENOUGH]
        return max([_SEEN, *shares])


def _spread(values: list[float]) -> float:
    """Median distance from the median, as a part of it."""
    middle = median(values)
    return min(1.0, median(abs(v - middle) for v in values) / middle) if middle > 0 else 0.0


def clock(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _rough(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
