"""Charts as plotly's figures, of plain JSON types.

Colours are left to the page, which knows whether it is light or dark: a trace says by `ink`
which colour of the palette it wants.
"""

from __future__ import annotations

import math
from typing import Any

from cbt_crypto.report.charts import chart_values
from cbt_crypto.report.charts.chart_values import Bars, BarSeries, Chart, Line, Lines, Stacks

#: Ticks of an axis of nines: where, and what they say.
_NINE_TICKS = {0.30103: "50", 1.0: "90", 2.0: "99", 3.0: "99.9", 4.0: "99.99", 5.0: "99.999"}
#: Spanning fewer, an axis of latencies has ticks between its decades.
_FEW_DECADES = 3


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """`data` and `layout` for Plotly.newPlot."""
    if isinstance(chart, Bars):
        traces = [_bar(chart, series, ink) for ink, series in enumerate(chart.series)]
        layout = _layout("", chart.unit, barmode="group")
        layout["xaxis"]["showgrid"] = False
        layout["yaxis"].update({"type": "log"} if chart.is_log else {})
        return {"data": traces, "layout": layout}
    if isinstance(chart, Stacks):
        traces = [_stack(chart, series, ink) for ink, series in enumerate(chart.series)]
        # lying bars have room for the names of configurations
        layout = _layout(chart.unit, "", barmode="stack")
        layout["yaxis"].update(autorange="reversed", showgrid=False)
        return {"data": traces, "layout": layout}
    traces = [_line(chart, line, ink) for ink, line in enumerate(chart.lines)]
    layout = _layout(chart.x_label, chart.y_label, hovermode="x unified")
    if chart.is_nines:
        layout["xaxis"].update(tickvals=list(_NINE_TICKS), ticktext=list(_NINE_TICKS.values()))
        ticks = _latency_ticks(chart)
        layout["yaxis"].update(type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])
        layout["hovermode"] = "closest"
    elif chart.is_path:
        layout["xaxis"]["rangemode"] = "tozero"
        layout["yaxis"]["type"] = "log"
        layout["hovermode"] = "closest"
    else:
        layout["yaxis"]["rangemode"] = "tozero"
    return {"data": traces, "layout": layout}


def _latency_ticks(chart: Lines) -> list[float]:
    """Ticks of a logarithmic axis with room for their labels: 1, 2, 5, or decades where many."""
    values = [value for line in chart.lines for value in line.y if value]
    if not values:
        return []
    first, last = (math.floor(math.log10(value)) for value in (min(values), max(values)))
    steps = (1, 2, 5) if last - first < _FEW_DECADES else (1,)
    return [step * 10.0**decade for decade in range(first, last + 2) for step in steps]


def _layout(x_label: str, y_label: str, **more: Any) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": x_label}, "automargin": True},
        "yaxis": {"title": {"text": y_label}, "automargin": True},
        **more,
    }


def _bar(chart: Bars, series: BarSeries, ink: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": series.name,
        "x": list(chart.groups),
        "y": list(series.values),
        "ink": ink,
        "marker": {
            "pattern": {
                "shape": chart_values.FILLS[ink % len(chart_values.FILLS)],
                "solidity": 0.25,
            }
        },
        "error_y": _errors(series),
        "hovertemplate": f"%{{y:,.4~g}} {chart.unit}<br>%{{x}}<extra>%{{fullData.name}}</extra>",
    }


def _errors(series: BarSeries) -> dict[str, Any]:
    ends = list(zip(series.values, series.low, series.high))
    up = [high - value if value is not None and high is not None else 0 for value, _, high in ends]
    down = [value - low if value is not None and low is not None else 0 for value, low, _ in ends]
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "visible": any(up),
        "thickness": 1.5,
        "width": 4,
    }


def _stack(chart: Stacks, series: BarSeries, ink: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": series.name,
        "orientation": "h",
        "x": list(series.values),
        "y": list(chart.names),
        "ink": ink,
        "part": True,
        "marker": {
            "pattern": {
                "shape": chart_values.FILLS[ink % len(chart_values.FILLS)],
                "solidity": 0.25,
            }
        },
        "hovertemplate": "%{x:.2f} %<br>%{y}<extra>%{fullData.name}</extra>",
    }


def _line(chart: Lines, line: Line, ink: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": line.name,
        "x": list(line.x),
        "y": list(line.y),
        "ink": ink,
        **_group(line),
        **(_points(line) if chart.is_path else {}),
        "line": {"dash": chart_values.DASHES[ink % len(chart_values.DASHES)], "width": 2},
        "hovertemplate": f"%{{y:.4~g}} {chart.y_label}<extra>%{{fullData.name}}</extra>",
    }


def _points(line: Line) -> dict[str, Any]:
    """The measured points with their labels; the one that stands out is larger."""
    sizes = [12 if n == line.mark else 6 for n in range(len(line.x))]
    return {
        "mode": "lines+markers+text",
        "text": list(line.labels),
        "textposition": "top center",
        "marker": {"size": sizes},
    }


def _group(line: Line) -> dict[str, Any]:
    """Its place in the legend."""
    if not line.group:
        return {}
    return {"legendgroup": line.group, "legendgrouptitle": {"text": line.group}}
