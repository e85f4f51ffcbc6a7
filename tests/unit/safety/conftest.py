"""Disks that are files on loop devices, with the real wipefs, dd, lsblk and mkfs."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import pytest

from cbt_crypto.hosts import directories
from cbt_crypto.hosts.devices import destroy


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Bench:
    """A host with a directory of ours and disks."""

    folder: Path
    #: Has no other test give back or take loop devices until this one ends.
    be_alone: Callable[[], None]
    attached: list[str] = field(default_factory=list)

    @property
    def tmp_dir(self) -> str:
        return str(self.folder / "own")

    def disk(self, name: str, mib: int = 64) -> tuple[Path, str]:
        """A file and the device on it."""
        path = self.folder / name
        with path.open("wb") as file:
            file.truncate(mib << 20)
        return path, self.attach(path)

    def attach(self, path: Path, device: Optional[str] = None) -> str:
        if device is None:
            device = run("losetup", "--find", "--show", str(path))
        else:
            self.be_alone()
            run("losetup", device, str(path))
        self.attached.append(device)
        return device

    def detach(self, device: str) -> None:
        self.be_alone()
        run("losetup", "--detach", device)
        self.attached.remove(device)

    def sh(self, text: str) -> subprocess.CompletedProcess[str]:
        """As a host runs it."""
        script = f"set -eu\nSUDO=\n{text}"
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)

    def begin(self, *paths: str, wipe: bool = False) -> None:
        """What a run does first; its user's state tracks the earlier ones."""
        said = self.good(destroy.identify(self.tmp_dir, paths))
        notes = {
            path: {"identity": known, "uuid": f"{n:08x}-0000-4000-8000-00000000c0de", "wipe": wipe}
            for n, (path, known) in enumerate(json.loads(said).items(), 0xCB7)
        }
        tracked = [note["uuid"] for note in notes.values()]
        text = destroy.record(self.tmp_dir, notes, tracked)
        self.good(directories.make(self.tmp_dir) + text)

    def good(self, text: str) -> str:
        done = self.sh(text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, text: str) -> str:
        done = self.sh(text)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def notes(self) -> Any:
        return json.loads((Path(self.tmp_dir) / destroy.NOTES).read_text())


def _loops_over(path: Path) -> Iterator[str]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        # Another test may just give back its own.
        with contextlib.suppress(OSError):
            if backing.read_text().strip() == str(path):
                yield backing.parts[3]


def flush(path: Path) -> None:
    """Write what the kernel still holds for a disk; `sync` would wait for all disks there are."""
    mounts = Path("/proc/mounts").read_text()
    for name in _loops_over(path):
        if f"/dev/{name}" in mounts:
            os.sync()
        for device in (f"/dev/{name}", *glob.glob(f"/dev/{name}p*")):
            with open(device, "rb") as opened:
                os.fsync(opened)
    with path.open("rb") as file:
        os.fsync(file)


def digest(path: Path) -> str:
    flush(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def bench(tmp_path: Path, kept_loop_devices: Callable[[], None]) -> Iterator[Bench]:
    made = Bench(tmp_path, kept_loop_devices)
    yield made
    for device in made.attached:
        run("losetup", "--detach", device)
