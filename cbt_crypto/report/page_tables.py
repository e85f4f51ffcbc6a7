"""The loss tables of report.html."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Optional

from lxml.builder import ElementMaker
from lxml.html import html_parser
from lxml.html.builder import CLASS

from cbt_crypto.report import text_of, wording
from cbt_crypto.report.figures.conclusion import THRESHOLDS, by_load, change
from cbt_crypto.report.figures.doubts import CONTROL, notes_of, numbers
from cbt_crypto.report.figures.metric import BY_KEY, Column, Where, columns
from cbt_crypto.report.model import Comparison, Conclusion, Report, ReportCell, Section, Table
from cbt_crypto.report.why import CORRELATION, explained, grids
from cbt_crypto.report.wording import Grid

_MAKER = ElementMaker(makeelement=html_parser.makeelement)


class _Elements:
    """`E.SECTION(E.CLASS("wide"), "text", child, id="x")` is an element `section`."""

    CLASS = staticmethod(CLASS)

    def __getattr__(self, name: str) -> Any:
        self.__dict__[name] = made = getattr(_MAKER, name.lower())
        return made


E = _Elements()

Element = Any


def scrolling(table: Element, name: str) -> Element:
    """A table that scrolls sideways by itself, also with the keyboard."""
    return E.DIV(E.CLASS("scroll"), table, role="region", tabindex="0", **{"aria-label": name})


def caption(report: Report, table: Optional[Table] = None) -> list[Element]:
    """Says in the table itself that it proves nothing of hardware, where that is so."""
    note = report.emulated_note(table)
    return [E.CAPTION(E.SPAN(note))] if note else []


def anchor(report: Report, name: str) -> Optional[str]:
    """The fragment of a configuration's proof; None where rows are no configurations."""
    names = [*report.configurations, CONTROL]
    is_configuration = report.baseline.dimension == "configuration" and name in names
    return f"configuration-{names.index(name)}" if is_configuration else None


def name_cell(report: Report, name: str, marks: Sequence[Element] = ()) -> Element:
    """The head of a row, with the way to the proof of its configuration, and `marks` behind it."""
    fragment = anchor(report, name)
    shown = name if fragment is None else E.A(name, href=f"#{fragment}")
    return E.TH(E.CLASS("name"), shown, *marks, scope="row", **{"data-value": name})


def summary(report: Report) -> Element:
    """Percent of the baseline by configuration and load; many workloads are rows, a few columns."""
    loads = sum(len(table.sections) for table in report.tables)
    names = list(dict.fromkeys(cell.name for cell in report.cells))
    layout = _loads_down if loads > max(_MANY_LOADS, len(names)) else _loads_across
    return scrolling(layout(report, names), "Throughput against the baseline, all workloads")


#: More loads than this do not fit side by side.
_MANY_LOADS = 6


def _loads_across(report: Report, names: Sequence[str]) -> Element:
    sections = [section for table in report.tables for section in table.sections]
    of = [(table.title, str(len(table.sections))) for table in report.tables]
    groups = (E.TH(title, E.CLASS("group"), colspan=n, scope="colgroup") for title, n in of)
    heads = E.TR(
        E.TH(report.compared, E.CLASS("name"), scope="col"),
        *(E.TH(section.label.capitalize(), scope="col") for section in sections),
    )
    rows = [
        E.TR(
            name_cell(report, name),
            *(_percent_cell(section.row(name), report.options.loss) for section in sections),
        )
        for name in names
    ]
    return E.TABLE(*caption(report), E.THEAD(E.TR(E.TD(), *groups), heads), E.TBODY(*rows))


def _loads_down(report: Report, names: Sequence[str]) -> Element:
    heads = E.TR(E.TH("Workload", E.CLASS("name"), scope="col"))
    for name in names:
        fragment = anchor(report, name)
        shown = report.named(name) if fragment is None else E.A(name, href=f"#{fragment}")
        heads.append(E.TH(shown, scope="col"))
    body, wide, loss = E.TBODY(), str(len(names) + 1), report.options.loss
    for table in report.tables:
        head = E.TH(table.title, colspan=wide, scope="rowgroup")
        body.append(E.TR(head, E.CLASS("section")))
        for section in table.sections:
            head = E.TH(section.label.capitalize(), E.CLASS("name"), scope="row")
            cells = (_percent_cell(section.row(name), loss) for name in names)
            body.append(E.TR(head, *cells))
    return E.TABLE(*caption(report), E.THEAD(heads), body)


def _percent_cell(cell: Optional[ReportCell], loss: bool) -> Element:
    """The percent, its interval and a bar; or why there is none."""
    if cell is None:
        return E.TD("", **{"data-value": ""})
    if cell.state != "measured":
        return E.TD(
            E.SPAN(E.CLASS("failed"), cell.state), title=cell.reason or "", **{"data-value": ""}
        )
    comparison = cell.comparisons.get("iops")
    if comparison is None:
        return E.TD("-", title="the baseline was not measured", **{"data-value": ""})
    shown = 100 - comparison.percent if loss else comparison.percent
    width = f"width:{max(0.0, min(shown, 100.0)):.1f}%"
    classes = "percent" if comparison.differs or cell.is_baseline else "percent noise"
    return E.TD(
        E.CLASS(classes),
        E.SPAN(
            E.CLASS("big"),
            f"{wording.percent(comparison.percent, loss)} %{text_of.star(comparison)}",
        ),
        E.BR(),
        E.SPAN(E.CLASS("small"), _interval(cell, comparison, loss)),
        E.SPAN(E.CLASS("meter"), E.SPAN(style=width), **{"aria-hidden": "true"}),
        title=comparison.basis or "",
        **{"data-value": f"{comparison.percent:.6g}"},
    )


def _interval(cell: ReportCell, comparison: Comparison, loss: bool) -> str:
    if cell.is_baseline:
        return "baseline"
    if comparison.low is None:
        return "no interval"
    text = text_of.interval(comparison, loss)
    return f"{text_of.OF_ONE}, {text}" if comparison.is_of_one_deployment else text


def grid(report: Report, shown: Grid) -> Iterator[Element]:
    """A table of texts, with its title and notes."""
    heads = [
        E.TH(head, *([E.CLASS("name")] if n < shown.words else []), scope="col")
        for n, head in enumerate(shown.headings)
    ]
    body, number = E.TBODY(), count()
    for label, rows in shown.sections:
        if label:
            head = E.TH(label, colspan=str(len(heads)), scope="rowgroup")
            body.append(E.TR(head, E.CLASS("section")))
        body.extend(_texts(row, shown.words, next(number) in shown.strong) for row in rows)
    yield E.H3(shown.title)
    if len(body):
        table = E.TABLE(E.CLASS("texts"), *caption(report), E.THEAD(E.TR(*heads)), body)
        yield scrolling(table, shown.title)
    yield from (E.P(E.CLASS("note"), note) for note in shown.notes)


def _texts(row: Sequence[str], words: int, is_strong: bool) -> Element:
    first, *others = map(E.B, row) if is_strong else row
    cells = (
        E.TD(text, E.CLASS("name")) if n < words else E.TD(text) for n, text in enumerate(others, 1)
    )
    return E.TR(E.TH(first, E.CLASS("name"), scope="row"), *cells)


def effects(report: Report) -> Iterator[Element]:
    """The conclusion table and its thresholds; nothing where nothing was compared."""
    if not report.conclusions:
        return
    names = dict.fromkeys(conclusion.name for conclusion in report.conclusions)
    heads = [E.TH(report.named(name), scope="col") for name in names]
    rows = []
    for load, by_name in by_load(report.conclusions).items():
        cells = (_effect(by_name.get(name), report.options.loss) for name in names)
        rows.append(E.TR(E.TH(load, E.CLASS("name"), scope="row"), *cells))
    head = E.TR(E.TH("Workload", E.CLASS("name"), scope="col"), *heads)
    table = E.TABLE(*caption(report), E.THEAD(head), E.TBODY(*rows))
    yield E.H3("Effect on throughput")
    yield scrolling(table, "Effect on throughput")
    yield E.P(E.CLASS("note"), THRESHOLDS)


def _effect(conclusion: Optional[Conclusion], loss: bool) -> Element:
    if conclusion is None:
        return E.TD("-")
    parts = [
        E.SPAN(E.CLASS(f"effect {conclusion.effect.split()[-1]}"), conclusion.effect),
        E.BR(),
        E.SPAN(E.CLASS("small"), change(conclusion, loss)),
    ]
    if conclusion.cpu_per_io_percent is not None:
        cpu = conclusion.cpu_per_io or Comparison(conclusion.cpu_per_io_percent)
        parts += [E.BR(), E.SPAN(E.CLASS("small"), f"CPU per IO {text_of.in_percent(cpu)} %")]
    return E.TD(*parts)


def figures(report: Report, table: Table) -> Element:
    """The sortable table of one workload: a row for each mode and configuration."""
    what = "% lost" if report.options.loss else "Percent of baseline"
    shown = columns(table, Where.PAGE)
    of_columns = (column.heading.format(nodes=table.nodes) for _, column in shown)
    headings = [report.compared, "Mode", what, *of_columns]
    heads = [_sorting_head(text, number < 2) for number, text in enumerate(headings)]
    heads[1].classes.add("mode")
    notes = notes_of(table)
    rows = [
        E.TR(
            name_cell(report, cell.name, [*_marks(table, numbers(cell, notes)), _below(section)]),
            E.TD(section.label, E.CLASS("name mode")),
            _percent_cell(cell, report.options.loss),
            *(_figure(cell, metric.key, column) for metric, column in shown),
        )
        for section, cell in table.rows
    ]
    return _sortable(report, table, heads, rows, f"Figures of {table.title}")


def _below(section: Section) -> Element:
    """The mode below the name, on phones: beside it, it would leave no room for the percentage."""
    return E.SPAN(E.CLASS("small mode-below"), section.label)


def _sortable(
    report: Report, table: Table, heads: Sequence[Element], rows: Sequence[Element], name: str
) -> Element:
    head, note = E.THEAD(E.TR(*heads)), caption(report, table)
    return scrolling(E.TABLE(E.CLASS("sortable"), *note, head, E.TBODY(*rows)), name)


def _sorting_head(text: str, is_name: bool) -> Element:
    classes = [E.CLASS("name")] if is_name else []
    return E.TH(E.BUTTON(text, type="button"), *classes, scope="col")


def _figure(cell: ReportCell, key: str, column: Column) -> Element:
    value = cell.figures.get(key)
    if value is None:
        why = {"title": cell.withheld[key]} if key in cell.withheld else {}
        return E.TD("-" if cell.state == "measured" else "", **why, **{"data-value": ""})
    return E.TD(column.text(value), **{"data-value": f"{value:.9g}"})


def everything(report: Report, table: Table) -> Element:
    """All figures of one workload with their percentages and intervals, folded away."""
    headings = ("Figure", "Mode", report.compared, "Value", "Unit", "Percent of baseline",
                "95 % interval", "Rests on")  # fmt: skip
    heads = [_sorting_head(text, column in (0, 1, 2, 4, 7)) for column, text in enumerate(headings)]
    rows = [row for section, cell in table.rows for row in _all(section, cell)]
    title = f"All figures of {table.title}"
    return E.DETAILS(E.SUMMARY(title), E.DIV(_sortable(report, table, heads, rows, title)))


def _all(section: Section, cell: ReportCell) -> Iterator[Element]:
    for key, value in cell.figures.items():
        metric = BY_KEY[key]
        comparison = cell.comparisons.get(key)
        percent = "" if comparison is None else f"{comparison.percent:.6g}"
        yield E.TR(
            E.TH(metric.label, E.CLASS("name"), scope="row"),
            E.TD(section.label, E.CLASS("name")),
            E.TD(cell.name, E.CLASS("name")),
            E.TD(f"{value:,.6g}", **{"data-value": f"{value:.9g}"}),
            E.TD(metric.unit, E.CLASS("name")),
            E.TD(percent and f"{float(percent):.2f}", **{"data-value": percent}),
            E.TD("" if comparison is None else _interval(cell, comparison, False)),
            E.TD("" if comparison is None else comparison.basis or "", E.CLASS("name")),
        )


def why(report: Report, table: Table) -> Iterator[Element]:
    """What changed beside verdicts, and where writes and processors spent their time."""
    items = [E.LI(E.B(f"{row}: "), sentences) for row, sentences in explained(table)]
    if items:
        yield E.P(E.CLASS("note"), f"{CORRELATION}.")
        yield E.UL(E.CLASS("why"), *items)
    for one in grids(table):
        yield from grid(report, one)


def warnings(table: Table) -> Iterator[Element]:
    """Why cells failed and what is doubtful about others; nothing when all is well."""
    notes = notes_of(table)
    if notes:
        items = (
            E.LI(f"{n.number} ", E.B(f"{n.where}: "), n.text, id=_fragment(table, n.number))
            for n in notes
        )
        yield E.UL(E.CLASS("warnings"), *items)


def _fragment(table: Table, number: int) -> str:
    return f"note-{re.sub('[^A-Za-z0-9]+', '-', table.title)}-{number}"


def _marks(table: Table, numbers: Sequence[int]) -> list[Element]:
    """The numbers of a cell's notes, which lead to them."""
    links = [
        E.A(str(n), href=f"#{_fragment(table, n)}", **{"aria-label": f"note {n}"}) for n in numbers
    ]
    return [E.SUP(E.CLASS("marks"), *links)] if links else []


def bases(table: Table) -> Iterator[Element]:
    """What the figures rest on, a paragraph each."""
    yield from (E.P(E.CLASS("note"), f"{text}.") for text in text_of.bases(table, Where.PAGE))
