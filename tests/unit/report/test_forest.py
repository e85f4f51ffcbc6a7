"""The one picture: its points are those of the tables, and it is well-formed wherever it stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from cbt_crypto.report import ReportOptions, build
from cbt_crypto.report.charts.forest import forest, forest_svg
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Report
from cbt_crypto.report.page import page
from cbt_crypto.report.page_tables import summary

pytestmark = pytest.mark.unit

SVG = "{http://www.w3.org/2000/svg}"


def changed(report: Report, who: str, **fields: Any) -> Report:
    """The report with other fields in the cells of that name."""

    def section(one: Any) -> Any:
        cells = (replace(c, **fields) if c.name == who else c for c in one.cells)
        return replace(one, cells=tuple(cells))

    tables = (replace(t, sections=tuple(map(section, t.sections))) for t in report.tables)
    return replace(report, tables=tuple(tables))


def titles(text: str) -> list[str]:
    return [str(one.text) for one in etree.fromstring(text).iter(f"{SVG}title")]


def test_a_row_for_each_load_and_a_point_for_each_but_the_baseline(
    small: Path,
) -> None:
    found = forest(build(small))
    assert found is not None
    assert found.series == ("LUKS",)
    assert [(row.heading, row.label) for row in found.rows] == [
        ("rbd_multi_client, 4 KiB", "random reads"),
        ("rbd_multi_client, 4 KiB", "random writes"),
    ]
    for row in found.rows:
        (point,) = row.points
        assert point.percent == pytest.approx(50, abs=1)
        assert point.low is not None and point.high is not None
        assert found.low <= point.low < point.high <= found.high
    assert found.reference == 100
    assert len(titles(forest_svg(found))) == 2


def test_in_percent_lost_the_baseline_is_0(small: Path) -> None:
    found = forest(build(small, ReportOptions(loss=True)))
    assert found is not None
    assert found.reference == 0
    point = found.rows[0].points[0]
    assert point.percent == pytest.approx(50, abs=1)
    assert point.low is not None and point.high is not None and point.low < point.high


def test_what_goes_beyond_the_axis_gets_an_arrow(small: Path) -> None:
    report = build(small)
    cell = next(cell for cell in report.cells if not cell.is_baseline)
    wild = {"iops": replace(cell.comparisons["iops"], percent=150.0, low=-50.0, high=4000.0)}
    found = forest(changed(report, "LUKS", comparisons=wild))
    assert found is not None
    assert (found.low, found.high) == (0, 200)
    text = forest_svg(found)
    assert text.count(" Z") >= 4, "arrows at both ends of two intervals"
    assert "LUKS: 150.0 %, too noisy to say" in titles(text)


def test_a_failed_cell_is_there_as_a_word_and_one_not_run_is_not(small: Path) -> None:
    report = build(small)
    both = changed(report, "LUKS", state="failed", comparisons={})
    assert forest(both) is None, "nothing is compared"
    first = report.tables[0].sections[0]
    cells = tuple(
        replace(c, state="failed", comparisons={}) if c.name == "LUKS" else c for c in first.cells
    )
    sections = (replace(first, cells=cells), *report.tables[0].sections[1:])
    one = replace(report, tables=(replace(report.tables[0], sections=sections),))
    found = forest(one)
    assert found is not None
    assert "LUKS: failed" in forest_svg(found)


def test_it_stands_on_top_of_the_page_and_in_the_markdown(small: Path) -> None:
    report = build(small)
    text = page(report)
    assert text.index("<svg") < text.index("<table")
    narrow = text.partition('<div class="narrow">')[2].partition("</div>")[0]
    assert narrow.startswith("<svg") and 'viewBox="0 0 360 ' in narrow, "for phones"
    assert "](charts/forest.svg)" in markdown(report)


def test_a_hostile_name_stays_text(small: Path) -> None:
    name = '<script>alert(1)</script>"&]]>'
    report = changed(build(small), "LUKS", name=name)
    found = forest(report)
    assert found is not None
    tree = etree.fromstring(forest_svg(found))
    assert not list(tree.iter(f"{SVG}script"))
    assert any(name in str(one.text) for one in tree.iter(f"{SVG}text"))


def test_the_summary_turns_round_when_there_are_many_loads(small: Path) -> None:
    report = build(small)
    assert summary(report).find(".//thead/tr/th").get("colspan") == "2", "loads side by side"
    sections = report.tables[0].sections * 4
    many = replace(report, tables=(replace(report.tables[0], sections=sections),))
    table = summary(many)
    assert [th.text_content() for th in table.findall(".//thead/tr/th")] == [
        "Workload", "Unencrypted", "LUKS",
    ]  # fmt: skip
    assert len(table.findall(".//tbody/tr")) == 1 + len(sections)
