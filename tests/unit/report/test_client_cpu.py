"""What clients take of processors for each IO, by user and system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.report import build

pytestmark = pytest.mark.unit

HEADER = "# ticks a second: 100\n"


@pytest.fixture
def archive(tmp_path: Path, synthetic: Any) -> Path:
    """One client at 1,000 IOPS of 4 KiB for 12 s."""
    shape = synthetic.SyntheticScenario("rbd_single_client", 1, 1, (4096,), ("randread",))
    campaign = synthetic.SyntheticCampaign(
        [shape], ["Unencrypted"], lambda cell: synthetic.Load(1000.0, 2.0, 0.0),
        cpu=lambda cell: {"user": 20.0, "sys": 5.0}, seconds=12, osd_hosts=1,
    )  # fmt: skip
    return Path(synthetic.write_archive(campaign, tmp_path / "archive"))


def test_it_is_for_each_io_by_user_and_system_with_its_range(archive: Path) -> None:
    folder = archive / "results/00000000/id-00000000"
    begun = int(json.loads((folder / "cell.json").read_text())["started"])
    lines = (f"{begun + n}.000 {40 * n} {10 * n}\n" for n in range(-2, 20) if n >= 0)
    (folder / "clients_cpu.client0").write_text(HEADER + "".join(lines))
    (cell,) = build(archive).cells
    assert cell.figures["client_cpu_user_us_per_io"] == pytest.approx(400, rel=0.01)
    assert cell.figures["client_cpu_sys_us_per_io"] == pytest.approx(100, rel=0.01)
    assert cell.figures["client_cpu_us_per_io"] == pytest.approx(500, rel=0.01)
    assert cell.figures["client_cpu_s_per_gib"] == pytest.approx(500e-6 * (1 << 18), rel=0.01)
    # eight threads, a quarter of them busy, on a host that has no OSD
    assert cell.figures["client_hosts_cpu_user_us_per_io"] == pytest.approx(1600, rel=0.01)
    assert cell.figures["client_hosts_cpu_us_per_io"] == pytest.approx(2000, rel=0.01)
    assert cell.warnings == ()


def test_an_archive_without_samples_has_no_figure_and_no_complaint(archive: Path) -> None:
    (cell,) = build(archive).cells
    assert not any(key.startswith("client_cpu_us") for key in cell.figures)
    assert cell.warnings == ()


def test_samples_that_are_damaged_are_said_to_be(archive: Path) -> None:
    (archive / "results/00000000/id-00000000/clients_cpu.client0").write_text("x\n")
    (cell,) = build(archive).cells
    assert "client_cpu_us_per_io" not in cell.figures
    assert any("how many ticks" in warning for warning in cell.warnings)
