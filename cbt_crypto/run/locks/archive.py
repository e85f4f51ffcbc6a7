"""One run at a time in an archive."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cbt_crypto.archive.files import printable
from cbt_crypto.errors import UsageError
from cbt_crypto.run.locks import holder


@contextlib.contextmanager
def locked(archive: Path) -> Iterator[None]:
    """Hold the archive while the block runs; UsageError names who holds it already."""
    # Not filelock: the file says who holds it, and filelock empties it when it opens it. Nor
    # does that look whether an archive of others has a link or a pipe in this place.
    archive.mkdir(parents=True, exist_ok=True)
    with os.fdopen(_opened(archive / ".lock"), "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = printable(file.read(4096).strip()) or "another run"
            raise UsageError(f"{archive}: is in use by {who}; wait for it or end it") from error
        except OSError as error:
            raise UsageError(
                f"{archive}: cannot be locked ({error.strerror}); name one on a local file system"
            ) from error
        file.truncate(0)
        file.write(holder.describe(holder.this_run(archive)))
        file.flush()
        yield


def _opened(path: Path) -> int:
    """The lock's file. Raises UsageError for a link, a pipe, or a file that has another name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Whoever may open it could lock it, and so keep everybody out.
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise UsageError(f"{path}: is not a file of ours; remove it") from None
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise UsageError(f"{path}: is not a file of ours; remove it")
    if status.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)
    return descriptor
