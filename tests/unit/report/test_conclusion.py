"""The word for an effect, what stands beside it, and that every output says the same."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from cbt_crypto.report import text_of
from cbt_crypto.report.build import build
from cbt_crypto.report.document import document
from cbt_crypto.report.figures.conclusion import change, conclude, effect
from cbt_crypto.report.headline import headline
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Comparison, Conclusion
from cbt_crypto.report.page import page
from cbt_crypto.report.terminal import show

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("percent", "low", "high", "differs", "name", "beside"),
    [
        (99.8, 98.9, 101.6, False, "Unclear", "-1.1 to +1.6 %"),
        (93.0, 90.5, 100.2, False, "Unclear", "-9.5 to +0.2 %"),
        (104.0, 95.0, 114.0, False, "Unclear", "-5.0 to +14.0 %"),
        (99.5, 99.3, 99.7, True, "None", "-0.5 %"),
        (97.0, 96.0, 98.5, True, "Low", "-3.0 %"),
        (99.8, 99.1, 100.9, False, "None", "-0.9 to +0.9 %"),
        (90.5, 89.0, 92.0, True, "Low to Moderate", "-9.5 %"),
        (85.0, 81.0, 89.0, True, "Moderate", "-15.0 %"),
        (79.0, 70.0, 88.0, True, "Moderate to High", "-21.0 %"),
        (75.5, 64.4, 83.1, True, "Moderate to High", "-24.5 %"),
        (70.0, 65.0, 79.9, True, "High", "-30.0 %"),
        (85.0, 65.0, 96.0, True, "Low to High", "-15.0 %"),
        (85.0, 65.0, 96.0, False, "Unclear", "-35.0 to -4.0 %"),
        (105.0, 103.0, 107.0, True, "Gain", "+5.0 %"),
    ],
)
def test_the_effect_in_a_word_and_the_change(percent, low, high, differs, name, beside):
    iops = Comparison(percent, low, high, "", "rounds", 0.01, differs)
    assert effect(iops) == name
    one = Conclusion("small reads", "LUKS", name, iops, None)
    assert change(one) == beside
    ends = f"{100 - high:.1f} to {100 - low:.1f}"
    assert change(one, loss=True) == f"{ends if not differs else f'{100 - percent:.1f}'} % lost"


@pytest.mark.parametrize("percent", [50.0, 99.9, 130.0])
def test_what_was_deployed_once_has_no_word(percent):
    assert effect(Comparison(percent)) == ""
    assert effect(Comparison(percent, percent - 0.1, percent + 0.1, "", "run")) == ""


def test_loads_of_one_kind_have_a_row_each(tmp_path, synthetic):
    shape = synthetic.SyntheticScenario("rbd", 1, 1, (1024, 2048), ("randread",))
    iops = {("A", 1024): 1000.0, ("A", 2048): 1000.0, ("B", 1024): 700.0, ("B", 2048): 850.0}
    campaign = synthetic.SyntheticCampaign(
        [shape], ["A", "B"], lambda c: synthetic.Load(iops[c.configuration, c.op_size], 1.0),
        iterations=5, rounds=True,
    )  # fmt: skip
    report = build(synthetic.write_archive(campaign, tmp_path / "archive"))
    found = {one.load: one.effect for one in conclude(report.tables)}
    assert found == {
        "single client, small random reads (rbd, 1 KiB)": "High",
        "single client, small random reads (rbd, 2 KiB)": "Moderate",
    }


def test_every_output_says_the_same(repeated):
    report = build(repeated)
    assert report.conclusions
    out = io.StringIO()
    show(report, Console(file=out, width=200))
    printed, text = " ".join(out.getvalue().split()), markdown(report)
    html = " ".join(re.sub("<[^>]*>", " ", page(report).split('id="as-markdown"')[0]).split())
    for one, plain in zip(report.conclusions, document(report)["conclusions"]):
        assert f"{one.effect} ({change(one)})" in printed
        assert f"{one.effect} ({change(one)})" in text
        assert f"{one.effect} {change(one)}" in html
        # It was "CPU per IO x 1.23", without what chance does to it.
        assert one.cpu_per_io is not None and one.cpu_per_io.low is not None
        assert f"CPU per IO {text_of.in_percent(one.cpu_per_io)} %" in html
        assert plain["cpu_per_io"]["percent"] == plain["cpu_per_io_percent"]
        assert (plain["effect"], plain["iops"]["percent"]) == (one.effect, one.iops.percent)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (95.5, 226.0, "Unclear, measure more rounds for {}: 4.5 % lost to 126.0 % gained."),
        (
            80.0,
            99.0,
            "Unclear, measure more rounds for {}: perhaps 1.0 to 20.0 % lost, perhaps chance.",
        ),
        (
            101.0,
            130.0,
            "Unclear, measure more rounds for {}: perhaps 1.0 to 30.0 % gained, perhaps chance.",
        ),
        (95.5, 104.0, "No cost found for {}: less than 4.5 %."),
    ],
)
def test_no_cost_is_found_where_neither_much_is_lost_nor_gained(repeated, low, high, said):
    """A row at 147 % (95.5 to 226) was `No cost found: less than 4.5 %`."""
    report = build(repeated)
    iops = Comparison(math.sqrt(low * high), low, high, "", "rounds", 0.2, False)

    def of_section(section):
        cells = (
            replace(cell, comparisons={"iops": iops}) if cell.name == "LUKS" else cell
            for cell in section.cells
        )
        return replace(section, cells=tuple(cells))

    (table,) = report.tables
    changed = replace(table, sections=(of_section(table.sections[0]),))
    sentences = headline(replace(report, tables=(changed,)), {})
    assert sentences[0] == said.format(f"LUKS, 4 KiB {changed.sections[0].label}")


def test_what_is_sure_of_the_processors_is_among_the_first_sentences(repeated):
    """A quickstart said "unclear" of LUKS, and its workers' time stood far below."""
    report = build(repeated)
    iops = Comparison(60.0, 40.0, 90.0, "", "rounds", 0.03, False)
    took = "CPU of kcryptd per IO +57,451 µs (+46,988 to +67,914)."

    def sentences(control_moves):
        def cell_of(cell):
            if cell.name == "LUKS":
                return replace(cell, comparisons={"iops": iops}, why=(took,))
            return replace(cell, why=(took,) if control_moves else ())

        (table,) = report.tables
        sections = tuple(replace(s, cells=tuple(map(cell_of, s.cells))) for s in table.sections)
        return headline(replace(report, tables=(replace(table, sections=sections),)), {})

    sure = "A part of its CPU time is sure (LUKS, 4 KiB "
    assert any(one.startswith(sure) and one.endswith(took) for one in sentences(False))
    assert not any(sure in one for one in sentences(True))
