"""What was read of cells before, in the user's own cache: a report reads what is new.

Never in the archive, which others may write. It holds for these very files, this code, this user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path, PurePath
from typing import Optional

from pydantic import TypeAdapter

import cbt_crypto
from cbt_crypto.archive.documents import PlannedCell
from cbt_crypto.archive.files import Malformed, Unreadable, read_document, write_whole
from cbt_crypto.archive.folder import Folder
from cbt_crypto.archive.pack import is_unpacked
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directories import make_own, own_below_cache
from cbt_crypto.results.cell.run import Run, read_run

#: Files as young as this may change once more without a newer time, as clocks of file systems tick.
RESTED_S = 2.0
#: For how long the records of an archive are kept that nobody reads.
_UNUSED_S = 60 * 86_400.0
#: The largest record, and all records of an archive together, in bytes; one of 50 client processes
#: takes 60,000. What somebody sent decides how large they are, and how many.
RECORD_LIMIT, ARCHIVE_LIMIT = 4 << 20, 512 << 20
#: A cell of more files, or of deeper directories, is none that a campaign wrote.
_MOST_FILES, _DEEPEST = 20_000, 16
#: What decides how a run comes out, beside its files.
_ROOMS = ("archive", "results")
_LIBRARIES = ("isal", "numpy", "pydantic")
#: The file that says of which archive a directory's records are; as old as their last use.
_ARCHIVE = "archive"
_DIRECTORY_NAME = re.compile(r"[0-9a-f]{32}")
_RECORD_NAME = re.compile(r"\.?([0-9a-f]{32}\.json|archive)(\.\w+)?")


@dataclass(frozen=True)
class ReadCell:
    """A run that was read from its files; `key` is what it can be found by, None if by nothing."""

    run: Run
    key: Optional[str] = None


class Kept:
    """The records of one archive's cells; none where none can be kept safely."""

    def __init__(self, directory: Optional[Path]) -> None:
        self._directory = directory
        self._room = 0 if directory is None else ARCHIVE_LIMIT - _size(directory)

    @classmethod
    def of(cls, archive: Path) -> Kept:
        """Those of an archive; those of archives that nobody asks for any more are removed."""
        try:
            path = archive.resolve()
            return cls(None if is_unpacked(path) else _directory(path))
        except (OSError, RuntimeError, UsageError):
            return cls(None)

    def find(self, folder: Folder, planned: PlannedCell) -> Optional[Run]:
        """The run of a cell, if its files are those that it was read from; else None."""
        state = None if self._directory is None else _state(folder, planned)
        if self._directory is None or state is None:
            return None
        try:
            data = read_document(self._directory / _name(planned), RECORD_LIMIT)
            document = json.loads(data)
            is_same = document["of"] == state.key
            return _adapter().validate_python(document["run"]) if is_same else None
        except (Malformed, ValueError, TypeError, KeyError, RecursionError):
            return None

    def read(self, folder: Folder, planned: PlannedCell) -> ReadCell:
        """Read the cell; with its key, if nothing can have changed or failed meanwhile."""
        if self._directory is None:
            return ReadCell(read_run(folder, planned))
        before, began, met = _state(folder, planned), time.time(), Unreadable.met
        run = read_run(folder, planned)
        is_sure = (
            before is not None
            and began - before.changed > RESTED_S
            and Unreadable.met == met
            and _state(folder, planned) == before
        )
        return ReadCell(run, before.key if before is not None and is_sure else None)

    def keep(self, planned: PlannedCell, read: ReadCell) -> None:
        """Keep what was read, if it has a key and there is room."""
        if self._directory is None or read.key is None:
            return
        # Not pydantic's JSON: it writes NaN as null.
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            value = {"of": read.key, "run": _adapter().dump_python(read.run)}
            data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
            if len(data) <= min(RECORD_LIMIT, self._room):
                write_whole(self._directory / _name(planned), data, 0o600)
                self._room -= len(data)


def _directory(archive: Path) -> Path:
    """Where records of this archive are. Raises UsageError where somebody else could put some."""
    records = own_below_cache("records")
    directory = records / hashlib.sha256(os.fsencode(archive)).hexdigest()[:32]
    if not directory.exists():
        _clear(records)
    make_own(directory)
    # Where there is no room for more, what is there can be read.
    with contextlib.suppress(OSError):
        write_whole(directory / _ARCHIVE, os.fsencode(archive), 0o600)
    return directory


def _clear(records: Path) -> None:
    """Remove the records of archives not read for long, on servers that may not answer."""
    for directory in records.iterdir():
        if not _DIRECTORY_NAME.fullmatch(directory.name):
            continue
        with contextlib.suppress(OSError, UsageError):
            make_own(directory)
            status = (directory / _ARCHIVE).lstat()
            if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _UNUSED_S:
                for path in directory.iterdir():
                    if _RECORD_NAME.fullmatch(path.name):
                        path.unlink()
                directory.rmdir()


def _size(directory: Path) -> int:
    try:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(directory))
    except OSError:
        return ARCHIVE_LIMIT


def _name(planned: PlannedCell) -> str:
    path = PurePath(planned.path).as_posix()
    return f"{hashlib.sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


@dataclass(frozen=True)
class _State:
    key: str
    changed: float


def _state(folder: Folder, planned: PlannedCell) -> Optional[_State]:
    """None where that is not known beforehand: of links, and of what no campaign wrote."""
    try:
        cell = folder.cell(planned.path)
        directory = cell.root / cell.relative
        # A cell without it is none, which is found out sooner than what else is there.
        if not stat.S_ISREG((directory / "cell.json").lstat().st_mode):
            return None
        files = [("", directory.stat()), *_below(directory)]
    except (OSError, Malformed, _Strange):
        return None
    states = [[name, s.st_mode, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns]
              for name, s in files]  # fmt: skip
    text = json.dumps([code(), planned.model_dump(), states], sort_keys=True, default=str)
    changed = max(max(status.st_mtime, status.st_ctime) for _, status in files)
    return _State(hashlib.sha256(text.encode()).hexdigest(), changed)


class _Strange(Exception):
    """A directory is none that a campaign wrote."""


def _below(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All that is below a directory, by name. Not os.walk: it passes over what it cannot list."""
    waiting, count = [""], 0
    while waiting:
        folder = waiting.pop()
        with os.scandir(directory / folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        count += len(listed)
        if count > _MOST_FILES or folder.count("/") > _DEEPEST:
            raise _Strange
        for entry in listed:
            status = entry.stat(follow_symlinks=False)
            name = f"{folder}{entry.name}"
            if stat.S_ISLNK(status.st_mode):
                raise _Strange
            if stat.S_ISDIR(status.st_mode):
                waiting.append(f"{name}/")
            yield name, status


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
