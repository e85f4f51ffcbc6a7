"""What a report is asked to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class ReportOptions:
    """Choices of the reader; the archive is the same whatever they are.

    `baseline` is a value of the compared dimension, or `dimension=value` to compare another one;
    None takes the plan's. `only` keeps cells whose label contains, or as a glob matches, one of
    these, and their baseline. `loss` prints percent lost instead of percent of the baseline.
    `anonymize` hides host names and addresses. `run_spread_percent` is how much one and the same
    measurement differs between deployments, as a standard deviation, where nothing was measured
    twice; None takes `report.spread.ASSUMED_PERCENT`.
    """

    baseline: Optional[str] = None
    only: tuple[str, ...] = ()
    loss: bool = False
    anonymize: bool = False
    run_spread_percent: Optional[float] = None
