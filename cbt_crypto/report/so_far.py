"""Percents known so far, in a light program: -m cbt_crypto.report.so_far ARCHIVE LINES."""

from __future__ import annotations

import sys
from pathlib import Path

from cbt_crypto.report import text_of, wording
from cbt_crypto.report.build import build
from cbt_crypto.report.model import Report, ReportCell, Section, without_missing
from cbt_crypto.units import counted

_NAME = 30


def so_far(report: Report, most: int) -> list[str]:
    """At most `most` lines of 79 characters on the last workloads: percent, interval, IOPS."""
    shown = without_missing(report)
    sections = [(table.title, section) for table in shown.tables for section in table.sections]
    sections = [one for one in sections if any(c.state == "measured" for c in one[1].cells)]
    sections.sort(key=lambda one: _measured_at(one[1]), reverse=True)
    lines = [f"throughput in percent of {report.baseline_name}, so far"[:79]] if sections else []
    for number, (title, section) in enumerate(sections):
        section_lines = [f"{title}: {section.label}"[:79], *map(_line, section.cells)]
        if len(lines) + len(section_lines) >= most and number:
            return [*lines, f"and {counted(len(sections) - number, 'more workload')}"]
        lines += section_lines
    return lines[:most]


def _measured_at(section: Section) -> float:
    return max((run.started or 0.0 for cell in section.cells for run in cell.runs), default=0.0)


def _line(cell: ReportCell) -> str:
    name = f"  {cell.name}"[:_NAME].ljust(_NAME)
    if cell.state != "measured":
        return f"{name} {cell.state:>7}"
    compared = cell.comparisons.get("iops")
    percent = "-" if compared is None else wording.percent(compared.percent, loss=False)
    bounds = "baseline" if cell.is_baseline else text_of.interval(compared, loss=False)
    return f"{name} {percent:>7} {bounds:>18} {wording.number(cell.figures.get('iops')):>10} IOPS"


def main() -> None:
    """Print the lines of the archive that is named, at most as many as the second word says."""
    archive, most = sys.argv[1:]
    print("\n".join(so_far(build(Path(archive)), int(most))))


if __name__ == "__main__":
    main()
