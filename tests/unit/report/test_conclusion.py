"""The word for an effect, what stands beside it, and that every output says the same."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from cbt_crypto.report.build import build
from cbt_crypto.report.figures.conclusion import change, conclude, effect
from cbt_crypto.report.html.page import page
from cbt_crypto.report.model import Comparison, Conclusion, ReportCell
from cbt_crypto.report.text.csv_json import document
from cbt_crypto.report.text.markdown import markdown
from cbt_crypto.report.text.terminal import show

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("percent", "low", "high", "name", "beside"),
    [
        (99.8, 98.0, 101.6, "None", "within noise, -2.0 to +1.6 %"),
        (93.0, 90.5, 100.2, "None", "within noise, -9.5 to +0.2 %"),
        (99.8, 85.0, 117.0, "Unclear", "within noise, -15.0 to +17.0 %"),
        (104.0, 95.0, 114.0, "Unclear", "within noise, -5.0 to +14.0 %"),
        (99.5, 99.3, 99.7, "None", "-0.5 %"),
        (98.0, 97.0, 99.0, "Low", "-2.0 %"),
        (90.1, 89.0, 91.0, "Low", "-9.9 %"),
        (89.9, 89.0, 91.0, "Moderate", "-10.1 %"),
        (79.9, 79.0, 81.0, "High", "-20.1 %"),
        (105.0, 103.0, 107.0, "Gain", "+5.0 %"),
        (79.9, None, None, "High", "-20.1 %, no interval"),
    ],
)
def test_the_effect_in_a_word_and_the_change(percent, low, high, name, beside):
    iops = Comparison(percent, low, high)
    cell = ReportCell("LUKS", {}, "read", "measured", comparisons={"iops": iops})
    assert effect(cell) == name
    assert change(Conclusion("small reads", "LUKS", "", name, iops, None)) == beside


def test_loads_of_one_kind_have_a_row_each(tmp_path, synthetic):
    shape = synthetic.SyntheticScenario("rbd", 1, 1, (1024, 2048), ("randread",))
    iops = {("A", 1024): 1000.0, ("A", 2048): 1000.0, ("B", 1024): 700.0, ("B", 2048): 850.0}
    campaign = synthetic.SyntheticCampaign(
        [shape], ["A", "B"], lambda c: synthetic.Load(iops[c.configuration, c.op_size], 1.0)
    )
    report = build(synthetic.write_archive(campaign, tmp_path / "archive"))
    found = {one.load: one.effect for one in conclude(report.tables, report.configurations)}
    assert found == {
        "single client, small random reads (rbd, 1 KiB)": "High",
        "single client, small random reads (rbd, 2 KiB)": "Moderate",
    }


def test_every_output_says_the_same(small):
    report = build(small)
    assert report.conclusions
    out = io.StringIO()
    show(report, Console(file=out, width=200))
    printed, text = " ".join(out.getvalue().split()), markdown(report)
    html = " ".join(re.sub("<[^>]*>", " ", page(report).split('id="chart-data"')[0]).split())
    for one, plain in zip(report.conclusions, document(report)["conclusions"]):
        assert f"{one.effect} {change(one)}" in printed
        assert f"{one.effect} ({change(one)})" in text
        assert f"{one.effect} {change(one)}" in html
        assert (plain["effect"], plain["iops"]["percent"]) == (one.effect, one.iops.percent)
