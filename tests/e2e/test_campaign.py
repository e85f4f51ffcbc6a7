"""A whole campaign on this machine: three configurations by the article's three scenarios."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CONFIGURATIONS = {
    "Unencrypted": {},
    "Secure messenger": {"secure_messenger": {}},
    "OSDs on 1 core": {"cpuset": {"osd_cores": 1}},
}
_SHORT = {"vol_size": 128, "time": 4, "ramp": 1, "op_size": 4096, "mode": "randread"}
BENCHMARKS = {
    "rbd_multi_client": {**_SHORT, "volumes_per_client": 2, "iodepth": 16},
    "rbd_single_client": {**_SHORT, "iodepth": 16},
    "rbd_single_client_sync": _SHORT,
}


@pytest.fixture(scope="module")
def ran(machine_factory: Callable[[str], Any]) -> tuple[Any, subprocess.CompletedProcess[str]]:
    machine = machine_factory("campaign")
    done = machine.run(machine.write(CONFIGURATIONS, BENCHMARKS))
    return machine, done


def _verdict(cell: dict[str, Any], overlay: str) -> dict[str, Any]:
    return next(v for v in cell["proof"]["overlays"] if v["overlay"] == overlay)


def test_it_ends_with_the_tables_of_every_scenario(ran: Any) -> None:
    machine, done = ran
    assert done.returncode == 0, done.stdout + done.stderr
    for name in (*CONFIGURATIONS, *BENCHMARKS):
        assert name in done.stdout
    assert str(machine.archive / "report.html") in done.stdout.replace("\n", "")
    for name in ("report.md", "report.csv", "report.json", "report.html"):
        assert (machine.archive / name).stat().st_size > 0


def test_every_cell_is_measured_and_proved(ran: Any) -> None:
    machine, _ = ran
    cells = machine.cells()
    assert len(cells) == len(CONFIGURATIONS) * len(BENCHMARKS)
    assert {cell["state"] for cell in cells} == {"finished"}
    assert all(cell["proof"]["proved"] for cell in cells)
    assert all(process["exit_status"] == 0 for cell in cells for process in cell["processes"])


def test_the_proofs_say_what_each_configuration_is(ran: Any) -> None:
    machine, _ = ran
    for cell in machine.cells():
        messenger = _verdict(cell, "secure_messenger")
        cpuset = _verdict(cell, "cpuset")
        secure = cell["configuration"] == "Secure messenger"
        assert messenger["present"] is secure
        assert f"encrypted {'every' if secure else 'no'} byte" in messenger["reason"]
        assert cpuset["present"] is (cell["configuration"] == "OSDs on 1 core")
        assert cpuset["proved"]


def test_every_cell_has_the_cpu_figures_of_its_seconds(ran: Any, report_cells: Any) -> None:
    machine, _ = ran
    cells = report_cells(machine.archive)
    assert len(cells) == len(CONFIGURATIONS) * len(BENCHMARKS)
    for cell in cells:
        assert cell["figures"].get("osd_cpu_busy_cores"), cell["warnings"]


def test_clients_cost_more_than_fios_own_thread(ran: Any, report_cells: Any) -> None:
    """fio's usr_cpu and sys_cpu are of its job's thread; librbd works in others."""
    machine, _ = ran
    for cell in report_cells(machine.archive):
        figures = cell["figures"]
        both = figures["client_cpu_user_us_per_io"] + figures["client_cpu_sys_us_per_io"]
        assert figures["client_cpu_us_per_io"] == pytest.approx(both)
        by_fio = figures["fio_usr_cpu_percent"] + figures["fio_sys_cpu_percent"]
        assert both * figures["iops"] / 1e4 > 1.5 * by_fio > 0


def test_files_are_where_cbt_puts_them(ran: Any) -> None:
    machine, _ = ran
    for cell in machine.cells():
        directory = cell["directory"]
        assert (directory / "json_output.0.localhost").exists()
        assert (directory / "benchmark_config.yaml").exists()
        assert list(directory.glob("collectl.localhost/*.raw.gz"))
        assert list(directory.glob("output.0_clat_hist.1.log.localhost"))


def test_nothing_is_left_on_the_machine(ran: Any) -> None:
    machine, _ = ran
    assert machine.leftovers() == []


def test_no_key_is_in_the_archive(ran: Any) -> None:
    machine, _ = ran
    found = subprocess.run(
        ["grep", "-rlE", r"key = [A-Za-z0-9+/]{38,}=", str(machine.archive)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout == ""


def test_run_again_keeps_what_is_finished_and_measures_what_is_not(ran: Any) -> None:
    machine, _ = ran
    config = machine.directory / "campaign.yaml"
    again = machine.run(config)
    assert again.returncode == 0
    assert "every cell is in the archive already" in again.stdout

    kept = {cell["id"]: cell["started"] for cell in machine.cells()}
    gone = machine.cells()[0]
    shutil.rmtree(gone["directory"])
    third = machine.run(config)
    assert third.returncode == 0, third.stdout + third.stderr
    assert "cell 1/1" in third.stdout
    now = {cell["id"]: cell["started"] for cell in machine.cells()}
    assert now.keys() == kept.keys()
    assert {key for key in now if now[key] != kept[key]} == {gone["id"]}


def test_another_file_is_refused_for_this_archive(ran: Any) -> None:
    machine, _ = ran
    other = machine.directory / "other.yaml"
    text = (machine.directory / "campaign.yaml").read_text()
    other.write_text(text.replace("vol_size: 128", "vol_size: 256"))
    refused = machine.run(other)
    assert refused.returncode == 2
    assert "was written for another campaign file" in refused.stderr
