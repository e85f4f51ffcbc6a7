"""What is proved of a drive: what it is made of, what encrypts it, and what had it open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.devices import opened_on_host
from cbt_crypto.hosts.devices.layers_on_host import number
from cbt_crypto.run.targets.drive import DriveProof

pytestmark = pytest.mark.unit

LUKS = {"Default": {}, "LUKS": {"luks": {}}}
TABLE = "0 2048 crypt aes-xts-plain64 :64:logon:cryptsetup:uuid-d0 0 {} 32768"


def layer(device: str, **more: str) -> dict[str, str]:
    return {"device": device, "name": f"name-{device}", **more}


def mapping(device: str, name: str, below: str, **changes: str) -> dict[str, str]:
    table = TABLE.format(below)
    more = {"mapping": name, "uuid": "CRYPT-LUKS2-x", "table": table, **changes}
    return layer(device, **more)


def facts(path: str, named: dict[str, str], *layers: dict[str, str], **changes: Any) -> Any:
    found = {
        "running": True,
        "named": named,
        "path": path,
        "note": {"program": "fio", "pid": 1, "devices": [path]},
        "members": {},
        "opened": {path: list(layers)},
    }
    return {**found, **changes}


@pytest.fixture
def judged(on_drives: Any, place_of: Any) -> Any:
    """The verdict on a drive's facts, the same before and after the cell."""

    def judge(overlay: Any, drive: str, found: Any) -> Any:
        campaign = on_drives({"raw_device": {}}, configurations=LUKS)
        site = place_of(campaign, drive, "LUKS")
        name = f"drive {drive}"
        output = {site.clients[0]: json.dumps({name: found})}
        return overlay.judge(site, output, output)

    return judge


@pytest.fixture
def names(on_drives: Any, place_of: Any) -> Any:
    """The mapping on each part of a drive."""

    def of(drive: str) -> list[str]:
        campaign = on_drives({"raw_device": {}}, configurations=LUKS)
        site = place_of(campaign, drive, "LUKS")
        stack = Stack(campaign.configurations["LUKS"])
        parts = site.drives[0].parts
        drive = site.drives[0]
        return [stack.drive_device(drive, p, drive.parts[p]).rpartition("/")[2] for p in parts]

    return of


def test_luks_on_a_drive(judged: Any, names: Any) -> None:
    (name,) = names("NVMe")
    good = facts("253:0", {"data": "8:0"}, mapping("253:0", name, "8:0"), layer("8:0"))
    verdict = judged(Luks(), "NVMe", good)
    assert verdict.proved and verdict.reason == "1 of 1 drives are on dm-crypt as configured"
    other = judged(Luks(no_read_workqueue=True), "NVMe", good)
    assert not other.proved and "has flags none and not no_read_workqueue" in other.reason
    assert not judged(Luks.absent(), "NVMe", good).proved


def test_a_plain_drive(judged: Any) -> None:
    plain = facts("8:0", {"data": "8:0"}, layer("8:0"))
    assert judged(Luks.absent(), "NVMe", plain).proved
    verdict = judged(Luks(), "NVMe", plain)
    assert not verdict.proved and "it is not on cbt-crypto-" in verdict.reason


def test_luks_under_the_members_of_an_array(judged: Any, names: Any) -> None:
    first, second = names("RAID-0 of LUKS")
    named = {"member0": "8:0", "member1": "8:1"}
    array = layer("9:0", array="raid0 of 2, chunks of 512 KiB")
    layers = [
        array,
        *(mapping("253:0", first, "8:0"), layer("8:0")),
        *(mapping("253:1", second, "8:1"), layer("8:1")),
    ]
    good = facts("9:0", named, *layers, members={"/dev/sda": "8:0", "/dev/sdb": "8:1"})
    assert judged(Luks(), "RAID-0 of LUKS", good).proved
    assert judged(DriveProof(), "RAID-0 of LUKS", good).proved
    half = facts("9:0", named, array, *layers[1:3], layer("8:1"))
    assert second in judged(Luks(), "RAID-0 of LUKS", half).reason


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"note": {}}, "no process was seen that has it open"),
        ({"note": {"program": "fio", "devices": ["8:7"]}}, "fio had 8:7 open"),
        ({"path": None}, "is not there"),
        ({"opened": {"8:0": []}}, "is not on /dev/nvme0n1"),
    ],
)
def test_what_a_drive_is_not(judged: Any, changes: Any, sentence: str) -> None:
    found = {**facts("8:0", {"data": "8:0"}, layer("8:0")), **changes}
    verdict = judged(DriveProof(), "NVMe", found)
    assert not verdict.proved and sentence in verdict.reason


@pytest.mark.parametrize("array", ["raid1 of 2, chunks of 64 KiB", "raid0 of 3, chunks of 64 KiB"])
def test_an_array_of_another_kind(judged: Any, array: str) -> None:
    found = facts("9:0", {"data": "9:0"}, layer("9:0", array=array), layer("8:0"), layer("8:1"))
    verdict = judged(DriveProof(), "RAID-0", found)
    assert not verdict.proved and "and not raid0 of 2, chunks of 64 KiB" in verdict.reason


def test_the_process_that_has_a_file_open_is_found(tmp_path: Any) -> None:
    """A real process with a file below the folder, found by its name and mark alone."""
    folder, note = tmp_path / "mnt", tmp_path / "note"
    folder.mkdir()
    program = "import sys, time; f = open(sys.argv[1], 'w'); print('open', flush=True)\n"
    program += "time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "file")],
        stdout=subprocess.PIPE, env={**os.environ, "CBT_CRYPTO_MARK": f"{tmp_path}@h"},
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        comm = Path(f"/proc/{process.pid}/comm").read_text().strip()
        asked = {"program": comm, "mark": f"{tmp_path}@h", "folder": str(folder), "seconds": 10}
        opened_on_host.main({**asked, "note": str(note)})
    finally:
        process.kill()
        process.wait()
    device = number(os.stat(folder).st_dev)
    assert json.loads(note.read_text()) == {
        "program": comm,
        "pid": process.pid,
        "devices": [device],
    }


def test_nothing_is_noted_of_strangers(tmp_path: Any) -> None:
    asked = {"program": "python3", "mark": "nobody's", "folder": str(tmp_path), "seconds": 0.1}
    opened_on_host.main({**asked, "note": str(tmp_path / "note")})
    assert json.loads((tmp_path / "note").read_text()) == {}
