"""The tables on a terminal, in as many columns as fit; report.md and report.html have all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from cbt_crypto.archive.files import printable
from cbt_crypto.report import text_of, wording
from cbt_crypto.report.figures.conclusion import THRESHOLDS, change
from cbt_crypto.report.figures.metric import FROM_MEMORY, left_out
from cbt_crypto.report.model import (
    Comparison,
    Conclusion,
    Report,
    ReportCell,
    Section,
    Table,
    without_missing,
)
from cbt_crypto.report.wording import map_text
from cbt_crypto.units import counted

#: From this width on there is room for a bar beside each percent.
_WITH_BARS = 116
_BAR = 10
#: Widths of the first column, and of a bar that makes room for it.
_NAME, _SHORT_BAR = 27, 6
_COLUMNS = (
    ("IOPS", 9),
    ("MB/s", 7),
    ("mean ms", 7),
    ("p99 ms", 6),
    ("user %", 6),
    ("sys %", 5),
)
#: A column of effects that is narrower than this cuts its words.
_EFFECT = 18
_EFFECT_STYLE = {
    "High": "bold red",
    "Moderate": "bold",
    "Gain": "green",
    "None": "dim",
    "Unclear": "dim italic",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def show(report: Report, console: Console) -> None:
    """Print every table, with its warnings below it; of what was not run, the number alone."""
    # A terminal would obey what an archive has in its names.
    report = map_text(without_missing(report), printable)
    console.print()
    console.print(Text(report.title or "campaign", "bold"), Text(_subtitle(report), "dim"))
    for sentence in report.headline:
        console.print(Text(sentence, "bold"), soft_wrap=False)
    for sentence in report.limits:
        console.print(Text(sentence, "yellow"))
    for sentence in report.control:
        console.print(Text(sentence, "bold red"))
    for table in report.tables:
        _show_table(report, table, console)
    if report.conclusions:
        _show_conclusions(report, console)
    console.print()
    console.print(Padding(Text(text_of.verdicts(report), "dim"), (0, 0, 0, 2)))
    for note in report.notes:
        console.print(Text(f"note: {note}", "yellow"))


def _show_conclusions(report: Report, console: Console) -> None:
    """Effects by load and configuration."""
    names = list(dict.fromkeys(conclusion.name for conclusion in report.conclusions))
    by_load: dict[str, dict[str, Conclusion]] = {}
    for conclusion in report.conclusions:
        by_load.setdefault(conclusion.load, {})[conclusion.name] = conclusion
    fits = _NAME + len(names) * _EFFECT <= console.width
    grid = _effects_across(report, names, by_load) if fits else _effects_down(report, by_load)
    console.print()
    console.print(Text("effect on throughput", "bold"))
    _say_emulated(report.emulated_note(), console)
    console.print(grid)
    console.print(Padding(Text(THRESHOLDS, "dim"), (0, 0, 0, 2)))


def _say_emulated(note: str, console: Console) -> None:
    if note:
        console.print(Text(note, "italic yellow"))


def _effects_across(
    report: Report, names: Sequence[str], by_load: Mapping[str, Mapping[str, Conclusion]]
) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("", min_width=_NAME)
    for name in names:
        grid.add_column(Text(report.named(name)), max_width=24)
    for load, by_name in by_load.items():
        grid.add_row(Text(f"  {load}"), *(_effect(by_name.get(name)) for name in names))
    return grid


def _effects_down(report: Report, by_load: Mapping[str, Mapping[str, Conclusion]]) -> Grid:
    """A row for each configuration, where columns for all of them would be too narrow."""
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for load, by_name in by_load.items():
        grid.add_row(Text(load, "bold cyan"), "")
        for name, conclusion in by_name.items():
            grid.add_row(Text(f"  {report.named(name)}"), _effect(conclusion))
    return grid


def _effect(conclusion: Optional[Conclusion]) -> Text:
    if conclusion is None:
        return Text("-")
    text = Text(conclusion.effect, _EFFECT_STYLE.get(conclusion.effect, ""))
    return text.append(f" {change(conclusion)}", "dim")


def _subtitle(report: Report) -> str:
    what = "percent lost against" if report.options.loss else "percent of"
    return f"throughput as {what} {report.baseline_name}"


def _show_table(report: Report, table: Table, console: Console) -> None:
    notes: list[str] = []
    with_bars = console.width >= _WITH_BARS
    named = [
        (section, [(cell, _name(cell, notes)) for cell in section.cells])
        for section in table.sections
    ]
    longest = max((name.cell_len for _, rows in named for _, name in rows), default=0)
    grid = _grid(report, with_bars, console.width, longest)
    for section, rows in named:
        _add_section(grid, section, rows, report, with_bars)
    console.print()
    console.print(Text(table.title, "bold"))
    _say_emulated(report.emulated_note(table), console)
    console.print(grid)
    for basis in table.bases:
        console.print(Text(f"  {basis}", "dim"))
    said = left_out(table.cells, ["clat_ns_p99"])
    if said:
        console.print(Text(f"  {said}", "dim"))
    for section in table.sections:
        if section.drift_percent is not None:
            text = f"  {section.label}: the baseline drifted by {section.drift_percent:+.1f} %"
            console.print(Text(f"{text} from its first to its last run", "dim"))
    for number, note in enumerate(notes, 1):
        console.print(Padding(Text(f"{number}  {note}", "yellow"), (0, 0, 0, 2)))


def _grid(report: Report, with_bars: bool, width: int, longest: int) -> Grid:
    """The columns that fit; names then have what is left, and four columns of the bars."""
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("", width=_NAME, overflow="fold")
    if with_bars:
        grid.add_column("", width=_BAR)
    grid.add_column("% lost" if report.options.loss else "percent", justify="right", width=7)
    grid.add_column("95 % interval", justify="right", width=18)
    # The pad behind the last column is not needed.
    left = 1 + width - sum((column.width or 0) + 1 for column in grid.columns)
    has_memory = any(table.has(FROM_MEMORY) for table in report.tables)
    for heading, column_width in (*_COLUMNS, *([("mem %", 5)] if has_memory else [])):
        # A figure that is cut is worse than none.
        if left < column_width + 1:
            break
        left -= column_width + 1
        grid.add_column(heading, justify="right", width=column_width, no_wrap=True)
    grid.columns[0].width = _NAME + max(0, min(longest - _NAME, left))
    if with_bars:
        short = max(0, min(longest - grid.columns[0].width, _BAR - _SHORT_BAR))
        grid.columns[0].width += short
        grid.columns[1].width = _BAR - short
    return grid


def _name(cell: ReportCell, notes: list[str]) -> Text:
    marks = _marks(cell, notes)
    return Text.assemble(f"  {cell.name}", (f" {marks}" if marks else "", "yellow"))


def _add_section(
    grid: Grid,
    section: Section,
    rows: Sequence[tuple[ReportCell, Text]],
    report: Report,
    with_bars: bool,
) -> None:
    columns = len(grid.columns)
    grid.add_row(Text(section.label, "bold cyan"), *[""] * (columns - 1))
    for cell, name in rows:
        bar = [_bar(cell, grid.columns[1].width or _BAR)] if with_bars else []
        figures = _figures(cell, report.options.loss)[: columns - 1 - len(bar)]
        grid.add_row(name, *bar, *figures)


def _marks(cell: ReportCell, notes: list[str]) -> str:
    """Numbers of this cell's notes; the notes are appended to `notes`, each once."""
    texts = [cell.reason] if cell.reason else []
    texts += cell.warnings[:3]
    if len(cell.warnings) > 3:
        more = len(cell.warnings) - 3
        words = counted(more, "more warning")
        texts.append(f"{cell.name}: {words}, all in report.html")
    numbers = []
    for note in texts:
        if note not in notes:
            notes.append(note)
        numbers.append(str(notes.index(note) + 1))
    return ",".join(numbers)


def _bar(cell: ReportCell, width: int) -> Text:
    comparison = cell.comparisons.get("iops")
    if comparison is None:
        return Text("")
    eighths = round(min(comparison.percent, 100) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Text(text.ljust(width), "dim" if cell.is_baseline else "blue")


def _figures(cell: ReportCell, loss: bool) -> list[Text]:
    if cell.state != "measured":
        return [Text(cell.state, "bold red")]
    figures = cell.figures
    comparison = cell.comparisons.get("iops")
    return [
        _percent(comparison, loss),
        _interval(cell, comparison, loss),
        Text(wording.number(figures.get("iops"))),
        Text(wording.megabytes(figures.get("bandwidth_bytes_per_s"))),
        Text(wording.milliseconds(figures.get("clat_ns_mean"))),
        Text(wording.milliseconds(figures.get("clat_ns_p99"))),
        Text(wording.one_decimal(figures.get("osd_cpu_user_percent"))),
        Text(wording.one_decimal(figures.get("osd_cpu_sys_percent"))),
        Text(wording.one_decimal(figures.get(FROM_MEMORY))),
    ]


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
