"""What was read of cells before, kept in the user's own cache: a report reads what is new.

Never in the archive: somebody else may have written that, and a record that lies beside its files
would be believed in their place. What is kept holds for the very files that it was made of, for the
code that made it, and for no other user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Optional

from pydantic import TypeAdapter

import cbt_crypto
from cbt_crypto.archive.documents import PlannedCell
from cbt_crypto.archive.folder import Folder
from cbt_crypto.archive.problem import Malformed
from cbt_crypto.archive.safe_read import read_document
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directories.user_cache import cache_dir
from cbt_crypto.results.cell.run import Run, read_run

#: Files as young as this may change once more without a newer time, as clocks of file systems tick.
RESTED_S = 2.0
#: For how long the records of an archive are kept that nobody reads.
_UNUSED_S = 60 * 86_400.0
#: What decides how a run comes out, beside its files.
_ROOMS = ("archive", "results")
_LIBRARIES = ("arch", "numpy", "pydantic")
#: The file that says of which archive a directory's records are; as old as their last use.
_ARCHIVE = "archive"


@dataclass(frozen=True)
class Kept:
    """The records of one archive's cells. `directory` is None where none can be kept."""

    directory: Optional[Path]

    @classmethod
    def of(cls, archive: Path) -> Kept:
        """Those of an archive; those of archives that nobody asks for any more are removed."""
        try:
            return cls(_directory(archive.resolve()))
        except (OSError, RuntimeError, UsageError):
            return cls(None)

    def find(self, folder: Folder, planned: PlannedCell) -> Optional[Run]:
        """The run of a cell, if its files are those that it was read from; else None."""
        key = _key(folder, planned)
        if self.directory is None or key is None:
            return None
        try:
            document = json.loads(read_document(self.directory / _name(planned)))
            return _adapter().validate_python(document["run"]) if document["of"] == key else None
        except (Malformed, ValueError, TypeError, KeyError, RecursionError):
            return None

    def read(self, folder: Folder, planned: PlannedCell) -> Run:
        """Read the cell, and keep what was read if nothing can have changed meanwhile."""
        before, began = _key(folder, planned), time.time()
        run = read_run(folder, planned)
        if self.directory is not None and before is not None:
            rested = began - _changed(_cell_directory(folder, planned)) > RESTED_S
            if rested and _key(folder, planned) == before:
                with contextlib.suppress(OSError):
                    _write(self.directory / _name(planned), before, run)
        return run


def _directory(archive: Path) -> Optional[Path]:
    """Where records of this archive are; None where somebody else could put some."""
    records = cache_dir() / "records"
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = records.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    _clear(records)
    directory = records / hashlib.sha256(os.fsencode(archive)).hexdigest()[:32]
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / _ARCHIVE).write_bytes(os.fsencode(archive))
    return directory


def _clear(records: Path) -> None:
    """Remove the records of archives that were not read for long.

    Whether such an archive is still there is not asked: it may be on a server that does not answer.
    """
    for directory in records.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - (directory / _ARCHIVE).stat().st_mtime > _UNUSED_S:
                shutil.rmtree(directory, ignore_errors=True)


def _name(planned: PlannedCell) -> str:
    return f"{hashlib.sha256(planned.path.encode()).hexdigest()[:32]}.json"


def _cell_directory(folder: Folder, planned: PlannedCell) -> Path:
    """Raises Malformed for one outside of the archive."""
    cell = folder.cell(planned.path)
    return cell.root / cell.relative


def _key(folder: Folder, planned: PlannedCell) -> Optional[str]:
    """A digest of all that decides what is read; None where that is not known beforehand."""
    try:
        files = list(_files(_cell_directory(folder, planned)))
    except (OSError, Malformed):
        return None
    if not files or any(stat.S_ISLNK(status.st_mode) for _, status in files):
        return None
    states = [[name, s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns]
              for name, s in files]  # fmt: skip
    text = json.dumps([code(), planned.model_dump(mode="json"), states], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _files(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All that is in a directory and below, by name, itself first. Follows no links."""
    yield "", directory.stat()
    for path, folders, files, at in os.fwalk(directory):
        for name in sorted((*folders, *files)):
            yield f"{path}/{name}", os.stat(name, dir_fd=at, follow_symlinks=False)


def _changed(directory: Path) -> float:
    """When anything in a directory last changed, in seconds since the epoch."""
    return max(max(status.st_mtime, status.st_ctime) for _, status in _files(directory))


@lru_cache(maxsize=1)
def code() -> str:
    """A digest of what reads: a record of other code is of no use."""
    digest = hashlib.sha256(sys.version.encode())
    root = Path(cbt_crypto.__file__).parent
    for path in sorted(path for room in _ROOMS for path in (root / room).rglob("*.py")):
        digest.update(path.read_bytes())
    for library in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest.update(f"{library} {metadata.version(library)}".encode())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Run]:
    return TypeAdapter(Run)


def _write(path: Path, key: str, run: Run) -> None:
    """Whole or not at all, readable by this user alone."""
    # Not pydantic's JSON: it writes NaN as null.
    value: dict[str, Any] = {"of": key, "run": _adapter().dump_python(run)}
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(value, file)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
