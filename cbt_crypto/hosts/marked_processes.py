"""Find our processes on this machine by a mark in their environment.

Ids are lost by a kill, or reused. A run marks pdsh and ssh, which outlive it; a lab its nodes.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from cbt_crypto.errors import RunError

_RUN = "CBT_CRYPTO_RUN"
_LAB = "CBT_CRYPTO_LAB"
_PATIENCE_S = 20.0


@contextlib.contextmanager
def named(run: str) -> Iterator[None]:
    """Everything that is started on this machine within the block carries the run's name."""
    before = os.environ.get(_RUN)
    os.environ[_RUN] = run
    try:
        yield
    finally:
        if before is None:
            del os.environ[_RUN]
        else:
            os.environ[_RUN] = before


def own_run() -> str:
    """What `named` has named, within its block."""
    return os.environ[_RUN]


def end_run(run: str) -> None:
    """Kill what carries that run's name, and wait until it is gone."""
    ends = time.monotonic() + _PATIENCE_S
    while (processes := _marked(_RUN, lambda mark: mark == run)) and time.monotonic() < ends:
        _kill(processes)


def lab_environment(directory: Path) -> dict[str, str]:
    """This process's environment, with the mark of the lab (or the node) in `directory`."""
    return {**os.environ, _LAB: mark_of(directory)}


def of_lab(directory: Path, is_lost: bool = False) -> list[int]:
    """Ids of the processes marked with `directory` or something below it.

    `is_lost`: with a directory of that path, which need not have been this one.
    """
    return [process.pid for process in _of_lab(directory, is_lost)]


def end_lab(directory: Path) -> None:
    """Kill a lab's processes and all in their namespaces; RunError when some stay."""
    of_this_process = _pid_namespace(os.getpid())
    namespaces: set[str] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        marked = _of_lab(directory)
        namespaces |= {_pid_namespace(process.pid) for process in marked} - {of_this_process, ""}
        members = [pid for pid in psutil.pids() if _pid_namespace(pid) in namespaces]
        if not marked and not members:
            return
        if time.monotonic() > deadline:
            left = sorted({*(process.pid for process in marked), *members})
            pids = ", ".join(map(str, left))
            raise RunError(
                f"{directory}: its processes {pids} do not end, though killed; see what they wait "
                "for, then run the same command again"
            )
        _kill(marked)


def mark_of(directory: Path) -> str:
    """Which lab it is: another container's may have the same path."""
    status = directory.stat()
    return f"{directory}@{status.st_dev}:{status.st_ino}"


def _of_lab(directory: Path, is_lost: bool = False) -> list[psutil.Process]:
    def is_of_it(mark: str) -> bool:
        marked = Path(mark.rpartition("@")[0])
        is_below = directory in (marked, *marked.parents)
        return is_below and (is_lost or mark == mark_of(marked))

    return _marked(_LAB, is_of_it)


def _marked(variable: str, is_ours: Callable[[str], bool]) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        # One that ended meanwhile, or is somebody else's, has none for us.
        with contextlib.suppress(psutil.Error, OSError):
            # Anybody may give a process of his the mark; what changes its user is none of ours.
            if process.uids().real == os.geteuid():
                mark = process.environ().get(variable)
                if mark is not None and is_ours(mark):
                    processes.append(process)
    return processes


def _kill(processes: list[psutil.Process]) -> None:
    """Kill them, and wait until each has let go of its files: its mark is gone before that."""
    ends = time.monotonic() + _PATIENCE_S
    with contextlib.ExitStack() as opened:
        killed = []
        for process in processes:
            with contextlib.suppress(OSError):  # It has ended, or the kernel is older than 5.3.
                killed.append(os.pidfd_open(process.pid))
                opened.callback(os.close, killed[-1])
            # psutil compares the start time: an id that is somebody else's by now is spared.
            with contextlib.suppress(psutil.Error):
                process.kill()
        for descriptor in killed:
            select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
    time.sleep(0.05)


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
