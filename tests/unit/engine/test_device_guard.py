"""The guard's script, run for real on loop devices."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from cbt_crypto.hosts.devices.destroy import DeviceGuard, device_guards
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    return path


@pytest.fixture
def attach(image: Path, loop_devices: None) -> Iterator[Callable[[], str]]:
    """Make the image a block device."""
    attached: list[str] = []

    def make(file: Path = image) -> str:
        attached.append(_run("losetup", "--find", "--show", str(file)))
        return attached[-1]

    yield make
    for device in attached:
        _run("losetup", "--detach", device)


Judge = Callable[..., Optional[str]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judged(device: str, wipe: Any = False) -> Optional[str]:
        (guard,) = device_guards(site_with(tmp_path, device), wipe)
        text = f"set -eu\nSUDO=\n(\n{guard.script}\n) 2>&1 || :"
        return guard.judge(_run("sh", "-c", text))

    return judged


def site_with(tmp_path: Path, device: str, db_device: Optional[str] = None) -> Site:
    osd = Osd(0, "o0", device, "/d", "/d.asok", "/d.pid", db_device=db_device)
    return Site(str(tmp_path), "/c", "head", ("c",), (osd,))


def test_a_free_device_will_do(attach: Callable[[], str], judge: Judge) -> None:
    assert judge(attach()) is None


def test_a_link_to_a_free_device_will_do(
    attach: Callable[[], str], judge: Judge, tmp_path: Path
) -> None:
    link = tmp_path / "osd device-0 data"
    link.symlink_to(attach())
    assert judge(str(link)) is None


def test_the_system_s_device_is_refused_always(
    attach: Callable[[], str], judge: Judge, programs: Callable[[str, str], Path]
) -> None:
    device = attach()
    programs("findmnt", f"echo {device}")
    for wipe in (False, True, ["*"]):
        assert judge(device, wipe=wipe) == f"{device} holds the system; name another device"


def test_a_file_system_is_refused_unless_it_may_be_wiped(
    image: Path, attach: Callable[[], str], judge: Judge
) -> None:
    _run("mkfs.ext4", "-q", str(image))
    device = attach()
    assert judge(device) == (
        f"{device} carries data (ext4); name another device, or say wipe: true, or wipe: "
        f"[{device}], in the cluster section to have it overwritten"
    )
    assert judge(device, wipe=True) is None
    assert judge(device, wipe=["/dev/nvme*", "/dev/loop*"]) is None
    assert "carries data" in str(judge(device, wipe=["/dev/nvme*", device + "0"]))
    assert "carries data" in str(judge(device, wipe=[]))


def test_a_bluestore_of_another_cluster_is_refused(
    image: Path, attach: Callable[[], str], judge: Judge
) -> None:
    with image.open("r+b") as file:
        file.write(b"bluestore block device\n2f1c\n")
    sentence = judge(attach())
    assert sentence is not None
    assert "bluestore" in sentence


def test_a_mounted_device_is_refused_whatever_the_file_says(
    image: Path, attach: Callable[[], str], judge: Judge, tmp_path: Path
) -> None:
    _run("mkfs.ext4", "-q", str(image))
    device = attach()
    mount = tmp_path / "mnt"
    mount.mkdir()
    _run("mount", device, str(mount))
    try:
        sentence = judge(device, wipe=True)
    finally:
        _run("umount", str(mount))
    assert sentence == f"{device} is mounted, or a part of it is; name another device"


def test_a_device_that_somebody_holds_is_refused(attach: Callable[[], str], judge: Judge) -> None:
    device = attach()
    held = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        assert judge(device, wipe=True) == f"{device} is in use; name another device"
    finally:
        os.close(held)


@pytest.mark.parametrize("there", ["file", "nothing"])
def test_what_is_no_block_device_is_refused(judge: Judge, tmp_path: Path, there: str) -> None:
    path = tmp_path / "x y'z"
    if there == "file":
        path.touch()
    expected = f"{path} is not a block device there; fix osd_devices"
    assert judge(str(path), wipe=True) == expected


@pytest.mark.parametrize("tool", ["lsblk", "wipefs", "python3"])
def test_a_check_that_cannot_be_made_counts_against_the_device(
    attach: Callable[[], str], judge: Judge, programs: Callable[[str, str], Path], tool: str
) -> None:
    device = attach()
    programs(tool, "echo no >&2; exit 1")
    sentence = judge(device, wipe=True)
    assert sentence is not None
    assert sentence.startswith(device)


def test_silence_counts_against_the_device() -> None:
    guard = DeviceGuard("d", ("o0",), "", device="/dev/sdb", wipe=True)
    assert guard.judge("") == "/dev/sdb cannot be read"


def test_the_device_of_a_database_is_guarded_too(tmp_path: Path) -> None:
    guards = device_guards(site_with(tmp_path, "/dev/a", "/dev/b"), wipe=False)
    assert [guard.device for guard in guards] == ["/dev/a", "/dev/b"]


def test_names_by_order_are_warned_of() -> None:
    guard = DeviceGuard("d", ("o0",), "", device="/dev/sdb")
    said = guard.advice("ok\nstable /dev/disk/by-id/wwn-0x5000\n")
    assert said == (
        "/dev/sdb may be another drive after a reboot; name it /dev/disk/by-id/wwn-0x5000, which "
        "stays"
    )
    assert guard.advice("ok\nstable \n") is None
    stable = DeviceGuard("d", ("o0",), "", device="/dev/disk/by-id/wwn-0x5000")
    assert stable.advice("ok\nstable /dev/disk/by-id/wwn-0x5000\n") is None


def test_a_device_that_cannot_discard_is_refused(
    attach: Callable[..., str], tmp_path: Path, without_discards: Path
) -> None:
    there = without_discards / "disk"
    with there.open("wb") as file:
        file.truncate(64 << 20)

    def said(device: str, discard: bool) -> Optional[str]:
        (guard,) = device_guards(replace(site_with(tmp_path, device), discard=discard), False)
        return guard.judge(_run("sh", "-c", f"set -eu\nSUDO=\n(\n{guard.script}\n) 2>&1 || :"))

    assert said(attach(), True) is None
    cannot = attach(there)
    assert said(cannot, False) is None
    refusal = said(cannot, True)
    assert refusal is not None
    assert refusal.startswith(f"{cannot} does not support discards (lsblk says DISC-MAX 0)")
