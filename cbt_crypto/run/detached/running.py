"""The process that runs a campaign into an archive on this machine, as the kernel knows it.

Files of an archive, its lock's text among them, say what anybody wrote there. That a process has
the archive's lock, only the kernel can say.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

#: `1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF`; those that wait have an arrow.
_FLOCK = re.compile(r"^\d+:\s+FLOCK\s+\S+\s+WRITE\s+(\d+)\s")


@dataclass(frozen=True)
class Running:
    """A process that holds the lock of an archive, and whom it belongs to."""

    pid: int
    uid: int


def running(archive: Path) -> Optional[Running]:
    """Who runs a campaign into the archive on this machine; None when nobody is seen to."""
    try:
        lock = os.lstat(archive / ".lock")
    except OSError:
        return None
    # A second name of it could be a file that a process of somebody else has locked.
    if not stat.S_ISREG(lock.st_mode) or lock.st_nlink != 1:
        return None
    for pid in _holders():
        if holds(pid, lock):
            with contextlib.suppress(OSError):
                return Running(pid, os.stat(f"/proc/{pid}").st_uid)
    return None


def holds(pid: int, lock: os.stat_result) -> bool:
    """Whether the process has that very file open, and locked for itself."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                opened_file = os.stat(f"/proc/{pid}/fd/{name}")
                if os.path.samestat(opened_file, lock) and _locked(pid, name):
                    return True
    return False


def _locked(pid: int, descriptor: str) -> bool:
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
        kind, _, text = line.partition(":")
        match = _FLOCK.match(text.strip()) if kind == "lock" else None
        # One that was handed the descriptor by somebody else has not locked it.
        if match and int(match[1]) == pid:
            return True
    return False


def _holders() -> Iterator[int]:
    """Processes that have a lock of this kind on anything."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return
    locks = (match for match in map(_FLOCK.match, lines) if match)
    yield from dict.fromkeys(int(match[1]) for match in locks if int(match[1]) > 0)
