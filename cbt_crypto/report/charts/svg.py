"""Charts as SVG files, for papers and posts."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from cbt_crypto.report.charts import chart_values
from cbt_crypto.report.charts.chart_values import Bars, BarSeries, Chart, Line, Lines, Stacks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NINE_TICKS = (1.0, 2.0, 3.0, 4.0, 5.0)
_NINE_LABELS = ("90", "99", "99.9", "99.99", "99.999")
#: matplotlib's names of the dashes of the palette.
_DASHES = ("-", "--", ":", "-.", (0, (8, 3)), (0, (8, 2, 2, 2)), "-", "--")
_STYLE: Any = {
    "svg.fonttype": "none",
    # so that the same archive gives the same bytes
    "svg.hashsalt": "cbt-crypto",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "hatch.linewidth": 0.5,
}


def svg(chart: Chart, heading: str, note: str) -> str:
    """The chart as an SVG document, under `heading`, its own title and a `note` if any."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only files need
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 4.2))
        # fixed margins: finding the best ones takes longer than all the drawing
        left = 0.3 if isinstance(chart, Stacks) else 0.11
        figure.subplots_adjust(left=left, right=0.98, top=0.84, bottom=_bottom(chart))
        axes = figure.add_subplot()
        if isinstance(chart, Bars):
            _draw_bars(axes, chart)
        elif isinstance(chart, Stacks):
            _draw_stacks(axes, chart)
        else:
            _draw_lines(axes, chart)
        title = _plain("\n".join(filter(None, (chart.title, heading, note))))
        figure.text(0.02, 0.98, title, ha="left", va="top", fontsize=10)
        figure.legend(loc="lower center", ncols=3, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _bottom(chart: Chart) -> float:
    """Room for the labels of the axis and the rows of the legend."""
    rows = -(-len(chart.lines if isinstance(chart, Lines) else chart.series) // 3)
    return 0.13 + 0.06 * rows


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _bar_positions(groups: int, bars: int) -> Iterator[tuple[int, np.ndarray[Any, Any], float]]:
    width = 0.8 / bars
    for number in range(bars):
        yield number, np.arange(groups) - 0.4 + width * (number + 0.5), width


def _ink(number: int, colours: tuple[str, ...]) -> dict[str, Any]:
    hatch = chart_values.HATCHES[number % len(chart_values.HATCHES)]
    return {"color": colours[number % len(colours)], "hatch": hatch, "edgecolor": "white"}


def _draw_bars(axes: Axes, chart: Bars) -> None:
    for number, positions, width in _bar_positions(len(chart.groups), len(chart.series)):
        series = chart.series[number]
        name = _plain(series.name)
        axes.bar(
            positions, _filled(series.values), width, label=name, **_ink(number, chart_values.LIGHT)
        )
        _draw_errors(axes, positions, series)
    axes.set_xticks(range(len(chart.groups)), [_plain(group) for group in chart.groups])
    axes.set_ylabel(chart.unit)
    if chart.is_log:
        axes.set_yscale("log")


def _draw_errors(axes: Axes, positions: Iterable[float], series: BarSeries) -> None:
    for x, value, low, high in zip(positions, series.values, series.low, series.high):
        if value is not None and low is not None and high is not None:
            # Of identical rounds the ends are the value, up to how floats are rounded.
            ends = [[max(value - low, 0.0)], [max(high - value, 0.0)]]
            axes.errorbar([x], [value], yerr=ends, color="#222222", capsize=3, linewidth=1)


def _draw_stacks(axes: Axes, chart: Stacks) -> None:
    positions = np.arange(len(chart.names))
    left = np.zeros(len(positions))
    for number, series in enumerate(chart.series):
        values = _filled(series.values)
        axes.barh(
            positions,
            values,
            0.7,
            left,
            label=series.name,
            **_ink(number, chart_values.PARTS_LIGHT),
        )
        left += values
    axes.set_yticks(positions, [_plain(name) for name in chart.names])
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.unit)


def _draw_lines(axes: Axes, chart: Lines) -> None:
    for number, line in enumerate(chart.lines):
        y = [np.nan if value is None else value for value in line.y]
        colour = chart_values.LIGHT[number % len(chart_values.LIGHT)]
        dash = _DASHES[number % len(_DASHES)]
        name = _plain(f"{line.name}, {line.group}" if line.group else line.name)
        axes.plot(line.x, y, color=colour, linestyle=dash, linewidth=1.4, label=name)
        if chart.is_path:
            _draw_points(axes, line, colour)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    if chart.is_nines:
        _scale_distribution(axes, chart)
    elif chart.is_path:
        axes.set_xlim(left=0)
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _draw_points(axes: Axes, line: Line, colour: str) -> None:
    """The measured points with their labels; the one that stands out is a ring."""
    for number, (x, y, text) in enumerate(zip(line.x, line.y, line.labels)):
        if y is None:
            continue
        axes.plot([x], [y], "o", color=colour, markersize=3)
        axes.annotate(_plain(text), (x, y), (3, 3), textcoords="offset points", fontsize=7)
        if number == line.mark:
            axes.plot([x], [y], "o", color=colour, markersize=9, markerfacecolor="none")


def _scale_distribution(axes: Axes, chart: Lines) -> None:
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    last = max(line.x[-1] for line in chart.lines)
    shown = [index for index, tick in enumerate(_NINE_TICKS) if tick <= last]
    labels = [_NINE_LABELS[index] for index in shown]
    axes.set_xticks([_NINE_TICKS[index] for index in shown], labels)


def _filled(values: Iterable[Optional[float]]) -> np.ndarray[Any, Any]:
    return np.array([0.0 if value is None else value for value in values])
