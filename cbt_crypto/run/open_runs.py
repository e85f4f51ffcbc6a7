"""What this user's runs have deployed and not taken down: in a directory of his own.

An archive may come from anybody, so its journal is shown to people and never acted upon. A
run is taken down by what stands here, one file for each: written before the run touches anything,
removed when everything is down again.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.files import Malformed, read_document, write_json
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directory_on_host import Refused, check_directory

_NAME = re.compile(r"[0-9a-zA-Z]{1,64}")


def directory() -> Path:
    """Where they are. Not in $HOME, which sudo may leave as the caller's."""
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local" / "state"
    chosen = os.environ.get("XDG_STATE_HOME", "")
    # One that is not absolute says nothing, by the XDG Base Directory Specification.
    return Path(chosen if os.path.isabs(chosen) else home) / "cbt-crypto" / "open-runs"


def note(run: str, **entry: Any) -> None:
    """Add to what is known of a run, durably."""
    path = _path(run, make=True)
    write_json(path, {**(_read(path) or {}), **entry, "run": run})


def forget(run: str) -> None:
    """Note that a run has been taken down."""
    path = _path(run)
    if path.parent.is_dir():
        path.unlink(missing_ok=True)


def known(run: str) -> Optional[dict[str, Any]]:
    """What is known of a run; None for one that is none of this user's."""
    return _read(_path(run)) if _NAME.fullmatch(run) else None


def all_open() -> Iterator[dict[str, Any]]:
    """All open runs of this user, oldest first."""
    where = directory()
    if not where.is_dir():
        return
    _check(where)
    entries = [_read(path) for path in where.glob("*.json")]
    yield from sorted(filter(None, entries), key=lambda entry: seconds_of(entry, "started"))


def seconds_of(entry: Mapping[str, Any], key: str) -> float:
    """When, in seconds of the epoch; 0 where the entry does not say."""
    seconds = entry.get(key)
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _path(run: str, make: bool = False) -> Path:
    if not _NAME.fullmatch(run):
        raise UsageError(f"{run!r} is no name of a run")
    where = directory()
    if make:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    if where.is_dir():
        _check(where)
        if make and not where.is_symlink():
            where.chmod(0o700)
    return where / f"{run}.json"


def _check(where: Path) -> None:
    """Others must not be able to say what is to be taken down."""
    try:
        check_directory(str(where.resolve()))
    except (Refused, OSError) as error:
        sentence = str(error).replace("name another tmp_dir", "set XDG_STATE_HOME to a safe place")
        raise UsageError(sentence) from None


def _read(path: Path) -> Optional[dict[str, Any]]:
    try:
        status = path.lstat()
        if status.st_uid != os.geteuid():
            return None
        value: Mapping[str, Any] = json.loads(read_document(path))
    except (OSError, Malformed, ValueError, RecursionError):
        return None
    # A disk may have damaged it.
    is_entry = isinstance(value, Mapping) and isinstance(value.get("run"), str)
    return dict(value) if is_entry else None
