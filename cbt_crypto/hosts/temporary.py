"""Temporary directories that say whose they are, so that a dead run's can be cleared.

They hold scripts and, for moments, keyrings; a killed process cannot remove its own.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import psutil


def prefix(kind: str) -> str:
    """The beginning of the name of a directory of this process."""
    return f"cbt-{kind}-{_numbering()}-{os.getpid()}-"


def clear_dead() -> None:
    """Remove what processes of ours that have ended left in the temporary directory."""
    name = re.compile(rf"cbt-[a-z]+-{_numbering()}-(\d+)-\w+")
    for path in Path(tempfile.gettempdir()).glob("cbt-*"):
        match = name.fullmatch(path.name)
        if not match or psutil.pid_exists(int(match[1])) or not _is_ours(path):
            continue
        shutil.rmtree(path, ignore_errors=True)


def _numbering() -> str:
    """Within what process ids are counted: containers may share a temporary directory."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and path.is_dir() and not path.is_symlink()
