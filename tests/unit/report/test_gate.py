"""The three answers of `gate`, its exit statuses, and what CI servers read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from lxml import etree

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.report import gate
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.gate import Answer
from cbt_crypto.report.model import Comparison, ReportCell

pytestmark = pytest.mark.unit


def _answer(metric: str, loss: float, *comparison: float | None, **changes: Any) -> gate.LoadAnswer:
    values = {metric: Comparison(*comparison)} if comparison else {}
    fields = {"state": "measured", "comparisons": values, **changes}
    cell = ReportCell("B", {}, "read", **fields)
    return gate.answer_of_cell("load", cell, BY_KEY[metric], loss)


@pytest.mark.parametrize(
    ("percent", "low", "high", "answer"),
    [
        (99.0, 97.0, 101.0, Answer.NO),
        (97.0, 95.0, 99.0, Answer.NO),  # the worst that it may be is what may be lost
        (90.0, 88.0, 92.0, Answer.YES),
        (94.0, 93.0, 94.9, Answer.YES),
        (97.0, 94.0, 100.0, Answer.CANNOT_TELL),
        (94.0, 92.0, 96.0, Answer.CANNOT_TELL),
        (130.0, 120.0, 140.0, Answer.NO),
        (90.0, None, None, Answer.CANNOT_TELL),
    ],
)
def test_the_interval_answers(percent: float, low: Any, high: Any, answer: Answer) -> None:
    assert _answer("iops", 5, percent, low, high).answer is answer


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(98.0, 104.0, Answer.NO), (106.0, 120.0, Answer.YES), (99.0, 106.0, Answer.CANNOT_TELL)],
)
def test_of_latency_more_is_a_loss(low: float, high: float, answer: Answer) -> None:
    found = _answer("clat_ns_p99", 5, (low + high) / 2, low, high)
    assert found.answer is answer
    assert (found.low, found.high) == (low - 100, high - 100)


def test_what_was_not_measured_cannot_be_told() -> None:
    failed = _answer("iops", 5, state="failed", reason="its OSD is not encrypted")
    assert failed.answer is Answer.CANNOT_TELL
    assert failed.line == "cannot tell: B, load: failed: its OSD is not encrypted"
    assert _answer("iops", 5).answer is Answer.CANNOT_TELL


@pytest.mark.parametrize(
    ("answers", "overall", "status"),
    [
        ([Answer.NO, Answer.NO], Answer.NO, 0),
        ([Answer.NO, Answer.CANNOT_TELL], Answer.CANNOT_TELL, 3),
        ([Answer.CANNOT_TELL, Answer.YES, Answer.NO], Answer.YES, 1),
        ([], Answer.CANNOT_TELL, 3),
    ],
)
def test_the_exit_status_is_the_gravest(answers: Any, overall: Answer, status: int) -> None:
    found = [gate.LoadAnswer("load", "B", answer, "") for answer in answers]
    assert gate.overall(found) is overall
    assert gate.EXIT_STATUS[overall] == status


def _run(archive: Path, *options: str) -> Result:
    return CliRunner().invoke(cbt_crypto, ["gate", str(archive), *options])


@pytest.mark.parametrize(
    ("loss", "status", "answer"), [("5%", 1, "yes"), ("60", 0, "no"), ("50%", 3, "cannot tell")]
)
def test_an_archive_in_which_luks_loses_half(
    repeated: Path, tmp_path: Path, loss: str, status: int, answer: str
) -> None:
    files = {"--json": tmp_path / "g.json", "--junit": tmp_path / "g.xml"}
    options = [word for pair in files.items() for word in map(str, pair)]
    result = _run(repeated, "--loss", loss, *options)
    assert result.exit_code == status, result.output
    lines = result.output.splitlines()
    found = [line.split(":")[0] for line in lines[:-1] if " LUKS, " in line]
    assert found == [answer] * 2
    assert lines[-1] == f"more than {float(loss.strip('%')):g} % lost against Unencrypted: {answer}"
    document = json.loads(files["--json"].read_text())
    assert document["answer"] == answer
    assert [
        round(one["loss_percent"]) for one in document["findings"] if one["name"] == "LUKS"
    ] == [50, 50]
    suite = etree.parse(str(files["--junit"])).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "4"
    assert suite.get("failures") == ("2" if answer == "yes" else "0")
    assert suite.get("skipped") == ("2" if answer == "cannot tell" else "0")


@pytest.mark.parametrize("loss", ["half", "-1", "100%", "nan", ""])
def test_a_loss_that_makes_no_sense(small: Path, loss: str) -> None:
    result = _run(small, "--loss", loss)
    assert result.exit_code == 2
    assert "is no percent" in result.output


def test_a_figure_that_cannot_be_lost(small: Path) -> None:
    result = _run(small, "--loss", "5", "--metric", "osd_cpu_share_rest_percent")
    assert result.exit_code == 2
    assert re.search("--metric osd_cpu_share_rest_percent: is none of iops, ", result.output)


def test_names_of_an_archive_cannot_break_the_xml() -> None:
    hostile = gate.LoadAnswer('<a>&"\x00\x1b[2J', "]]>\ud800", Answer.YES, "\x08 & <b>")
    text = gate.as_junit([hostile], "\x00title")
    case = etree.fromstring(text.encode()).find(".//testcase")
    assert case is not None
    assert case.get("name") == '<a>&"  [2J'
