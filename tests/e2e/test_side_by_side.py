"""Three configurations under three loads side by side on one cluster of real Ceph."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CONFIGURATIONS = {"crc": {}, "secure": {"secure_messenger": {}}}
LOADS = {
    "rbd_single_client": {
        "vol_size": 64, "iodepth": 16, "time": 2,
        "workloads": [
            {"op_size": 4096, "mode": "randread"},
            {"op_size": 65536, "mode": "randread"},
            {"op_size": 65536, "mode": "randwrite"},
        ],
    }
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(machine_factory: Callable[[str], Any]) -> tuple[Any, subprocess.CompletedProcess[str]]:
    machine = machine_factory("beside")
    loads = LOADS["rbd_single_client"]
    common = {key: value for key, value in loads.items() if key != "workloads"}
    parts = [{**common, **one} for one in loads["workloads"]]  # type: ignore[union-attr]
    config = machine.write(CONFIGURATIONS, {"rbd_single_client": parts})
    document = yaml.safe_load(config.read_text())
    section = document["cluster"]
    del section["order"]
    section |= {"layout": "side_by_side", "turns": 1, "control": True, "osd_file_size": "6G"}
    section["settings"] = {"osd_memory_target": "3G"}
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    return machine, machine.run(config)


def test_nine_cells_on_one_deployment_that_is_filled_once(ran: Any) -> None:
    machine, done = ran
    assert done.returncode == 0, done.stdout + done.stderr
    cells = machine.cells()
    assert len(cells) == 9 and {cell["state"] for cell in cells} == {"finished"}
    assert len({cell["deployment"] for cell in cells}) == 1
    steps = json.loads((machine.archive / "results" / "timeline.json").read_text())["steps"]
    kinds = [(step["step"], step.get("how")) for step in steps]
    assert kinds.count(("deploy", "rebuild")) == kinds.count(("prefill", None)) == 1
    assert kinds.count(("deploy", "restart")) == 0


def test_each_cell_is_proved_to_be_of_its_own_osds_alone(ran: Any) -> None:
    machine, _ = ran
    osds: dict[str, set[str]] = {}
    for cell in machine.cells():
        assert cell["proof"]["proved"]
        (own,) = [one for one in cell["proof"]["overlays"] if one["overlay"] == "group"]
        (messenger,) = [
            one for one in cell["proof"]["overlays"] if one["overlay"] == "secure_messenger"
        ]
        assert messenger["present"] is (cell["configuration"] == "secure")
        ((pool, where),) = own["evidence"]["pools"].items()
        assert pool == f"rbd.{cell['group']}"
        assert {f"osd.{osd}" for osd in where} <= set(cell["storage"])
        assert len(cell["storage"]) == 2 and len(cell["idle"]) == 4
        assert max(own["evidence"]["client_bytes_of_idle_osds"].values()) < 1 << 20
        moved = [osd["counters"] for osd in cell["storage"].values()]
        assert (
            sum(one["client_read_bytes"] + one["client_written_bytes"] for one in moved) > 1 << 20
        )
        osds.setdefault(cell["configuration"], set()).update(cell["storage"])
    assert sorted(osd for own in osds.values() for osd in own) == [f"osd.{n}" for n in range(6)]


def test_all_groups_have_the_same_draw_of_crush(ran: Any) -> None:
    """Primaries and all: what the first OSD of one group has, the first of each other one has."""
    machine, _ = ran
    counts = set()
    for cell in machine.cells():
        (same,) = [one for one in cell["proof"]["overlays"] if one["overlay"] == "osds"]
        of_osds = [same["evidence"][name] for name in sorted(cell["storage"])]
        counts.add(tuple((osd["pgs"], osd["primary_pgs"]) for osd in of_osds))
    assert len(counts) == 1, counts


def test_it_carries_no_verdict_and_says_what_idled(ran: Any, report_cells: Any) -> None:
    machine, done = ran
    for cell in report_cells(machine.archive):
        assert cell["figures"]["idle_osds_cpu_percent"] >= 0
        assert cell["figures"]["idle_osds_drive_bytes_per_s"] >= 0
        assert cell["is_baseline"] or cell["comparisons"]["iops"]["differs"] is None
    assert "No verdict" in done.stdout


def test_nothing_is_left(ran: Any) -> None:
    machine, _ = ran
    assert machine.leftovers() == []
