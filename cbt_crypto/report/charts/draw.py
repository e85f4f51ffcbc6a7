"""Charts as SVG, in the page and as files; the page's style recolors by class (c3, p1)."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import shorten
from typing import NamedTuple, Optional, Union

from cbt_crypto.report.charts.chart_values import Bars, BarSeries, Chart, Line, Lines, Stacks

#: On white, and on nearly black: Okabe and Ito's hues, darkened or lightened for their ground.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b3589a", "#b8860b", "#2a9fd6", "#5b5b5b", "#8c3b00")
DARK = ("#4db2e6", "#ff8c42", "#2ecc9b", "#e08cc4", "#f0c53a", "#9ad8f7", "#c2c2c2", "#d9a37a")
#: For stacked parts: user, sys, irq, softirq, iowait.
PARTS_LIGHT = ("#0072b2", "#d55e00", "#b8860b", "#009e73", "#9a9a9a")
PARTS_DARK = ("#4db2e6", "#ff8c42", "#f0c53a", "#2ecc9b", "#8a8a8a")
#: Of what is no data: text, what is beside it, lines of a grid, and the ground.
GROUND_LIGHT = {"ink": "#1d2430", "soft": "#5a6472", "grid": "#d8d5ce", "paper": "#ffffff"}
GROUND_DARK = {"ink": "#e8ebf0", "soft": "#a4aebb", "grid": "#39434f", "paper": "#1a2029"}
#: Beside colours: dashes of lines, and white lines over bars.
_DASHES = ("", "7 4", "2 3", "8 3 2 3", "12 4", "12 3 3 3", "5 2", "3 5")
_HATCHES = ("", "M0 8 L8 0", "M0 0 L8 8", "M0 4 H8", "M4 0 V8", "M0 4 H8 M4 0 V8",
            "M0 8 L8 0 M0 0 L8 8", "M4 3 V5")  # fmt: skip
_FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
#: Pixels of a chart, and about so wide is a letter of 12 px.
_WIDTH, _HEIGHT, _LETTER = 600, 330, 6.4
#: No axis goes nearer to 0, nor beyond: a figure from elsewhere may be any number.
_NEAREST, _FARTHEST = 1e-30, 1e30
_NINE_TICKS = {0.30103: "50", 1.0: "90", 2.0: "99", 3.0: "99.9", 4.0: "99.99", 5.0: "99.999"}

#: File systems take 255 bytes, and it is written under a longer one first.
_LONGEST_NAME = 180

#: Configuration -> which colour it has, in every chart of a report.
Inks = Mapping[str, int]
Value = Union[str, float]


class Canvas:
    """Elements of an SVG, as text."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, tag: str, content: Value = "", **attributes: Value) -> None:
        """An element; `content` is markup. `_` in names stands for `-`."""
        written = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{escape(_n(value))}"'
            for name, value in attributes.items()
        )
        self._parts.append(
            f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"
        )

    def text(self, x: float, y: float, text: str, colour: str = "ink", **more: Value) -> None:
        """Text in one of the colours of the ground."""
        fill = GROUND_LIGHT[colour]
        self.add("text", escape(text), x=x, y=y, class_=f"{colour} f", fill=fill, **more)

    def line(self, x: float, y: float, x2: float, y2: float, colour: str = "grid",
             **more: Value) -> None:  # fmt: skip
        """A line in one of the colours of the ground."""
        stroke = GROUND_LIGHT[colour]
        self.add("line", x1=x, y1=y, x2=x2, y2=y2, class_=f"{colour} s", stroke=stroke, **more)

    def document(self, width: float, height: float, label: str, is_file: bool) -> str:
        """All of it; a file has a ground of its own and the patterns."""
        ground = hatches() if is_file else ""
        if is_file:
            ground += f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
            f'role="img" aria-label="{escape(label)}" font-family="{_FONT}" font-size="12">'
            f"{ground}{''.join(self._parts)}</svg>"
        )


def hatches() -> str:
    """The patterns of bars, which all charts of a page share."""
    return "<defs>" + "".join(
        f'<pattern id="h{number}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="#ffffff" stroke-opacity="0.75" fill="none"/></pattern>'
        for number, path in enumerate(_HATCHES)
        if path
    ) + "</defs>"  # fmt: skip


def file_name(heading: str) -> str:
    """As the name of a file: a long one ends with what tells it from others that begin so."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", heading)
    if len(name) <= _LONGEST_NAME:
        return name
    told = hashlib.sha256(heading.encode(errors="replace")).hexdigest()[:8]
    return f"{name[:_LONGEST_NAME]}_{told}"


def colour(number: int, *, part: bool = False) -> tuple[str, str]:
    """The class and the colour on white of a configuration, or of a part of a stack."""
    palette = PARTS_LIGHT if part else LIGHT
    number %= len(palette)
    return f"{'p' if part else 'c'}{number}", palette[number]


def style() -> str:
    """The page's rules for charts in the dark."""
    by_class = {f"c{number}": dark for number, dark in enumerate(DARK)} | GROUND_DARK
    by_class |= {f"p{number}": dark for number, dark in enumerate(PARTS_DARK)}
    rules = [(f"{name}.f", f"fill:{dark}") for name, dark in by_class.items()]
    rules += [(f"{name}.s", f"stroke:{dark}") for name, dark in by_class.items()]
    light = ":root:not([data-theme=light])"
    by_system = "".join(f"{light} svg .{at}{{{what}}}" for at, what in rules)
    chosen = "".join(f":root[data-theme=dark] svg .{at}{{{what}}}" for at, what in rules)
    return f"@media screen and (prefers-color-scheme:dark){{{by_system}}}@media screen{{{chosen}}}"


def chart_svg(chart: Chart, inks: Inks, heading: Sequence[str] = ()) -> str:
    """The chart as SVG; with `heading`, lines of text above it, it is a file of its own."""
    canvas = Canvas()
    top = 8.0
    for number, text in enumerate(heading):
        top += 18
        bold: dict[str, Value] = {"font_weight": "600", "font_size": 14} if number == 0 else {}
        canvas.text(10, top, shorten(text, 90), "soft" if number else "ink", **bold)
    if heading:
        top += 12
    if isinstance(chart, Bars):
        height = _bars(canvas, chart, inks, top)
    elif isinstance(chart, Stacks):
        height = _stacks(canvas, chart, top)
    else:
        height = _lines(canvas, chart, inks, top)
    return canvas.document(_WIDTH, height, chart.title, bool(heading))


class _Axis(NamedTuple):
    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.is_log:
            return log_ticks(self.low, self.high)
        step = _step(self.high - self.low)
        first = math.ceil(self.low / step - 1e-9)
        return [step * n for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _step(span: float, most: int = 6) -> float:
    """1, 2 or 5 of a decade, so that no more than `most` fit into `span`."""
    rough = span / most
    decade = 10.0 ** math.floor(math.log10(rough))
    return next(step * decade for step in (1, 2, 5, 10) if step * decade >= rough * (1 - 1e-9))


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade; the decades alone where there are many, more where few fit."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [step * 10.0**decade for decade in range(first, last + 1) for step in steps]
    found = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    return found if len(found) > 2 else _Axis(low, high, 0, 0).ticks()


def _scale(values: Iterable[Optional[float]], start: float, end: float, is_log: bool) -> _Axis:
    known = [
        min(max(value, -_FARTHEST), _FARTHEST)
        for value in values
        if value is not None and (value > _NEAREST or not is_log)
    ]
    if is_log:
        low, high = (min(known), max(known)) if known else (1.0, 10.0)
        if high < 2 * low:
            low, high = low / 1.5, high * 1.5
        return _Axis(low / 1.1, high * 1.1, start, end, True)
    high = max([0.0, *known])
    high = high if high > _NEAREST else 1.0
    step = _step(high)
    return _Axis(min(0.0, *known, 0.0), step * math.ceil(high / step), start, end)


def _legend(canvas: Canvas, items: Sequence[tuple[str, int]], top: float, part: bool = False,
            lines: bool = False) -> float:  # fmt: skip
    """Names with their marks, as many to a line as fit; return where it ends."""
    x, y = 10.0, top + 10
    for name, ink in items:
        shown = shorten(name, 60)
        name_at = 26 if lines else 19
        width = name_at + len(shown) * _LETTER + 26
        if x > 10 and x + width > _WIDTH:
            x, y = 10.0, y + 18
        if lines:
            _path(canvas, f"M{_n(x)} {_n(y - 4)} h20", ink)
        else:
            _rect(canvas, (x, y - 10, 14, 12), ink, part)
        canvas.text(x + name_at, y, shown)
        x += width
    return y + 12


def _rect(
    canvas: Canvas, box: tuple[float, ...], ink: int, part: bool = False, title: str = ""
) -> None:
    name, fill = colour(ink, part=part)
    place: dict[str, Value] = dict(zip(("x", "y", "width", "height"), box))
    tip = f"<title>{escape(title)}</title>" if title else ""
    canvas.add("rect", tip, **place, class_=f"{name} f", fill=fill)
    if _HATCHES[ink % len(_HATCHES)]:
        canvas.add("rect", tip, **place, fill=f"url(#h{ink % len(_HATCHES)})")


def _path(canvas: Canvas, path: str, ink: int, title: str = "") -> None:
    name, stroke = colour(ink)
    dash = _DASHES[ink % len(_DASHES)]
    tip = f"<title>{escape(title)}</title>" if title else ""
    more: dict[str, Value] = {"stroke_dasharray": dash} if dash else {}
    canvas.add("path", tip, d=path, class_=f"{name} s", stroke=stroke, fill="none",
               stroke_width=1.8, **more)  # fmt: skip


def _left(axis: _Axis) -> float:
    return 32 + max((len(_tick(tick)) for tick in axis.ticks()), default=1) * _LETTER


def _upright(canvas: Canvas, axis: _Axis, left: float, label: str) -> None:
    for tick in axis.ticks():
        y = axis.at(tick)
        canvas.line(left, y, _WIDTH - 10, y)
        canvas.text(left - 6, y + 4, _tick(tick), "soft", text_anchor="end")
    middle = (axis.start + axis.end) / 2
    label += ", logarithmic" if axis.is_log else ""
    canvas.text(13, middle, label, "soft", text_anchor="middle",
                transform=f"rotate(-90 13 {_n(middle)})")  # fmt: skip


def _bars(canvas: Canvas, chart: Bars, inks: Inks, top: float) -> float:
    named = [(series.name, inks.get(series.name, n)) for n, series in enumerate(chart.series)]
    top = _legend(canvas, named, top)
    bottom = top + _HEIGHT - 60
    ends = (end for s in chart.series for values in (s.values, s.high) for end in values)
    axis = _scale(ends, bottom, top + 6, chart.is_log)
    left = _left(axis)
    _upright(canvas, axis, left, chart.unit)
    wide = (_WIDTH - 10 - left) / len(chart.groups)
    width = wide * 0.84 / len(chart.series)
    for number, group in enumerate(chart.groups):
        start = left + wide * number + wide * 0.08
        for place, (series, (_, ink)) in enumerate(zip(chart.series, named)):
            _bar(canvas, chart, series, number, axis, (start + width * place, width, ink))
        fits = max(int(wide / _LETTER), 6)
        canvas.text(start + wide * 0.42, bottom + 17, shorten(group, fits, placeholder="…"),
                    text_anchor="middle")  # fmt: skip
    canvas.line(left, bottom, _WIDTH - 10, bottom, "soft")
    return bottom + 30


def _bar(canvas: Canvas, chart: Bars, series: BarSeries, group: int, axis: _Axis,
         place: tuple[float, float, int]) -> None:  # fmt: skip
    value = series.values[group]
    if value is None or (chart.is_log and value <= 0):
        return
    x, width, ink = place
    y = axis.at(value)
    title = f"{series.name}, {chart.groups[group]}: {value:,.4g} {chart.unit}"
    _rect(canvas, (x, y, width * 0.92, max(axis.start - y, 0.5)), ink, title=title)
    low = series.low[group] if series.low else None
    high = series.high[group] if series.high else None
    if low is not None and high is not None:
        middle, cap = x + width * 0.46, min(width * 0.25, 5)
        ends = [axis.at(max(end, axis.low)) for end in (low, high)]
        for at in ends:
            canvas.line(middle - cap, at, middle + cap, at, "ink", stroke_width=1.4)
        canvas.line(middle, ends[0], middle, ends[1], "ink", stroke_width=1.4)


def _stacks(canvas: Canvas, chart: Stacks, top: float) -> float:
    top = _legend(canvas, [(s.name, n) for n, s in enumerate(chart.series)], top, part=True)
    left = 20 + min(max(map(len, chart.names), default=0), 30) * _LETTER
    sums = (sum(s.values[n] or 0.0 for s in chart.series) for n in range(len(chart.names)))
    axis = _scale(sums, left, _WIDTH - 24, False)
    lane = 30.0
    bottom = top + lane * len(chart.names)
    for tick in axis.ticks():
        canvas.line(axis.at(tick), top, axis.at(tick), bottom)
        canvas.text(axis.at(tick), bottom + 16, _tick(tick), "soft", text_anchor="middle")
    for number, name in enumerate(chart.names):
        y, before = top + lane * number + 5, 0.0
        canvas.text(left - 8, y + 14, shorten(name, 30, placeholder="…"), text_anchor="end")
        for ink, series in enumerate(chart.series):
            value = series.values[number]
            if value:
                x = axis.at(before)
                width = axis.at(before + value) - x
                title = f"{name}, {series.name}: {value:.2f} {chart.unit}"
                _rect(canvas, (x, y, width, lane - 10), ink, True, title)
                before += value
    canvas.text(axis.end, bottom + 34, chart.unit, "soft", text_anchor="end")
    return bottom + 44


def _lines(canvas: Canvas, chart: Lines, inks: Inks, top: float) -> float:
    drawn = [(line, inks.get(line.name, n)) for n, line in enumerate(chart.lines)]
    named = [(f"{one.name}, {one.group}" if one.group else one.name, ink) for one, ink in drawn]
    top = _legend(canvas, named, top, lines=True)
    bottom = top + _HEIGHT - 70
    is_log = chart.is_nines or chart.is_path
    upright = _scale((y for line in chart.lines for y in line.y), bottom, top + 6, is_log)
    left = _left(upright)
    _upright(canvas, upright, left, chart.y_label)
    across = [x for line in chart.lines for x in line.x]
    if chart.is_nines:
        flat = _Axis(min(across), max(*across, min(across) + 1), left, _WIDTH - 20)
        ticks = {at: text for at, text in _NINE_TICKS.items() if flat.low <= at <= flat.high}
    else:
        high = max(across) if max(across) > 0 else 1.0
        flat = _Axis(0.0, high, left, _WIDTH - 20)
        ticks = {tick: _tick(tick) for tick in flat.ticks()}
    for tick, text in ticks.items():
        canvas.line(flat.at(tick), bottom, flat.at(tick), bottom + 5, "soft")
        canvas.text(flat.at(tick), bottom + 18, text, "soft", text_anchor="middle")
    canvas.line(left, bottom, _WIDTH - 20, bottom, "soft")
    canvas.text((left + _WIDTH - 20) / 2, bottom + 36, chart.x_label, "soft", text_anchor="middle")
    for line, ink in drawn:
        _path(canvas, _moves(line, flat, upright), ink, line.name)
        if chart.is_path:
            _points(canvas, line, flat, upright, ink)
    return _events(canvas, drawn, flat, bottom + 46)


def _events(canvas: Canvas, drawn: Sequence[tuple[Line, int]], flat: _Axis, top: float) -> float:
    """Lanes below the curves, a group for each kind of event; return where they end."""
    lanes: dict[str, dict[tuple[Line, int], list[tuple[float, float, str]]]] = {}
    for line, ink in drawn:
        for event in line.events:
            of_kind = lanes.setdefault(event[2].partition(" on ")[0], {})
            of_kind.setdefault((line, ink), []).append(event)
    for kind, of_kind in sorted(lanes.items()):
        canvas.text(flat.start, top + 10, f"Seconds of {kind}:", "soft", font_size=11)
        top += 18
        for (line, ink), events in of_kind.items():
            for start, end, what in events:
                x = flat.at(start)
                title = f"{line.name}: {what}, {start:.0f} to {end:.0f} s"
                _rect(canvas, (x, top, max(flat.at(end) - x, 2.0), 8), ink, title=title)
            top += 12
    return top + 4 if lanes else top


@functools.lru_cache(maxsize=1024)
def _moves(line: Line, flat: _Axis, upright: _Axis) -> str:
    """A path that has a gap where nothing was measured; the page and the files draw the same."""
    moves = []
    is_down = False
    for x, y in zip(line.x, line.y):
        if y is None or (upright.is_log and y <= 0):
            is_down = False
        else:
            moves.append(f"{'L' if is_down else 'M'}{_n(flat.at(x))} {_n(upright.at(y))}")
            is_down = True
    return "".join(moves)


def _points(canvas: Canvas, line: Line, flat: _Axis, upright: _Axis, ink: int) -> None:
    name, fill = colour(ink)
    for number, (x, y, text) in enumerate(zip(line.x, line.y, line.labels)):
        if y is not None:
            at = (flat.at(x), upright.at(y))
            canvas.add("circle", cx=at[0], cy=at[1], r=2.5, class_=f"{name} f", fill=fill)
            canvas.text(at[0] + 4, at[1] - 5, text, "soft", font_size=10)
            if number == line.mark:
                canvas.add("circle", cx=at[0], cy=at[1], r=7, class_=f"{name} s", stroke=fill,
                           fill="none", stroke_width=1.6)  # fmt: skip


def _tick(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _n(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
