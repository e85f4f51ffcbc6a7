"""The one picture: every percent of throughput with its interval, loads as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import shorten, wrap
from typing import Optional

from cbt_crypto.report import wording
from cbt_crypto.report.charts.chart_values import inks
from cbt_crypto.report.charts.draw import Canvas, Value, colour
from cbt_crypto.report.model import Comparison, Report, ReportCell, Section

#: The axis shows no more than this, in percent of the baseline; what lies beyond gets an arrow.
_LEAST, _MOST = 0.0, 200.0
_STEP = 10.0


@dataclass(frozen=True)
class ForestPoint:
    """One percent with its bounds, None if nothing bounds it or the cell failed; `text` says all.

    `is_shown`: a difference is; `is_of_one_deployment`: a range within single runs.
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
    """One workload: its heading, its own words, and a point for each configuration."""

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
    inks: tuple[int, ...]
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
    ends = ", with the range within single runs" if within else ", with 95 % intervals"
    reference = 0.0 if loss else 100.0
    low, high = _ends((p for row in rows for p in row.points), reference, loss)
    return Forest(
        title=f"Throughput, percent {what} {report.baseline_name}{ends if bounded else ''}",
        reference=reference,
        low=low,
        high=high,
        series=tuple(names),
        inks=tuple(inks(report)[name] for name in names),
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
        text = f"{cell.in_legend}: {cell.state}"
        return ForestPoint(series, None, None, None, False, False, text)
    percent, low, high = compared.percent, compared.low, compared.high
    if loss:
        percent = 100 - percent
        low, high = (None if end is None else 100 - end for end in (high, low))
    text = f"{cell.in_legend}: {percent:.1f} %"
    if compared.says_nothing:
        text += f", {wording.TOO_NOISY}"
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
    return low, -(-min(max(percents), limits[1]) // _STEP) * _STEP


@dataclass(frozen=True)
class _Shape:
    """Pixels, where the axis begins, and how many `letters`, `label` letters and `ticks` fit."""

    width: float
    start: float
    above: float
    letters: int
    label: int
    ticks: int


#: For pages and slides, and for phones.
_WIDE, _NARROW = _Shape(960, 268, 0, 120, 34, 12), _Shape(360, 28, 18, 46, 46, 6)
#: What stays free at the right.
_MARGIN = 24
_LANE, _GAP, _HEADING, _TITLE, _LEGEND, _AXIS = 15, 12, 30, 34, 22, 44
#: About so wide is a letter of 13 px.
_LETTER = 7.0


def forest_svg(forest: Forest, *, is_file: bool = False, is_narrow: bool = False) -> str:
    """The picture as SVG; a file brings its own ground."""
    return _Drawing(forest, _NARROW if is_narrow else _WIDE).document(is_file)


class _Drawing:
    def __init__(self, forest: Forest, shape: _Shape) -> None:
        self._forest, self._shape = forest, shape
        self._canvas = canvas = Canvas()
        legend = list(_legend_rows(forest.series, shape.width))
        # A title has larger letters, and the key below smaller ones.
        title = wrap(forest.title, shape.letters * 3 // 4)
        for number, text in enumerate(title):
            canvas.text(16, 23 + 20 * number, text, font_size=16, font_weight="600")
        top = _TITLE + 20.0 * (len(title) - 1)
        for text in wrap(forest.note, shape.letters):
            canvas.text(16, top + 8, text, "soft", font_size=13)
            top += 18
        for number, line in enumerate(legend):
            for series, x in line:
                y = top + _LEGEND * number + 10
                self._marker(series, x + 6, y, True)
                canvas.text(x + 18, y + 4.5, forest.series[series], font_size=13)
        top += _LEGEND * len(legend) + 8
        rows = list(self._placed(top))
        bottom = rows[-1][1] + self._row_height(rows[-1][0]) if rows else top
        self._height = 0.0
        self._axis(top - 4, bottom)
        for row, at, has_heading in rows:
            self._row(row, at, has_heading)

    def document(self, is_file: bool) -> str:
        return self._canvas.document(self._shape.width, self._height, self._forest.title, is_file)

    def _axis(self, top: float, bottom: float) -> None:
        low, high = self._forest.low, self._forest.high
        step = next(s for s in (5, 10, 20, 25, 50, 100) if (high - low) / s <= self._shape.ticks)
        tick = -(-low // step) * step
        while tick <= high:
            x = self._x(tick)
            if tick == self._forest.reference:
                self._canvas.line(x, top, x, bottom, "soft", stroke_width=1.5)
            else:
                self._canvas.line(x, top, x, bottom)
            self._canvas.text(x, bottom + 17, f"{tick:g}", "soft", text_anchor="middle")
            tick += step
        for number, line in enumerate(wrap(self._key(), self._shape.letters + 5)):
            at = bottom + 36 + 16 * number
            self._canvas.text(self._x(high), at, line, "soft", text_anchor="end")
            self._height = at + _AXIS - 36

    def _key(self) -> str:
        """What the marks mean; the words of the report's tables."""
        points = [point for row in self._forest.rows for point in row.points]
        dashed = any(point.is_of_one_deployment for point in points)
        key = "%; filled: significant; hollow: not significant"
        return f"{key}; dashed: range within single runs" if dashed else key

    def _row(self, row: Row, at: float, has_heading: bool) -> None:
        canvas, shape = self._canvas, self._shape
        if has_heading:
            heading = shorten(row.heading, shape.letters)
            canvas.text(16, at - 8, heading, font_size=13, font_weight="600")
            canvas.line(16, at - _HEADING + 2, shape.width - _MARGIN, at - _HEADING + 2)
        middle = at + (shape.above or _LANE * len(row.points)) / 2
        canvas.text(28, middle + 4.5, shorten(row.label, shape.label), "soft", font_size=13)
        for lane, point in enumerate(row.points):
            self._point(point, at + shape.above + _LANE * (lane + 0.5))

    def _point(self, point: ForestPoint, y: float) -> None:
        if point.percent is None:
            self._canvas.text(self._shape.start + 6, y + 4.5, point.text)
            return
        if point.low is not None and point.high is not None:
            name, stroke = self._colour(point.series)
            left, right = self._x(point.low), self._x(point.high)
            dash: dict[str, Value] = (
                {"stroke_dasharray": "3 3"} if point.is_of_one_deployment else {}
            )
            self._canvas.add("line", x1=left, y1=y, x2=right, y2=y, class_=f"{name} s",
                             stroke=stroke, stroke_width=2, **dash)  # fmt: skip
            for end, value, way in ((left, point.low, -1), (right, point.high, 1)):
                is_inside = self._forest.low <= value <= self._forest.high
                self._end(end, y, point.series, 0 if is_inside else way)
        x = self._x(point.percent)
        self._marker(point.series, x, y, point.is_shown, point.text)

    def _end(self, x: float, y: float, series: int, way: int) -> None:
        """The cap of an interval; an arrow where it goes on beyond the axis."""
        name, colour = self._colour(series)
        if way == 0:
            self._canvas.add("line", x1=x, y1=y - 3.5, x2=x, y2=y + 3.5, class_=f"{name} s",
                             stroke=colour, stroke_width=2)  # fmt: skip
            return
        back = x - 6 * way
        path = f"M{back:.1f} {y - 4:.1f} L{x:.1f} {y:.1f} L{back:.1f} {y + 4:.1f} Z"
        self._canvas.add("path", d=path, class_=f"{name} f", fill=colour)

    def _marker(self, series: int, x: float, y: float, filled: bool, text: str = "") -> None:
        """Told apart by shape too; hollow where no difference is shown."""
        name, stroke = self._colour(series)
        tip = f"<title>{escape(text)}</title>" if text else ""
        self._canvas.add(
            "path", tip, d=_SHAPES[series % len(_SHAPES)], transform=f"translate({x:.1f} {y:.1f})",
            class_=f"{name} s {f'{name} f' if filled else 'paper f'}", stroke=stroke,
            stroke_width=2, fill=stroke if filled else "#ffffff",
        )  # fmt: skip

    def _colour(self, series: int) -> tuple[str, str]:
        return colour(self._forest.inks[series])

    def _x(self, percent: float) -> float:
        low, high = self._forest.low, self._forest.high
        part = (min(max(percent, low), high) - low) / (high - low)
        return self._shape.start + part * (self._shape.width - self._shape.start - _MARGIN)

    def _placed(self, top: float) -> Iterator[tuple[Row, float, bool]]:
        """Each row with its top, and whether a heading stands above it."""
        before, at = None, top
        for row in self._forest.rows:
            has_heading = row.heading != before
            before = row.heading
            at += _HEADING if has_heading else 0
            yield row, at, has_heading
            at += self._row_height(row)

    def _row_height(self, row: Row) -> float:
        return self._shape.above + _LANE * len(row.points) + _GAP


#: Around 0: circle, square, diamond, triangles, cross, hexagon, bar.
_SHAPES = (
    "M-4.5 0 A4.5 4.5 0 1 0 4.5 0 A4.5 4.5 0 1 0 -4.5 0 Z",
    "M-4 -4 H4 V4 H-4 Z",
    "M0 -5.5 L5.5 0 L0 5.5 L-5.5 0 Z",
    "M0 -5 L5 4 H-5 Z",
    "M0 5 L5 -4 H-5 Z",
    "M-2 -5 H2 V-2 H5 V2 H2 V5 H-2 V2 H-5 V-2 H-2 Z",
    "M-5 0 L-2.5 -4.5 H2.5 L5 0 L2.5 4.5 H-2.5 Z",
    "M-2 -5.5 H2 V5.5 H-2 Z",
)


def _legend_rows(names: Sequence[str], most: float) -> Iterator[list[tuple[int, float]]]:
    line: list[tuple[int, float]] = []
    x = 16.0
    for number, name in enumerate(names):
        width = 18 + len(name) * _LETTER + 22
        if line and x + width > most - _MARGIN:
            yield line
            line, x = [], 16.0
        line.append((number, x))
        x += width
    if line:
        yield line
