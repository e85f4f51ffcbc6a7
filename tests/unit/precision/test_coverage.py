"""A small run of the simulation: the method holds, and what it is compared with does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

COMMAND = Path(__file__).parents[3] / "perf" / "coverage.py"


def test_the_intervals_are_right_often_enough() -> None:
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--campaigns", "100"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    false = {row[2].strip(): float(row[4].strip(" %")) for row in rows if "bursts" in row[1]}
    assert false["in turns, until it differs"] <= 5 < false["(in turns, until Student's differs)"]
    assert false["(one by one, Student's of 30 blocks)"] > 10
