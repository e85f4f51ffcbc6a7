"""What is read from a drive, and how charts group drives by it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cbt_crypto.archive.documents import Environment, PlannedCell
from cbt_crypto.hosts.devices.layers_on_host import numa_of
from cbt_crypto.hosts.site import Drive, Site
from cbt_crypto.report.charts.chart_values import latency_curve, latency_distribution
from cbt_crypto.report.charts.draw import chart_svg
from cbt_crypto.report.figures.group import groups
from cbt_crypto.report.model import ReportCell, Section
from cbt_crypto.results.cell.run import Run
from cbt_crypto.run import environment as drive_facts

pytestmark = pytest.mark.unit

HARDWARE = Path(__file__).parents[1] / "data" / "hardware"
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
    known = {
        device: {key: facts[key] for key in ("model", "firmware", "rotational", "size_bytes")}
        for device, facts in drive_facts.parse_drives(PRINTED).items()
    }
    assert known == {
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


#: An Intel P4510 as `nvme list` and /sys print it in nvme-cli's issues 2028 and 1695, and a
#: partition and a logical volume on it.
P4510 = {
    "device/model": "INTEL SSDPE2KX080T8                     ",
    "device/firmware_rev": "VDV10182",
    "queue/rotational": "0",
    "queue/write_cache": "write through",
    "queue/logical_block_size": "512",
    "queue/physical_block_size": "512",
    "device/device/numa_node": "1",
    "device/device/current_link_speed": "8.0 GT/s PCIe",
    "device/device/current_link_width": "4",
    "device/device/max_link_speed": "8.0 GT/s PCIe",
    "device/device/max_link_width": "4",
}


@pytest.mark.parametrize("device", ["nvme0n1", "nvme0n1p1", "dm-0"])
def test_where_a_drive_is_and_how_it_is_connected(tmp_path: Path, device: str) -> None:
    disk = tmp_path / "devices" / "nvme0n1"
    for name, text in P4510.items():
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text(f"{text}\n")
    (disk / "nvme0n1p1").mkdir()
    (disk / "nvme0n1p1" / "partition").write_text("1\n")
    (tmp_path / "devices" / "dm-0" / "slaves").mkdir(parents=True)
    (tmp_path / "devices/dm-0/slaves/nvme0n1p1").symlink_to(disk / "nvme0n1p1")
    blocks = tmp_path / "class" / "block"
    blocks.mkdir(parents=True)
    for path in (disk, disk / "nvme0n1p1", tmp_path / "devices/dm-0"):
        (blocks / path.name).symlink_to(path)
    script = drive_facts.device_script([f"/dev/{device}"], str(tmp_path))
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    (facts,) = drive_facts.parse_drives(done.stdout).values()
    assert facts == {
        "model": "INTEL SSDPE2KX080T8",
        "firmware": "VDV10182",
        "wear_percent": None,
        "rotational": False,
        "size_bytes": None,
        "logical_sector_bytes": 512,
        "physical_sector_bytes": 512,
        "write_cache": "write through",
        "numa_node": 1,
        "pcie_link": "8.0 GT/s PCIe x4",
        "pcie_link_at_most": "8.0 GT/s PCIe x4",
    }


def test_where_a_drive_of_nvme_s_own_multipath_is(tmp_path: Path) -> None:
    """/sys as of the machine in ledmon's pull request 152: nvme6n1 is below a subsystem."""
    head = tmp_path / "devices/virtual/nvme-subsystem/nvme-subsys6/nvme6n1"
    subsystem, root = head.parent, "devices/pci0000:ae/0000:ae:05.5/pci10001:00/10001:00:02.3"
    controller = tmp_path / root / "10001:06:00.0/nvme/nvme6"
    for folder in (head / "queue", controller / "nvme6c6n1"):
        folder.mkdir(parents=True)
    for name, text in P4510.items():
        kind, _, rest = name.partition("/")
        place = head / name if kind == "queue" else subsystem / rest
        if rest.startswith("device/"):
            place = controller.parents[1] / rest.removeprefix("device/")
        place.write_text(f"{text}\n")
    (controller / "numa_node").write_text("1\n")
    (controller / "device").symlink_to(controller.parents[1])
    (subsystem / "nvme6").symlink_to(controller)
    (head / "device").symlink_to(subsystem)
    blocks = tmp_path / "class/block"
    blocks.mkdir(parents=True)
    (blocks / "nvme6n1").symlink_to(head)
    script = drive_facts.device_script(["/dev/nvme6n1"], str(tmp_path))
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    (facts,) = drive_facts.parse_drives(done.stdout).values()
    assert facts["model"] == "INTEL SSDPE2KX080T8" and facts["firmware"] == "VDV10182"
    assert facts["numa_node"] == 1 and facts["pcie_link"] == "8.0 GT/s PCIe x4"
    assert numa_of(blocks / "nvme6n1") == 1


def test_where_a_drive_of_sata_is(tmp_path: Path) -> None:
    """Its disk names no node: the controller does, further up."""
    controller = tmp_path / "devices/pci0000:00/0000:00:17.0"
    disk = controller / "ata5/host4/target4:0:0/4:0:0:0/block/sda"
    disk.mkdir(parents=True)
    (controller / "numa_node").write_text("0\n")
    (disk / "device").symlink_to(disk.parents[1])
    (tmp_path / "sda").symlink_to(disk)
    assert numa_of(tmp_path / "sda") == 0
    (controller / "numa_node").write_text("-1\n")
    assert numa_of(tmp_path / "sda") is None


def test_a_partition_of_a_loop_device_is_told_from_a_drive(tmp_path: Path) -> None:
    """As in a namespace lab, whose OSDs are as fast as the one disk below their files."""
    loop = tmp_path / "class" / "block" / "loop0"
    (loop / "loop").mkdir(parents=True)
    (loop / "loop" / "backing_file").write_text("/var/lib/somebody/disk\n")
    (loop / "loop0p1").mkdir()
    (loop / "loop0p1" / "partition").write_text("1\n")
    (loop.parent / "loop0p1").symlink_to(loop / "loop0p1")
    script = drive_facts.device_script(["/dev/loop0p1"], str(tmp_path))
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert "somebody" not in done.stdout
    facts = drive_facts.host_facts(Site("/t", "/c", "h", ("h",), ()), "h", done.stdout)
    assert facts["drives"]["/dev/loop0p1"]["model"] == "a file, by a loop device"
    assert facts["osds_on_files"] is True


@pytest.mark.parametrize(
    ("printed", "program", "wear"),
    [
        ("smartctl_nvme_samsung.json", "smartctl", 3),
        ("smartctl_nvme_intel.json", "smartctl", 75),
        ("smartctl_sata_intel.json", "smartctl", 36),
        ("nvme_smart_log.json", "nvme", 0),
    ],
)
def test_how_worn_a_drive_is(tmp_path: Path, printed: str, program: str, wear: int) -> None:
    """By what smartctl, or nvme where that is missing, printed on machines with such drives."""
    disk = tmp_path / "class" / "block" / "nvme0n1"
    disk.mkdir(parents=True)
    for name in ("smartctl", "nvme"):
        says = f"cat {HARDWARE / printed}" if name == program else "exit 127"
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    script = drive_facts.device_script(["/dev/nvme0n1"], str(tmp_path))
    done = subprocess.run(
        ["sh", "-euc", script], capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    (facts,) = drive_facts.parse_drives(done.stdout).values()
    assert facts["wear_percent"] == wear


@pytest.mark.parametrize("smart", [{}, {"ata_smart_attributes": 3}, {"percent_used": "x"}])
def test_a_drive_that_does_not_say_how_worn_it_is(smart: dict[str, object]) -> None:
    assert drive_facts.wear_percent(smart) is None


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
    assert "MZ, with power-loss protection" in chart_svg(chart, {}, ["etcd"])


def test_percentiles_of_two_runs_are_not_put_together() -> None:
    one = cell("EVO", {50.0: 1e6})
    assert latency_curve(replace(one, runs=one.runs * 2)) is None
