"""What was started in the background is ended, and nothing else that has its number by now."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbt_crypto.hosts import shell

pytestmark = pytest.mark.unit


def run(text: str, mark: object) -> str:
    script = f"set -eu\nSUDO=\nexport CBT_CRYPTO_MARK={mark}\n{text}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "pid"
    yield file
    run(shell.stop_in_background(str(file), ("KILL",)), tmp_path)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def child_of(pid: int) -> int:
    until = time.monotonic() + 60
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return int(children[0])


def test_a_child_in_a_group_of_its_own_ends_too(pid_file: Path, tmp_path: Path) -> None:
    """As stress-ng's are: a signal to the leader's group does not reach them."""
    program = "import os, time; os.setpgid(0, 0); time.sleep(600)"
    command = f"sh -c '{sys.executable} -c \"{program}\"; :'"
    run(shell.start_in_background(command, str(pid_file)), tmp_path)
    leader = int(pid_file.read_text())
    child = child_of(leader)
    until = time.monotonic() + 60
    while os.getpgid(child) != child:
        assert time.monotonic() < until
        time.sleep(0.05)
    told = run(f'{shell.stop_in_background(str(pid_file))}\necho "left: $pid"', tmp_path)
    assert told == "left: \n"
    assert not is_running(leader) and not is_running(child) and not pid_file.exists()


@pytest.mark.parametrize("mark", ["", "/another/campaign"])
def test_a_stranger_that_has_the_number_lives(pid_file: Path, tmp_path: Path, mark: str) -> None:
    environment = {**os.environ, "CBT_CRYPTO_MARK": mark}
    command = ["sleep", "600"]
    with subprocess.Popen(command, env=environment, start_new_session=True) as stranger:
        try:
            pid_file.write_text(f"{stranger.pid}\n")
            run(shell.stop_in_background(str(pid_file), ("TERM", "KILL")), tmp_path)
            assert is_running(stranger.pid) and not pid_file.exists()
        finally:
            stranger.kill()


def test_one_that_does_not_end_is_told_or_killed(pid_file: Path, tmp_path: Path) -> None:
    command = "sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'"
    run(shell.start_in_background(command, str(pid_file)), tmp_path)
    leader = int(pid_file.read_text())
    ignored = Path(f"/proc/{leader}/status")
    until = time.monotonic() + 60
    while (
        not int(ignored.read_text().partition("SigIgn:")[2].split()[0], 16) >> (signal.SIGTERM - 1)
        & 1
    ):
        assert time.monotonic() < until
        time.sleep(0.05)
    told = run(f'{shell.stop_in_background(str(pid_file))}\necho "left: "$pid', tmp_path)
    assert str(leader) in told.split() and is_running(leader)
    pid_file.write_text(f"{leader}\n")
    run(shell.stop_in_background(str(pid_file), ("TERM", "KILL")), tmp_path)
    assert not is_running(leader)


def test_nothing_was_started(pid_file: Path, tmp_path: Path) -> None:
    assert run(f'{shell.stop_in_background(str(pid_file))}\necho "left: $pid"', tmp_path) == (
        "left: \n"
    )
