"""Disks of the fault lab's nodes: files on this machine's loop devices."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fault_lab import Laboratory

_BYTES = 2 << 30


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def disks(where: Path, *names: str) -> Iterator[dict[str, str]]:
    """A disk of 2 GiB for each name -> its loop device."""
    found = {}
    try:
        for name in names:
            with (where / name).open("wb") as file:
                file.truncate(_BYTES)
            found[name] = run("losetup", "--find", "--show", str(where / name))
        yield found
    finally:
        for device in found.values():
            subprocess.run(["losetup", "--detach", device], check=False)


def swap(where: Path, found: dict[str, str], one: str, two: str) -> None:
    """As a reboot may: each is found at the other's place."""
    run("losetup", "--detach", found[one])
    run("losetup", "--detach", found[two])
    found[one], found[two] = found[two], found[one]
    for name in (one, two):
        run("losetup", found[name], str(where / name))


def plug_in(lab: Laboratory, index: int, *devices: str) -> None:
    """Make the nodes of devices, as udev would."""
    for device in devices:
        number = os.minor(os.stat(device).st_rdev)
        lab.on(index, f"[ -b {device} ] || mknod -m 660 {device} b 7 {number}")


def digest(path: Path) -> str:
    os.sync()
    result = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            result.update(block)
    return result.hexdigest()
