"""Who runs a campaign: told to those who are refused, and found dead by those who come after."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional


def this_run(archive: Path) -> dict[str, Any]:
    """This process as a holder: who, where, since when, and how to tell that it has ended."""
    return {
        "user": getpass.getuser(),
        "host": socket.gethostname(),
        "machine": _text("/etc/machine-id"),
        "boot": _boot(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "archive": str(archive.absolute()),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }


def describe(holder: Mapping[str, Any]) -> str:
    """`alice@head (process 4711, archive /srv/a, since 2026-11-20 10:00:00 +0000)`."""
    if not holder.get("pid"):
        return "another run"
    who = f"{holder.get('user')}@{holder.get('host')}"
    text = f"{who} (process {holder['pid']}, archive {holder.get('archive')}, "
    text += f"since {holder.get('since')})"
    return "".join(char if char.isprintable() else "?" for char in text)


def is_dead(holder: Mapping[str, Any]) -> Optional[bool]:
    """Whether that run has ended; None when this machine cannot know, because it is another."""
    if holder.get("host") != socket.gethostname() or holder.get("machine") != _text(
        "/etc/machine-id"
    ):
        return None
    pid, boot, here = holder.get("pid"), str(holder.get("boot")), _boot()
    if not isinstance(pid, int):
        return True
    if boot == here:
        return _started(pid) != holder.get("started")
    boot_id, _, container = boot.partition(" ")
    if boot_id != here.partition(" ")[0] or not container:
        return True
    # In a container of this machine, which counts its processes for itself.
    return all(_started(seen) != holder.get("started") for seen in _in_container(pid, container))


def _boot() -> str:
    """Changes when the machine, or the container that counts process ids, starts anew."""
    try:
        container = os.readlink("/proc/self/ns/pid")
    except OSError:
        container = ""
    return f"{_text('/proc/sys/kernel/random/boot_id')} {container}".strip()


def _in_container(pid: int, container: str) -> Iterator[int]:
    """What this machine calls the process that has number `pid` in a container."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(folder / "ns/pid") == container:
                numbers = _text(f"{folder}/status").partition("\nNSpid:")[2].partition("\n")[0]
                if numbers.split()[-1:] == [str(pid)]:
                    yield int(folder.name)


def _started(pid: int) -> Optional[int]:
    """When a process started, in ticks since boot; None when there is none.

    A process id alone may be somebody else's by now.
    """
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
