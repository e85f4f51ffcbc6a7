"""What stands in tables of a campaign that was interrupted, and in those of `--only`."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cbt_crypto.report import build, publish, show, write
from cbt_crypto.report.document import reopened
from cbt_crypto.report.shown import without_missing
from cbt_crypto.report.text.csv_json import document
from cbt_crypto.report.text.markdown import markdown

pytestmark = pytest.mark.unit


def cells(archive: Path) -> list[dict]:
    return json.loads((archive / "results/plan.json").read_text())["cells"]


def printed(archive: Path) -> str:
    output = io.StringIO()
    show(build(archive), Console(file=output, width=120))
    return output.getvalue()


def test_a_whole_report_is_shown_as_it_is(small: Path) -> None:
    report = build(small)
    assert without_missing(report) is report
    text = printed(small)
    assert "have not been run" not in text
    assert "Nothing is compared" not in text


def test_one_sentence_counts_what_was_not_run(small: Path, tmp_path: Path) -> None:
    for cell in cells(small)[1:]:
        shutil.rmtree(small / cell["path"])
    text = printed(small)
    assert "missing" not in text
    assert "random writes" not in text, "a section of which nothing was run"
    assert "3 of 4 cells have not been run; cbt.py with the same file and" in text
    write(build(small), tmp_path / "out")
    for name in ("report.md", "report.html"):
        assert "missing" not in (tmp_path / "out" / name).read_text().partition("<script")[0]
    states = [
        cell["state"]
        for table in json.loads((tmp_path / "out/report.json").read_text())["tables"]
        for section in table["sections"]
        for cell in section["cells"]
    ]
    assert states.count("missing") == 3, "what programs read keeps all"


def test_nothing_at_all_was_run(small: Path, tmp_path: Path) -> None:
    for cell in cells(small):
        shutil.rmtree(small / cell["path"])
    text = printed(small)
    assert "4 of 4 cells have not been run" in text
    assert "Nothing is compared: no configuration beside the baseline has been measured." in text
    assert "was deployed once" not in text
    assert write(build(small), tmp_path / "out")


def test_a_stopped_campaign_that_has_rounds_is_not_told_to_ask_for_them(repeated: Path) -> None:
    for cell in cells(repeated):
        if cell["iteration"]:
            shutil.rmtree(repeated / cell["path"])
    text = printed(repeated)
    assert "No verdict yet: runs of these rows are still to be measured" in text
    assert "iterations: 3" not in text
    assert "3 of 4 runs still to be measured" in text and "gave nothing" not in text
    plain = json.dumps(document(build(repeated)))
    assert "No verdict yet" in markdown(reopened(plain.encode())), "from a summary too"


def test_two_rounds_are_not_one(repeated: Path) -> None:
    two = [cell for cell in cells(repeated) if cell["iteration"] < 2]
    plan = repeated / "results/plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "cells": two}))
    text = printed(repeated)
    assert "No verdict: each configuration was deployed twice" in text
    assert "deployed once" not in text


def test_only_limits_what_is_printed_and_not_the_files(small: Path) -> None:
    output = io.StringIO()
    publish(small, Console(file=output, width=120), ["randread"])
    assert "random writes" not in output.getvalue()
    assert "random reads" in output.getvalue()
    assert "random writes" in (small / "report.md").read_text()


def test_without_the_library_for_ranges_the_report_says_so(
    repeated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Debian's packages alone, which have no such library."""
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "arch" else there(name)
    )
    monkeypatch.setitem(sys.modules, "arch", None)
    report = build(repeated)
    assert "pip install arch" in report.notes[-1]
    assert all(cell.comparisons["iops"].percent for cell in report.cells)
    lost = [cell.comparisons["iops"] for cell in report.cells if cell.name == "LUKS"]
    assert all(compared.level == "rounds" for compared in lost)
