"""The processes of a run on this machine, such as pdsh and ssh: a killed run leaves them at work.

They go on with the step they were at, and could start a daemon after everything was taken down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_VARIABLE = "CBT_CRYPTO_RUN"
_PATIENCE_S = 10.0


@contextlib.contextmanager
def named(run: str) -> Iterator[None]:
    """Everything that is started on this machine within the block carries the run's name."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = run
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def end(run: str) -> None:
    """Kill what carries that run's name on this machine, and wait until it is gone."""
    ends = time.monotonic() + _PATIENCE_S
    while (pids := list(_find(run))) and time.monotonic() < ends:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _find(run: str) -> Iterator[int]:
    wanted = f"{_VARIABLE}={run}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found = wanted in path.read_bytes().split(b"\0")
        except OSError:
            continue
        if found and int(path.parent.name) != os.getpid():
            yield int(path.parent.name)
