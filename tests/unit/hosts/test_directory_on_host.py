"""One directory under several names of its host, which remove it at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cbt_crypto.hosts import directory_on_host, shell

pytestmark = pytest.mark.unit


def test_it_may_be_removed_by_several_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "cbt"
    run = [sys.executable, "-I", "-S", "-c", shell.program(directory_on_host)]
    subprocess.run([*run, "make", str(path)], check=True)
    for number in range(1500):
        (path / "run" / str(number)).mkdir(parents=True)
    removing = [
        subprocess.Popen([*run, "remove", str(path), "run"], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120)[1] for process in removing]
    assert [process.returncode for process in removing] == [0] * 4, said
    assert [entry.name for entry in path.iterdir()] == [directory_on_host.MARKER]
