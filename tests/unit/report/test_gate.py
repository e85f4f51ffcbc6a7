"""The three answers of `gate`, its exit statuses, and what CI servers read."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from lxml import etree

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.report import build, gate
from cbt_crypto.report.document import document, reopened
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.figures.repeats import UNTIL_KNOWN, StandardError, differing
from cbt_crypto.report.gate import Answer
from cbt_crypto.report.headline import control_states
from cbt_crypto.report.model import Comparison, ControlState, ReportCell
from cbt_crypto.results.cell.kept import Kept, ReadCell

pytestmark = pytest.mark.unit


def _row(metric: str, percent: float, error: float | None, **changes: Any) -> ReportCell:
    """`error` is the standard error of its logarithm, of 4 degrees of freedom."""
    comparison = Comparison(percent)
    if error is not None:
        known = StandardError(error, 4)
        ends = [percent * math.exp(sign * known.half) for sign in (-1, 1)]
        p = known.p(math.log(percent / 100))
        errors = (known, replace(known, is_own=True))
        comparison = Comparison(percent, *ends, "rounds", "rounds", p, errors=errors)
    fields = {"state": "measured", "comparisons": {metric: comparison}, **changes}
    return ReportCell("B", {}, "read", **fields)


def _answer(metric: str, loss: float, cell: ReportCell) -> gate.LoadAnswer:
    rows = [("load", cell, ControlState())]
    (found,) = gate.answers_of(rows, gate.Question(BY_KEY[metric], loss))
    return found


@pytest.mark.parametrize(
    ("percent", "error", "answer"),
    [
        (99.0, 0.010, Answer.NO),
        (97.0, 0.007, Answer.NO),
        (90.0, 0.010, Answer.YES),
        (94.0, 0.003, Answer.YES),
        (97.0, 0.010, Answer.CANNOT_TELL),
        (94.0, 0.010, Answer.CANNOT_TELL),
        (130.0, 0.030, Answer.NO),
        (90.0, None, Answer.CANNOT_TELL),
    ],
)
def test_the_interval_answers(percent: float, error: Any, answer: Answer) -> None:
    found = _answer("iops", 5, _row("iops", percent, error))
    assert found.answer is answer
    if found.low is not None and found.high is not None:
        # alone, the answer is the one of the interval that is shown
        assert (found.high <= 5) == (answer is Answer.NO)
        assert (found.low > 5) == (answer is Answer.YES)


@pytest.mark.parametrize(
    ("percent", "error", "line"),
    [
        (99.8, 0.006, "PASS     loses 0.2 % (-1.5 to 1.8)"),
        (102.0, 0.006, "PASS     gains 2.0 % (0.3 to 3.7)"),
        (92.9, 0.006, "FAIL     loses 7.1 % (5.5 to 8.6), allowed 5 %"),
        (96.0, 0.006, "UNKNOWN  loses 4.0 % (2.4 to 5.6), allowed 5 %: needs about 4 more rounds"),
        (
            95.4,
            0.01,
            "UNKNOWN  loses 4.6 % (1.9 to 7.2), allowed 5 %: needs more than 20 more rounds",
        ),
    ],
)
def test_a_line_says_what_an_answer_takes(percent: float, error: float, line: str) -> None:
    assert _answer("iops", 5, _row("iops", percent, error)).line == f"{line}  B, load"


def test_where_the_precision_is_reached_more_rounds_are_no_advice() -> None:
    """The campaign ends there whatever the file allows; the gate said "measure more rounds"."""
    row = _row("iops", 96.0, 0.006)
    reached = replace(row.comparisons["iops"], basis=f"5 deployments of each{UNTIL_KNOWN}")
    found = _answer("iops", 5, replace(row, comparisons={"iops": reached}))
    assert found.answer is Answer.CANNOT_TELL and "round" not in found.reason
    assert "the precision is reached, and too coarse to tell; set a smaller" in found.reason


@pytest.mark.parametrize(
    ("percent", "error", "answer"),
    [(101, 0.01, Answer.NO), (112, 0.01, Answer.YES), (103, 0.01, Answer.CANNOT_TELL)],
)
def test_of_latency_more_is_a_loss(percent: float, error: float, answer: Answer) -> None:
    found = _answer("clat_ns_p99", 5, _row("clat_ns_p99", percent, error))
    assert found.answer is answer
    assert found.loss_percent == percent - 100


def test_a_noisy_control_is_a_part_of_what_an_answer_takes() -> None:
    """One more round was promised for a PASS that such a control never gives."""
    noisy = ControlState("too noisy", 22.0, 27.0)
    rows = [("load", _row("iops", 66.8, 0.05), noisy)]
    (found,) = gate.answers_of(rows, gate.Question(BY_KEY["iops"], 40))
    assert found.reason.endswith(", and a quieter control") and "needs" in found.reason


def test_a_document_says_what_it_asks_and_where_no_control_answers(repeated: Path) -> None:
    report = build(repeated)
    question = gate.Question(BY_KEY["clat_ns_mean"], 150)
    found = json.loads(gate.as_json(report, question, gate.findings(report, question)))
    assert found["question"] == "is mean latency worse by more than 150 %?"
    unknown = gate.Question(BY_KEY["osd_power_w"], 5)
    found = json.loads(gate.as_json(report, unknown, gate.findings(report, unknown)))
    assert found["control"] is None
    assert {one["allowed_percent"] for one in found["findings"]} == {5}


def test_a_latency_rises_or_falls() -> None:
    said = [_answer("clat_ns_p99", 5, _row("clat_ns_p99", p, 0.001)).reason for p in (120.0, 90.0)]
    assert said[0].startswith("rises 20.0 %") and said[1].startswith("falls 10.0 %")


def test_what_the_report_gives_no_verdict_the_gate_gives_no_answer() -> None:
    """However far from it the percent is: an interval of two rounds, or within one run."""
    sure = _row("iops", 50.0, 0.0001).comparisons["iops"]
    for level in ("run", "rounds", "elsewhere"):
        basis = "2 deployments of each, in rounds"
        without = replace(sure, p=None, level=level, basis=basis)
        found = _answer(
            "iops", 5, ReportCell("B", {}, "read", "measured", comparisons={"iops": without})
        )
        assert found.answer is Answer.CANNOT_TELL
        assert ", 2 deployments of each, in rounds; an answer needs iterations: 4" in found.line
        assert (found.low, found.high) == (None, None)


def test_one_that_is_beyond_by_itself_is_not_beside_many() -> None:
    """Of 20 loads that lose just what they may, one is beyond its own interval by chance."""
    question = gate.Question(BY_KEY["iops"], 5)
    loads = [("load", _row("iops", 93.0, 0.0060)), *[("other", _row("iops", 95.0, 0.01))] * 19]
    rows = [(load, cell, ControlState()) for load, cell in loads]
    alone, *_ = gate.answers_of(rows[:1], question)
    beside, *_ = gate.answers_of(rows, question)
    assert alone.answer is Answer.YES
    assert beside.answer is Answer.CANNOT_TELL
    assert beside.reason.endswith(
        "allowed 5 %: beyond it by itself; beside all 20 comparisons it needs about 4 more rounds"
    )
    (in_report,) = gate.answers_of(rows[:1], question, family=20)
    assert in_report.answer is Answer.CANNOT_TELL, "the control, and figures of given rates, count"


def test_what_has_a_star_in_the_report_fails_where_nothing_may_be_lost() -> None:
    """Rows that gain for certain made it harder for one that loses than in the report."""
    percents = {"gains": (120.0, 0.004), "gains more": (130.0, 0.004), "loses": (97.0, 0.006)}
    cells = [_row("iops", *of_row) for of_row in percents.values()]
    starred = differing({n: c.comparisons["iops"].p or 1 for n, c in enumerate(cells)})
    rows = [("load", cell, ControlState()) for cell in cells]
    found = gate.answers_of(rows, gate.Question(BY_KEY["iops"], 0))
    assert [one.answer for one in found] == [Answer.NO, Answer.NO, Answer.YES]
    assert starred == dict.fromkeys(range(3), True)


def test_what_was_not_measured_cannot_be_told() -> None:
    cell = _row("iops", 50, None, state="failed", reason="its OSD is not encrypted")
    failed = _answer("iops", 5, cell)
    assert failed.answer is Answer.CANNOT_TELL
    assert failed.line == "UNKNOWN  failed: its OSD is not encrypted  B, load"
    nothing = ReportCell("B", {}, "read", "measured")
    assert _answer("iops", 5, nothing).answer is Answer.CANNOT_TELL


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
    word = {"yes": "FAIL", "no": "PASS", "cannot tell": "UNKNOWN"}[answer]
    allowed = float(loss.strip("%"))
    found = [line.partition("  LUKS, ")[0] for line in lines if " LUKS, " in line]
    assert [line.split()[0] for line in found] == [word] * 2
    assert all(re.search(r"loses (49|50)\.\d % \(4\d\.\d to 5\d\.\d\)", line) for line in found)
    ends = {"FAIL": f", allowed {allowed:g} %", "PASS": ")", "UNKNOWN": " more rounds"}
    assert all(line.endswith(ends[word]) for line in found)
    of = "of 2 comparisons with Unencrypted"
    what = f"worse by more than {allowed:g} % in IOPS"
    closing = {
        "FAIL": f"FAIL: 2 {of} are {what}.",
        "PASS": f"PASS: none {of} is {what}.",
        "UNKNOWN": f"UNKNOWN: no answer for 2 {of}.",
    }
    assert closing[word] in lines
    corrected = "At most 6 % of archives have a false FAIL. It takes all 4 comparisons of IOPS"
    assert (corrected in result.output) == (word == "FAIL"), "a PASS ended with it, too"
    document = json.loads(files["--json"].read_text())
    assert document["answer"] == answer
    assert [
        round(one["loss_percent"]) for one in document["findings"] if one["name"] == "LUKS"
    ] == [50, 50]
    suite = etree.parse(str(files["--junit"])).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "2", "the control is no change that somebody made"
    assert suite.get("failures") == ("2" if answer == "yes" else "0")
    assert suite.get("skipped") == ("2" if answer == "cannot tell" else "0")


def _made(
    tmp_path: Path, synthetic: Any, losses: dict[str, float], spread: float = 0.01, seed: int = 5,
    **changes: Any,
) -> Path:  # fmt: skip
    """An archive in which configurations lose so many percent; deployments differ by `spread`."""
    random = np.random.default_rng(seed)
    shape = synthetic.SyntheticScenario("rbd_multi_client", 1, 1, (4096,))
    level = {}

    def load(cell: Any) -> Any:
        own = level.setdefault((cell.configuration, cell.iteration), random.normal(1, spread))
        return synthetic.Load(10_000 * (1 - losses.get(cell.configuration, 0) / 100) * own, 2.0)

    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape], configurations=["A", *losses], load=load,
        **{"seconds": 12, "iterations": 5, "rounds": True, **changes},
    )  # fmt: skip
    return Path(synthetic.write_archive(campaign, tmp_path / "made"))


@pytest.mark.parametrize(("lost", "status"), [(0.0, 0), (20.0, 1), (5.0, 3)])
def test_archives_whose_loss_is_known(
    tmp_path: Path, synthetic: Any, lost: float, status: int
) -> None:
    result = _run(_made(tmp_path, synthetic, {"B": lost}), "--loss", "5", "--only", "randread")
    assert result.exit_code == status, result.output
    said = "takes all 4 comparisons of IOPS"
    assert (said in result.output) == (status == 1), "those that --only leaves out count too"


def test_what_has_no_answer_is_counted_beside_the_others(tmp_path: Path, synthetic: Any) -> None:
    archive = _made(tmp_path, synthetic, {"B": 0.0, "C": 20.0, "D": 5.0})
    lines = _run(archive, "--loss", "5").output.splitlines()
    worse = "worse by more than 5 % in IOPS"
    assert f"FAIL: 2 of 6 comparisons with A are {worse}; no answer for 2." in lines
    options = ["--loss", "5", "--only", "/ B /", "--only", "/ D /"]
    said = f"UNKNOWN: no answer for 2 of 4 comparisons with A; none of the others is {worse}."
    assert said in _run(archive, *options).output.splitlines()


def test_only_takes_a_part_of_a_label_with_a_star(tmp_path: Path, synthetic: Any) -> None:
    archive = _made(tmp_path, synthetic, {"B": 0.0, "C": 20.0})
    result = _run(archive, "--loss", "5", "--only", "c / randw*4k")
    assert result.output.count("C, rbd_multi_client") == 1
    assert "B, rbd" not in result.output and "random reads" not in result.output
    printed = result.output.splitlines()[0].rpartition("  ")[2]
    again = _run(archive, "--loss", "5", "--only", printed)
    assert again.output == result.output, "what is printed of it can be pasted"
    result = _run(archive, "--loss", "5", "--only", "random trims")
    assert result.exit_code == 2
    assert 'searched for in names such as "B, rbd_multi_client' in result.output


@pytest.mark.parametrize("iterations", [1, 3])
def test_too_few_deployments_answer_three_and_why(
    tmp_path: Path, synthetic: Any, iterations: int
) -> None:
    result = _run(_made(tmp_path, synthetic, {"B": 60.0}, iterations=iterations), "--loss", "5")
    assert result.exit_code == 3, result.output
    one, more = "an answer needs iterations: 4 or more, or six pairs of turns", "needs 1 more round"
    assert (one if iterations == 1 else more) in result.output


def test_a_campaign_that_fails_its_own_test_answers_nothing(tmp_path: Path, synthetic: Any) -> None:
    result = _run(_made(tmp_path, synthetic, {"control": 30.0, "B": 30.0}), "--loss", "5")
    assert result.exit_code == 3, result.output
    assert "but the control: DIFFERS by 29.9 % from the baseline that it repeats" in result.output


@pytest.mark.parametrize("seed", [6, 11])
def test_nothing_fails_that_the_report_calls_unclear(
    tmp_path: Path, synthetic: Any, seed: int
) -> None:
    """The gate asked on one side and left the control out of the family: it failed builds alone."""
    losses = {"control": 0.0, "B": 20.0, "C": 20.0}
    archive = _made(tmp_path, synthetic, losses, 0.05, seed, iterations=4)
    compared = {
        cell.name: cell.comparisons["iops"]
        for table in build(archive).tables
        for cell in table.sections[0].cells
    }
    found = _run(archive, "--loss", "5", "--only", "random reads").output.splitlines()[:2]
    for line, one in zip(found, (compared["B"], compared["C"])):
        assert one.low is not None and one.high is not None
        assert f" {100 - one.percent:.1f} % ({100 - one.high:.1f} to {100 - one.low:.1f})" in line
        assert one.differs or line.startswith("UNKNOWN"), line


def test_where_the_control_is_too_noisy_report_and_gate_believe_the_same_losses(
    tmp_path: Path, synthetic: Any
) -> None:
    """Beside "Control: too noisy", the gate failed a build; later, nothing, and rows had a star."""
    losses = {"control": 0.0, "B": 70.0, "C": 17.0}
    archive = _made(tmp_path, synthetic, losses, 0.16, 5, iterations=9, seconds=6)
    report = build(archive)
    control = report.control_states["iops"]
    assert control.state == "too noisy"
    assert f"losses of up to {control.loss_percent:.0f} %, and gains" in report.headline[0]
    lines = iter(_run(archive, "--loss", "5").output.splitlines())
    is_hidden = False
    for cell in (cell for cell in report.cells if cell.name in "BC"):
        iops, line = cell.comparisons["iops"], next(lines)
        is_beyond = 100 - iops.percent > control.loss_percent
        assert bool(iops.differs) == is_beyond == line.startswith("FAIL"), line
        assert is_beyond or "; but the control: too noisy: losses of up to " in line
        is_hidden |= not is_beyond and iops.p is not None and iops.p < 0.002
    assert is_hidden, "one would have had a star"
    written = reopened(json.dumps(document(report)).encode())
    assert written.control_states == report.control_states


@pytest.mark.parametrize("loss", ["half", "-1", "inf", "nan", ""])
def test_a_loss_that_makes_no_sense(small: Path, loss: str) -> None:
    result = _run(small, "--loss", loss)
    assert result.exit_code == 2
    assert "is no percent" in result.output


def test_a_latency_may_more_than_double(small: Path) -> None:
    """`--loss 150%` of a latency was no percent."""
    result = _run(small, "--loss", "150%", "--metric", "clat_ns_mean")
    assert result.exit_code == 3, result.output
    for losses in (["100%"], ["5%", "--loss", "LUKS=150%"]):
        result = _run(small, "--loss", *losses)
        assert result.exit_code == 2
        assert result.output.startswith("--loss: of IOPS less than 100 % can be lost")


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (["0.05"], "'0.05' may be a share or a percentage; write 0.05%, or 5% if that is meant"),
        (["B=3%"], "say also what all others may lose"),
        (["5%", "C=3%"], "--loss C=...: nothing is called so; name one of LUKS"),
        (["5%", "LUKS=x"], "'x' is no percent"),
    ],
)
def test_what_may_be_lost_is_asked_for(small: Path, losses: list[str], said: str) -> None:
    """`--loss 0.05` was taken for 0.05 %."""
    result = _run(small, *(word for loss in losses for word in ("--loss", loss)))
    assert result.exit_code == 2, result.output
    assert said in re.sub(r"[\s│]+", " ", result.output)


def test_a_configuration_has_a_limit_of_its_own_and_packs_are_read(
    tmp_path: Path, synthetic: Any
) -> None:
    """The gate had one limit for all, and said of a pack that there is no such directory."""
    archive = _made(tmp_path, synthetic, {"B": 0.0, "C": 20.0})
    pack = tmp_path / "made.zip"
    CliRunner().invoke(cbt_crypto, ["pack", str(archive), "-o", str(pack)])
    written = tmp_path / "gate.json"
    result = _run(pack, "--loss", "5%", "--loss", "C=30%", "--json", str(written))
    assert result.exit_code == 0, result.output
    said = "none of 4 comparisons with A is worse by more than 5 % (C: 30 %) in IOPS."
    assert f"PASS: {said}" in result.output
    # What may be lost stands where it is not that of all.
    assert re.search(r"PASS +loses [\d.]+ % \([\d. to]+\), allowed 30 %  C, ", result.output)
    assert re.search(r"PASS +(loses|gains) [\d.]+ % \([\d. to-]+\)  B, ", result.output)
    allowed = {
        (f["name"], f["allowed_percent"]) for f in json.loads(written.read_text())["findings"]
    }
    assert allowed == {("B", 5.0), ("C", 30.0)}
    assert _run(pack, "--loss", "30%", "--loss", "C=10%").exit_code == 1


@pytest.mark.parametrize("twice", [("5%", "50%"), ("5%", "LUKS=9%", "LUKS=20%")])
def test_a_limit_that_is_given_twice(small: Path, twice: tuple[str, ...]) -> None:
    """A pipeline that added an option at the end made a PASS of a FAIL: the last one won."""
    result = _run(small, *(word for loss in twice for word in ("--loss", loss)))
    assert result.exit_code == 2 and "is given twice" in result.output


def test_bandwidth_is_not_called_throughput(repeated: Path) -> None:
    """That is IOPS everywhere else: `worse by more than 5 % in throughput`."""
    output = _run(repeated, "--loss", "5", "--metric", "bandwidth_bytes_per_s").output
    assert "worse by more than 5 % in bandwidth" in output and "throughput" not in output


def test_part_of_a_figure_s_name(small: Path) -> None:
    result = _run(small, "--loss", "5", "--metric", "p99")
    assert result.output.endswith("name one of clat_ns_p99, clat_ns_p999, clat_ns_p9999\n")


def test_a_figure_s_name_from_memory(small: Path) -> None:
    """All forty were listed."""
    result = _run(small, "--loss", "5", "--metric", "clat_p99")
    assert "; name one of clat_ns_p99, " in result.output
    assert "iops" not in result.output


def test_two_figures_are_not_judged_at_once(small: Path) -> None:
    """The first was left out in silence."""
    result = _run(small, "--loss", "5", "--metric", "iops", "--metric", "clat_ns_p99")
    assert result.exit_code == 2
    assert result.output == "--metric: is given twice; run the gate once for each figure\n"


def test_the_control_is_that_of_the_figure(repeated: Path) -> None:
    """Throughput's stood below answers on latency."""
    output = _run(repeated, "--loss", "5", "--metric", "clat_ns_mean").output
    assert re.search(r"^Control of mean latency: ", output, re.MULTILINE)
    assert "\nControl: " not in output


def test_a_figure_that_no_control_has_is_not_judged(repeated: Path) -> None:
    """It passed, as if the control had agreed: throughput's was no longer asked."""
    report, metric = build(repeated), BY_KEY["clat_ns_mean"]

    def without(cell: ReportCell) -> ReportCell:
        others = {k: c for k, c in cell.comparisons.items() if k != metric.key}
        return replace(cell, comparisons=others) if cell.name == "control" else cell

    tables = tuple(
        replace(table, sections=tuple(
            replace(section, cells=tuple(map(without, section.cells)))
            for section in table.sections
        ))
        for table in report.tables
    )  # fmt: skip
    question = gate.Question(metric, 5.0)
    lacks_it = replace(report, tables=tables, control_states=control_states(tables, "control"))
    judged, not_judged = (gate.findings(each, question) for each in (report, lacks_it))
    assert Answer.CANNOT_TELL not in {one.answer for one in judged}
    assert {one.answer for one in not_judged} == {Answer.CANNOT_TELL}


def test_a_control_that_failed_in_one_workload_says_nothing_of_it(repeated: Path) -> None:
    """Its rows passed by the control of another workload."""
    report, metric = build(repeated), BY_KEY["iops"]
    (table,) = report.tables
    failed, *others = table.sections
    cells = tuple(
        replace(cell, state="failed", comparisons={}) if cell.name == "control" else cell
        for cell in failed.cells
    )
    sections = (replace(failed, cells=cells), *others)
    partly = replace(report, tables=(replace(table, sections=sections),))
    before, after = (gate.findings(one, gate.Question(metric, 5.0)) for one in (report, partly))
    changed = [new for old, new in zip(before, after) if old != new]
    assert changed == [one for one in after if failed.label in one.load] != after
    assert all("; but the control: missing, so nothing says" in one.reason for one in changed)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("osd_cpu_share_rest_percent", "iops, "),
        ("clat_ns_max", "clat_ns_"),
        ("latency", "clat_ns_"),
    ],
)
def test_a_figure_that_cannot_be_lost(small: Path, key: str, near: str) -> None:
    """Of the largest latency nothing tells a difference: more rounds were advised for ever."""
    result = _run(small, "--loss", "5", "--metric", key)
    assert result.exit_code == 2
    assert f"--metric {key}: the gate cannot judge by this; name one of {near}" in result.output


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_file_that_cannot_be_written_is_no_answer(
    small: Path, tmp_path: Path, option: str
) -> None:
    path = tmp_path / "no" / "file"
    result = _run(small, "--loss", "5", option, str(path))
    assert result.exit_code == 2
    sentence = f"{option} {path}: cannot be written (No such file or directory); name another file"
    assert sentence in result.output


@pytest.mark.parametrize("how", ["killed", "refused"])
@pytest.mark.parametrize("command", [("gate", "--loss", "5"), ("report",)])
def test_a_reader_without_memory_is_no_loss(
    repeated: Path, monkeypatch: pytest.MonkeyPatch, how: str, command: tuple[str, ...]
) -> None:
    """A worker that the OOM killer ended was a traceback with 1, which is "too much is lost"."""
    reader = os.getpid()

    def read(*_: Any) -> ReadCell:
        if how == "killed" and os.getpid() != reader:
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError

    monkeypatch.setattr(Kept, "read", read)
    result = CliRunner().invoke(cbt_crypto, [*command, str(repeated)])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert result.output.startswith("memory ran out, or ")


def test_names_of_an_archive_cannot_break_the_xml() -> None:
    hostile = gate.LoadAnswer('<a>&"\x00\x1b[2J', "]]>\ud800", Answer.YES, "\x08 & <b>")
    text = gate.as_junit([hostile], "\x00title")
    case = etree.fromstring(text.encode()).find(".//testcase")
    assert case is not None
    assert case.get("name") == '<a>&"\ufffd\ufffd[2J'


def test_what_limits_the_report_limits_the_gate(tmp_path: Path, synthetic: Any) -> None:
    """A FAIL said nothing of the emulated CPU, the control and the proofs that it rests on."""
    archive = _made(tmp_path, synthetic, {"control": 0.0, "B": 20.0})
    place = archive / "results/environment.json"
    environment = json.loads(place.read_text())
    for about in environment["hosts"].values():
        about["emulated"] = True
    place.write_text(json.dumps(environment))
    files = {"--json": tmp_path / "g.json", "--junit": tmp_path / "g.xml"}
    options = [word for pair in files.items() for word in map(str, pair)]
    lines = _run(archive, "--loss", "5%", *options).output.splitlines()
    said = [
        "Control: agrees within 2 %.",
        "30 of 30 cells proved; 1 OSD host.",
        "Emulated CPU: these figures say nothing about real hardware.",
    ]
    assert lines[-3:] == said
    assert json.loads(files["--json"].read_text())["caveats"] == said
    found = etree.parse(str(files["--junit"])).findall("testsuite/properties/property")
    assert [(one.get("name"), one.get("value")) for one in found] == [("caveat", s) for s in said]
    history = CliRunner().invoke(cbt_crypto, ["history", str(archive)]).output.splitlines()
    assert history[-3:] == said
    points = json.loads(CliRunner().invoke(cbt_crypto, ["history", "--json", str(archive)]).output)
    assert points[0]["caveats"] == said
