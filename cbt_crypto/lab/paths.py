"""Where images and labs are kept: below the user's cache directory, and nowhere else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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


def lab_dir(name: str) -> Path:
    """Everything that belongs to one lab; it is gone when the lab is down."""
    return cache_dir() / "labs" / name


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; it ends with this process, however that ends.

    Who holds it may remove the file. Raises UsageError with the sentence `busy` when another
    process holds it.
    """
    # Not filelock: it may take its lock on a file that the holder has just removed.
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(path, busy):
        yield


def _lock_file(path: Path, busy: str) -> IO[str]:
    while True:
        file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UsageError(busy) from None
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        # Whoever held it removed the file in between: the lock is on nothing.
        file.close()


def need_space(path: Path, size: int, what: str) -> None:
    """Raise UsageError unless the file system of `path` has `size` bytes left for `what`."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < size:
        raise UsageError(
            f"{what} needs {gigabytes(size)} below {path}, which has {gigabytes(free)} left; "
            "free some space, or set XDG_CACHE_HOME to a larger file system"
        )


def gigabytes(size: int) -> str:
    """A size in bytes as people read it, in binary gigabytes."""
    return f"{size / 2**30:.1f} GiB"
