"""A report compares whatever dimension the baseline names a value of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.report import ReportOptions, build
from cbt_crypto.report.charts.chart_values import Bars, Stacks, charts, size_charts
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def sizes(tmp_path_factory, synthetic) -> Path:
    """Two configurations, 4K and 8K; 8K has half the IOPS."""
    shape = synthetic.SyntheticScenario("rbd_multi_client", 1, 1, (4096, 8192))
    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape],
        configurations=["Unencrypted", "LUKS"],
        load=lambda cell: synthetic.Load(4096e3 / cell.op_size, 2.0),
        cpu=lambda cell: {"user": 20.0, "sys": 10.0},
        seconds=12,
        iterations=6,
        rounds=True,
    )
    return synthetic.write_archive(campaign, tmp_path_factory.mktemp("sizes"))


def test_rows_are_the_values_of_the_compared_dimension(sizes: Path) -> None:
    built = build(sizes, ReportOptions(baseline="op_size=4096"))
    assert [table.title for table in built.tables] == [
        "rbd_multi_client, configuration Unencrypted",
        "rbd_multi_client, configuration LUKS",
    ]
    percents = {
        cell.name: round(cell.comparisons["iops"].percent, 3)
        for cell in built.tables[0].sections[0].cells
    }
    assert percents == {"4 KiB": 100.0, "8 KiB": 50.0}


def test_headings_name_the_compared_dimension(sizes: Path) -> None:
    built = build(sizes, ReportOptions(baseline="op_size=4096"))
    text = markdown(built)
    assert "Percent of **op\\_size 4096**" in text
    assert "| Mode | IO size | IOPS |" in text
    assert "| Workload | op\\_size 8 KiB |" in text
    assert "Configuration |" not in text
    assert '<button type="button">IO size</button>' in page(built)


def test_the_plan_names_the_dimension_too(sizes: Path) -> None:
    path = sizes / "results" / "plan.json"
    plan = json.loads(path.read_text())
    plan["baseline"] = {"dimension": "op_size", "value": 8192}
    path.write_text(json.dumps(plan))
    cells = build(sizes).tables[0].sections[0].cells
    assert [(cell.name, cell.is_baseline) for cell in cells] == [("4 KiB", False), ("8 KiB", True)]


def test_small_loads_of_several_sizes_are_told_apart_in_the_conclusion(sizes: Path) -> None:
    loads = [
        one.load for one in build(sizes, ReportOptions(baseline="configuration=LUKS")).conclusions
    ]
    assert len(loads) == len(set(loads))
    assert any("4 KiB" in load for load in loads)


def test_kinds_of_load_are_not_compared(sizes: Path) -> None:
    with pytest.raises(UsageError, match="the values of mode are different workloads"):
        build(sizes, ReportOptions(baseline="mode=randread"))


def test_a_group_of_bars_for_each_size(sizes: Path) -> None:
    built = build(sizes, ReportOptions(baseline="configuration=Unencrypted"))
    (heading, chart), *_ = size_charts(built.tables)
    assert (heading, chart.title) == ("rbd_multi_client", "IOPS by IO size, random reads")
    assert chart.groups == ("4 KiB", "8 KiB")
    values = {series.name: [round(v or 0) for v in series.values] for series in chart.series}
    assert values == {"Unencrypted": [1000, 500], "LUKS": [1000, 500]}


def test_latency_has_bars_too(sizes: Path) -> None:
    built = build(sizes, ReportOptions(baseline="configuration=Unencrypted"))
    latency = next(chart for chart in charts(built.tables[0]) if chart.key == "latency")
    assert isinstance(latency, Bars) and latency.unit == "ms"
    assert latency.series[0].values[0] == pytest.approx(2.0, rel=0.05)


def test_charts_name_the_dimension_of_numbers(tmp_path: Path, synthetic) -> None:
    shapes = [
        synthetic.SyntheticScenario("rbd", 1, 1, (4096, 8192), parameters={"replication": number})
        for number in (1, 2)
    ]
    campaign = synthetic.SyntheticCampaign(
        shapes, ["Default"], lambda cell: synthetic.Load(1000.0, 2.0), seconds=12
    )
    path = synthetic.write_archive(campaign, tmp_path / "archive")
    built = build(path, ReportOptions(baseline="replication=1"))
    legend = ["replication 1", "replication 2"]
    for chart in (*charts(built.tables[0]), *(found for _, found in size_charts(built.tables))):
        if isinstance(chart, Bars):
            assert [series.name for series in chart.series] == legend
        elif isinstance(chart, Stacks):
            assert list(chart.names) == legend
        else:
            assert [line.name for line in chart.lines] == legend
    assert {cell.name for cell in built.cells} == {"1", "2"}
