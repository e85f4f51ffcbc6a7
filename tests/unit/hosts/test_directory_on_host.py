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


def test_one_that_was_there_stays_as_it_was(tmp_path: Path) -> None:
    """An empty directory to mount on was removed at the end, and the next mount failed."""
    path = tmp_path / "ssd"
    path.mkdir()
    path.chmod(0o755)
    for _ in range(2):
        for _ in range(2):
            assert directory_on_host.main(["make", str(path)]) == 0
            assert path.stat().st_mode & 0o777 == 0o700
            (path / "run").mkdir(exist_ok=True)
        for _ in range(2):
            assert directory_on_host.main(["remove", str(path)]) == 0, "safe to repeat"
            assert list(path.iterdir()) == []
            assert path.stat().st_mode & 0o777 == 0o755
    (path / "his").touch()
    assert directory_on_host.main(["remove", str(path)]) == 1
    made = tmp_path / "made"
    directory_on_host.main(["make", str(made)])
    assert directory_on_host.main(["remove", str(made)]) == 0
    assert not made.exists()


def test_a_marker_of_zeros_as_a_power_cut_leaves_it(tmp_path: Path) -> None:
    """The directory was emptied, and then a traceback; it never got its mode back."""
    path = tmp_path / "cbt"
    path.mkdir(mode=0o755)
    (path / directory_on_host.MARKER).write_bytes(b"\0" * 5)
    (path / "run").mkdir()
    assert directory_on_host.main(["remove", str(path)]) == 0
    assert list(path.iterdir()) == [] and path.stat().st_mode & 0o777 == 0o700
