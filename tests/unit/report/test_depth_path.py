"""Curves whose bend is known: a device that serves `c` IOs at once, each in the same time.

By Little's law it does min(N, c) / L IOPS at depth N, so its power bends at N = c exactly
(Kleinrock's "keep the pipe just full").
"""

from __future__ import annotations

import re

import pytest

from cbt_crypto.report.charts.chart_values import Line, Lines, depth_charts
from cbt_crypto.report.charts.draw import chart_svg
from cbt_crypto.report.figures.depth_path import DepthPath, depth_paths, in_words
from cbt_crypto.report.model import ReportCell, Section, Table

pytestmark = pytest.mark.unit

DEPTHS = (1, 2, 4, 8, 16, 32, 64)
LATENCY_NS = 1e6


def _cell(name: str, depth: int, served: int, state: str = "measured") -> ReportCell:
    iops = min(depth, served) / LATENCY_NS * 1e9
    mean = depth / iops * 1e9
    figures = {"iops": iops, "clat_ns_mean": mean, "clat_ns_p99": 2 * mean}
    return ReportCell(name, {}, "read", state, figures=figures if state == "measured" else {})


def _table(depth: int, cells: tuple[ReportCell, ...], dimension: str = "iodepth") -> Table:
    section = Section("random reads", "randread", "read", cells)
    dimensions = {"scenario": "s", "op_size": 4096, dimension: depth, "rate": "max"}
    return Table(f"s, 4 KiB, {dimension} {depth}, rate max", "s", 4096, dimensions, (section,))


def _path(served: int, depths: tuple[int, ...] = DEPTHS) -> DepthPath:
    (path,) = depth_paths([_table(depth, (_cell("a", depth, served),)) for depth in depths])
    return path


@pytest.mark.parametrize("served", [1, 2, 3, 5, 8, 11, 12, 13, 16, 23, 24, 31])
def test_the_bend_lies_within_the_bound(served: int) -> None:
    knee = _path(served).curves[0].knee
    assert knee is not None
    assert knee.low <= served <= knee.high
    if served in DEPTHS:
        assert knee.depth == served


def test_a_curve_that_was_not_followed_to_its_bend_has_no_knee() -> None:
    path = _path(1000)
    assert path.curves[0].knee is None
    assert in_words(path, path.curves[0]) == "a: no knee up to iodepth 64; measure deeper"


def test_words() -> None:
    path = _path(8)
    assert (path.heading, path.label) == ("s, 4 KiB, rate max", "random reads")
    said = "a: knee at iodepth 8 (between 4 and 16): 8,000 IOPS at 1 ms"
    assert in_words(path, path.curves[0]) == said


@pytest.mark.parametrize(("depths", "curves"), [((1, 2), 0), ((1, 2, 4), 1)])
def test_two_depths_are_no_curve(depths: tuple[int, ...], curves: int) -> None:
    tables = [_table(depth, (_cell("a", depth, 2),)) for depth in depths]
    assert len(list(depth_paths(tables))) == curves


def test_a_failed_depth_is_left_out_and_another_load_is_another_chart() -> None:
    cells = [_cell("a", d, 8, "failed" if d == 16 else "measured") for d in DEPTHS]
    tables = [_table(depth, (cell, _cell("b", depth, 4))) for depth, cell in zip(DEPTHS, cells)]
    (path,) = depth_paths(tables)
    assert [len(curve.points) for curve in path.curves] == [6, 7]
    other = [_table(depth, (_cell("a", depth, 8),), "total_iodepth") for depth in DEPTHS]
    assert [p.depth for p in depth_paths([*tables, *other])] == ["total_iodepth", "iodepth"]


def test_charts_show_every_depth_and_mark_the_knee() -> None:
    tables = [_table(d, (_cell("a $x$ <b>", d, 8), _cell("b", d, 4))) for d in DEPTHS]
    ((heading, chart),) = depth_charts(tables)
    assert chart.lines[0].x == (1000.0, 2000.0, 4000.0, 8000.0, 8000.0, 8000.0, 8000.0)
    drawn = chart_svg(chart, {}, [heading])
    assert drawn.count("<circle") == 2 * len(DEPTHS) + 2, "a ring around each knee"
    assert all(f">{depth}<" in drawn for depth in DEPTHS)


@pytest.mark.parametrize(("low", "high"), [(130, 420), (1.1, 1.9), (0.21, 0.49), (3, 2e6)])
def test_a_logarithmic_axis_can_be_read(low: float, high: float) -> None:
    """From 130 to 420 it had one label, 200, and nothing said that it is logarithmic."""
    line = Line("a", (0.3, 1.0, 2.0), (low, (low * high) ** 0.5, high))
    drawn = chart_svg(Lines("k", "t", "IOs", "ms", (line,), is_nines=True), {})
    labels = re.findall(r'text-anchor="end"[^>]*>([^<]+)<', drawn)
    assert len(labels) > 2 and "ms, logarithmic" in drawn
