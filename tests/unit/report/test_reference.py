"""The published percentages come back from absolute figures that stand behind them."""

from __future__ import annotations

import csv

import pytest

from cbt_crypto.report import build
from cbt_crypto.report.markdown import markdown

pytestmark = pytest.mark.unit

MODES = {"randread": "random_reads_percent", "randwrite": "random_writes_percent"}
SIZES = {"4MB": 4 << 20, "4KB": 4096}
#: A baseline's IOPS, all processes together, by op size and mode.
BASE = {
    (4 << 20, "randread"): 13_000.0,
    (4 << 20, "randwrite"): 4_321.0,
    (4096, "randread"): 1_234_567.0,
    (4096, "randwrite"): 400_003.0,
}


@pytest.fixture(scope="module")
def published(data):
    with (data / "reference/reef_encryption.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _archive(synthetic, root, published, test_set):
    rows = [row for row in published if row["test_set"] == test_set]
    names = list(dict.fromkeys(row["configuration"] for row in rows))
    sizes = tuple(dict.fromkeys(SIZES[row["op_size"]] for row in rows))
    percents = {
        (row["configuration"], SIZES[row["op_size"]], mode): float(row[column])
        for row in rows
        for mode, column in MODES.items()
    }
    many = test_set in ("luks-tuning", "multi-client")
    clients, processes = (2, 2) if many else (1, 1)
    scenario = synthetic.SyntheticScenario(
        test_set, clients, processes, sizes, iodepth=1 if "sync" in test_set else 128
    )

    def load(cell):
        percent = percents[cell.configuration, cell.op_size, cell.mode]
        total = BASE[cell.op_size, cell.mode] * percent / 100
        return synthetic.Load(total / clients / processes, 5.0, 0.2)

    campaign = synthetic.SyntheticCampaign(
        [scenario], names, load, seconds=8, iterations=6, rounds=True
    )
    return synthetic.write_archive(campaign, root)


@pytest.fixture(scope="module")
def reports(tmp_path_factory, synthetic, published):
    """The report of each test set."""
    roots = tmp_path_factory.mktemp("reference")
    return {
        name: build(_archive(synthetic, roots / name, published, name))
        for name in ("luks-tuning", "multi-client", "single-client", "single-client-sync")
    }


@pytest.mark.parametrize(
    "test_set", ["luks-tuning", "multi-client", "single-client", "single-client-sync"]
)
def test_every_published_percent_to_two_decimals(reports, published, test_set):
    found = {
        (table.op_size, cell.name, section.mode): f"{cell.comparisons['iops'].percent:.2f}"
        for table in reports[test_set].tables
        for section in table.sections
        for cell in section.cells
    }
    expected = {
        (SIZES[row["op_size"]], row["configuration"], mode): row[column]
        for row in published
        if row["test_set"] == test_set
        for mode, column in MODES.items()
    }
    assert found == expected


def test_the_articles_table_with_its_true_labels(reports):
    text = markdown(reports["multi-client"])
    assert "| IO size | Configuration | Random reads | Random writes |" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| 4 MiB | ")]
    assert [row[1] for row in rows] == [
        "Unencrypted",
        "LUKS",
        "secure messenger",
        "LUKS + secure messenger",
    ]
    assert rows[1][2].startswith("**98.87%**") and rows[1][3].startswith("**69.26%**")


def test_the_articles_conclusions_are_derived(reports):
    sets = ("multi-client", "single-client", "single-client-sync")
    effects = {(o.name, o.load): o.effect for name in sets for o in reports[name].conclusions}
    luks, secure = "LUKS", "secure messenger"
    assert effects[luks, "many clients, large random writes"] == "High"
    assert effects[luks, "many clients, small random writes"] == "Moderate"
    assert effects[luks, "single client, large random reads"] == "Low"
    assert effects[luks, "single client, sync, small random writes"] == "Moderate"
    assert effects[secure, "single client, large random writes"] == "High"
    assert effects[secure, "single client, sync, small random writes"] == "Low"
    assert effects[secure, "many clients, small random reads"] == "None"
