"""Compare one workload on existing clusters, an archive for each network, in one report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cbt_crypto.report import ReportOptions, build
from cbt_crypto.report.comparison import compare
from cbt_crypto.report.files import write

pytestmark = pytest.mark.unit


def _existing(synthetic, path: Path, iops: float) -> Path:
    """An archive of `use_existing`: no OSD host is known, and nothing was sampled on one."""
    shape = synthetic.SyntheticScenario("rbd_single_client", 1, 1, (1024, 4096))
    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape],
        configurations=["Default"],
        load=lambda cell: synthetic.Load(iops, 2.0),
        cpu=lambda cell: {"user": 20.0, "sys": 10.0},
        seconds=10,
    )
    archive = synthetic.write_archive(campaign, path)
    for cell in archive.glob("results/*/id-*/cell.json"):
        document = json.loads(cell.read_text())
        for host in document["osd_hosts"]:
            shutil.rmtree(cell.parent / f"collectl.{host}", ignore_errors=True)
        cell.write_text(json.dumps({**document, "osd_hosts": []}))
    return archive


def test_archives_are_joined_by_their_labels(synthetic, tmp_path: Path) -> None:
    archives = {
        "Host": _existing(synthetic, tmp_path / "host", 1000.0),
        "VXLAN": _existing(synthetic, tmp_path / "vxlan", 750.0),
    }
    joined = compare(archives, ReportOptions())
    assert joined.baseline_name == "Host"
    for table in joined.tables:
        for section in table.sections:
            percents = {c.name: round(c.comparisons["iops"].percent) for c in section.cells}
            assert percents == {"Host": 100, "VXLAN": 75}
            assert all("osd_cpu_us_per_io" not in cell.figures for cell in section.cells)
    names = {path.name for path in write(joined, tmp_path / "report")}
    assert "rbd_single_client_by_size_small_random_reads.svg" in names


def test_what_nobody_looked_at_says_so_in_every_row(synthetic, tmp_path: Path) -> None:
    archive = _existing(synthetic, tmp_path / "host", 1000.0)
    for proof in archive.glob("results/*/id-*/proof.json"):
        document = {**json.loads(proof.read_text()), "proved": False, "overlays": []}
        proof.write_text(json.dumps(document))
    refused = build(archive, ReportOptions())
    cells = [c for table in refused.tables for section in table.sections for c in section.cells]
    assert {cell.state for cell in cells} == {"failed"}
    for proof in archive.glob("results/*/id-*/proof.json"):
        proof.write_text(json.dumps({**json.loads(proof.read_text()), "required": False}))
    shown = build(archive, ReportOptions())
    cells = [c for table in shown.tables for section in table.sections for c in section.cells]
    assert {(cell.state, cell.name) for cell in cells} == {("measured", "Default, not proved")}
    write(shown, tmp_path / "report")
    for name in ("report.md", "report.html"):
        assert "Default, not proved" in (tmp_path / "report" / name).read_text(), name
    _, *rows = (tmp_path / "report" / "report.csv").read_text().splitlines()
    assert all(",measured,not proved," in row for row in rows)
