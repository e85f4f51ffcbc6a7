"""A row that did not do what the others did has no figure of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cbt_crypto.archive.folder import open_archive
from cbt_crypto.report import ReportOptions, build, show, write

pytestmark = pytest.mark.unit


def test_what_a_row_did_not_do_is_no_zero(small: Path, tmp_path: Path) -> None:
    """As where one fio tells of syncs and another's version does not."""
    for cell in open_archive(small).plan.cells:
        if cell.configuration == "Unencrypted" and cell.parameters["mode"] == "randread":
            _turn_into_writes(small / cell.path)
    report = build(small, ReportOptions())
    (table,) = report.tables
    rows = {
        (section.direction, cell.name): cell
        for section in table.sections
        if section.mode == "randread"
        for cell in section.cells
    }
    assert rows["write", "Unencrypted"].figures["iops"] > 0
    for direction, name in (("read", "Unencrypted"), ("write", "LUKS")):
        assert "iops" not in rows[direction, name].figures
        assert "bandwidth_bytes_per_s" not in rows[direction, name].figures
    assert "iops" not in rows["read", "LUKS"].comparisons
    write(report, tmp_path / "out")
    page = io.StringIO()
    show(report, Console(file=page, width=120))
    assert "0.000" not in page.getvalue() + (tmp_path / "out" / "report.md").read_text()


def _turn_into_writes(cell: Path) -> None:
    for path in cell.glob("json_output.*"):
        output = json.loads(path.read_text())
        for job in output["jobs"]:
            job["read"], job["write"] = job["write"], job["read"]
        path.write_text(json.dumps(output))
    for log in cell.glob("output.*.log.*"):
        log.unlink()
