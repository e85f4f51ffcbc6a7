"""What stands in tables of a campaign that was interrupted, and in those of `--only`."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cbt_crypto.report import build, publish, show, write
from cbt_crypto.report.charts import chart_values
from cbt_crypto.report.document import document, reopened
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Comparison, Report, ReportCell, without_missing
from cbt_crypto.report.page import page
from cbt_crypto.report.so_far import so_far
from cbt_crypto.report.text_of import verdicts

pytestmark = pytest.mark.unit


def cells(archive: Path) -> list[dict]:
    return json.loads((archive / "results/plan.json").read_text())["cells"]


def printed(archive: Path) -> str:
    output = io.StringIO()
    show(build(archive), Console(file=output, width=120))
    return output.getvalue()


def test_the_page_and_the_files_show_charts_that_are_made_once(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, made = build(small), []
    curve = chart_values.latency_curve
    monkeypatch.setattr(
        chart_values, "latency_curve", lambda cell: made.append(cell) or curve(cell)
    )
    write(report, tmp_path)
    assert len(made) == len(without_missing(report).cells)


def test_every_output_says_what_a_configuration_is(small: Path, tmp_path: Path) -> None:
    """Only the page did, a click away, which paper does not have."""
    report = build(small)
    made = replace(report, configurations={"plain": {}, "B": {"luks": {"sector_size": 512}}})
    terminal = io.StringIO()
    show(made, Console(file=terminal, width=120))
    for text, mark in ((terminal.getvalue(), ""), (markdown(made), "\\")):
        assert f"luks: {mark}{{sector{mark}_size: 512{mark}}}" in text and "none" in text
    # Details are not printed, nor is the section of proofs, where the table was.
    summary = page(made).partition('id="summary"')[2].partition("</section>")[0]
    assert "luks: {sector_size: 512}" in summary.partition("<details")[0]
    assert "What each" not in markdown(replace(report, configurations={"plain": {}}))


def test_a_whole_report_is_shown_as_it_is(small: Path) -> None:
    report = build(small)
    assert without_missing(report) is report
    text = printed(small)
    assert "have not been run" not in text
    assert "Nothing is compared" not in text


def test_the_answer_is_said_again_where_it_was_scrolled_away(small: Path) -> None:
    built = build(small)
    answer = built.headline[0]

    def on_terminal(height: int) -> str:
        out = io.StringIO()
        show(built, Console(file=out, width=300, height=height, force_terminal=True))
        return out.getvalue()

    short = on_terminal(5)
    assert short.count(answer) == 2 and "in short" in short
    assert short.rindex(answer) > short.index("percent")
    assert on_terminal(500).count(answer) == 1
    assert " ".join(printed(small).split()).count(answer) == 1, "what reads a pipe has all of it"


def test_one_sentence_counts_what_was_not_run(small: Path, tmp_path: Path) -> None:
    for cell in cells(small)[1:]:
        shutil.rmtree(small / cell["path"])
    text = printed(small)
    assert "missing" not in text
    assert "random writes" not in text, "a section of which nothing was run"
    assert "3 of 4 rows have not been run; run the campaign again with" in text
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
    assert "4 of 4 rows have not been run" in text
    assert "Nothing is compared: no workload has figures of its baseline and of another" in text
    assert "was deployed once" not in text
    assert write(build(small), tmp_path / "out")


def test_all_but_the_baseline_was_run(small: Path) -> None:
    """`nothing but the baseline has been measured` stood there, too."""
    for cell in cells(small):
        if cell["configuration"] == "Unencrypted":
            shutil.rmtree(small / cell["path"])
    (said, *_) = build(small).headline
    assert (
        said == "Nothing is compared: no workload has figures of its baseline and of another row."
    )


def test_a_stopped_campaign_that_has_rounds_is_not_told_to_ask_for_them(repeated: Path) -> None:
    for cell in cells(repeated):
        if cell["iteration"]:
            shutil.rmtree(repeated / cell["path"])
    text = printed(repeated)
    assert "No verdict yet: some runs of these rows are not measured." in text
    assert "iterations: 4" not in text
    assert "3 of 4 cells still to be measured" in text and "no figures" not in text
    plain = json.dumps(document(build(repeated)))
    assert "No verdict yet" in markdown(reopened(plain.encode())), "from a summary too"


def test_a_row_of_one_round_is_compared_in_that_round(tmp_path: Path, synthetic: Any) -> None:
    """A stopped quickstart: the baseline had 4.7 and then 2.2 IOPS, LUKS 3.4: 98 % for 71 %."""
    fall = {0: 1000.0, 1: 500.0}
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd_multi_client", 1, 1, (4096,))],
        configurations=["Unencrypted", "LUKS"], iterations=2, rounds=True, seconds=12,
        load=lambda cell: synthetic.Load(
            (0.7 if cell.configuration == "LUKS" else 1.0) * fall[cell.iteration], 2.0
        ),
    )  # fmt: skip
    archive = Path(synthetic.write_archive(campaign, tmp_path / "archive"))
    for cell in cells(archive):
        if cell["configuration"] == "LUKS" and cell["iteration"] == 1:
            shutil.rmtree(archive / cell["path"])
    for section in build(archive).tables[0].sections:
        (luks,) = (cell for cell in section.cells if cell.name == "LUKS")
        assert luks.comparisons["iops"].percent == pytest.approx(70, abs=0.5)


def test_two_rounds_are_not_one(repeated: Path) -> None:
    two = [cell for cell in cells(repeated) if cell["iteration"] < 2]
    plan = repeated / "results/plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "cells": two}))
    text = printed(repeated)
    assert "No verdict: each configuration was deployed two or three times" in text
    assert "deployed once" not in text


def _why_none(archive: Path) -> str:
    """The sentence for a report without a verdict, which its summary has as well."""
    built = build(archive)
    (said,) = [one for one in built.headline if one.startswith("No verdict")]
    assert said in markdown(reopened(json.dumps(document(built)).encode()))
    return said


def test_a_baseline_of_which_one_cell_failed_is_no_single_deployment(repeated: Path) -> None:
    """After four rounds it said `each configuration was deployed once`, and to ask for four."""
    for cell in cells(repeated):
        if (cell["configuration"], cell["iteration"]) == ("Unencrypted", 1):
            place = repeated / cell["path"] / "cell.json"
            state = json.loads(place.read_text())
            place.write_text(json.dumps({**state, "state": "failed", "reason": "no answer"}))
    said = _why_none(repeated)
    assert said.startswith("No verdict: cells failed or did no IO. Run the campaign again")


def test_a_row_that_was_added_later_was_deployed_often_enough(repeated: Path) -> None:
    """Of four deployments on another day it said `deployed two or three times`, for ever."""
    plan = repeated / "results/plan.json"
    kept = [cell for cell in cells(repeated) if cell["configuration"] != "control"]
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "cells": kept}))
    for cell in kept:
        place = repeated / cell["path"] / "cell.json"
        state = json.loads(place.read_text())
        later = 1e6 if cell["configuration"] == "LUKS" else 0.0
        place.write_text(json.dumps({**state, "started": state["started"] + later}))
    said = _why_none(repeated)
    assert said.startswith("No verdict: the rows were not measured in the same rounds")
    assert "two or three" not in said


@pytest.mark.parametrize(
    ("bases", "said"),
    [
        (["6 deployments of each, in different campaigns; no verdict"], "not measured in the same"),
        (["4 deployments side by side, 4 pairs of turns in all, one pair on each; no verdict"],
         "turns: 2 or more"),
        (["within these runs, of one deployment; no verdict"], "6 pairs of turns"),
        (["within this run, of one deployment; no verdict"], "deployed once"),
        (["2 deployments of each, in rounds"], "two or three times"),
        (["2 deployments of each, in rounds; 3 % was asked for and not reached",
          "6 deployments of each, in different campaigns; no verdict"], "two or three times"),
        (["1 of 8 cells of both rows failed or did no IO; no verdict"], "cells failed or did no"),
    ],
)  # fmt: skip
def test_why_there_is_no_verdict(small: Path, bases: list[str], said: str) -> None:
    """Level and basis are what a report, or its summary, says of a comparison."""
    report = build(small)
    rows = iter([cell for cell in report.cells if cell.name == "LUKS"])
    for basis in bases:
        level = "rounds" if "deployments" in basis else "run"
        report = _with_basis(report, next(rows), Comparison(50.0, 40, 60, basis, level))
    assert said in verdicts(report)


def _with_basis(report: Report, row: ReportCell, compared: Comparison) -> Report:
    other = replace(row, comparisons={"iops": compared})
    tables = tuple(
        replace(table, sections=tuple(
            replace(section, cells=tuple(other if cell is row else cell for cell in section.cells))
            for section in table.sections
        ))
        for table in report.tables
    )  # fmt: skip
    return replace(report, tables=tables)


def test_only_limits_what_is_printed_and_not_the_files(small: Path) -> None:
    output = io.StringIO()
    publish(small, Console(file=output, width=120), ["randread"])
    assert "random writes" not in output.getvalue()
    assert "random reads" in output.getvalue()
    assert "random writes" in (small / "report.md").read_text()


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_is_as_wide_as_everything_is_said_in_words(
    tmp_path: Path, synthetic: Any, rounds: int
) -> None:
    """Two rounds far apart, or one that stood still for half its time, were "±866669"."""
    shape = synthetic.SyntheticScenario("rbd_multi_client", 1, 1, (4096,), ("randread",))
    share = {("B", 0): 1.0, ("B", 1): 0.1}
    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape], configurations=["A", "B"], rounds=True, iterations=rounds, seconds=12,
        load=lambda cell: synthetic.Load(
            1000.0 * share.get((cell.configuration, cell.iteration), 1.0), 2.0,
            400.0 if rounds == 1 else 2.0,
        ),
    )  # fmt: skip
    built = build(synthetic.write_archive(campaign, tmp_path / "archive"))
    row = next(cell for cell in built.cells if cell.name == "B")
    wide = replace(row.comparisons["iops"], low=0.01, high=86666.9)
    assert rounds == 1 or row.comparisons["iops"].says_nothing
    if rounds == 1:
        built = _with(built, row, wide)
    output = io.StringIO()
    show(built, Console(file=output, width=120))
    outputs = [output.getvalue(), markdown(built), page(built), "\n".join(so_far(built, 9))]
    for text in outputs:
        assert "too noisy to say" in text
        assert not re.search(r"±[0-9]{4}|0\.0 to [0-9]{4}", text)


def _with(report: Report, row: ReportCell, compared: Comparison) -> Report:
    """The report with another comparison of throughput in one row."""
    other = replace(row, comparisons={**row.comparisons, "iops": compared})
    (table,) = report.tables
    (section,) = table.sections
    cells = tuple(other if cell is row else cell for cell in section.cells)
    return replace(report, tables=(replace(table, sections=(replace(section, cells=cells),)),))


def test_what_limits_a_report_counts_the_rows_that_were_run(small: Path) -> None:
    """`Limited by ... in 8 of 40 rows` stood above a table of 8 rows."""
    first, *others = cells(small)
    for cell in others:
        shutil.rmtree(small / cell["path"])
    proof = small / first["path"] / "proof.json"
    document_of_proof = json.loads(proof.read_text())
    proof.write_text(json.dumps({**document_of_proof, "proved": False, "reason": "x"}))
    assert any(sentence.startswith("1 of 1 rows failed") for sentence in build(small).limits)
