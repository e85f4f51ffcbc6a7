"""What is done to a real cluster in the middle of a cell, and undone before its end, is caught."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_SECONDS = 14
#: Operation size of a cell -> what is done meanwhile.
RESTARTED, TAKEN_FOR_DOWN, LEFT_ALONE, MOVED = 4096, 8192, 16384, 32768
BENCHMARKS = {
    "rbd_single_client": {
        "vol_size": 128,
        "time": _SECONDS,
        "ramp": 1,
        "iodepth": 4,
        "mode": "randwrite",
        "workloads": {"op_size": [RESTARTED, TAKEN_FOR_DOWN, LEFT_ALONE, MOVED]},
    }
}


@pytest.fixture(scope="module")
def cells(machine_factory: Callable[[str], Any]) -> dict[int, dict[str, Any]]:
    """The cells of one campaign, each disturbed in its own way, by operation size."""
    machine = machine_factory("during")
    config = machine.write({"Unencrypted": {}}, BENCHMARKS, {"sampler": None})
    with open(machine.directory / "said", "w") as said:
        campaign = subprocess.Popen(machine.command(config), stdout=said, stderr=said)
        try:
            for op_size, disturb in (
                (RESTARTED, _restart), (TAKEN_FOR_DOWN, _take_for_down), (MOVED, _move)
            ):  # fmt: skip
                _wait_for_fio(machine, op_size, campaign)
                disturb(machine)
            status = campaign.wait(300)
        finally:
            campaign.terminate()
            campaign.wait(60)
    assert status == 1, (machine.directory / "said").read_text()
    return {cell["parameters"]["op_size"]: cell for cell in machine.cells()}


def _wait_for_fio(machine: Any, op_size: int, campaign: subprocess.Popen[bytes]) -> None:
    """Return when the cell of that size has run for 2 s."""
    while campaign.poll() is None:
        for line in machine.leftovers():
            if line.startswith("fio") and f"--bs={op_size}B" in line and "--time_based" in line:
                time.sleep(2)
                return
        time.sleep(0.5)
    pytest.fail((machine.directory / "said").read_text())


def _osd(machine: Any) -> Path:
    (pid_file,) = machine.tmp_dir.glob("**/run/osd.1.pid")
    return Path("/proc", pid_file.read_text().strip())


def _restart(machine: Any) -> None:
    """osd.1 is killed, and started again as it was."""
    process = _osd(machine)
    command = process.joinpath("cmdline").read_bytes().decode().rstrip("\0").split("\0")
    pairs = process.joinpath("environ").read_bytes().decode().rstrip("\0").split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs)
    pid = os.pidfd_open(int(process.name))
    os.kill(int(process.name), 9)
    # Its program is gone from /proc before it lets go of its device; this tells the very end.
    assert select.select([pid], [], [], 60)[0], "osd.1 does not end"
    os.close(pid)
    subprocess.run(command, env=environment, check=True, cwd="/", capture_output=True, timeout=30)


def _take_for_down(machine: Any) -> None:
    """The monitors are told that osd.1 is down; it says at once that it is not."""
    (conf,) = machine.tmp_dir.glob("**/ceph.conf")
    subprocess.run(
        ["ceph", "-c", str(conf), "osd", "down", "1"], check=True, capture_output=True, timeout=60
    )


def _move(machine: Any) -> None:
    """The threads of osd.1 may use one CPU only, for longer than the time between two looks."""
    pid = _osd(machine).name
    before = ",".join(map(str, os.sched_getaffinity(int(pid))))
    for cpus, seconds in (("0", 7), (before, 0)):
        subprocess.run(["taskset", "-acp", cpus, pid], check=True, capture_output=True)
        time.sleep(seconds)


def test_a_restart_fails_the_cell_and_names_osd_and_host(cells: dict[int, Any]) -> None:
    cell = cells[RESTARTED]
    assert cell["state"] == "failed"
    assert "osd.1 on localhost: it was restarted during the cell" in cell["reason"]


def test_an_osd_that_was_taken_for_down_fails_the_cell(cells: dict[int, Any]) -> None:
    cell = cells[TAKEN_FOR_DOWN]
    assert cell["state"] == "failed"
    assert "osd.1 on localhost: the monitors marked it down" in cell["reason"]


def test_threads_that_had_other_cpus_for_a_while_fail_the_cell(cells: dict[int, Any]) -> None:
    cell = cells[MOVED]
    assert cell["state"] == "failed"
    assert "cpuset: osd.1 on localhost: threads could use CPUs 0 and not" in cell["reason"]


def test_our_sampler_stands_in_for_collectl(cells: dict[int, Any], report_cells: Any) -> None:
    directory = cells[LEFT_ALONE]["directory"]
    assert not list(directory.glob("collectl.*"))
    assert (directory / "sampler.localhost/counters.raw").exists()
    (cell,) = [
        one
        for one in report_cells(directory.parents[2])
        if one["dimensions"]["op_size"] == LEFT_ALONE
    ]
    assert cell["figures"]["osd_cpu_busy_cores"] > 0, cell["warnings"]


def test_a_cell_that_was_left_alone_names_its_processes(cells: dict[int, Any]) -> None:
    cell = cells[LEFT_ALONE]
    assert cell["state"] == "finished", cell["reason"]
    (osds,) = [one for one in cell["proof"]["overlays"] if one["overlay"] == "osds"]
    assert osds["reason"].startswith("2 of 2 OSDs were the same processes throughout")
    for evidence in osds["evidence"].values():
        assert evidence["pid"] and evidence["start_ticks"] and evidence["up_from"]
        assert evidence["ops"] > 0
        assert evidence["pgs"] >= evidence["primary_pgs"] > 0
