"""Shell text that makes, checks and removes the one directory that a campaign writes to."""

from __future__ import annotations

import shlex
from typing import Optional

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.directories import directory_on_host

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


def make(path: str) -> str:
    """Shell text that makes it: marked, of mode 0700. Safe to repeat."""
    return _call("make", path)


def remove(path: str, part: str = "") -> str:
    """Shell text that removes it, or a part of it, and nothing that is mounted or linked there."""
    return _call("remove", path, *([part] if part else []))


def _call(action: str, *words: str) -> str:
    arguments = " ".join(map(shlex.quote, (action, *words)))
    source = shell.program(directory_on_host).strip()
    return f"$SUDO python3 -I -S - {arguments} <<'PYTHON_PROGRAM'\n{source}\nPYTHON_PROGRAM\n"
