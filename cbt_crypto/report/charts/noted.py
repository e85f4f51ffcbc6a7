"""Charts over several tables, each with what is to be said of the tables' processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cbt_crypto.report.charts.chart import Chart
from cbt_crypto.report.model import Report, Table

#: Heading and chart of each chart over several tables.
Over = Callable[[Sequence[Table]], Iterator[tuple[str, Chart]]]


def noted(report: Report, tables: Iterable[Table], over: Over) -> Iterator[tuple[Chart, str, str]]:
    """Chart, heading and note, which is empty where there is none; no chart is of two notes."""
    for note, alike in report.by_emulation(tables).items():
        for heading, chart in over(alike):
            yield chart, heading, note
