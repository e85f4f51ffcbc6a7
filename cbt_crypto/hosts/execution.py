"""The seam of remote execution: what runs commands on many hosts at once, and which is this one.

Nodes are given as CBT has them: `user@a,user@b`, or without a user. docs/contract.md has the rest.
"""

from __future__ import annotations

import getpass
import shutil
import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Optional, Protocol


class Handle(Protocol):
    """A command under way on some hosts."""

    @property
    def timed_out(self) -> bool:
        """Whether `communicate` ended it."""
        ...

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """Wait; (stdout, stderr) of all hosts, each line as `host: text`."""
        ...


class Execution(Protocol):
    """CBT's `common`, as an engine offers it."""

    def pdsh_each(self, commands: Mapping[str, str]) -> Handle:
        """Run shell text of its own on each `user@host`, all at once."""
        ...

    def sync_files(self, remote: str, local: str) -> None:
        """Bring the contents of a directory from every node: `a` as `a.host` into `local`."""

    def make_remote_dir(self, remote: str) -> None:
        """Make a directory on every node."""

    def clean_remote_dir(self, remote: str) -> None:
        """Remove a directory on every node; refuses one that is not below `tmp_dir`."""


@lru_cache(maxsize=1)
def local_names() -> frozenset[str]:
    """Names of this machine."""
    name = socket.gethostname()
    return frozenset({"localhost", "127.0.0.1", name, name.split(".")[0], socket.getfqdn()})


def is_local(node: str) -> bool:
    """Whether `user@host` or `host` is this machine, as the user who runs this."""
    user, _, host = node.rpartition("@")
    return host in local_names() and user in ("", getpass.getuser())


#: What pdsh's package brings; a fan-out over it needs all of them.
PDSH_PROGRAMS = ("pdsh", "pdcp", "rpdcp")


def fan_out() -> str:
    """What reaches all hosts at once: `pdsh`, or where it is not installed `ssh`, one a host."""
    return "pdsh" if all(map(shutil.which, PDSH_PROGRAMS)) else "ssh"
