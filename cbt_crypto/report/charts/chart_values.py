"""What each chart shows, as plain values; draw.py draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Optional, Union

import numpy as np

from cbt_crypto.report import wording
from cbt_crypto.report.figures.depth_path import DepthPath, alike, depth_paths
from cbt_crypto.report.figures.of_runs import has_tail, records_of
from cbt_crypto.report.model import Report, ReportCell, Section, Table
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.readers.histogram import Histogram, merge
from cbt_crypto.units import grouped

#: From this op size on, in bytes, throughput is shown in MB/s and not in IOPS.
LARGE = 64 << 10
#: Percentiles of a distribution curve, evenly spaced on its axis of nines. The fastest few IOs
#: would take most of the axis of latencies, so it begins at the 17th percentile.
_NINES = np.linspace(0, 5, 61)[1:]
#: CPU states that the stacked bars show.
_STATES = ("user", "sys", "irq", "softirq", "iowait")


@dataclass(frozen=True)
class BarSeries:
    """One configuration's bars, a bar a group, with ends of error bars; None: no figure."""

    name: str
    values: tuple[Optional[float], ...]
    low: tuple[Optional[float], ...] = ()
    high: tuple[Optional[float], ...] = ()


@dataclass(frozen=True)
class Bars:
    """Grouped bars: a group for each mode, in it a bar for each configuration."""

    key: str
    title: str
    unit: str
    groups: tuple[str, ...]
    series: tuple[BarSeries, ...]
    is_log: bool = False


@dataclass(frozen=True)
class Stacks:
    """Stacked bars: one for each configuration, made of the parts `series`."""

    key: str
    title: str
    unit: str
    names: tuple[str, ...]
    series: tuple[BarSeries, ...]


@dataclass(frozen=True)
class Line:
    """One curve: `y` (None: not measured) at each `x`; `group` shares a color.

    Where its points are shown, `labels` has a word for each and `mark` is the one that stands out.
    `events` are stretches of `x`, with what happened.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[Optional[float], ...]
    group: str = ""
    labels: tuple[str, ...] = ()
    mark: Optional[int] = None
    events: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True)
class Lines:
    """Curves over one axis; `is_nines`: percentiles (2 is 99 %), `is_path`: points in order."""

    key: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    is_nines: bool = False
    is_path: bool = False


Chart = Union[Bars, Stacks, Lines]


class _Shown(NamedTuple):
    title: str
    figure: str
    unit: str
    scale: float


_IOPS = _Shown("IOPS", "iops", "IO/s", 1.0)
_BANDWIDTH = _Shown("Bandwidth", "bandwidth_bytes_per_s", "MB/s", 1e-6)
_LATENCY = _Shown("Mean latency", "clat_ns_mean", "ms", 1e-6)


def charts(table: Table) -> Iterator[Chart]:
    """Every chart that the table has figures for."""
    owners = "Host's" if table.is_of_drives else "OSD hosts'"
    is_large = table.op_size is not None and table.op_size >= LARGE
    shown = {"throughput": _BANDWIDTH if is_large else _IOPS, "latency": _LATENCY}
    shown["cpu_per_io"] = _Shown(f"{owners} CPU time per IO", "osd_cpu_us_per_io", "µs", 1.0)
    yield from _some(*(_bars(table, key, figure) for key, figure in shown.items()))
    yield from _some(*(_cpu(section, owners) for section in table.sections))
    for section in table.sections:
        yield from _some(*_over_time(section), latency_distribution(section, table.groups))


def _some(*parts: Chart) -> Iterator[Chart]:
    for chart in parts:
        if isinstance(chart, Lines):
            if chart.lines:
                yield chart
        elif any(value is not None for series in chart.series for value in series.values):
            yield chart


def _bars(table: Table, key: str, shown: _Shown) -> Bars:
    return Bars(
        key=key,
        title=shown.title,
        unit=shown.unit,
        groups=tuple(section.label for section in table.sections),
        series=tuple(
            bar_series([s.row(name) for s in table.sections], shown.figure, shown.scale)
            for name in dict.fromkeys(cell.name for cell in table.cells)
        ),
    )


def bar_series(cells: Sequence[Optional[ReportCell]], figure: str, scale: float) -> BarSeries:
    """The bars of one row, which has one cell or more, with their intervals; one for each cell."""
    return BarSeries(
        next(cell.in_legend for cell in cells if cell is not None),
        tuple(_scaled(cell, figure, scale) for cell in cells),
        tuple(_end(cell, figure, scale, "low") for cell in cells),
        tuple(_end(cell, figure, scale, "high") for cell in cells),
    )


def _scaled(cell: Optional[ReportCell], figure: str, scale: float) -> Optional[float]:
    return None if cell is None or figure not in cell.figures else cell.figures[figure] * scale


def _end(cell: Optional[ReportCell], figure: str, scale: float, end: str) -> Optional[float]:
    """An end of the interval of the percent, on the scale of the figure; a range is none."""
    value = _scaled(cell, figure, scale)
    comparison = None if cell is None else cell.comparisons.get(figure)
    is_range = comparison is None or comparison.is_of_one_deployment
    bound = None if is_range else getattr(comparison, end)
    if value is None or comparison is None or bound is None or not comparison.percent:
        return None
    return float(value * bound / comparison.percent)


def _cpu(section: Section, owners: str) -> Stacks:
    parts = [
        BarSeries(state, tuple(_scaled(c, f"osd_cpu_{state}_percent", 1.0) for c in section.cells))
        for state in _STATES
    ]
    return Stacks(
        key=f"cpu_{section.mode}_{section.direction}",
        title=f"{owners} CPU, {section.label}",
        unit="% of all threads",
        names=tuple(cell.in_legend for cell in section.cells),
        series=tuple(part for part in parts if any(part.values)),
    )


def _over_time(section: Section) -> Iterator[Lines]:
    """Mean and p99 of each second, of the first run of each cell that does not withhold it."""
    for column, words in (("clat_ns_mean", "Mean"), ("clat_ns_p99", "99th percentile of")):
        cells = [cell for cell in section.cells if column not in cell.withheld]
        several = ", first run of each" if any(len(cell.runs) > 1 for cell in cells) else ""
        yield Lines(
            key=f"{column}_{section.mode}_{section.direction}",
            title=f"{words} latency over time, {section.label}{several}",
            x_label="seconds",
            y_label="ms",
            lines=tuple(_each(cells, partial(_seconds, column=column))),
        )


def _each(
    cells: Sequence[ReportCell], curve: Callable[[ReportCell], Optional[Line]]
) -> Iterable[Line]:
    return [line for line in map(curve, cells) if line is not None]


def _seconds(cell: ReportCell, column: str) -> Optional[Line]:
    for run in cell.runs:
        series = run.series.get(cell.direction)
        if series is None:
            continue
        values = getattr(series, column) / 1e6
        if np.isfinite(values).any():
            y = tuple(float(f"{v:.4g}") if np.isfinite(v) else None for v in values.tolist())
            events = tuple(_events(run, series.start_epoch_s, len(y)))
            return Line(cell.in_legend, tuple(range(1, len(y) + 1)), y, events=events)
    return None


def _events(run: Run, start_s: float, seconds: int) -> Iterator[tuple[float, float, str]]:
    for mark in run.recorded.marks:
        first, last = mark.start_s - start_s, mark.end_s - start_s
        if last > 0 and first < seconds:
            yield max(first, 0.0), min(last, float(seconds)), f"{mark.what} on {mark.host}"


def latency_distribution(section: Section, groups: Mapping[str, str]) -> Lines:
    """A curve for each row, those of a group beside one another."""
    lines = [
        replace(line, group=groups.get(line.name, ""))
        for line in _each(section.cells, latency_curve)
    ]
    return Lines(
        key=f"distribution_{section.mode}_{section.direction}",
        title=f"Latency distribution, {section.label}",
        x_label="percentile",
        y_label="ms",
        lines=tuple(sorted(lines, key=lambda line: line.group)),
        is_nines=True,
    )


def latency_curve(cell: ReportCell) -> Optional[Line]:
    """Percentiles up to the last that enough IOs stand behind, on an axis of nines."""
    histograms = [
        run.histograms[cell.direction] for run in cell.runs if cell.direction in run.histograms
    ]
    histogram = merge(histograms) if histograms else Histogram(np.empty(0, int), np.empty(0, int))
    if not histogram.total:
        return _known_curve(cell)
    nines = np.array([n for n in _NINES if has_tail(100 * (1 - 10.0**-n), histogram.total)])
    if not len(nines):
        return None
    percents = 100 * (1 - 10.0**-nines)
    y = tuple(float(f"{histogram.percentile_ns(p) / 1e6:.4g}") for p in percents)
    return Line(cell.in_legend, tuple(nines.round(4).tolist()), y)


def _known_curve(cell: ReportCell) -> Optional[Line]:
    """Of a process that told percentiles and no bins; those of several cannot be put together."""
    ios = sum(r.ios for run in cell.runs for r in records_of(run, cell.direction))
    told = [run.percentiles_ns.get(cell.direction, {}) for run in cell.runs if not run.failure]
    known = sorted(told[0].items()) if len(told) == 1 else []
    points = [(p, ns) for p, ns in known if p < 100 and (not ios or has_tail(p, ios))]
    if not points:
        return None
    nines = tuple(round(float(-np.log10(1 - percent / 100)), 4) for percent, _ in points)
    return Line(cell.in_legend, nines, tuple(float(f"{ns / 1e6:.4g}") for _, ns in points))


def depth_charts(tables: Iterable[Table]) -> Iterator[tuple[str, Lines]]:
    """Heading and chart for each workload that was measured at several depths."""
    for path in depth_paths(tables):
        yield path.heading, _chart(path)


def _chart(path: DepthPath) -> Lines:
    lines = tuple(
        Line(
            curve.name,
            tuple(point.iops for point in curve.points),
            tuple(point.clat_ns_mean / 1e6 for point in curve.points),
            labels=tuple(map(str, depths)),
            mark=None if curve.knee is None else depths.index(curve.knee.depth),
        )
        for curve in path.curves
        for depths in [[point.depth for point in curve.points]]
    )
    return Lines(
        key=path.key,
        title=f"Mean latency over IOPS by {path.depth}, {path.label}",
        x_label="IO/s",
        y_label="ms",
        lines=lines,
        is_path=True,
    )


def size_charts(tables: Iterable[Table]) -> Iterator[tuple[str, Chart]]:
    """Heading and chart for each mode of workloads that differ in nothing but the IO size.

    A cluster's small sizes as IOPS, large ones as throughput; a drive's in one of each.
    """
    for by_size in alike(tables, "op_size").values():
        members = list(by_size.values())
        small = [table for table in members if (table.op_size or 0) < LARGE]
        large = [table for table in members if (table.op_size or 0) >= LARGE]
        chosen = [("small", _IOPS, small), ("large", _BANDWIDTH, large)]
        if members[0].is_of_drives:
            chosen = [("iops", _IOPS, members), ("throughput", _BANDWIDTH, members)]
        for key, shown, sizes in chosen:
            if len(sizes) > 1:
                yield from _charts(sizes, key, shown)


def _charts(tables: Sequence[Table], key: str, shown: _Shown) -> Iterator[tuple[str, Chart]]:
    words = [
        f"{k} {v}" for k, v in tables[0].dimensions.items() if k not in ("scenario", "op_size")
    ]
    heading = ", ".join((tables[0].scenario, *words))
    for mode in dict.fromkeys(section.label for table in tables for section in table.sections):
        rows = [
            {cell.name: cell for s in table.sections if s.label == mode for cell in s.cells}
            for table in tables
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        chart = Bars(
            key=f"by_size_{key}_{mode.replace(' ', '_')}",
            title=f"{shown.title} by IO size, {mode}",
            unit=shown.unit,
            groups=tuple(wording.op_size(table.op_size) for table in tables),
            series=tuple(
                bar_series([row.get(name) for row in rows], shown.figure, shown.scale)
                for name in names
            ),
            is_log=tables[0].is_of_drives,
        )
        yield from ((heading, each) for each in _some(chart))


#: Heading and chart of each chart over several tables.
Over = Callable[[Sequence[Table]], Iterator[tuple[str, Chart]]]


def noted(report: Report, tables: Iterable[Table], over: Over) -> Iterator[tuple[Chart, str, str]]:
    """Chart, heading and note, which is empty where there is none; no chart is of two notes."""
    for note, members in grouped((report.emulated_note(table), table) for table in tables).items():
        for heading, chart in over(members):
            yield chart, heading, note


def inks(report: Report) -> dict[str, int]:
    """Which colour each row has, the same in every chart."""
    names = dict.fromkeys(cell.in_legend for cell in report.cells)
    return {name: number for number, name in enumerate(names)}
