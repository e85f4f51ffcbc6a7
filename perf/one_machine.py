"""The `cluster` section of campaigns on this machine alone: real Ceph, two OSDs on sparse files."""

from __future__ import annotations

import os
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
