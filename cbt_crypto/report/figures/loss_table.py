"""What is lost on drives: drives as rows and IO sizes as columns, a table for each metric and mode.

This is the shape in which the loss by encryption of whole drives was published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.report import label
from cbt_crypto.report.model import Report, ReportCell, Table

#: Metric -> its word.
_METRICS = {"bandwidth_bytes_per_s": "bandwidth", "iops": "IOPS"}
_MODES = {"read": "read", "write": "write", "randread": "random read", "randwrite": "random write"}
#: Dimensions that have a place of their own in such a table.
_PLACED = ("scenario", "op_size", "drive")


@dataclass(frozen=True)
class LossRow:
    """One drive under one load; a percent lost for each column, None where there is none."""

    label: str
    losses: tuple[Optional[float], ...]


@dataclass(frozen=True)
class LossTable:
    """`what` is lost by `name`, a value of the compared dimension; columns are IO sizes."""

    scenario: str
    what: str
    name: str
    columns: tuple[int, ...]
    rows: tuple[LossRow, ...]

    @property
    def title(self) -> str:
        """As `Performance losses read bandwidth, LUKS`."""
        return f"Performance losses {self.what}, {self.name}"


def loss_tables(report: Report, scenario: str) -> Iterator[LossTable]:
    """The tables of a scenario on drives; none for another, or where drives are compared."""
    tables = [table for table in report.tables if table.scenario == scenario]
    if report.baseline.dimension == "drive" or not any(map(_drive, tables)):
        return
    columns = tuple(sorted({table.op_size for table in tables if table.op_size is not None}))
    cells = [cell for table in tables for s in table.sections for cell in s.cells]
    names = dict.fromkeys(cell.name for cell in cells if not cell.is_baseline)
    modes = dict.fromkeys(section.mode for table in tables for section in table.sections)
    for figure, word in _METRICS.items():
        for mode in modes:
            for name in names:
                rows = _rows(tables, mode, name, figure, columns)
                yield LossTable(scenario, f"{_MODES.get(mode, mode)} {word}", name, columns, rows)


def _drive(table: Table) -> Optional[str]:
    """Drive of a table's cells; None where they are on a cluster."""
    drives = (cell.dimensions.get("drive") for s in table.sections for cell in s.cells)
    return next((str(drive) for drive in drives if drive is not None), None)


def _rows(
    tables: Sequence[Table], mode: str, name: str, figure: str, columns: Sequence[int]
) -> tuple[LossRow, ...]:
    """By everything but the IO size; shallow queues first, as they were published."""
    rows: dict[tuple[int, str], dict[int, float]] = {}
    for table in tables:
        for cell in (c for s in table.sections if s.mode == mode for c in s.cells):
            comparison = cell.comparisons.get(figure)
            if cell.name == name and table.op_size is not None:
                row = rows.setdefault((_depth(cell), _label(table, cell)), {})
                if comparison is not None:
                    row[table.op_size] = 100 - comparison.percent
    ordered = sorted(rows, key=lambda key: key[0])
    return tuple(
        LossRow(key[1], tuple(rows[key].get(column) for column in columns)) for key in ordered
    )


def _depth(cell: ReportCell) -> int:
    depth = cell.dimensions.get("iodepth")
    return depth if isinstance(depth, int) else 1


def _label(table: Table, cell: ReportCell) -> str:
    """`NVME`, or `NVME iodepth=32`, and what else the campaign varies."""
    words = [str(_drive(table))]
    words += [f"iodepth={_depth(cell)}"] if _depth(cell) != 1 else []
    varied = table.dimensions.items()
    words += [f"{key}={value}" for key, value in varied if key not in (*_PLACED, "iodepth")]
    return " ".join(words)


def heads(table: LossTable) -> list[str]:
    """Headings of the columns."""
    return ["Device", *(f"{label.op_size(column)} % loss" for column in table.columns)]


def percents(row: LossRow) -> list[str]:
    """With two decimals; a dash where nothing was measured."""
    return ["-" if loss is None else f"{loss:.2f}" for loss in row.losses]
