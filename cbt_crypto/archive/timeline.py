"""How long each step of a campaign took: results/timeline.json, which predictions rest on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Optional

from cbt_crypto.archive.json_file import read_json, write_json


def _path(archive: Path) -> Path:
    return archive / "results" / "timeline.json"


class Timeline:
    """Notes steps that were taken to their end; a campaign that goes on adds to what is there."""

    def __init__(self, archive: Path) -> None:
        """Reads what is noted already."""
        self._archive = archive
        self._steps = steps_of(archive)

    @contextlib.contextmanager
    def step(self, kind: str, **about: Any) -> Iterator[None]:
        """Note how long the block takes; `kind` is deploy, prefill, measure or take_down."""
        started, clock = time.time(), time.monotonic()
        yield
        taken = round(time.monotonic() - clock, 3)
        self._steps.append({"step": kind, **about, "started": started, "seconds": taken})
        write_json(_path(self._archive), {"steps": self._steps})


def steps_of(archive: Path) -> list[dict[str, Any]]:
    """The steps in an archive's timeline.json; empty without a readable one."""
    steps = (read_json(_path(archive)) or {}).get("steps")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def beyond_the_file(step: Mapping[str, Any]) -> float:
    """Seconds that a step took beyond what the file itself asks for: ramp and measured time."""
    seconds = float(step.get("seconds") or 0)
    return seconds - sum(float(step.get(key) or 0) for key in ("seconds_measured", "seconds_ramp"))


def usual_fill_rate(steps: list[dict[str, Any]]) -> Optional[float]:
    """MiB/s at which volumes were filled; of small ones that is mostly what goes before it."""
    rates = [
        step["mib"] / step["seconds"]
        for step in steps
        if step.get("step") == "prefill" and step.get("seconds") and step.get("mib")
    ]
    return float(median(rates)) if rates else None


def usual_seconds(steps: list[dict[str, Any]], kind: str, **about: Any) -> Optional[float]:
    """Median seconds of the steps of that kind and with those values; None without any."""
    wanted = {"step": kind, **about}
    seconds = [
        step["seconds"]
        for step in steps
        if all(step.get(key) == value for key, value in wanted.items())
        and isinstance(step.get("seconds"), (int, float))
    ]
    return float(median(seconds)) if seconds else None
