"""The walk below a device, in made-up kernel trees, and what real processes have open."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import storage_on_host
from cbt_crypto.hosts.devices.layers_on_host import Layers, number, without_key
from cbt_crypto.hosts.devices.storage_on_host import opened_by_osd

pytestmark = pytest.mark.unit

TABLE = "0 2048 crypt aes-xts-plain64 :64:logon:cryptsetup:uuid-d0 0 8:1 32768"


class Tree:
    """A /sys of devices, some on top of others."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{text}\n")

    def device(self, number: str, folder: str, *slaves: str) -> None:
        self.write(f"sys/{folder}/dev", number)
        link = self.root / "sys/dev/block" / number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / "sys" / folder)
        for slave in slaves:
            self.write(f"sys/{folder}/slaves/{slave}/dev", slave)

    def mapping(self, number: str, name: str, uuid: str, *slaves: str) -> None:
        folder = f"devices/virtual/block/dm-{number.partition(':')[2]}"
        self.device(number, folder, *slaves)
        self.write(f"sys/{folder}/dm/name", name)
        self.write(f"sys/{folder}/dm/uuid", uuid)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.device("8:0", "devices/pci/block/sda")
    made.device("8:1", "devices/pci/block/sda/sda1")
    made.write("sys/devices/pci/block/sda/sda1/partition", "1")
    return made


@pytest.fixture
def layers(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Layers:
    monkeypatch.setattr(Layers, "table", lambda self, device: f"table of {device}")
    return Layers(str(tree.root))


def test_a_partition_lies_on_its_disk(layers: Layers) -> None:
    assert layers.below("8:1") == [
        {"device": "8:1", "name": "sda1", "on": "8:0"},
        {"device": "8:0", "name": "sda"},
    ]


def test_a_mapping_on_a_volume_on_a_partition(tree: Tree, layers: Layers) -> None:
    tree.mapping("253:0", "volume", "LVM-abc", "8:1")
    tree.mapping("253:1", "secret", "CRYPT-LUKS2-def-secret", "253:0")
    assert layers.below("253:1") == [
        {
            "device": "253:1",
            "name": "dm-1",
            "mapping": "secret",
            "uuid": "CRYPT-LUKS2-def-secret",
            "table": "table of 253:1",
            "on": "253:0",
        },
        {
            "device": "253:0",
            "name": "dm-0",
            "mapping": "volume",
            "uuid": "LVM-abc",
            "table": "table of 253:0",
            "on": "8:1",
        },
        {"device": "8:1", "name": "sda1", "on": "8:0"},
        {"device": "8:0", "name": "sda"},
    ]


def test_a_loop_device_lies_on_its_file(tree: Tree, layers: Layers, tmp_path: Path) -> None:
    tree.device("7:0", "devices/virtual/block/loop0")
    tree.write("sys/devices/virtual/block/loop0/loop/backing_file", str(tmp_path))
    below = number(os.stat(tmp_path).st_dev)
    if not (tree.root / "sys/dev/block" / below).exists():
        tree.device(below, "devices/pci/block/vda")
    assert [layer["device"] for layer in layers.below("7:0")][:2] == ["7:0", below]


def test_a_loop_device_whose_file_has_no_path_here(tmp_path: Path, loop_devices: None) -> None:
    """It was deleted, or this is a container: the proof ended with a traceback."""
    file = tmp_path / "disk"
    file.write_bytes(bytes(1 << 20))
    where = os.stat(file).st_dev
    attach = ["losetup", "--find", "--show", str(file)]
    device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    try:
        file.unlink()
        below = Layers().below(number(os.stat(device).st_rdev))
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert below[1]["device"] == number(where)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_loop_device_over_another_device(
    tmp_path: Path, loop_devices: None, is_named: bool
) -> None:
    """It was said to be on the file system of /dev, and so on nothing encrypted."""
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    attached: list[str] = []
    try:
        for path in (tmp_path / "disk", tmp_path / "node"):
            if path.name == "node":
                os.mknod(path, 0o600 | stat.S_IFBLK, os.stat(attached[0]).st_rdev)
            attach = ["losetup", "--find", "--show", str(path)]
            done = subprocess.run(attach, check=True, capture_output=True, text=True)
            attached.append(done.stdout.strip())
        if not is_named:
            (tmp_path / "node").unlink()
        numbers = [number(os.stat(device).st_rdev) for device in attached]
        below = Layers().below(numbers[1])
    finally:
        for device in reversed(attached):
            subprocess.run(["losetup", "--detach", device], check=True)
    assert [layer["device"] for layer in below[:2]] == numbers[::-1]


def test_a_loop_device_of_which_nothing_is_known(tree: Tree, layers: Layers) -> None:
    tree.device("7:0", "devices/virtual/block/loop0")
    tree.write("sys/devices/virtual/block/loop0/loop/backing_file", "/gone (deleted)")
    tree.write("dev/loop0", "")
    tree.write("proc/self/mountinfo", "36 35 0:98 / /data rw - overlay overlay rw")
    assert layers.below("7:0")[1:] == [{"device": "unknown", "name": "unknown"}]


def test_a_file_system_without_a_number_is_named(tree: Tree, layers: Layers) -> None:
    line = "36 35 0:98 / /data rw,noatime - overlay overlay rw,lowerdir=/lower"
    tree.write("proc/self/mountinfo", line)
    assert layers.below("0:98") == [{"device": "0:98", "name": "overlay"}]
    assert layers.below("0:99") == [{"device": "0:99", "name": "unknown"}]


def test_without_dmsetup_the_table_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Layers().table("253:0") is None


def test_no_key_is_passed_on() -> None:
    assert without_key(TABLE) == TABLE
    zeros = TABLE.replace(":64:logon:cryptsetup:uuid-d0", "0" * 128)
    assert without_key(zeros) == TABLE.replace(":64:logon:cryptsetup:uuid-d0", ":64:hidden")
    assert without_key("0 2048 linear 8:1 0") == "0 2048 linear 8:1 0"


def test_the_file_that_a_process_has_open(tmp_path: Path) -> None:
    file = tmp_path / "osd.0.block"
    file.touch()
    pid = str(os.getpid())
    assert opened_by_osd(pid, str(file)) == opened_by_osd(pid, None)
    with file.open():
        assert number(file.stat().st_dev) in opened_by_osd(pid, str(file))


def asked(pid_file: Path, file: Path) -> str:
    osd = {"pid_file": str(pid_file), "devices": {"data": "/nowhere"}, "file": str(file)}
    return json.dumps({"osd.0": osd})


def run(argument: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-c", shell.program(storage_on_host), argument]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    facts: dict[str, Any] = json.loads(printed)["osd.0"]
    return facts


def test_as_a_program(tmp_path: Path) -> None:
    file, pid_file = tmp_path / "osd.0.block", tmp_path / "osd.0.pid"
    file.touch()
    assert run(asked(pid_file, file)) == {"running": False, "named": {"data": None}, "opened": {}}
    pid_file.write_text(f"{os.getpid()}\n")
    with file.open():
        facts = run(asked(pid_file, file))
    device = number(file.stat().st_dev)
    assert facts["running"]
    assert facts["opened"][device][0]["device"] == device
