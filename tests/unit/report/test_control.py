"""The campaign's own test of itself, and what a report says where nothing carries a verdict."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lxml import html
from rich.console import Console

from cbt_crypto.archive.documents import Baseline, PlanDocument
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.steps import plan
from cbt_crypto.report import ReportOptions, build, gate
from cbt_crypto.report.build import believed
from cbt_crypto.report.charts.chart_values import Bars, BarSeries
from cbt_crypto.report.charts.draw import chart_svg
from cbt_crypto.report.document import document, tidy
from cbt_crypto.report.figures.doubts import control_of
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.headline import differing_figures, fault_of, state_of
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Comparison, ControlState, Report
from cbt_crypto.report.page import page
from cbt_crypto.report.terminal import show
from cbt_crypto.run.resume import write_plan

pytestmark = pytest.mark.unit


def _campaign(synthetic, root, control, **options):
    shape = synthetic.SyntheticScenario("rbd_single_client", 1, 1, (4096,), ("randread",))
    wobble = (1.0, 1.01, 0.995, 1.004, 0.99)
    share = {"control": control, "LUKS": 0.7}

    def load(cell):
        noise = wobble[(cell.iteration + len(cell.configuration)) % 5]
        return synthetic.Load(1000.0 * share.get(cell.configuration, 1.0) * noise, 2.0)

    names = ["Unencrypted", "control", "LUKS"]
    campaign = synthetic.SyntheticCampaign([shape], names, load, seconds=12, **options)
    return synthetic.write_archive(campaign, root)


def _printed(report: Report) -> str:
    out = io.StringIO()
    show(report, Console(file=out, width=120))
    return " ".join(out.getvalue().split())


def test_a_control_that_differs_is_said_at_the_top_of_every_output(synthetic, tmp_path):
    report = build(_campaign(synthetic, tmp_path / "a", 0.9, iterations=5, rounds=True))
    sentence = report.headline[0]
    assert re.match(
        r"Control: DIFFERS by (9|1\d)\.\d % from the baseline that it repeats;", sentence
    )
    of_others = next(said for said in report.limits if said.startswith("The control differs in "))
    assert of_others.endswith(": trust no difference in these figures.")
    assert {"iops", "osd_cpu_us_per_io"} <= set(differing_figures(report))
    printed, text, html = _printed(report), markdown(report), page(report)
    for said in (sentence, of_others):
        assert printed.index(said) < printed.index("percent 95 % interval")
        assert text.index(said.split(" (")[0]) < text.index("| IO size")
        assert html.index(said) < html.index("Summary</h2>")
    states = json.loads(json.dumps(document(report)))["control_states"]
    assert states["iops"]["state"] == "differs" and 8 < states["iops"]["loss_percent"] < 12
    rows = list(csv.DictReader(io.StringIO(tidy(report))))
    doubted = {row["figure"] for row in rows if row["control"] == "differs"}
    assert doubted - {"bandwidth_bytes_per_s"} == {*differing_figures(report)}


def test_the_plan_that_a_campaign_writes_has_a_control(
    campaign_of: Callable[..., Campaign], tmp_path: Path
) -> None:
    """Of real archives none was found: plan.json has the file's configurations, and no control."""
    rounds = {"iterations": 4, "order": "rounds", "control": True}
    configurations = {"Unencrypted": {}, "LUKS": {"luks": {}}}
    campaign = campaign_of(cluster={**rounds, "configurations": configurations})
    (tmp_path / "results").mkdir()
    write_plan(tmp_path, plan(campaign))
    text = (tmp_path / "results" / "plan.json").read_text()
    written = PlanDocument.model_validate_json(text)
    assert written.baseline is not None
    assert control_of(written, written.baseline) == "control"
    other = Baseline(value="LUKS")
    assert control_of(written, other) is None, "it repeats another row"
    own = {**configurations, "control": {"luks": {}}}
    named = written.model_copy(update={"configurations": own})
    assert control_of(named, written.baseline) is None, "the file's own of that name"


@pytest.mark.parametrize(
    ("compared", "benchmarks"),
    [
        ({"replication": [1, 2], "baseline": {"replication": 1}}, {}),
        (
            {
                "drives": {
                    "A": {"host": "c0", "device": "/dev/a"}, "B": {"host": "c0", "device": "/dev/b"}
                },
                "baseline": {"drive": "A"},
            },
            {"fdatasync": {"size": 1}, "rbd_single_client": ...},
        ),
    ],
)  # fmt: skip
def test_drives_and_replicas_have_a_control_too(
    campaign_of: Callable[..., Campaign],
    tmp_path: Path,
    compared: dict[str, Any],
    benchmarks: dict[str, Any],
) -> None:
    rounds = {"iterations": 4, "order": "rounds", "control": True}
    (tmp_path / "results").mkdir()
    write_plan(tmp_path, plan(campaign_of(cluster={**rounds, **compared}, benchmarks=benchmarks)))
    text = (tmp_path / "results" / "plan.json").read_text()
    written = PlanDocument.model_validate_json(text)
    assert written.baseline is not None
    assert control_of(written, written.baseline) == "control"
    assert control_of(written, Baseline(value="Default")) is None


def test_a_control_that_is_the_baseline_says_nothing(synthetic, tmp_path):
    report = build(_campaign(synthetic, tmp_path / "a", 1.0, iterations=5, rounds=True))
    assert differing_figures(report) == []
    (section,) = report.tables[0].sections
    by_name = {cell.name: cell.comparisons["iops"] for cell in section.cells}
    assert by_name["control"].differs is False and by_name["LUKS"].differs is True
    assert "all 2 comparisons of throughput" in _printed(report)
    assert [(pair.name, pair.other) for pair in section.pairs] == [("control", "LUKS")]
    assert r"\*" in markdown(report).partition("## Rows compared with one another")[2]


def test_a_cell_that_failed_before_its_proof_is_one_that_is_not_proved(
    synthetic: Any, tmp_path: Path
) -> None:
    """Four of twelve had no proof.json, and `8 of 8 cells proved` stood in the gate as well."""
    archive = _campaign(synthetic, tmp_path / "a", 1.0, iterations=4, rounds=True)
    for cell in archive.glob("results/*/*/cell.json"):
        state = json.loads(cell.read_text())
        if state["configuration"] == "LUKS":
            cell.write_text(json.dumps({**state, "state": "failed", "reason": "no answer"}))
            (cell.parent / "proof.json").unlink()
    words = ["gate", "--loss", "5%", str(archive)]
    for said in (build(archive).headline[-1], CliRunner().invoke(cbt_crypto, words).output):
        assert "8 of 12 cells proved; 1 OSD host." in said
    for cell in archive.glob("results/*/*/cell.json"):
        if json.loads(cell.read_text())["configuration"] == "LUKS":
            cell.unlink()
    assert "8 of 8 cells proved, 4 not measured" in build(archive).headline[-1]


def test_the_control_s_proofs_are_among_those_of_configurations(
    synthetic: Any, tmp_path: Path
) -> None:
    """ "16 of 16 cells proved" led to twelve: those of the control were nowhere."""
    archive = _campaign(synthetic, tmp_path / "a", 1.0, iterations=4, rounds=True)
    plan_file = archive / "results" / "plan.json"
    document = json.loads(plan_file.read_text())
    document["configurations"].pop("control", None)
    plan_file.write_text(json.dumps(document))
    text = page(build(archive)).partition('<section id="configurations">')[2]
    names = re.findall(r"<summary>(\S+) ", text.partition("</section>")[0])
    assert names == ["Unencrypted", "LUKS", "control"]


def test_where_nothing_repeats_nothing_is_a_verdict(synthetic, tmp_path):
    report = build(_campaign(synthetic, tmp_path / "a", 0.5))
    assert report.conclusions == () and report.verdicts == 0
    printed, text = _printed(report), markdown(report)
    assert "No verdict: each configuration was deployed once" in printed
    assert "of this deployment (within run" in text and "**5" not in text
    for word in ("High", "Moderate", "Gain", "95 % interval:"):
        assert word not in printed.replace("95 % interval IOPS", "")


def test_the_spread_of_deployments_may_come_from_another_archive(synthetic, tmp_path):
    once = _campaign(synthetic, tmp_path / "once", 1.0)
    rounds = _campaign(synthetic, tmp_path / "rounds", 1.0, iterations=5, rounds=True)
    report = build(once, ReportOptions(spread_from=rounds))
    (section,) = report.tables[0].sections
    luks = next(cell.comparisons["iops"] for cell in section.cells if cell.name == "LUKS")
    # an interval, and no verdict: one run that met a stall is off by more than any variance says
    assert luks.level == "elsewhere" and luks.differs is None
    assert str(rounds) in str(luks.basis)
    assert luks.low < 70 < luks.high


def test_a_spread_that_does_not_fit_is_refused(synthetic, tmp_path):
    """It was ignored, and the report had ranges within runs as if it had not been asked for."""
    once = _campaign(synthetic, tmp_path / "once", 1.0)
    rounds = _campaign(synthetic, tmp_path / "rounds", 1.0, iterations=5, rounds=True)
    other = _campaign(synthetic, tmp_path / "other", 1.0, iterations=5, rounds=True)
    for place in (other / "results/plan.json", *other.glob("results/*/*/cell.json")):
        place.write_text(place.read_text().replace("4096", "8192"))
    for archive, spread, why in (
        (once, once, "none of its configurations was deployed three times or more"),
        (once, other, "it measured none of the workloads that are reported"),
        (rounds, rounds, "each configuration was deployed several times"),
    ):
        words = ["report", str(archive), "--spread-from", str(spread), "-o", str(tmp_path / "o")]
        result = CliRunner().invoke(cbt_crypto, words)
        assert result.exit_code == 2
        assert f"--spread-from {spread}: {why}" in " ".join(result.output.split())


def test_the_page_leads_from_a_row_to_its_proof_and_from_the_control_to_what_it_is(repeated):
    """The control's name led nowhere, and nothing on the page said what it repeats."""
    made = html.fromstring(page(build(repeated)))
    links = {a.text: a.get("href") for a in made.xpath("//th[contains(@class, 'name')]/a")}
    assert {"LUKS", "control"} <= set(links)
    for name, link in links.items():
        (place,) = made.xpath(f"//*[@id='{link[1:]}']")
        said = place.xpath("string(summary)")
        assert said.startswith(name)
        assert ("the baseline again" in said) == (name == "control")


def test_every_output_begins_with_the_answer(synthetic, tmp_path):
    report = build(_campaign(synthetic, tmp_path / "a", 1.0, iterations=5, rounds=True))
    first, *others = report.headline
    assert first.startswith("LUKS costs 30 % (")
    assert first.endswith(") of 4 KiB random reads.")
    (agrees,) = [one for one in others if one.startswith("Control: ")]
    assert re.fullmatch(r"Control: agrees within \d+ %\.", agrees)
    assert _printed(report).index(first) < _printed(report).index("percent 95 % interval")
    assert markdown(report).index("LUKS costs 30 %") < markdown(report).index("## rbd")
    assert json.loads(json.dumps(document(report)))["headline"][0] == first
    assert page(report).index("LUKS costs 30 %") < page(report).index("Summary</h2>")
    rows = list(csv.DictReader(io.StringIO(tidy(report))))
    starred = {row["configuration"] for row in rows if row["significant"] == "*"}
    assert starred == {"LUKS"}


@pytest.mark.parametrize(("spread", "agrees"), [(0.012, True), (0.05, False), (1.0, False)])
def test_a_control_agrees_only_where_a_small_loss_would_show(
    synthetic: Any, tmp_path: Path, spread: float, agrees: bool
) -> None:
    """On a busy machine, a quickstart said `agrees within 151 %`; later, 22 % was a pass still."""
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd", op_sizes=(4096,), modes=("randread",))],
        configurations=["Plain", "LUKS", "control"], rounds=True, iterations=4, seconds=6,
        load=lambda cell: synthetic.Load(
            500.0 * (1 + spread * ((cell.iteration * 7 + 3 * len(cell.configuration)) % 5)), 2.0
        ),
    )  # fmt: skip
    report = build(synthetic.write_archive(campaign, tmp_path / "a"))
    (said,) = [one for one in report.headline if one.startswith("Control: ")]
    # What makes the percentages void is read before them.
    assert (report.headline[0] == said) == (spread == 1.0)
    if spread == 1.0:
        # Losses, as the sentences below it have: with `--loss`, no percentage is of the baseline.
        noisy = r"losses of up to (\d+) %, and gains of up to (\d+) %, may be chance; measure"
        found = re.match(rf"Control: too noisy: {noisy} more", said)
        assert found, said
        lost, gained = map(float, found.groups())
        control = next(cell for cell in report.cells if cell.name == "control").comparisons["iops"]
        assert control.low is not None and control.high is not None
        # A loss beyond what the same configuration has by chance stands beside this sentence.
        assert 100 + gained == pytest.approx(max(control.high, 1e4 / control.low), rel=0.05)
        assert 100 - lost == pytest.approx(1e4 / (100 + gained), rel=0.05)
        return
    found = re.fullmatch(
        r"Control: (?:agrees within (\d+) %\.|no difference found, but one of up to (\d+) % would "
        r"not show: do not rely on smaller ones\. Measure more rounds, or longer\.)",
        said,
    )
    assert found, said
    assert bool(found[1]) is agrees
    assert (int(found[1] or found[2]) <= 10) is agrees


@pytest.mark.parametrize(("low", "high"), [(77.9, 121.6), (83.0, 127.4)])
def test_a_control_of_iops_is_judged_as_that_of_latencies(low: float, high: float) -> None:
    """At one iodepth they are one figure: IOPS were too noisy, and latencies let the gate pass."""
    for ends in ((low, high), (1e4 / high, 1e4 / low)):
        assert state_of([Comparison(100.0, *ends, differs=False)]).state == "too noisy"


def test_the_last_losses_are_counted_in_words(synthetic, tmp_path):
    """It said `15 more differences are shown: 15 cost`."""
    share = {"A": 1.0, "B": 1.1, "C": 0.8, "D": 0.7, "E": 0.6, "F": 0.5}
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd", op_sizes=(4096,), modes=("randread",))],
        configurations=list(share), rounds=True, iterations=4, seconds=6,
        load=lambda cell: synthetic.Load(
            5000.0 * share[cell.configuration] * (1 + 0.001 * (cell.iteration * 7 % 3)), 2.0
        ),
    )  # fmt: skip
    report = build(synthetic.write_archive(campaign, tmp_path / "a"))
    assert "Also significant: 1 loss and 1 gain in other rows." in report.headline


def test_a_choice_of_rows_changes_no_verdict(synthetic, tmp_path):
    """--only dropped the control, and with it the other comparisons: a gate went from 3 to 1."""
    archive = _campaign(synthetic, tmp_path / "a", 0.9, iterations=5, rounds=True)
    whole, chosen = build(archive), build(archive, ReportOptions(only=("LUKS",)))
    assert chosen.control_states == whole.control_states
    assert "iops" in differing_figures(whole)
    assert {cell.name for cell in chosen.cells} == {"Unencrypted", "LUKS"}
    by_name = {cell.name: cell.comparisons for cell in whole.cells}
    assert chosen.cells[-1].comparisons == by_name["LUKS"]
    assert chosen.verdicts == whole.verdicts
    answers = [
        gate.findings(whole, gate.Question(BY_KEY["iops"], 5.0), only) for only in ((), ("LUKS",))
    ]
    assert answers[0] == answers[1] and answers[0][0].answer is gate.Answer.CANNOT_TELL


def test_rounds_that_are_identical_are_drawn():
    """Ends of an interval that were the value, but for its rounding, ended in a traceback."""
    bars = BarSeries("A", (100.0,), (100.00000000000001,), (99.99999999999999,))
    assert "<svg" in chart_svg(Bars("key", "title", "unit", ("group",), (bars,)), {}, ("heading",))


def test_a_control_that_is_far_off_is_said_without_a_verdict_too(synthetic, tmp_path):
    far = build(_campaign(synthetic, tmp_path / "far", 0.6, iterations=1))
    near = build(_campaign(synthetic, tmp_path / "near", 1.0, iterations=1))
    above = build(_campaign(synthetic, tmp_path / "above", 1.4, iterations=1))
    (one,) = [one for one in above.headline if one.startswith("Control: ")]
    assert "the baseline, measured again, came out at 1" in one
    said = [[one for one in r.headline if one.startswith("Control: ")] for r in (far, near)]
    assert len(said[0]) == 1 and "the baseline, measured again, came out at 59 %" in said[0][0]
    assert said[1] == []


@pytest.mark.parametrize("loss", [False, True])
def test_a_loss_has_one_sign_in_all_of_a_report(synthetic, tmp_path, loss):
    """With --loss the table had losses, the summary changes, and bars what is left."""
    archive = _campaign(synthetic, tmp_path / "a", 1.0, iterations=5, rounds=True)
    report = build(archive, ReportOptions(loss=loss))
    luks = next(cell for cell in report.cells if cell.name == "LUKS").comparisons["iops"]
    lost = 100 - luks.percent
    shown = lost if loss else luks.percent
    text, html = markdown(report), page(report)
    out = io.StringIO()
    show(report, Console(file=out, width=140))
    line = next(line for line in out.getvalue().splitlines() if line.startswith("  LUKS"))
    assert f"{shown:.2f}" in line and f"{shown:.2f} %" in html
    assert f"width:{shown:.1f}%" in html
    assert line.count("█") == int(shown / 10)
    said = f"{lost:.1f} % lost" if loss else f"{-lost:+.1f} %"
    assert f"({said})" in text and said in out.getvalue() and said in html
    assert f"LUKS costs {lost:.0f}" in report.headline[0], "a cost is one in both"


def test_the_control_tests_the_campaign_whatever_is_the_baseline(
    synthetic: Any, tmp_path: Path
) -> None:
    """With `--baseline LUKS`, a campaign whose control differs was trusted, and a good one not."""
    other = ReportOptions(baseline="LUKS")
    bad = build(_campaign(synthetic, tmp_path / "bad", 0.75, iterations=6, rounds=True), other)
    assert "iops" in differing_figures(bad)
    assert any(sentence.startswith("Control: DIFFERS") for sentence in bad.headline)
    good = build(_campaign(synthetic, tmp_path / "good", 1.0, iterations=6, rounds=True), other)
    assert good.control_states["iops"].state == "agrees"
    assert any(sentence.startswith("Control: agrees within") for sentence in good.headline)


def test_the_control_is_said_where_only_other_rows_are_shown(
    synthetic: Any, tmp_path: Path
) -> None:
    """With `--only LUKS`, nothing said that the control is too noisy; nor did history."""
    archive = _campaign(synthetic, tmp_path / "a", 1.0, iterations=6, rounds=True)
    shown = build(archive, ReportOptions(only=("LUKS",)))
    assert not any(cell.name == "control" for cell in shown.cells)
    assert [s for s in shown.headline if s.startswith("Control:")] == [
        s for s in build(archive).headline if s.startswith("Control:")
    ]


def test_a_control_that_was_never_measured_is_missed(synthetic: Any, tmp_path: Path) -> None:
    """`run --only` left it out to save a night, and the gate said PASS without a word of it."""
    archive = _campaign(synthetic, tmp_path / "a", 1.0, iterations=6, rounds=True)
    for cell in list(archive.glob("results/*/*/cell.json")):
        if json.loads(cell.read_text())["configuration"] == "control":
            shutil.rmtree(cell.parent)
    said = "missing, so nothing says which differences are chance"
    assert f"Control: {said}; run the campaign again." in build(archive).headline
    result = CliRunner().invoke(cbt_crypto, ["gate", str(archive), "--loss", "50"])
    assert result.exit_code == 3 and f"the control: {said}" in " ".join(result.output.split())


@pytest.mark.parametrize(("percent", "state"), [(62.0, "no verdict"), (99.0, "agrees")])
def test_a_control_without_a_verdict_is_not_left_out(percent: float, state: str) -> None:
    """One cell of it had failed, and the rest was far off: the gate passed beside it."""
    quiet = Comparison(100.0, 98.0, 102.0, "rounds", "rounds", 0.9, False)
    found = state_of([quiet, Comparison(percent)])
    assert found.state == state
    assert bool(fault_of(found)) == (state == "no verdict")
    # "agrees within 2 %" stood beside one at 104.9 %.
    assert 4.8 < state_of([quiet, Comparison(104.9)]).loss_percent < 5
    assert state_of([Comparison(percent)]).state == "no verdict"


def test_a_figure_s_own_control_takes_its_stars(synthetic: Any, tmp_path: Path) -> None:
    """report.csv had one for a latency of which the gate said that its control is too noisy."""
    report = build(_campaign(synthetic, tmp_path / "a", 1.0, iterations=5, rounds=True))
    key, noisy = "clat_ns_mean", ControlState("too noisy", 90.0, 900.0)
    (section,) = report.tables[0].sections
    assert section.row("LUKS").comparisons[key].differs
    states = {key: noisy}
    row = believed(section, lambda one: states.get(one, ControlState())).row("LUKS")
    assert not row.comparisons[key].differs and row.comparisons["iops"].differs


def test_a_control_that_was_measured_again_keeps_no_silence(synthetic, tmp_path):
    """It had differed; `--again control` took its verdict, its line, and the gate's doubt."""
    archive = _campaign(synthetic, tmp_path / "a", 0.98, iterations=5, rounds=True)
    assert any(one.startswith("Control: DIFFERS") for one in build(archive).headline)
    for place in archive.glob("results/*/*/cell.json"):
        cell = json.loads(place.read_text())
        if cell["configuration"] == "control":
            place.write_text(json.dumps({**cell, "started": cell["started"] + 9e6}))
    said = next(one for one in build(archive).headline if one.startswith("Control: "))
    assert said.startswith("Control: without a verdict: the baseline, measured again, came out at ")
    result = CliRunner().invoke(cbt_crypto, ["gate", str(archive), "--loss", "60"])
    assert result.exit_code == 3, result.output


def test_the_control_is_no_second_baseline(synthetic, tmp_path):
    """What was unclear beside the baseline had a `*` beside the control, which is the same."""
    archive = _campaign(synthetic, tmp_path / "a", 1.0, iterations=5, rounds=True)
    for command in (["report"], ["gate", "--loss", "5"]):
        words = [*command, "--baseline", "control", str(archive)]
        result = CliRunner().invoke(cbt_crypto, words)
        assert result.exit_code == 2, result.output
        assert "--baseline control: is Unencrypted again, to test it" in " ".join(
            result.output.split()
        )
