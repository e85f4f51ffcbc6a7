"""Which percentiles enough IOs stand behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.figures.rate import records_of
from cbt_crypto.report.model import ReportCell
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.readers.histogram import PERCENTILES

#: A percentile needs as many IOs that took longer. Their number varies by its square root from run
#: to run: of 100 by 10 %, which moves p99 between p98.8 and p99.2 at 95 %; of 10 by a third.
FEWEST_BEYOND = 100


def withheld(runs: Sequence[Run], direction: str) -> dict[str, str]:
    """The percentiles that too few IOs stand behind, each with the reason."""
    measured = [run for run in runs if run.failure is None]
    ios = sum(_ios(run, direction) for run in measured)
    reasons = {}
    for key, percent in PERCENTILES.items():
        beyond = ios * (100 - percent) / 100
        if round(beyond, 6) < FEWEST_BEYOND:
            reasons[key] = f"{beyond:.0f} of {ios:,} IOs are beyond it, {FEWEST_BEYOND} are needed"
    return reasons


def _ios(run: Run, direction: str) -> int:
    histogram = run.histograms.get(direction)
    if histogram is not None:
        return histogram.total
    return sum(record.ios for record in records_of(run, direction))


def left_out(cells: Iterable[ReportCell], shown: Iterable[str]) -> str:
    """One sentence for the foot of a table about those of the `shown` figures; empty for none."""
    keys = {key for cell in cells for key in cell.withheld}
    labels = [BY_KEY[key].label for key in shown if key in keys]
    if not labels:
        return ""
    return f"Empty where fewer than {FEWEST_BEYOND} IOs took longer: {', '.join(labels)}"


def without(figures: Mapping[str, float], keys: Iterable[str]) -> dict[str, float]:
    """The figures but those of `keys`."""
    return {key: value for key, value in figures.items() if key not in set(keys)}
