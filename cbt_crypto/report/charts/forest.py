"""The one picture: every percent of throughput with its interval, loads as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Optional

from lxml import etree

from cbt_crypto.report import wording
from cbt_crypto.report.charts import chart_values
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
        text += f", {wording.UNKNOWN_YET}"
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


_SVG = "http://www.w3.org/2000/svg"
#: Pixels: the whole width, the labels' part of it, and what stays free at the right.
_WIDTH, _LABELS, _MARGIN = 960, 268, 24
_LANE, _GAP, _HEADING, _TITLE, _LEGEND, _AXIS = 15, 12, 30, 34, 22, 44
#: About so wide is a letter of 13 px.
_LETTER = 7.0
_FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
_INK, _SOFT, _LINE, _PAPER = (
    ("#1d2430", "#e8ebf0"), ("#5a6472", "#a4aebb"), ("#d8d5ce", "#39434f"), ("#ffffff", "#1a2029"),
)  # fmt: skip
Colour = tuple[str, str]
Element = Any


def forest_svg(forest: Forest) -> Element:
    """The picture as an element; `etree.tostring` makes a file of it."""
    drawing = _Drawing(forest)
    return drawing.element


def forest_text(forest: Forest) -> str:
    """The picture as an SVG document."""
    text: str = etree.tostring(forest_svg(forest), encoding="unicode")
    return f"{text}\n"


class _Drawing:
    """Places everything from the top down."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        legend = list(_legend_rows(forest.series))
        top = _TITLE + (18 if forest.note else 0) + _LEGEND * len(legend) + 8
        rows = list(_placed_rows(forest.rows, top))
        bottom = rows[-1][1] + _row_height(forest.rows[-1]) if rows else top
        height = bottom + _AXIS
        self.element = etree.Element(
            f"{{{_SVG}}}svg",
            {"viewBox": f"0 0 {_WIDTH} {height}", "role": "img", "font-family": _FONT,
             "font-size": "13", "aria-label": forest.title},
            nsmap={None: _SVG},
        )  # fmt: skip
        self._add("rect", width=_WIDTH, height=height, colour=_PAPER)
        self._text(16, 23, forest.title, _INK, size=16, weight="600")
        if forest.note:
            self._text(16, 42, forest.note, _SOFT)
        self._legend(legend, _TITLE + (18 if forest.note else 0))
        self._axis(top - 4, bottom)
        for row, at, has_heading in rows:
            self._row(row, at, has_heading)

    def _legend(self, rows: Sequence[Sequence[tuple[int, float]]], top: float) -> None:
        for number, row in enumerate(rows):
            for series, x in row:
                y = top + _LEGEND * number + 10
                self._marker(series, x + 6, y, True)
                self._text(x + 18, y + 4.5, self._forest.series[series], _INK)

    def _axis(self, top: float, bottom: float) -> None:
        low, high = self._forest.low, self._forest.high
        step = next(s for s in (5, 10, 20, 25, 50, 100) if (high - low) / s <= 12)
        tick = -(-low // step) * step
        while tick <= high:
            x = self._x(tick)
            is_reference = tick == self._forest.reference
            self._line((x, top, x, bottom), *((_SOFT, 1.5) if is_reference else (_LINE, 1)))
            self._text(x, bottom + 17, f"{tick:g}", _SOFT, anchor="middle")
            tick += step
        self._text(self._x(high), bottom + 36, self._key(), _SOFT, size=12, anchor="end")

    def _key(self) -> str:
        """What the marks mean; the words of the report's tables."""
        points = [point for row in self._forest.rows for point in row.points]
        dashed = any(point.is_of_one_deployment for point in points)
        key = "%; filled: a difference is shown; hollow: none is"
        return f"{key}; dashed: range within single runs" if dashed else key

    def _row(self, row: Row, at: float, has_heading: bool) -> None:
        if has_heading:
            self._text(16, at - 8, shorten(row.heading, 120), _INK, weight="600")
            line = at - _HEADING + 2
            self._line((16, line, _WIDTH - _MARGIN, line), _LINE)
        middle = at + _LANE * len(row.points) / 2
        self._text(28, middle + 4.5, shorten(row.label, 34), _SOFT)
        for lane, point in enumerate(row.points):
            self._point(point, at + _LANE * (lane + 0.5))

    def _point(self, point: ForestPoint, y: float) -> None:
        colour = _colour(point.series)
        if point.percent is None:
            self._text(_LABELS + 6, y + 4.5, point.text, colour, size=12)
            return
        group = self._add("g")
        etree.SubElement(group, f"{{{_SVG}}}title").text = point.text
        if point.low is not None and point.high is not None:
            left, right = self._x(point.low), self._x(point.high)
            dash = "3 3" if point.is_of_one_deployment else ""
            self._line((left, y, right, y), colour, 2, dash, group)
            for end, value, way in ((left, point.low, -1), (right, point.high, 1)):
                self._end(end, y, colour, way if self._is_beyond(value) else 0, group)
        self._marker(point.series, self._x(point.percent), y, point.is_shown, group)

    def _end(self, x: float, y: float, colour: Colour, way: int, into: Element) -> None:
        """The cap of an interval; an arrow where it goes on beyond the axis."""
        if way == 0:
            self._line((x, y - 3.5, x, y + 3.5), colour, 2, "", into)
            return
        back = x - 6 * way
        self._add("path", into, d=f"M{back} {y - 4} L{x} {y} L{back} {y + 4} Z", colour=colour)

    def _marker(
        self, series: int, x: float, y: float, filled: bool, into: Element = None
    ) -> None:  # fmt: skip
        """Told apart by shape too; hollow where no difference is shown."""
        colour = _colour(series)
        path = _SHAPES[series % len(_SHAPES)]
        element = self._add(
            "path", into, d=path, transform=f"translate({_n(x)} {_n(y)})",
            colour=colour if filled else _PAPER,
        )  # fmt: skip
        element.set("stroke", colour[0])
        element.set("stroke-width", "2")
        element.set("style", f"{element.get('style')};stroke:light-dark({colour[0]},{colour[1]})")

    def _x(self, percent: float) -> float:
        low, high = self._forest.low, self._forest.high
        part = (min(max(percent, low), high) - low) / (high - low)
        return _LABELS + part * (_WIDTH - _LABELS - _MARGIN)

    def _is_beyond(self, percent: float) -> bool:
        return not self._forest.low <= percent <= self._forest.high

    def _text(
        self, x: float, y: float, text: str, colour: Colour, *, size: int = 13,
        weight: str = "400", anchor: str = "start",
    ) -> None:  # fmt: skip
        element = self._add("text", x=_n(x), y=_n(y), colour=colour)
        element.text = text
        element.attrib.update(
            {"font-size": str(size), "font-weight": weight, "text-anchor": anchor}
        )  # fmt: skip

    def _line(
        self, ends: tuple[float, float, float, float], colour: Colour, width: float = 1,
        dash: str = "", into: Element = None,
    ) -> None:  # fmt: skip
        names = zip(("x1", "y1", "x2", "y2"), map(_n, ends))
        element = self._add("line", into, **dict(names))
        element.set("stroke", colour[0])
        element.set("stroke-width", str(width))
        element.set("style", f"stroke:light-dark({colour[0]},{colour[1]})")
        if dash:
            element.set("stroke-dasharray", dash)

    def _add(self, tag: str, into: Element = None, **attributes: Any) -> Element:
        colour = attributes.pop("colour", None)
        parent = self.element if into is None else into
        element = etree.SubElement(parent, f"{{{_SVG}}}{tag}")
        for key, value in attributes.items():
            element.set(key, str(value))
        if colour:
            # The style is for pages in the dark; what does not know it takes the attribute.
            element.set("fill", colour[0])
            element.set("style", f"fill:light-dark({colour[0]},{colour[1]})")
        return element


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


def _colour(series: int) -> Colour:
    number = series % len(chart_values.LIGHT)
    return chart_values.LIGHT[number], chart_values.DARK[number]


def _legend_rows(names: Sequence[str]) -> Iterator[list[tuple[int, float]]]:
    """Lines of (series, x), as many to a line as fit."""
    line: list[tuple[int, float]] = []
    x = 16.0
    for number, name in enumerate(names):
        width = 18 + len(name) * _LETTER + 22
        if line and x + width > _WIDTH - _MARGIN:
            yield line
            line, x = [], 16.0
        line.append((number, x))
        x += width
    if line:
        yield line


def _placed_rows(rows: Sequence[Row], top: float) -> Iterator[tuple[Row, float, bool]]:
    """Each row with its top, and whether a heading stands above it."""
    before, at = None, top
    for row in rows:
        has_heading = row.heading != before
        before = row.heading
        at += _HEADING if has_heading else 0
        yield row, at, has_heading
        at += _row_height(row)


def _row_height(row: Row) -> float:
    return _LANE * len(row.points) + _GAP


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
