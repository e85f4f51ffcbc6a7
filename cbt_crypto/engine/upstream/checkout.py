"""Where an upstream CBT checkout is, whether it is one, and which commit it has."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directories.directory_on_host import Refused, check_directory

#: What only a checkout of CBT has side by side. This project has a cbt.py too. Of those on one
#: line, one is there: monitoring is a package since 2026.
_FILES = (
    ("cbt.py",),
    ("settings.py",),
    ("common.py",),
    ("monitoring.py", "monitoring/monitoring_factory.py"),
    ("benchmarkfactory.py",),
    ("cluster/ceph.py",),
    ("benchmark/benchmark.py",),
)
#: What is enough for a folder to look like one: then it is one, or it is not understood.
_LOOKS = ("cbt.py", "cluster", "benchmark")
#: In place of a folder: the engine that comes with this package.
EMBEDDED = "embedded"


@dataclass(frozen=True)
class Checkout:
    """A folder with upstream's modules.

    commit: the git commit, None where git knows none. date: of that commit, `YYYY-MM-DD`.
    is_changed: whether files that git knows differ from the commit.
    """

    path: Path
    commit: Optional[str]
    date: Optional[str]
    is_changed: bool

    @property
    def version(self) -> str:
        """What tells snapshots apart: upstream has no releases."""
        date = self.date or "of unknown date"
        return f"{date}, changed" if self.is_changed else date


def is_checkout(path: Path) -> bool:
    """Whether the folder holds CBT's modules."""
    return _missing(path) is None


def looks_like_checkout(path: Path) -> bool:
    """Whether somebody who sees the folder takes it for a checkout of CBT."""
    return all((path / name).exists() for name in _LOOKS)


def _missing(path: Path) -> Optional[str]:
    """The first of CBT's modules that the folder lacks."""
    for names in _FILES:
        if not any((path / name).is_file() for name in names):
            return " or ".join(names)
    return None


def read_checkout(path: Path, said_by: str) -> Checkout:
    """Describe the checkout. Raises UsageError when it is none; `said_by` is who named it."""
    path = path.resolve()
    missing = _missing(path)
    if missing and looks_like_checkout(path):
        raise UsageError(
            f"{said_by} {path}: looks like a checkout of CBT, but has no {missing}, so this "
            f"version does not understand it; name another with --cbt DIR, or --cbt {EMBEDDED}"
        )
    if missing:
        raise UsageError(
            f"{said_by} {path}: is no checkout of CBT, it has no {missing}; name a folder made by "
            f"git clone https://github.com/ceph/cbt, or {EMBEDDED}"
        )
    top = _git(path, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != path:
        return Checkout(path, None, None, False)
    commit = _git(path, "rev-parse", "HEAD")
    date = _git(path, "show", "-s", "--format=%cs", "HEAD")
    # Files that git does not know, such as Python's caches, change nothing.
    changed = _git(path, "status", "--porcelain", "--untracked-files=no")
    return Checkout(path, commit, date, bool(changed))


def _git(path: Path, *arguments: str) -> Optional[str]:
    """What git prints; None where it fails or is not there."""
    try:
        done = subprocess.run(
            # A repository's own configuration names no program that we would run.
            ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
             "-c", "log.showSignature=false", "--no-optional-locks", "-C", str(path), *arguments],
            capture_output=True, text=True, check=False, timeout=30,
            # Nor is what the repository lacks fetched from where it says.
            env={**os.environ, "GIT_NO_LAZY_FETCH": "1"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find(named: Optional[Path], project: Path, cwd: Path) -> Optional[Checkout]:
    """The checkout to use, or None for the embedded engine.

    `named` is `--cbt`; then come the first of `$CBT_HOME`, and `../cbt` beside the project's or
    the current directory, if that is a checkout. Raises UsageError when what is named is none,
    and for a `../cbt` that looks like one and is not understood: never another engine instead.
    """
    if named is not None:
        return None if str(named) == EMBEDDED else read_checkout(named, "--cbt")
    listed = named_by_environment()
    if listed:
        return None if listed[0] == EMBEDDED else read_checkout(Path(listed[0]), "CBT_HOME")
    for path in siblings(project, cwd):
        _check_trusted(path)
        return read_checkout(path, "../cbt")
    return None


def _check_trusted(path: Path) -> None:
    """Raise UsageError for a folder that nobody named, and that others may write to.

    Its code would run as whoever runs this.
    """
    try:
        for part in (path, *(path / names[0] for names in _FILES if (path / names[0]).exists())):
            check_directory(str((part if part.is_dir() else part.parent).resolve()))
            status = part.stat()
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
                raise Refused(f"{part} can be changed by others")
    except (Refused, OSError) as error:
        reason = str(error).partition(";")[0]
        raise UsageError(
            f"../cbt: {reason}, so its code is not run; name it with --cbt {path} if you trust it, "
            f"or say --cbt {EMBEDDED}"
        ) from None


def named_by_environment() -> list[str]:
    """What `$CBT_HOME` lists; a campaign uses the first, the tests all."""
    return [name for name in os.environ.get("CBT_HOME", "").split(os.pathsep) if name]


def siblings(project: Path, cwd: Path) -> list[Path]:
    """What looks like a checkout, named `cbt`, beside these directories."""
    beside = dict.fromkeys(path.resolve().parent / "cbt" for path in (project, cwd))
    return [path for path in beside if is_checkout(path) or looks_like_checkout(path)]
