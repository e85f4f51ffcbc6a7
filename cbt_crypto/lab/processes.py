"""The processes of a lab, found by a mark in their environment and not by remembered ids.

A process id that was written down can be lost by a kill, or belong to somebody else by now; the
mark is there from the start of the process to its end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from cbt_crypto.errors import RunError

_VARIABLE = "CBT_CRYPTO_LAB"
_PATIENCE_S = 20.0


def marked_environment(directory: Path) -> dict[str, str]:
    """This process's environment, with the mark of the lab (or the node) in `directory`."""
    return {**os.environ, _VARIABLE: str(directory)}


def find(directory: Path) -> list[int]:
    """Ids of the processes marked with `directory` or something below it."""
    mark = f"{_VARIABLE}={directory}".encode()
    return [pid for pid in _pids() if _has_mark(pid, mark)]


def end(directory: Path) -> None:
    """Kill what `find` finds, and with it every process of namespaces those are in.

    Returns when they are gone. Raises RunError when they are not after some seconds.
    """
    own = _pid_namespace(os.getpid())
    namespaces: set[str] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        marked = find(directory)
        namespaces |= {_pid_namespace(pid) for pid in marked} - {own, ""}
        members = [pid for pid in _pids() if namespaces and _pid_namespace(pid) in namespaces]
        if not marked and not members:
            return
        if time.monotonic() > deadline:
            raise RunError(f"processes {sorted({*marked, *members})} of {directory} do not end")
        for pid in marked:
            _kill(pid)
        time.sleep(0.05)


def _pids() -> Iterator[int]:
    own = os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != own:
            yield int(entry)


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(entry == mark or entry.startswith(mark + b"/") for entry in environment)


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
