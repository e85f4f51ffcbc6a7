"""The user's cache directory on this machine, below which images, labs and read cells are kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cbt_crypto.errors import UsageError


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/cbt-crypto`, or `~/.cache/cbt-crypto`.

    Raises UsageError where it is another user's: what is in it is run and removed. sudo may leave
    $HOME and $XDG_CACHE_HOME as the caller's.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    for place in (base, base / "cbt-crypto"):
        if place.exists():
            _check_owner(place)
    return base / "cbt-crypto"


def _check_owner(place: Path) -> None:
    status = place.stat()
    open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, os.geteuid()) or open_to_all:
        raise UsageError(
            f"{place}: can be written to by another user (it is of uid {status.st_uid}, mode "
            f"{stat.filemode(status.st_mode)}); set XDG_CACHE_HOME to a directory of yours"
        )
