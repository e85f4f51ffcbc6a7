"""What a recovery took, and what clients had of it: from its times and the cell's seconds."""

from __future__ import annotations

from typing import Optional

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.archive.documents import Recovery
from cbt_crypto.report.figures.of_runs import Of, mean_of_runs
from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.record import Floats
from cbt_crypto.results.cell.run import Run

_Bools = NDArray[np.bool_]


def lasted(field: str) -> Of:
    """Seconds until all placement groups were clean, from when the OSD went out or in."""
    return mean_of_runs(
        lambda run, _: None if run.recovery is None else float(getattr(run.recovery, field))
    )


def meanwhile(field: str) -> Of:
    """Of the whole seconds in which it was going on: IOPS, or their mean or p99 latency."""
    return mean_of_runs(lambda run, direction: _seconds(run, direction, field, True))


def before(field: str) -> Of:
    """Of the seconds before the OSD went out."""
    return mean_of_runs(lambda run, direction: _seconds(run, direction, field, False))


def _seconds(run: Run, direction: str, field: str, is_meanwhile: bool) -> Optional[float]:
    series = run.series.get(direction)
    if run.recovery is None or series is None:
        return None
    chosen = _meanwhile(series, run.recovery) if is_meanwhile else _before(series, run.recovery)
    values, ios = getattr(series, field)[chosen], series.iops[chosen]
    if field == "iops":
        return float(values.mean()) if len(values) else None
    has_value = np.isfinite(values) & (ios > 0)
    return float(np.average(values[has_value], weights=ios[has_value])) if has_value.any() else None


def _starts(series: Series) -> Floats:
    starts: Floats = series.start_epoch_s + np.arange(len(series.iops), dtype=np.float64)
    return starts


def _meanwhile(series: Series, recovery: Recovery) -> _Bools:
    """Seconds of which any part belongs to it: one that lasts less has at least one."""
    starts = _starts(series)
    chosen = np.zeros(len(starts), bool)
    for began, lasted_s in (
        (recovery.out_at, recovery.clean_after_out_s),
        (recovery.in_at, recovery.clean_after_in_s),
    ):
        chosen |= (starts + 1 > began) & (starts < began + lasted_s)
    return chosen


def _before(series: Series, recovery: Recovery) -> _Bools:
    chosen: _Bools = _starts(series) + 1 <= recovery.out_at
    return chosen
