"""What people are shown of a report: what was measured or failed, and how much was not run."""

from __future__ import annotations

from dataclasses import replace

from cbt_crypto.report.model import Report, Section, Table


def without_missing(report: Report) -> Report:
    """The report without rows that were not run; a note counts them.

    Sections and tables that are left empty are gone too. What is written for programs keeps all.
    """
    missing = [cell for cell in report.cells if cell.state == "missing"]
    if not missing:
        return report
    tables = tuple(table for table in map(_table, report.tables) if table.sections)
    have, them = ("has", "it") if len(missing) == 1 else ("have", "them")
    counted = f"{len(missing)} of {len(report.cells)} cells {have} not been run"
    # Not the same command: it may have had --only.
    note = f"{counted}; cbt.py with the same file and archive goes on with {them}"
    return replace(report, tables=tables, notes=(*report.notes, note))


def _table(table: Table) -> Table:
    sections = (_section(section) for section in table.sections)
    return replace(table, sections=tuple(section for section in sections if section.cells))


def _section(section: Section) -> Section:
    cells = tuple(cell for cell in section.cells if cell.state != "missing")
    return replace(section, cells=cells)
