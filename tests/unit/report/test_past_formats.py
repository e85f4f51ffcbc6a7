"""Packs of every format that was ever published are read; report.json keeps to its schema."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from cbt_crypto.archive.pack import opened
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.errors import UsageError
from cbt_crypto.report import Report, build
from cbt_crypto.report.document import FORMAT, document, reopened, report_schema
from cbt_crypto.report.markdown import markdown

pytestmark = pytest.mark.unit


def percents(report: Report) -> dict[tuple[str, str], float]:
    """(configuration, direction) -> percent of the baseline's IOPS."""
    return {
        (cell.name, cell.direction): round(cell.comparisons["iops"].percent, 1)
        for cell in report.cells
    }


HALF = {
    ("Unencrypted", "read"): 100.0, ("Unencrypted", "write"): 100.0,
    ("LUKS", "read"): 50.0, ("LUKS", "write"): 50.0,
}  # fmt: skip


#: One of each kind and format, written by the version that had it; never changed afterwards.
PAST = (1,)


@pytest.mark.parametrize("number", PAST)
def test_an_archive_of_each_past_format(data: Path, number: int) -> None:
    with opened(data / f"packs/archive-format-{number}.zip") as pack:
        assert not pack.is_summary
        assert percents(build(pack.folder)) == HALF


@pytest.mark.parametrize("number", PAST)
def test_a_report_of_each_past_format(data: Path, number: int) -> None:
    with opened(data / f"packs/report-format-{number}.zip") as pack:
        assert pack.is_summary
        jsonschema.validate(json.loads(pack.report()), report_schema())
        report = reopened(pack.report())
    assert percents(report) == HALF
    assert markdown(report)


def test_format_2_has_verdicts_pairs_and_a_control(data: Path) -> None:
    with opened(data / "packs/report-format-2.zip") as pack:
        jsonschema.validate(json.loads(pack.report()), report_schema())
        report = reopened(pack.report())
    assert percents(report) == {
        (name, direction): percent
        for name, percent in (("Unencrypted", 100.0), ("control", 100.0), ("LUKS", 50.0))
        for direction in ("read", "write")
    }
    lost = [cell.comparisons["iops"] for cell in report.cells if cell.name == "LUKS"]
    assert all(compared.differs and compared.level == "rounds" for compared in lost)
    pairs = [pair for table in report.tables for s in table.sections for pair in s.pairs]
    assert [(pair.name, pair.other) for pair in pairs] == [("LUKS", "control")] * 2
    assert "LUKS" in markdown(report)


def test_rows_that_are_compared_with_one_another_are_read_back(repeated: Path) -> None:
    report = build(repeated)
    again = reopened(json.dumps(document(report)).encode())
    assert any(section.pairs for table in again.tables for section in table.sections)
    assert markdown(again) == markdown(report)
    assert [table.groups for table in again.tables] == [table.groups for table in report.tables]
    both = [[cell.comparisons for cell in one.cells] for one in (again, report)]
    against = [[c["iops"].p_beyond(95) for c in rows if c] for rows in both]
    assert against[0] == against[1] and any(against[0])


def test_what_is_written_keeps_to_the_schema_and_is_read_back(small: Path) -> None:
    report = build(small)
    text = json.dumps(document(report))
    jsonschema.validate(json.loads(text), report_schema())
    # A summary has no runs, from which only charts are drawn.
    assert markdown(reopened(text.encode())) == markdown(report)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": FORMAT + 1}, "newer"),
        ({"tables": 1}, "tables"),
        ({"tables": [{"title": "x"}]}, "tables.0"),
        ({"baseline": "x"}, "baseline"),
    ],
)
def test_a_document_that_is_none(small: Path, change: dict[str, Any], said: str) -> None:
    text = json.dumps({**document(build(small)), **change})
    with pytest.raises(UsageError, match=said):
        reopened(text.encode())
    with pytest.raises(UsageError):
        reopened(b"{")


def test_a_strangers_words_do_not_reach_the_terminal_as_orders(small: Path) -> None:
    report = replace(build(small), title="evil\x1b[2J\x07")
    assert "\x1b" not in reopened(json.dumps(document(report)).encode()).title


def run(*words: Any) -> Any:
    return CliRunner().invoke(cbt_crypto, [str(word) for word in words])


def test_two_labs_make_one_report(small: Path, tmp_path: Path, measured_again: Any) -> None:
    for name, archive in (("here", small), ("there", measured_again(small, tmp_path / "other"))):
        assert run("pack", archive, "-o", tmp_path / f"{name}.zip").exit_code == 0
    out = tmp_path / "out"
    result = run("compare", f"A={tmp_path}/here.zip", f"B={tmp_path}/there.zip", "-o", out)
    assert result.exit_code == 0, result.output
    assert "rbd_multi_client, 4 KiB, archive A" in result.output
    assert "rbd_multi_client, 4 KiB, archive B" in result.output
    found = reopened((out / "report.json").read_bytes())
    lost = [cell for cell in found.cells if cell.name == "LUKS"]
    assert len(lost) == 4
    assert all(c.comparisons["iops"].percent == pytest.approx(50, abs=0.5) for c in lost)


def test_a_summary_tells_no_host_when_it_is_to_hide_them(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.zip"
    assert run("pack", small, "--anonymize").exit_code == 2
    packed = run("pack", small, "--summary", "--anonymize", "-o", path)
    assert packed.exit_code == 0
    assert re.search(r"[1-9]\d?\.\d kB; read it with", packed.output), "a few kB are not 0.0 MB"
    with opened(path) as pack:
        text = pack.report().decode()
    assert "client0" not in text and "osd0" not in text
    assert "host1" in text
    assert run("report", path, "-o", tmp_path / "r").exit_code == 0
    assert (tmp_path / "r/report.html").exists()
    assert run("report", path, "--only", "LUKS", "-o", tmp_path / "r").exit_code == 2
    assert run("compare", f"A={path}", "-o", tmp_path / "c").exit_code == 2
