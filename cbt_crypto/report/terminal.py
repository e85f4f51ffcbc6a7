"""The tables on a terminal, in as many columns as fit; report.md and report.html have all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as Rows
from rich.text import Text

from cbt_crypto.archive.files import printable
from cbt_crypto.report import text_of, wording
from cbt_crypto.report.across import side_by_side
from cbt_crypto.report.figures.conclusion import effects
from cbt_crypto.report.figures.doubts import notes_of, numbers
from cbt_crypto.report.figures.metric import Column, Metric, Where, columns
from cbt_crypto.report.model import (
    Comparison,
    Report,
    ReportCell,
    Table,
    without_missing,
)
from cbt_crypto.report.why import CORRELATION, explained
from cbt_crypto.report.wording import Grid, map_text
from cbt_crypto.units import counted, grouped

#: From this width on there is room for a bar beside each percent.
_WITH_BARS = 116
_BAR = 10
#: Widest that a name may be before it takes room from figures, and a bar that makes room for it.
_NAME, _SHORT_BAR = 27, 6
#: Notes below a table, and numbers of them beside a row.
_MOST_NOTES, _MOST_MARKS = 12, 4
#: A width at which nothing is wrapped.
_ANY = 10_000
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def show(report: Report, console: Console) -> None:
    """Print every table, with its warnings below it; of what was not run, the number alone."""
    report = without_missing(report)
    console.print()
    what = "percent lost against" if report.options.loss else "percent of"
    subtitle = f"throughput as {what} {report.baseline_name}"
    console.print(Text(report.title or "campaign", "bold"), Text(subtitle, "dim"))
    _answer(report, console)
    for grid in side_by_side(report):
        show_grid(grid, console)
    layout = _Layout.of(report, console.width)
    for table in report.tables:
        _show_table(report, table, layout, console)
    if layout.dropped:
        said = f"Too narrow for: {', '.join(layout.dropped)}. report.html and report.md have all."
        console.print()
        _say(said, console)
    if report.conclusions:
        across, down = effects(report)
        fits = _width(_rows(across, _ANY), console) <= console.width
        show_grid(across if fits else down, console, emulated=report.emulated_note())
    for grid in text_of.definitions(report):
        show_grid(grid, console)
    if levels := text_of.pair_grids(report, report.tables).get(text_of.LEVELS):
        show_grid(levels, console)
    _show_foot(report, console)
    # A row and a note for each cell, and what every report has: the answer is above the screen.
    if console.is_terminal and 30 + 2 * len(report.cells) > console.height:
        console.print(Text("\nin short", "dim"))
        _answer(report, console)


def _answer(report: Report, console: Console) -> None:
    for sentences, style in ((report.headline, "bold"), (report.limits, "yellow")):
        for sentence in sentences:
            console.print(Text(sentence, style))


def _show_foot(report: Report, console: Console) -> None:
    """What verdicts mean, where the headline does not say it, and the notes."""
    said = text_of.verdicts(report)
    if said not in report.headline:
        console.print()
        _say(said, console)
    for note in report.notes:
        console.print(Text(f"note: {note}", "yellow"))


def show_grid(grid: Grid, console: Console, least: Sequence[str] = (), emulated: str = "") -> None:
    """Print a table of texts; what is too wide goes on below itself.

    Columns with the headings `least` are left out, the first one first, where there is no room.
    """
    grid, gone = map_text(grid, printable), list(least)
    room = console.width
    while (too_wide := _width(shown := _rows(grid, room), console) > console.width) and gone:
        grid = _without(grid, gone.pop(0))
    # Names, paths and kernels are broken where people would.
    while too_wide and room > _NARROW:
        room = min(room, 4 * _NARROW) - 4
        too_wide = _width(shown := _rows(grid, room), console) > console.width
    _head(grid.title, emulated, console)
    if shown.rows:
        console.print(shown)
    dropped = [heading for heading in least if heading not in gone]
    for note in [*([f"Too narrow for: {', '.join(dropped)}."] if dropped else ()), *grid.notes]:
        _say(note, console)


#: The narrowest column of words.
_NARROW = 12


def _rows(grid: Grid, room: int) -> Rows:
    """As a table, with lines of words no longer than `room`."""
    shown = Rows(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for number, heading in enumerate(grid.headings):
        side: JustifyMethod = "left" if number < grid.words else "right"
        shown.add_column(Text(heading), justify=side, overflow="fold")
    for label, rows in grid.sections:
        if label:
            shown.add_row(Text(label, "bold cyan"))
        for first, *others in rows:
            words = [_folded(text, room) for text in others[: grid.words - 1]]
            shown.add_row(Text(f"  {first}"), *map(Text, [*words, *others[grid.words - 1 :]]))
    return shown


def _width(shown: Rows, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=_ANY), shown).maximum


def _without(grid: Grid, heading: str) -> Grid:
    place = list(grid.headings).index(heading)
    sections = [
        (label, [[*row[:place], *row[place + 1 :]] for row in rows])
        for label, rows in grid.sections
    ]
    headings = [*grid.headings[:place], *grid.headings[place + 1 :]]
    words = grid.words - (place < grid.words)
    return replace(grid, headings=headings, sections=sections, words=words)


def _folded(text: str, room: int) -> str:
    """Broken behind slashes, hyphens and spaces, to lines of `room` columns."""
    lines = [""]
    for part in re.findall(r"[^/ +-]*[/ +-]?", text):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _head(title: str, note: str, console: Console) -> None:
    heads = Text(title, "bold"), Text(note, "italic yellow")
    console.print("", *filter(None, heads), sep="\n")


def _say(text: str, console: Console, style: str = "dim") -> None:
    """A paragraph below a table."""
    console.print(Padding(Text(text, style), (0, 0, 0, 2)))


@dataclass(frozen=True)
class _Layout:
    """Widths of names and bars, and the figures that there is room for; the same in all tables."""

    name: int
    bar: int
    figures: Sequence[tuple[Metric, Column]]
    dropped: Sequence[str]

    @classmethod
    def of(cls, report: Report, width: int) -> _Layout:
        """Columns are taken by their rank until the width is full."""
        names = [
            _name(cell, numbers(cell, notes)).cell_len
            for table in report.tables
            for notes in [notes_of(table)]
            for cell in table.cells
        ]
        names += [len(section.label) for table in report.tables for section in table.sections]
        longest = max(names, default=0)
        bar = _BAR if width >= _WITH_BARS else 0
        loss = report.options.loss
        compared = [_compared(cell, loss) for cell in report.cells if cell.state == "measured"]
        percent = max([7, *(one.cell_len for one, _ in compared)])
        interval = max([len(_INTERVAL), *(one.cell_len for _, one in compared)])
        # The pad behind the last column is not needed.
        name = min(longest, _NAME)
        left = width + 1 - sum(one + 1 for one in (name, bar, percent, interval) if one)
        shown = (one for table in report.tables for one in columns(table, Where.TERMINAL))
        found = {metric.key: (metric, column) for metric, column in shown}
        room: dict[str, int] = {}
        for metric, column in sorted(found.values(), key=lambda one: one[1].rank):
            texts = (column.text(cell.figures.get(metric.key)) for cell in report.cells)
            needed = 1 + max(len(column.heading_on_terminal), *map(len, texts))
            # A figure that is cut is worse than none.
            if sum(room.values()) + needed > left:
                break
            room[metric.key] = needed
        left -= sum(room.values())
        name += max(0, min(longest - name, left))
        short = max(0, min(longest - name, bar - _SHORT_BAR))
        return cls(
            name + short,
            bar - short,
            [one for key, one in found.items() if key in room],
            [c.heading_on_terminal for key, (_, c) in found.items() if key not in room],
        )


_INTERVAL = "95 % interval"


def _show_table(report: Report, table: Table, layout: _Layout, console: Console) -> None:
    notes = notes_of(table)
    loss = report.options.loss
    grid = Rows(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("", width=layout.name, overflow="fold")
    if layout.bar:
        grid.add_column("", width=layout.bar)
    grid.add_column("% lost" if loss else "percent", justify="right", no_wrap=True)
    grid.add_column(_INTERVAL, justify="right", no_wrap=True)
    for _, column in layout.figures:
        grid.add_column(column.heading_on_terminal, justify="right", no_wrap=True)
    for section in table.sections:
        grid.add_row(Text(section.label, "bold cyan"))
        for cell in section.cells:
            bar = [_bar(cell, layout.bar, loss)] if layout.bar else []
            name = _name(cell, numbers(cell, notes))
            grid.add_row(name, *bar, *_figures(cell, layout, loss))
    _head(table.title, report.emulated_note(table), console)
    console.print(grid)
    for text in text_of.bases(table, Where.TERMINAL):
        _say(text, console)
    for number, (row, sentences) in enumerate(explained(table)):
        if not number:
            _say(f"{CORRELATION}:", console)
        _say(f"{row}: {sentences}", console, "")
    said = [f"[{note.number}] {note.text}" for note in notes]
    left = len(said) - _MOST_NOTES
    more = [f"{counted(left, 'more note')}, all in report.html"] if left > 0 else []
    for text in (*said[:_MOST_NOTES], *more):
        _say(text, console, "yellow")


def _name(cell: ReportCell, marks: Sequence[int]) -> Text:
    # Neighbours have one distance to their place: [1-5,7].
    runs = list(grouped((mark - n, mark) for n, mark in enumerate(marks)).values())
    said = [f"{run[0]}-{run[-1]}" if run[2:] else ",".join(map(str, run)) for run in runs]
    shown = ",".join(said[:_MOST_MARKS]) + (",..." if said[_MOST_MARKS:] else "")
    return Text.assemble(f"  {cell.name}", (f" [{shown}]" if marks else "", "yellow"))


def _bar(cell: ReportCell, width: int, loss: bool) -> Text:
    comparison = cell.comparisons.get("iops")
    if comparison is None:
        return Text("")
    shown = 100 - comparison.percent if loss else comparison.percent
    eighths = round(max(0, min(shown, 100)) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Text(text.ljust(width), "dim" if cell.is_baseline else "blue")


def _figures(cell: ReportCell, layout: _Layout, loss: bool) -> list[Text]:
    if cell.state != "measured":
        return [Text(cell.state, "bold red")]
    figures = (Text(column.text(cell.figures.get(m.key))) for m, column in layout.figures)
    return [*_compared(cell, loss), *figures]


def _compared(cell: ReportCell, loss: bool) -> tuple[Text, Text]:
    comparison = cell.comparisons.get("iops")
    return _percent(comparison, loss), _interval(cell, comparison, loss)


def _percent(comparison: Optional[Comparison], loss: bool) -> Text:
    """Bold and starred where a difference is shown, dim where it was looked for and is not."""
    if comparison is None:
        return Text("-")
    style = {True: "bold", False: "dim", None: ""}[comparison.differs]
    return Text(f"{wording.percent(comparison.percent, loss)}{text_of.star(comparison)}", style)


def _interval(cell: ReportCell, comparison: Optional[Comparison], loss: bool) -> Text:
    if cell.is_baseline:
        return Text("baseline", "dim")
    dim = comparison is None or not comparison.differs
    return Text(text_of.interval(comparison, loss), "dim" if dim else "")


#: Columns in which no heading of a table is cut.
_WIDTH = 120


def widened(console: Console) -> Console:
    """The console; written to a file or a pipe, its tables need not fit into 80 columns."""
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    return console
