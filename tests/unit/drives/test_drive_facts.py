"""What is read from a drive, and how charts group drives by it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from cbt_crypto.archive.documents import Environment, PlannedCell
from cbt_crypto.hosts.site import Drive
from cbt_crypto.report.charts.chart_values import latency_curve, latency_distribution
from cbt_crypto.report.charts.plotly import plotly_figure
from cbt_crypto.report.charts.svg import svg
from cbt_crypto.report.figures.group import groups
from cbt_crypto.report.model import ReportCell, Section
from cbt_crypto.results.cell.run import Run
from cbt_crypto.run import environment as drive_facts

pytestmark = pytest.mark.unit

PRINTED = """\
@device /dev/nvme0n1
model SAMSUNG MZQLB3T8HALS-00007
firmware_rev EDA5602Q
rotational 0
size_bytes 3840755982336
@device /dev/sda
model HUC101818CS4200
rev A3J0
rotational 1
size_bytes 1800360124416
@device /dev/loop0
rotational
size_bytes
"""
PLANNED = PlannedCell(id="id-0", path="p", scenario="etcd", configuration="Plain")


def test_model_and_firmware_of_nvme_and_scsi() -> None:
    assert drive_facts.parse_drives(PRINTED) == {
        "/dev/nvme0n1": {
            "model": "SAMSUNG MZQLB3T8HALS-00007",
            "firmware": "EDA5602Q",
            "rotational": False,
            "size_bytes": 3840755982336,
        },
        "/dev/sda": {
            "model": "HUC101818CS4200",
            "firmware": "A3J0",
            "rotational": True,
            "size_bytes": 1800360124416,
        },
        "/dev/loop0": {"model": None, "firmware": None, "rotational": None, "size_bytes": None},
    }


def test_a_device_that_is_not_there_is_no_error() -> None:
    script = drive_facts.drive_scripts([Drive("D", "h", ("/no/such",), "/f")])["h"]
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert drive_facts.parse_drives(done.stdout)["/no/such"]["model"] is None


def environment() -> Environment:
    drives = {"MZ": {"plp": True}, "EVO": {"plp": False}, "X": {"plp": None}}
    return Environment.model_validate({"format": 1, "hosts": {}, "drives": drives})


def test_groups_where_drives_are_compared() -> None:
    assert groups(environment(), "drive") == {
        "MZ": "with power-loss protection",
        "EVO": "without power-loss protection",
        "X": "power-loss protection not stated",
    }
    assert groups(environment(), "configuration") == groups(None, "drive") == {}


def cell(name: str, percentiles: dict[float, float]) -> ReportCell:
    run = Run(PLANNED, {"drive": name}, percentiles_ns={"write": percentiles})
    return ReportCell(name, {"drive": name}, "write", "measured", runs=(run,))


def test_percentiles_of_drives_on_a_logarithmic_scale_by_group() -> None:
    known = {50.0: 1e6, 90.0: 2e6, 99.9: 4e6}
    cells = (cell("EVO", known), cell("MZ", known))
    section = Section("sequential writes", "write", "write", cells)
    chart = latency_distribution(section, groups(environment(), "drive"))
    assert [(line.name, line.group) for line in chart.lines] == [
        ("MZ", "with power-loss protection"),
        ("EVO", "without power-loss protection"),
    ]
    assert chart.lines[0].x == (0.301, 1.0, 3.0) and chart.lines[0].y == (1.0, 2.0, 4.0)
    figure = plotly_figure(chart)
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert [trace["legendgroup"] for trace in figure["data"]] == [
        line.group for line in chart.lines
    ]
    assert "MZ, with power-loss protection" in svg(chart, "etcd", "")


def test_percentiles_of_two_runs_are_not_put_together() -> None:
    one = cell("EVO", {50.0: 1e6})
    assert latency_curve(replace(one, runs=one.runs * 2)) is None
