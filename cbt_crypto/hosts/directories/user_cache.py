"""The user's cache directory on this machine, below which images, labs and read cells are kept."""

from __future__ import annotations

import contextlib
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
    _check(place, place.stat())


def _check(place: Path, status: os.stat_result) -> None:
    open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, os.geteuid()) or open_to_all:
        raise UsageError(
            f"{place}: can be written to by another user (it is of uid {status.st_uid}, mode "
            f"{stat.filemode(status.st_mode)}); set XDG_CACHE_HOME to a directory of yours"
        )


def own_below_cache(name: str) -> Path:
    """A directory of that name in the cache, made if need be, in which this user alone can write.

    Raises UsageError where somebody else could put another in the place of any directory on the way
    to it, or where the cache itself is a link; OSError where it cannot be made.
    """
    cache = cache_dir()
    cache = cache.parent.resolve() / cache.name
    for place in reversed((cache, *cache.parents)):
        _make(place)
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise UsageError(f"{place}: is a link")
        _check(place, status)
    own = cache / name
    make_own(own)
    return own


def make_own(place: Path) -> None:
    """Make a directory where this user alone can write. Raises UsageError for another one."""
    _make(place)
    status = place.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"{place}: is no directory in which you alone can write")


def _make(place: Path) -> None:
    """Level by level: what `parents` makes has the mode that the umask leaves it."""
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
