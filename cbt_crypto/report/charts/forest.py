"""The one picture: every percent of throughput with its interval, loads as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.report import label
from cbt_crypto.report.model import Comparison, Report, ReportCell, Section

#: The axis shows no more than this, in percent of the baseline; what lies beyond gets an arrow.
_LEAST, _MOST = 0.0, 200.0
_STEP = 10.0


@dataclass(frozen=True)
class ForestPoint:
    """One percent. `low` and `high` are None where nothing bounds it.

    `is_shown` says that a difference is shown; `is_of_one_deployment` that the ends are a range
    within single runs. `percent` is None for a cell that failed; `text` says it all in words.
    """

    series: int
    percent: Optional[float]
    low: Optional[float]
    high: Optional[float]
    is_shown: bool
    is_of_one_deployment: bool
    text: str


@dataclass(frozen=True)
class Row:
    """One load: the heading under which it stands, its own words, and a point a configuration."""

    heading: str
    label: str
    points: tuple[ForestPoint, ...]


@dataclass(frozen=True)
class Forest:
    """Rows of points over one axis, from `low` to `high`, with a line at `reference`."""

    title: str
    reference: float
    low: float
    high: float
    series: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


def forest(report: Report) -> Optional[Forest]:
    """The picture of a report; None where nothing is compared with the baseline."""
    loss = report.options.loss
    names = list(dict.fromkeys(c.in_legend for c in report.cells if not c.is_baseline))
    sections = [(table.title, section) for table in report.tables for section in table.sections]
    rows = [Row(title, s.label, tuple(_points(s, names, loss))) for title, s in sections]
    rows = [row for row in rows if row.points]
    if not any(point.percent is not None for row in rows for point in row.points):
        return None
    what = "lost against" if loss else "of"
    bounded = [point for row in rows for point in row.points if point.low is not None]
    within = bool(bounded) and all(point.is_of_one_deployment for point in bounded)
    ends = "the range within single runs" if within else "95 % intervals"
    reference = 0.0 if loss else 100.0
    low, high = _ends((p for row in rows for p in row.points), reference, loss)
    return Forest(
        title=f"Throughput, percent {what} {report.baseline_name}, with {ends}",
        reference=reference,
        low=low,
        high=high,
        series=tuple(names),
        rows=tuple(rows),
        note=report.emulated_note(),
    )


def _points(section: Section, names: list[str], loss: bool) -> Iterator[ForestPoint]:
    for cell in section.cells:
        if not cell.is_baseline and cell.state != "missing":
            comparison = cell.comparisons.get("iops")
            if comparison is not None or cell.state == "failed":
                yield _point(cell, names.index(cell.in_legend), comparison, loss)


def _point(
    cell: ReportCell, series: int, compared: Optional[Comparison], loss: bool
) -> ForestPoint:
    if compared is None:
        return ForestPoint(
            series, None, None, None, False, False, f"{cell.in_legend}: {cell.state}"
        )
    percent, low, high = compared.percent, compared.low, compared.high
    if loss:
        percent = 100 - percent
        low, high = (None if end is None else 100 - end for end in (high, low))
    text = f"{cell.in_legend}: {percent:.1f} %"
    if compared.says_nothing:
        text += f", {label.UNKNOWN_YET}"
    elif low is not None and high is not None:
        text += f", {low:.1f} to {high:.1f}"
    shown, of_one = bool(compared.differs), compared.is_of_one_deployment
    return ForestPoint(series, percent, low, high, shown, of_one, text)


def _ends(points: Iterable[ForestPoint], reference: float, loss: bool) -> tuple[float, float]:
    """An axis that holds every point and interval, but no more than people can use."""
    limits = (100 - _MOST, 100 - _LEAST) if loss else (_LEAST, _MOST)
    percents = [reference - _STEP, reference + _STEP]
    for point in points:
        percents += [end for end in (point.percent, point.low, point.high) if end is not None]
    low = max(min(percents), limits[0]) // _STEP * _STEP
    high = -(-min(max(percents), limits[1]) // _STEP) * _STEP
    return low, high
