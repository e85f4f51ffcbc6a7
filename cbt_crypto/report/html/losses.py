"""The loss tables of report.html."""

from __future__ import annotations

from collections.abc import Iterator

from cbt_crypto.report.figures.loss_table import LossTable, heads, loss_tables, percents
from cbt_crypto.report.html.elements import E
from cbt_crypto.report.html.tables import Element, caption, scrolling
from cbt_crypto.report.model import Report


def losses(report: Report, scenario: str) -> Iterator[Element]:
    """A heading and a table for each."""
    for table in loss_tables(report, scenario):
        yield E.H3(table.title)
        yield scrolling(_table(report, table), table.title)


def _table(report: Report, table: LossTable) -> Element:
    first, *columns = heads(table)
    head = E.TR(E.TH(first, E.CLASS("name"), scope="col"), *(E.TH(c, scope="col") for c in columns))
    rows = (
        E.TR(E.TH(row.label, E.CLASS("name"), scope="row"), *map(E.TD, percents(row)))
        for row in table.rows
    )
    return E.TABLE(*caption(report), E.THEAD(head), E.TBODY(*rows))
