"""Where labs are kept: below the user's cache directory, and nowhere else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directories import cache_dir


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
