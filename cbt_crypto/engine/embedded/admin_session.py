"""Many monitor commands in one process: the start of a `ceph` command costs 0.5 to 1 s.

The program runs on the head, with the Python that `ceph` itself uses: that one has librados. It
waits for more steps, so that a deployment has one session with the monitors and not one for each
wait.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from cbt_crypto.engine.embedded import admin_session_on_host
from cbt_crypto.hosts import shell

Step = dict[str, Any]


def script(ceph_cmd: str, conf: str, steps: Sequence[Step], timeout: int, session: str = "") -> str:
    """Shell text for the head that takes `steps`, within `timeout` seconds in all.

    `session` is how the names of files begin by which a session is found again that an earlier
    such script began. It ends where it fails, and when its files are removed.

    A step is `{"mon": {"prefix": ..., ...}}`, a monitor command; or `{"wait": "osds", "count": n,
    "since": epoch}`, until n OSDs are up that came up after that epoch of the OSD map;
    `{"wait": "mgr"}`, until a manager is active; or `{"wait": "pgs", "pools": [...], "clean_at":
    epoch}`, until every placement group of those pools is active+clean. It prints the epoch of the
    OSD map of which each group itself said so. With that as `clean_at` they are not asked again
    while the map is the same, as a group peers and backfills for a new map only.
    `{"placed": name}` answers with a JSON list of the OSDs that a pool's placement groups are on,
    by `ceph pg map`. `{"alike": name, "like": name, "twins": {...}}` puts those of the one
    where those of the other are, on twins. `{"end": true}` ends a `session` behind these steps.
    """
    words = ("python_of_ceph", ceph_cmd, conf, str(timeout), json.dumps(list(steps)), session)
    calls = [shlex.join(words)]
    if session:
        request = json.dumps({"timeout": timeout, "steps": steps})
        calls.insert(0, shlex.join(("ask_session", session, request)))
    program = shell.program(admin_session_on_host)
    return f"{shell.calling(__file__, chr(10).join(calls))} <<'PROGRAM'\n{program}PROGRAM"


def answers(output: str) -> list[str]:
    """What each step printed, from the script's output."""
    return [str(json.loads(line)) for line in output.splitlines() if line.startswith('"')]


def up_from(osd_dump: str) -> dict[int, int]:
    """OSD -> epoch since which it is up, of `osd dump`; without those that are down."""
    try:
        epochs = {
            entry["osd"]: entry["up_from"] for entry in json.loads(osd_dump)["osds"] if entry["up"]
        }
    except (ValueError, KeyError, TypeError):
        return {}
    return {int(osd): int(epoch) for osd, epoch in epochs.items()}
