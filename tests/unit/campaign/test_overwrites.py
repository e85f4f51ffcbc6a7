"""How often drives were written over before a cell: counted, kept, and told where rows differ."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.hosts.devices import traffic_on_host
from cbt_crypto.run.age import Overwrites, carriers

pytestmark = pytest.mark.unit

GIB = 1 << 30


def device(name: str, written: int, size: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"device": name, "read_bytes": 0, "written_bytes": written}
    return {**found, "size_bytes": size} if size else found


def reading(written: int, **of: Any) -> dict[str, Any]:
    stack = [device("dm-0", written), device("sda", written + 7, 4 * GIB)]
    return {"osd.0": {"host": "h0", "counters": {}, "devices": [stack], "process": None, **of}}


def on_file(written: int) -> dict[str, Any]:
    process = {"read_bytes": 0, "written_bytes": written, "size_bytes": GIB}
    return reading(0, devices=[], process=process)


def test_a_mapping_and_its_drive_are_one_drive() -> None:
    assert list(carriers(reading(5))) == [("h0 sda", 12, 4 * GIB)]


def test_osds_that_share_a_drive_count_it_once() -> None:
    both = {**reading(5), "osd.1": reading(5)["osd.0"]}
    counted = Overwrites()
    counted.begin(both)
    found = counted.around([{**reading(5), "osd.1": reading(105)["osd.0"]}, both])
    assert found == {"h0 sda": {"written_bytes": 100, "size_bytes": 4 * GIB}}


def test_it_counts_from_the_deployment_on_with_all_that_was_between_cells() -> None:
    counted = Overwrites()
    counted.begin(reading(1000))
    assert counted.around([reading(4000), reading(4500)])["h0 sda"]["written_bytes"] == 3000
    assert counted.around([reading(5000), reading(9000)])["h0 sda"]["written_bytes"] == 4000
    counted.begin(reading(9000))
    assert counted.around([reading(9001), reading(9002)])["h0 sda"]["written_bytes"] == 1


def test_an_osd_on_a_file_that_is_restarted_goes_on_counting() -> None:
    counted = Overwrites()
    counted.begin(on_file(0))
    assert counted.around([on_file(2 * GIB), on_file(3 * GIB)]) == {
        "h0 osd.0": {"written_bytes": 2 * GIB, "size_bytes": GIB}
    }
    # its process began to count anew
    found = counted.around([on_file(100), on_file(200)])
    assert found["h0 osd.0"]["written_bytes"] == 3 * GIB + 100


def test_a_drive_that_nobody_knew_counts_from_when_it_is_seen() -> None:
    """A cluster that exists was written to by others; that is not known."""
    assert Overwrites().around([reading(500), reading(600)])["h0 sda"]["written_bytes"] == 0


def test_the_largest_open_file_is_the_osd_s(tmp_path: Path) -> None:
    with (tmp_path / "block").open("wb") as block, (tmp_path / "log").open("w") as log:
        block.truncate(1 << 40)
        log.write("x")
        assert traffic_on_host.largest_file(str(os.getpid())) == 1 << 40


def test_a_drive_that_is_named_is_read_by_its_path(loop_devices: None, tmp_path: Path) -> None:
    """As the kernel counts it: a loop device that is written over once and a half."""
    import subprocess  # noqa: PLC0415

    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    path = subprocess.check_output(["losetup", "--find", "--show", str(image)], text=True).strip()
    try:

        def now() -> dict[str, Any]:
            told: Any = traffic_on_host.main({"drive fast": [path]})
            return {"drive fast": {"host": "h0", "counters": {}, **told["drive fast"]}}

        counted = Overwrites()
        counted.begin(now())
        for mib in (8, 4):
            dd = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mib}", "oflag=direct"]
            subprocess.run(dd, check=True, capture_output=True)
        (found,) = counted.around([now(), now()]).values()
    finally:
        subprocess.run(["losetup", "--detach", path], check=True)
    assert found == {"written_bytes": 12 << 20, "size_bytes": 8 << 20}
