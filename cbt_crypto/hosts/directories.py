"""Directories of this tool: on hosts, for keys, in the user's cache, and temporary ones here."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import tempfile
import zlib
from pathlib import Path
from typing import Optional

import psutil

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import directory_on_host, keys_on_host, shell
from cbt_crypto.hosts.trust_on_host import distrust

#: Where it is when the file names none: only root can put something there.
DEFAULT = "/var/lib/cbt-crypto"
#: Places of a system: none of them is a campaign's own.
_PLACES = {
    "/", "/dev/shm", "/home", "/lost+found", "/media", "/mnt", "/opt", "/root", "/run", "/snap",
    "/srv", "/tmp", "/var", "/var/cache", "/var/lib", "/var/log", "/var/run", "/var/spool",
    "/var/tmp",
}  # fmt: skip
#: Nor is one of these, or anything below them.
_TREES = (
    "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr",
    "/run/ceph", "/run/cbt-crypto", "/var/lib/ceph", "/var/lib/containers", "/var/lib/docker",
    "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/systemd", "/var/run/ceph",
)  # fmt: skip


#: Used where $TMPDIR has no room for scripts and answers, or a name that programs split.
OTHER_PLACES = ("/dev/shm", "/var/tmp", "/tmp")
_ROOM = 4 << 20


def fault(path: str) -> Optional[str]:
    """Why no campaign may have this directory for its own; None when it may."""
    if path in _PLACES or (path.startswith("/dev/") and not path.startswith("/dev/shm/")):
        return "is a place of the system; name a directory that is made for campaigns alone"
    if any(path == tree or path.startswith(f"{tree}/") for tree in _TREES):
        return "is in a place of the system; name a directory outside of it"
    if path.count("/") == 2 and path.startswith("/home/"):
        return "is somebody's home; name a directory below it"
    return None


def check(path: str) -> str:
    """Shell text that fails with a sentence unless the directory is ours, or can be made."""
    return _call("check", path)


def check_way(path: str) -> str:
    """Shell text that fails with a sentence where somebody else could have it lead elsewhere."""
    return _call("check-way", path)


def make(path: str) -> str:
    """Shell text that makes it: marked, of mode 0700. Safe to repeat."""
    return _call("make", path)


def remove(path: str, part: str = "") -> str:
    """Shell text that removes it, or a part of it, and nothing that is mounted or linked there."""
    return _call("remove", path, *([part] if part else []))


def make_without(path: str, part: str) -> str:
    """Shell text that makes it and removes a part of it, in one start of Python."""
    return _call("make-without", path, part)


def _call(action: str, *words: str) -> str:
    arguments = " ".join(map(shlex.quote, (action, *words)))
    source = shell.program(directory_on_host).strip()
    return f"$SUDO python3 -I -S - {arguments} <<'PYTHON_PROGRAM'\n{source}\nPYTHON_PROGRAM\n"


def functions() -> str:
    """Define `key_directory [make
    present]`, which prints the directory, or nothing for `present`.
    """
    return (
        f"KEYS=$(cat <<\\KEYS_PROGRAM\n{shell.program(keys_on_host)}KEYS_PROGRAM\n)\n"
        'key_directory() { python3 -I -S -c "$KEYS" "$1"; }\n'
    )


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/cbt-crypto` or `~/.cache/cbt-crypto`; UsageError if it is another user's."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    for place in (base, base / "cbt-crypto"):
        if place.exists():
            _check(place, place.stat())
    return base / "cbt-crypto"


def _check(place: Path, status: os.stat_result) -> None:
    if distrust(status, (0, os.geteuid()), is_way=True, is_group_ours=True):
        raise UsageError(
            f"{place}: can be written to by another user (it is of uid {status.st_uid}, mode "
            f"{stat.filemode(status.st_mode)}); set XDG_CACHE_HOME to a directory of yours"
        )


def own_below_cache(name: str) -> Path:
    """Make a directory in the cache where this user alone can write.

    Raises UsageError where another could replace it or the cache is a link; OSError.
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
    if not stat.S_ISDIR(status.st_mode) or distrust(status, (os.geteuid(),)):
        raise UsageError(f"{place}: is no directory in which you alone can write")


def _make(place: Path) -> None:
    """Level by level: what `parents` makes has the mode that the umask leaves it."""
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)


def prefix(kind: str) -> str:
    """The beginning of the name of a directory of this process."""
    return f"cbt-{kind}-{_numbering()}-{os.getpid()}-"


def temporary_places() -> list[Path]:
    """The usual one first; last the user's own, where nobody else can use up the room."""
    places = map(Path, (tempfile.gettempdir(), *OTHER_PLACES, os.path.expanduser("~")))
    return [place for place in dict.fromkeys(places) if _is_safe(place)]


def _is_safe(place: Path) -> bool:
    """Whether nobody else can put something of his in the place of what we make there."""
    try:
        for step in (place, *place.resolve(strict=True).parents):
            _check(step, step.stat())
    except (OSError, UsageError):
        return False
    return True


def temporary_place(longest: int = 4096) -> str:
    """The first of them that has room: a cluster is torn down also where $TMPDIR is full.

    pdsh and ssh split the words that it is in, so it has no blanks. `longest`: of its path.
    """
    fits = re.compile(rf"[^\s%]{{1,{longest}}}").fullmatch
    if not (usable := list(filter(fits, map(str, temporary_places())))):
        raise UsageError("others can write to every place for scripts here; set TMPDIR to another")
    return next(filter(has_room, usable), usable[0])


def has_room(place: str) -> bool:
    """Return whether a file system has room for what a run puts there for a while."""
    try:
        room = os.statvfs(place)
    except OSError:
        return False
    blocks = room.f_bavail if os.geteuid() else room.f_bfree
    if blocks * room.f_frsize <= _ROOM:
        return False
    # What an error of its drive made read-only says of itself that it can be written.
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return True


def clear_dead() -> None:
    """Remove what processes of ours that have ended left in temporary directories."""
    name = re.compile(rf"cbt-[a-z]+-{re.escape(_numbering())}-(\d+)-\w+")
    for path in (path for place in temporary_places() for path in place.glob("cbt-*")):
        match = name.fullmatch(path.name)
        if not match or psutil.pid_exists(int(match[1])) or not _is_ours(path):
            continue
        shutil.rmtree(path, ignore_errors=True)


def _numbering() -> str:
    """Within what process ids are counted: machines, and containers, may share a directory."""
    machine = zlib.crc32(os.uname().nodename.encode())
    try:
        return f"{machine}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{machine}.0"


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not distrust(status, (os.getuid(),))
