"""The `cluster` section of campaigns on this machine alone: real Ceph, two OSDs on sparse files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: A pool for measuring; the one of the section is made faster.
POOL = {"rbd": {"pg_size": 32, "pgp_size": 32, "replication": 2}}


def cluster_section(directory: Path, port: int, **changes: Any) -> dict[str, Any]:
    """The section, with a monitor at `port` and all that Ceph writes below `directory`.

    `changes` are keys with other values; `...` leaves a key out. Tests that run beside each other
    have ports of their own.
    """
    port += 200 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    section: dict[str, Any] = {
        "head": "localhost",
        "clients": ["localhost"],
        "osds": ["localhost"],
        "mons": {"localhost": {"a": f"127.0.0.1:{port}"}},
        "mgrs": {"localhost": {"x": None}},
        "osds_per_node": 2,
        "osd_file_size": "4G",
        "tmp_dir": str(directory / "cluster"),
        "pool_profiles": {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}},
        "settings": {"osd_memory_target": "1G"},
        "rebuild": "needed",
        **changes,
    }
    return {key: value for key, value in section.items() if value is not ...}


@contextlib.contextmanager
def loop_lock() -> Iterator[None]:
    """Hold this while a loop device is taken or given back: a test may see the number come back."""
    with (Path(tempfile.gettempdir()) / "cbt-crypto-tests-loop.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
