"""Loop devices of tests that run beside each other."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def loop_lock(is_shared: bool = False) -> Iterator[Callable[[], None]]:
    """Hold this while a loop device is taken or given back: a test may see the number come back.

    Tests that keep what they took share it. Call what it yields to make the lock exclusive.
    """
    with (Path(tempfile.gettempdir()) / "cbt-crypto-tests-loop.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        yield lambda: fcntl.flock(lock, fcntl.LOCK_EX)


@contextlib.contextmanager
def loop_device(file: Path, size: int) -> Iterator[str]:
    """The path of a loop device over a new sparse `file` of `size` bytes."""
    with file.open("wb") as disk:
        disk.truncate(size)
    with loop_lock():
        command = ["losetup", "--find", "--show", str(file)]
        device = subprocess.check_output(command, text=True).strip()
    try:
        yield device
    finally:
        with loop_lock():
            subprocess.run(["losetup", "--detach", device], check=True)
