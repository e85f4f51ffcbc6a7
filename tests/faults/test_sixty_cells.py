"""Sixty cells, and something goes wrong all the time: after restarts every cell is there, once."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_lab import GO_ON, KILL, SSHD, STOP, Laboratory, document
from fault_table import Table

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(5400)]

#: 2 x 5 x 6 cells.
SIXTY = {
    "mode": ["randread", "randwrite"],
    "op_size": [4096, 8192, 16384, 32768, 65536],
    "iodepth": [1, 2, 4, 8, 16, 32],
    "time": 2,
    "vol_size": 32,
}
#: Seconds between faults, at least and at most.
PAUSE = (25, 60)
MOST_STARTS = 60


def _hang(lab: Laboratory) -> None:
    lab.kill(1, STOP, *SSHD)
    time.sleep(25)
    lab.kill(1, GO_ON, *SSHD)


def _power_cycle(lab: Laboratory) -> None:
    lab.power_off(3)
    time.sleep(2)
    lab.power_on(3)


FAULTS: dict[str, Callable[[Laboratory], object]] = {
    "fio killed": lambda lab: lab.kill(1, KILL, "fio"),
    "OSD killed": lambda lab: lab.kill(2, KILL, "ceph-osd"),
    "cbt.py killed": lambda lab: lab.on(0, "kill -9 $(cat campaign/pid) || :"),
    "ssh cut": lambda lab: lab.kill(1, KILL, "sshd-session"),
    "monitor killed": lambda lab: lab.kill(0, KILL, "ceph-mon"),
    "ssh hung for 25 s": _hang,
    "OSD host power-cycled": _power_cycle,
}


def test_sixty_cells(lab: Laboratory, table: Table, tmp_path: Path) -> None:
    seed = int(os.environ.get("FAULT_SEED", "1"))
    chosen = random.Random(seed)
    made: Counter[str] = Counter()
    began = time.monotonic()
    lab.carry_in(document(load=SIXTY), tmp_path)
    finished: dict[str, float] = {}
    for start in range(1, MOST_STARTS + 1):
        running = lab.start()
        following = time.monotonic() + chosen.uniform(*PAUSE)
        while running.process.poll() is None:
            time.sleep(0.5)
            if time.monotonic() > following:
                name = chosen.choice(sorted(FAULTS))
                FAULTS[name](lab)
                made[name] += 1
                following = time.monotonic() + chosen.uniform(*PAUSE)
        status = running.finish()
        now = lab.finished()
        assert finished.items() <= now.items(), "a finished cell was lost or measured again"
        finished = now
        print(f"start {start}: status {status}, {len(finished)} cells, {dict(made)}", flush=True)
        if status == 0:
            break
    assert len(finished) == 60
    plan = json.loads(lab.on(0, f"cat {lab.archive}/results/plan.json"))
    assert sorted(finished) == sorted(cell["id"] for cell in plan["cells"])
    assert lab.leftovers() == []
    minutes = (time.monotonic() - began) / 60
    table.add(
        f"60 cells with a random fault every {PAUSE[0]} to {PAUSE[1]} s (seed {seed})",
        "each", ", ".join(f"{count} x {name}" for name, count in sorted(made.items())),
        "all", "none", f"complete after {start} starts and {minutes:.0f} minutes, each cell once",
    )  # fmt: skip
