"""The published losses on drives come back from absolute figures that stand behind them."""

from __future__ import annotations

import csv

import pytest

from cbt_crypto.report import build
from cbt_crypto.report.charts.chart_values import size_charts
from cbt_crypto.report.figures.conclusion import loss_tables
from cbt_crypto.report.markdown import markdown

pytestmark = pytest.mark.unit

MODES = {
    "read": "read",
    "write": "write",
    "random read": "randread",
    "random write": "randwrite",
}
SIZES = {
    "4 KiB": 4 << 10,
    "64 KiB": 64 << 10,
    "1 MiB": 1 << 20,
    "4 MiB": 4 << 20,
    "16 MiB": 16 << 20,
    "64 MiB": 64 << 20,
}
#: A plain drive's bytes per second.
BASE = 3.1e9


@pytest.fixture(scope="module")
def published(data):
    with (data / "reference/scs_luks_loss.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def report(tmp_path_factory, synthetic, published):
    """Of an archive that has a bandwidth for each published loss; IOPS follow from it."""
    losses = {
        (row["device"], int(row["iodepth"]), MODES[row["metric"].removesuffix(" bandwidth")],
         SIZES[row["block_size"]]): float(row["loss_percent"])
        for row in published
        if row["metric"].endswith(" bandwidth")
    }  # fmt: skip
    devices = list(dict.fromkeys(row["device"] for row in published))
    scenarios = [
        synthetic.SyntheticScenario(
            "raw_device", 1, 1, tuple(SIZES.values()), tuple(MODES.values()), depth,
            {"drive": device},
        )
        for depth in (1, 32)
        for device in devices
    ]  # fmt: skip

    def load(cell):
        lost = 0.0
        if cell.configuration == "LUKS":
            scenario = cell.scenario
            key = (scenario.parameters["drive"], scenario.iodepth, cell.mode, cell.op_size)
            lost = losses[key]
        return synthetic.Load(BASE / cell.op_size * (1 - lost / 100), 5.0, 0.2)

    campaign = synthetic.SyntheticCampaign(scenarios, ["Plain", "LUKS"], load, seconds=4)
    root = synthetic.write_archive(campaign, tmp_path_factory.mktemp("drives") / "archive")
    return build(root)


def test_all_384_published_losses_to_two_decimals(report, published):
    found = {
        (table.title[len("Performance losses ") : -len(", LUKS")], label, head): loss
        for table in loss_tables(report, "raw_device")
        for label, *losses in table.sections[0][1]
        for head, loss in zip(table.headings[1:], losses)
    }
    expected = {}
    for row in published:
        depth = "" if row["iodepth"] == "1" else f" iodepth={row['iodepth']}"
        key = (row["metric"], f"{row['device']}{depth}", f"{row['block_size']} % loss")
        expected[key] = f"{float(row['loss_percent']):.2f}"
    assert len(expected) == 384
    assert found == expected


def test_the_articles_table(report):
    lines = markdown(report).splitlines()
    at = lines.index("### Performance losses read bandwidth, LUKS")
    table = [line for line in lines[at + 1 : at + 14] if line.startswith("|")]
    sizes = " | ".join(f"{size} % loss" for size in SIZES)
    assert table[0] == f"| Device | {sizes} |"
    assert table[2] == "| SAS RAID-0 | 10.82 | 32.48 | 47.36 | 52.95 | 36.26 | 3.86 |"
    assert [line.split(" | ")[0] for line in table[2:]] == [
        *("| SAS RAID-0", "| SAS HDD", "| NVME RAID-0", "| NVME"),
        *(f"| {d} iodepth=32" for d in ("SAS RAID-0", "SAS HDD", "NVME RAID-0", "NVME")),
    ]


def test_charts_of_drives_are_logarithmic(report):
    found = [chart for _, chart in size_charts(report.tables)]
    assert found and all(chart.is_log for chart in found)
    sizes = ("4 KiB", "64 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB")
    assert {chart.groups for chart in found} == {sizes}
    assert {chart.unit for chart in found} == {"IO/s", "MB/s"}


def test_the_cpu_of_drives_is_their_hosts(report):
    text = markdown(report)
    assert "Host CPU user %" in text and "OSD" not in text


def test_drives_show_what_fio_took_of_the_processors(report):
    (heads, *_) = [line for line in markdown(report).splitlines() if line.startswith("| Mode")]
    assert "| fio usr % | fio sys % |" in heads
    cell = report.tables[0].sections[0].cells[0]
    (run,) = cell.runs
    taken = sum(record.fio_usr_cpu_percent for record in run.records)
    assert cell.figures["fio_usr_cpu_percent"] == taken > 0


def test_scenarios_on_a_cluster_have_no_such_table(small):
    assert list(loss_tables(build(small), "rbd_multi_client")) == []
