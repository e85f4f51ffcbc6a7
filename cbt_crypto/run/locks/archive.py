"""One run at a time in an archive."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from cbt_crypto.errors import UsageError
from cbt_crypto.run.locks import holder


@contextlib.contextmanager
def locked(archive: Path) -> Iterator[None]:
    """Hold the archive while the block runs; UsageError names who holds it already."""
    archive.mkdir(parents=True, exist_ok=True)
    with (archive / ".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            who = file.read().strip() or "another run"
            raise UsageError(f"{archive}: is in use by {who}; wait for it or end it") from error
        file.truncate(0)
        file.write(holder.describe(holder.this_run(archive)))
        file.flush()
        yield
