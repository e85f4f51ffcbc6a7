"""Charts over several tables: throughput by IO size, a group of bars for each size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cbt_crypto.report import label
from cbt_crypto.report.chart import LARGE, Bars, bar_series
from cbt_crypto.report.model import ReportCell, Table


def size_charts(tables: Iterable[Table]) -> Iterator[tuple[str, Bars]]:
    """Heading and chart for each mode of loads that differ in nothing but the IO size.

    Small sizes are shown as IOPS and large ones as throughput, in charts of their own.
    """
    for members in _alike(tables).values():
        for large in (False, True):
            chosen = [table for table in members if _is_large(table) == large]
            if len(chosen) > 1:
                yield from _charts(chosen, large)


def _alike(tables: Iterable[Table]) -> dict[object, list[Table]]:
    """Tables of one load, by everything but the size."""
    found: dict[object, list[Table]] = {}
    for table in tables:
        if table.op_size is not None:
            rest = tuple((k, v) for k, v in table.dimensions.items() if k != "op_size")
            found.setdefault(rest, []).append(table)
    return found


def _is_large(table: Table) -> bool:
    return (table.op_size or 0) >= LARGE


def _charts(tables: Sequence[Table], large: bool) -> Iterator[tuple[str, Bars]]:
    words = [
        f"{k} {v}" for k, v in tables[0].dimensions.items() if k not in ("scenario", "op_size")
    ]
    heading = ", ".join((tables[0].scenario, *words))
    figure, unit, scale = (
        ("bandwidth_bytes_per_s", "MB/s", 1e-6) if large else ("iops", "IO/s", 1.0)
    )
    for mode in dict.fromkeys(section.label for table in tables for section in table.sections):
        rows = [_row(table, mode) for table in tables]
        names = dict.fromkeys(name for row in rows for name in row)
        chart = Bars(
            key=f"by_size_{'large' if large else 'small'}_{mode.replace(' ', '_')}",
            title=f"{'Throughput' if large else 'IOPS'} by IO size, {mode}",
            unit=unit,
            groups=tuple(label.op_size(table.op_size) for table in tables),
            series=tuple(
                bar_series([row.get(name) for row in rows], figure, scale) for name in names
            ),
            # Sizes of drives reach from 4 KiB to 64 MiB, and their figures over decades.
            is_log=any("drive" in cell.dimensions for row in rows for cell in row.values()),
        )
        if any(value is not None for series in chart.series for value in series.values):
            yield heading, chart


def _row(table: Table, mode: str) -> dict[str, ReportCell]:
    return {cell.name: cell for s in table.sections if s.label == mode for cell in s.cells}
