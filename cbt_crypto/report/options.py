"""What a report is asked to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional


@dataclass(frozen=True)
class ReportOptions:
    """Choices of the reader; the archive is the same whatever they are.

    `baseline` is a value of the compared dimension, or `dimension=value` to compare another one;
    None takes the plan's. `only` keeps cells whose label contains, or as a glob matches, one of
    these, and their baseline. `loss` prints percent lost instead of percent of the baseline.
    `anonymize` hides host names and addresses. `spread_from` is an archive, measured in rounds,
    that says how much deployments of this site differ, for what was deployed once here.
    """

    baseline: Optional[str] = None
    only: tuple[str, ...] = ()
    loss: bool = False
    anonymize: bool = False
    spread_from: Optional[Path] = None
