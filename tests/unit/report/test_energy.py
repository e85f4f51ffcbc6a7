"""Energy per IO in every form of a report, and its absence where nothing counted it."""

from __future__ import annotations

import csv
import io
import shutil

import pytest
from lxml import html

from cbt_crypto.report import build
from cbt_crypto.report.document import document, tidy
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit

KEYS = ("osd_power_w", "osd_energy_j_per_io", "osd_energy_j_per_gib")


@pytest.fixture(scope="module")
def counted(tmp_path_factory, synthetic):
    """LUKS has half the IOPS and takes half as much power again, on two OSD nodes."""
    campaign = synthetic.SyntheticCampaign(
        [synthetic.SyntheticScenario("rbd_multi_client", 1, 1, (4096,), ("randread",))],
        ["Unencrypted", "LUKS"],
        lambda cell: synthetic.Load(500.0 if cell.configuration == "LUKS" else 1000.0, 2.0),
        watts=lambda cell: 120.0 if cell.configuration == "LUKS" else 80.0,
        seconds=12, osd_hosts=2,
    )  # fmt: skip
    return synthetic.write_archive(campaign, tmp_path_factory.mktemp("energy") / "archive")


def test_energy_and_power_of_all_osd_nodes(counted):
    plain, luks = build(counted).cells
    found = {key: (plain.figures[key], luks.figures[key]) for key in KEYS}
    assert found["osd_power_w"] == pytest.approx((160, 240))
    assert found["osd_energy_j_per_io"] == pytest.approx((0.16, 0.48))
    per_gib = (0.16 * (1 << 18), 0.48 * (1 << 18))
    assert found["osd_energy_j_per_gib"] == pytest.approx(per_gib)
    compared = luks.comparisons["osd_energy_j_per_io"]
    assert compared.percent == pytest.approx(300)
    assert compared.low is not None and 250 < compared.low < 300
    assert luks.comparisons["osd_energy_j_per_gib"].low == pytest.approx(compared.low)
    assert luks.warnings == ()


def test_it_stands_beside_the_processor_time(counted):
    built = build(counted)
    tree = html.fromstring(page(built))
    (table,) = tree.xpath("//table[contains(@class, 'sortable')][.//button[.='OSD CPU µs/IO']]")
    heads = table.xpath(".//thead//button/text()")
    at = heads.index("OSD CPU µs/IO")
    assert heads[at + 2 :] == ["OSD W", "OSD mJ/IO", "OSD J/GiB"]
    assert [row.xpath("./td/text()")[-2] for row in table.xpath("./tbody/tr")] == ["160", "480"]
    row = next(line for line in markdown(built).splitlines() if "random reads | LUKS" in line)
    assert row.endswith("| 240 | 480 |")
    rows = csv.DictReader(io.StringIO(tidy(built)))
    units = {row["figure"]: row["unit"] for row in rows if row["figure"] in KEYS}
    assert units == {KEYS[0]: "W", KEYS[1]: "J", KEYS[2]: "J"}
    run = document(built)["tables"][0]["sections"][0]["cells"][0]["runs"][0]
    assert [use["host"] for use in run["osd_energy"]] == ["osd0", "osd1"]


def test_without_counters_there_is_no_column(small):
    built = build(small)
    assert not any(key in cell.figures for cell in built.cells for key in KEYS)
    assert not any(cell.warnings for cell in built.cells)
    assert "mJ/IO" not in page(built)
    assert "mJ/IO" not in markdown(built)


def test_a_failed_row_has_as_many_columns_as_the_others(counted, tmp_path):
    root = shutil.copytree(counted, tmp_path / "archive")
    path = root / "results/00000000/id-00000001/cell.json"
    path.write_text(path.read_text().replace('"finished"', '"failed"'))
    lines = markdown(build(root)).splitlines()
    rows = [line for line in lines if line.startswith("| random reads |")]
    assert len({line.count("|") for line in rows}) == 1 and "*failed*" in rows[1]
