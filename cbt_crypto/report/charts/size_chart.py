"""Charts over several tables: throughput by IO size, a group of bars for each size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cbt_crypto.report import label
from cbt_crypto.report.charts.chart import LARGE, Bars, bar_series
from cbt_crypto.report.model import ReportCell, Table


class _Shown(NamedTuple):
    """What the bars of a chart are."""

    title: str
    figure: str
    unit: str
    scale: float


_IOPS = _Shown("IOPS", "iops", "IO/s", 1.0)
_THROUGHPUT = _Shown("Throughput", "bandwidth_bytes_per_s", "MB/s", 1e-6)


def size_charts(tables: Iterable[Table]) -> Iterator[tuple[str, Bars]]:
    """Heading and chart for each mode of loads that differ in nothing but the IO size.

    On a cluster small sizes are shown as IOPS and large ones as throughput, in charts of their
    own. Drives have all their sizes in one chart of each, logarithmic: their figures reach over
    decades.
    """
    for members in _alike(tables).values():
        small = [table for table in members if (table.op_size or 0) < LARGE]
        large = [table for table in members if (table.op_size or 0) >= LARGE]
        chosen = [("small", _IOPS, small), ("large", _THROUGHPUT, large)]
        if members[0].is_of_drives:
            chosen = [("iops", _IOPS, members), ("throughput", _THROUGHPUT, members)]
        for key, shown, sizes in chosen:
            if len(sizes) > 1:
                yield from _charts(sizes, key, shown)


def _alike(tables: Iterable[Table]) -> dict[object, list[Table]]:
    """Tables of one load, by everything but the size."""
    by_load: dict[object, list[Table]] = {}
    for table in tables:
        if table.op_size is not None:
            rest = tuple((k, v) for k, v in table.dimensions.items() if k != "op_size")
            by_load.setdefault(rest, []).append(table)
    return by_load


def _charts(tables: Sequence[Table], key: str, shown: _Shown) -> Iterator[tuple[str, Bars]]:
    words = [
        f"{k} {v}" for k, v in tables[0].dimensions.items() if k not in ("scenario", "op_size")
    ]
    heading = ", ".join((tables[0].scenario, *words))
    for mode in dict.fromkeys(section.label for table in tables for section in table.sections):
        rows = [_row(table, mode) for table in tables]
        names = dict.fromkeys(name for row in rows for name in row)
        chart = Bars(
            key=f"by_size_{key}_{mode.replace(' ', '_')}",
            title=f"{shown.title} by IO size, {mode}",
            unit=shown.unit,
            groups=tuple(label.op_size(table.op_size) for table in tables),
            series=tuple(
                bar_series([row.get(name) for row in rows], shown.figure, shown.scale)
                for name in names
            ),
            is_log=tables[0].is_of_drives,
        )
        if any(value is not None for series in chart.series for value in series.values):
            yield heading, chart


def _row(table: Table, mode: str) -> dict[str, ReportCell]:
    return {cell.name: cell for s in table.sections if s.label == mode for cell in s.cells}
