"""report.md: the percent tables as articles print them, then the figures behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cbt_crypto.report import text_of, wording
from cbt_crypto.report.across import side_by_side
from cbt_crypto.report.charts.forest import forest
from cbt_crypto.report.figures.conclusion import effects, loss_tables
from cbt_crypto.report.figures.depth_path import depth_paths, in_words
from cbt_crypto.report.figures.doubts import notes_of
from cbt_crypto.report.figures.metric import Where, columns
from cbt_crypto.report.model import Report, ReportCell, Table
from cbt_crypto.report.why import CORRELATION, explained, grids
from cbt_crypto.report.wording import Grid, cipher_grid, energy_counters, hardware_grid

#: What GitHub and GitLab make a link or a mention of: an address, or a name after `@`.
_LINKED = re.compile(r"@|(?:https?|ftp|mailto|xmpp)(?=:)|www(?=\.)", re.IGNORECASE)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!&~])")


def markdown(report: Report) -> str:
    """The report as Markdown: tables, conclusions, hosts and notes. Names are escaped."""
    lines = _head(report)
    for grid in (*side_by_side(report), *text_of.definitions(report)):
        lines += grid_lines(grid)
    if forest(report) is not None:
        lines += ["![Every percentage with its interval](charts/forest.svg)", ""]
    for scenario, tables in report.by_scenario.items():
        lines += [f"## {escape(scenario)}", "", *_emulated(report)]
        lines += [*_percents(report, tables), ""]
        lines += _curves(report, tables)
        for losses in loss_tables(report, scenario):
            lines += grid_lines(losses, "###", _emulated(report))
        for table in tables:
            lines += [f"### {escape(table.title)}", "", *_emulated(report, table)]
            bases = [f"{escape(text)}.\n" for text in text_of.bases(table, Where.MARKDOWN)]
            lines += [*_figures(report, table), "", *bases, *_why(table), *_notes(table)]
    if report.conclusions:
        across, _ = effects(report)
        lines += grid_lines(across, emulated=_emulated(report))
    lines += [text_of.verdicts(report), ""]
    for grid in text_of.pair_grids(report, report.tables).values():
        lines += grid_lines(grid)
    lines += _hosts(report)
    for note in report.notes:
        lines += [f"Note: {escape(note)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _head(report: Report) -> list[str]:
    """Title, answer, what limits it, and what the percentages are of."""
    lines = [f"# {escape(report.title or 'campaign')}", ""]
    lines += [*(f"- {escape(sentence)}" for sentence in report.headline), ""]
    for sentence in report.limits:
        lines += [f"> {escape(sentence)}", ""]
    what = "Percent lost against" if report.options.loss else "Percent of"
    return [*lines, f"{what} **{escape(report.baseline_name)}**, by throughput (IOPS).", ""]


def summary(report: Report) -> str:
    """The answer and the percentages alone, to be pasted elsewhere."""
    lines = _head(report)
    for scenario, tables in report.by_scenario.items():
        lines += [f"**{escape(scenario)}**", "", *_percents(report, tables), ""]
    return "\n".join([*lines, text_of.verdicts(report)]) + "\n"


def grid_lines(grid: Grid, level: str = "##", emulated: Sequence[str] = ()) -> list[str]:
    """A table of texts; the label of a section is before each of its rows."""
    before = ["Workload"] if any(label for label, _ in grid.sections) else []
    heads = [*before, *map(escape, grid.headings)]
    words = len(before) + grid.words
    rows = [[*([label] if before else []), *row] for label, of in grid.sections for row in of]
    lines = [f"{level} {escape(grid.title)}", "", *emulated]
    if rows:
        lines.append(_row(heads))
        lines.append(_row("---" if n < words else "---:" for n in range(len(heads))))
    for number, row in enumerate(rows):
        texts = map(escape, row)
        lines.append(_row(f"**{text}**" if number in grid.strong else text for text in texts))
    lines += [""] if rows else []
    return [*lines, *(line for note in grid.notes for line in (escape(note), ""))]


def escape(text: str) -> str:
    """Text that Markdown and HTML leave as it is, on one line; no address becomes a link."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("\\<", "&lt;")
    # A space of no width: they look for names after entities and backslashes are resolved.
    return _LINKED.sub(r"\g<0>&#8203;", escaped)


def _emulated(report: Report, table: Table | None = None) -> list[str]:
    note = report.emulated_note(table)
    return [f"> {escape(note)}", ""] if note else []


def _row(words: Iterable[str]) -> str:
    return f"| {' | '.join(words)} |"


def _percents(report: Report, tables: Sequence[Table]) -> list[str]:
    """One row an op size and configuration, one column a mode."""
    modes = list(dict.fromkeys(s.label for table in tables for s in table.sections))
    lines = [
        _row(["IO size", escape(report.compared), *(escape(m.capitalize()) for m in modes)]),
        _row(["---", "---", *("---:" for _ in modes)]),
    ]
    for table in tables:
        sections = {section.label: section for section in table.sections}
        for name in dict.fromkeys(cell.name for cell in table.cells):
            cells = (sections[mode].row(name) if mode in sections else None for mode in modes)
            percents = (_percent(cell, report.options.loss) for cell in cells)
            # What sets this table apart from others of its scenario.
            apart = escape(table.title[len(table.scenario) + 2 :]) or "all"
            lines.append(_row([apart, escape(name), *percents]))
    return lines


def _curves(report: Report, tables: Sequence[Table]) -> list[str]:
    """For each workload at several depths: a row for each depth and configuration, and knees."""
    lines: list[str] = []
    for path in depth_paths(tables):
        rows = [
            [curve.name, str(p.depth), wording.number(p.iops), *map(
                wording.milliseconds, (p.clat_ns_mean, p.clat_ns_p99)
            )]
            for curve in path.curves
            for p in curve.points
        ]  # fmt: skip
        heads = (report.compared, path.depth, "IOPS", "mean ms", "p99 ms")
        heading = f"{path.heading}, {path.label}: latency over IOPS by {path.depth}"
        lines += grid_lines(Grid(heading, heads, [("", rows)]), "###", _emulated(report))
        lines += [*(f"- {escape(in_words(path, curve))}" for curve in path.curves), ""]
    return lines


def _percent(cell: ReportCell | None, loss: bool) -> str:
    if cell is None:
        return ""
    if cell.state != "measured":
        return f"*{cell.state}*"
    comparison = cell.comparisons.get("iops")
    if comparison is None:
        return "-"
    text = f"{wording.percent(comparison.percent, loss)}%"
    if cell.is_baseline or comparison.low is None:
        return text
    if comparison.is_of_one_deployment:
        return f"{text} {text_of.OF_ONE} ({text_of.interval(comparison, loss)})"
    shown = f"**{text}** \\*" if comparison.differs else text
    return f"{shown} ({text_of.interval(comparison, loss)})"


def _figures(report: Report, table: Table) -> list[str]:
    shown = columns(table, Where.MARKDOWN)
    headings = [column.heading.format(nodes=table.nodes) for _, column in shown]
    lines = [
        _row(["Mode", escape(report.compared), *headings]),
        _row(["---", "---", *("---:" for _ in headings)]),
    ]
    for section, cell in table.rows:
        words = [column.text(cell.figures.get(metric.key)) for metric, column in shown]
        if cell.state != "measured":
            words = [f"*{cell.state}*", *("" for _ in shown[1:])]
        lines.append(_row([escape(section.label), escape(cell.name), *words]))
    return lines


def _hosts(report: Report) -> list[str]:
    """Where energy is counted, what hosts are, and how fast ciphers are."""
    counters = energy_counters(report.environment)
    zones = "; ".join(f"{escape(host)}: {escape(zones)}" for host, zones in counters.items())
    lines = [f"Energy counters (RAPL): {zones}.", ""] if zones else []
    for grid in (hardware_grid(report.environment), cipher_grid(report.environment)):
        lines += grid_lines(grid, "###", _emulated(report)) if grid else []
    return ["## Hosts", "", *lines] if lines else []


def _why(table: Table) -> list[str]:
    """What changed beside verdicts, and where writes and processors spent their time."""
    lines = [f"- {escape(row)}: {escape(sentences)}" for row, sentences in explained(table)]
    lines = [f"{CORRELATION}:", "", *lines, ""] if lines else []
    return lines + [line for one in grids(table) for line in grid_lines(one, "####")]


def _notes(table: Table) -> list[str]:
    """Why cells failed, and their warnings."""
    notes = [f"- {escape(note.where)}: {escape(note.text)}" for note in notes_of(table)]
    return [*notes, ""] if notes else []
