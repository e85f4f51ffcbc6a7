"""Deployments side by side are added until a precision, through a kill -9: on real Ceph."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import time
from typing import Any

import pytest
import yaml
from scipy import stats

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: Deployments before which no campaign ends, and after which this one does.
FIRST, MOST = 4, 6
TIME = {"precision": "99%", "min": 2, "max": 60, "block": 2}
LOAD = {"vol_size": 32, "iodepth": 8, "op_size": 4096, "mode": "randread", "time": TIME}


@pytest.fixture(scope="module")
def ran(machine_factory: Any) -> tuple[Any, subprocess.CompletedProcess[str], list[str]]:
    """Killed while the second deployment is measured, and run again."""
    machine = machine_factory("until")
    config = machine.write(
        {"crc": {}, "secure": {"secure_messenger": {}}}, {"rbd_single_client": LOAD}
    )
    document = yaml.safe_load(config.read_text())
    section = document["cluster"]
    del section["order"]
    section |= {"layout": "side_by_side", "turns": 1, "iterations": MOST, "osd_file_size": "4G"}
    section["settings"] = {"osd_memory_target": "2G"}
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    running = subprocess.Popen(
        machine.command(config), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    end = time.monotonic() + 400
    while len(machine.cells()) < 3 and running.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    running.kill()
    output = running.communicate()[0]
    before = [str(cell["directory"].name) for cell in machine.cells()]
    assert len(before) >= 3, output
    return machine, machine.run(config), before


def test_every_cell_is_measured_once_and_nothing_is_left(ran: Any) -> None:
    machine, done, before = ran
    assert done.returncode == 0, done.stdout + done.stderr
    cells = machine.cells()
    turns = [(cell["configuration"], cell["iteration"]) for cell in cells]
    assert len(set(turns)) == len(turns)
    assert {cell["state"] for cell in cells} == {"finished"}
    assert {cell["directory"].name for cell in cells} >= set(before)
    assert not (machine.archive / "results" / "superseded").exists()
    assert machine.leftovers() == []


def test_what_was_deployed_anew_has_the_slices_of_the_one_that_was_killed(ran: Any) -> None:
    machine, _, _ = ran
    for cell in machine.cells():
        assert cell["slices"] == cell["iteration"]
    osds = {(c["configuration"], c["slices"]): sorted(c["storage"]) for c in machine.cells()}
    for number in range(3):
        assert osds["crc", number] == osds["secure", number + 1]


def test_it_ends_at_the_fewest_deployments_that_reach_the_precision(ran: Any) -> None:
    """By Student's t of scipy from what the cells say themselves."""
    machine, done, _ = ran
    ratios = _ratios({_turn(cell): cell["block"]["iops"]["read"] for cell in machine.cells()})
    wanted = math.log1p(0.99)
    enough = [count for count in range(FIRST, MOST) if _half(ratios[:count]) <= 0.98 * wanted]
    assert len(ratios) == (enough[0] if enough else MOST), done.stdout


def test_the_report_has_the_interval_of_all_deployments(ran: Any) -> None:
    """By Student's t of scipy from what fio's own output says."""
    machine, done, _ = ran
    ratios = _ratios({_turn(cell): _fio_iops(cell) for cell in machine.cells()})
    report = json.loads((machine.archive / "report.json").read_text())
    ((section,),) = [table["sections"] for table in report["tables"]]
    (row,) = [cell for cell in section["cells"] if cell["name"] == "secure"]
    found = row["comparisons"]["iops"]
    assert found["basis"].startswith(f"{len(ratios)} deployments side by side"), done.stdout
    assert math.log(found["percent"] / 100) == pytest.approx(statistics.fmean(ratios))
    assert math.log(found["high"] / found["percent"]) == pytest.approx(_half(ratios))


def _turn(cell: Any) -> tuple[str, int]:
    return cell["configuration"], cell["iteration"]


def _fio_iops(cell: Any) -> float:
    (output,) = cell["directory"].glob("json_output.0.*")
    side = json.loads(output.read_text())["jobs"][0]["read"]
    # fio's own leaves out what was in flight when the ramp ended
    return float(1000 * side["clat_ns"]["N"] / side["runtime"])


def _ratios(iops: dict[tuple[str, int], float]) -> list[float]:
    """Logarithms of secure by crc, of each deployment."""
    numbers = sorted({number for _, number in iops})
    return [math.log(iops["secure", number] / iops["crc", number]) for number in numbers]


def _half(ratios: list[float]) -> float:
    """Half the interval at 95 %: of Stein's and of Student's the wider one.

    Of one turn on each deployment: the first ones' spread is taken for no less than that of all.
    """
    spread = [float(stats.tstd(own)) for own in (ratios[:FIRST], ratios)]
    first, student = max(spread), spread[1]
    return max(
        deviation * float(stats.t.ppf(0.975, count - 1)) / math.sqrt(len(ratios))
        for deviation, count in ((first, FIRST), (student, len(ratios)))
    )
