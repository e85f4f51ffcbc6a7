"""The command that counts the calls of a deployment."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.unit

COMMAND = Path(__file__).parents[3] / "perf" / "fanout.py"


def test_as_many_calls_for_four_hosts_as_for_one() -> None:
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--osd-hosts", "1", "4"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["1", "8"], ["4", "32"]]
    assert rows[0][2:] == rows[1][2:]
    assert all(int(number) > 2 for number in rows[0][2:])


@pytest.fixture
def fanout(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fanout", COMMAND)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "put_programs_in_path", lambda directory: None)
    monkeypatch.setattr(sys, "argv", ["fanout.py"])
    return module


@pytest.mark.parametrize(("growth", "status"), [(0, 0), (1, 1)])
def test_calls_that_grow_are_told_by_the_exit_status(
    fanout: ModuleType, monkeypatch: pytest.MonkeyPatch, growth: int, status: int
) -> None:
    monkeypatch.setattr(
        fanout, "calls", lambda size, directory: Counter({"pdsh": 20 + growth * size, "pdcp": 3})
    )
    assert fanout.main() == status
