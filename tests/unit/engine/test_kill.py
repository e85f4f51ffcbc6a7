"""Processes are ended by the mark in their environment, ours and no other: for real, here."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError
from cbt_crypto.hosts.remote import Remote, kill_script

pytestmark = pytest.mark.unit

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def tmp_dir(tmp_path: Path) -> str:
    return str(tmp_path / "cbt crypto")


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with that mark; it is ended after the test in any case."""
    started = []

    def run(mark: Optional[str], *argv: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"]}
        if mark is not None:
            environment["CBT_CRYPTO_MARK"] = mark
        process = subprocess.Popen(argv or ("sleep", "62"), env=environment)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def end(tmp_dir: str, **options: Any) -> None:
    Remote(common, tmp_dir).run({"localhost": kill_script(**options)}, "end the daemons")


def ended_by(process: subprocess.Popen[bytes]) -> Optional[int]:
    """The signal that ended it, or None when it is still there."""
    for _ in range(20):
        if process.poll() is not None:
            return -process.returncode
        time.sleep(0.02)
    return None


def test_ours_is_ended(tmp_dir: str, start: Start) -> None:
    ours = start(f"{tmp_dir}@localhost")
    end(tmp_dir)
    assert ended_by(ours) == signal.SIGTERM


def test_of_named_processes_only_ours_are_ended(tmp_dir: str, start: Start, tmp_path: Path) -> None:
    mark = f"{tmp_dir}@localhost"
    named, stranger, unnamed = start(mark), start(None), start(mark)
    files = [tmp_path / name for name in ("a b.pid", "stranger.pid", "no number.pid")]
    for file, content in zip(files, (named.pid, stranger.pid, "*")):
        file.write_text(f"{content}\n")
    end(tmp_dir, pid_files=[str(file) for file in (*files, tmp_path / "absent.pid")])
    assert ended_by(named) == signal.SIGTERM
    assert ended_by(stranger) is ended_by(unnamed) is None


def test_no_other_is_ended(tmp_dir: str, start: Start) -> None:
    others = [
        start(None),
        start(f"{tmp_dir}@localhost2"),
        start(f"{tmp_dir}@node1"),
        start(f"{tmp_dir}"),
        start(f"{tmp_dir}2@localhost"),
        start(f"x{tmp_dir}@localhost"),
        start(None, "sh", "-c", f"sleep 62 # CBT_CRYPTO_MARK={tmp_dir}@localhost"),
    ]
    ours = start(f"{tmp_dir}@localhost")
    end(tmp_dir)
    assert ended_by(ours) is not None
    assert [other.poll() for other in others] == [None] * len(others)


def test_what_ours_started_is_ours(tmp_dir: str, start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    start(f"{tmp_dir}@localhost", "sh", "-c", f"setsid sleep 62 & echo $! > '{pid_file}'; wait")
    while not pid_file.exists() or not pid_file.read_text():
        time.sleep(0.02)
    end(tmp_dir)
    assert not Path(f"/proc/{pid_file.read_text().strip()}/exe").exists()


def test_what_a_script_started_carries_the_mark(tmp_dir: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 62 </dev/null >/dev/null 2>&1 & echo $! > '{pid_file}'"
    Remote(common, tmp_dir).run({"localhost": script}, "start")
    pid = pid_file.read_text().strip()
    assert Path(f"/proc/{pid}/exe").exists()
    end(tmp_dir)
    assert not Path(f"/proc/{pid}/exe").exists()


STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")


def test_one_that_does_not_listen_is_killed(tmp_dir: str, start: Start) -> None:
    ours = start(f"{tmp_dir}@localhost", *STUBBORN)
    time.sleep(0.2)
    end(tmp_dir, timeout=1)
    assert ended_by(ours) == signal.SIGKILL


def test_one_that_does_not_end_is_named(tmp_dir: str, start: Start) -> None:
    ours = start(f"{tmp_dir}@localhost", *STUBBORN)
    time.sleep(0.2)
    with pytest.raises(HostError, match=rf"these processes do not end:.* {ours.pid}\b"):
        end(tmp_dir, signals=("TERM",), timeout=1)
    assert ours.poll() is None


def test_children_born_meanwhile_are_ended_too(tmp_dir: str, start: Start) -> None:
    fork = "while :; do (exec sleep 62) & sleep 0.005; done"
    start(f"{tmp_dir}@localhost", "sh", "-c", fork)
    time.sleep(0.3)
    end(tmp_dir, signals=("KILL",), timeout=10)
    mark = f"CBT_CRYPTO_MARK={tmp_dir}@localhost\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        assert mark not in environment


def test_nothing_of_ours_is_no_error(tmp_dir: str) -> None:
    end(tmp_dir)


#: Holds a lock on a file, and memory that takes the kernel a while to free.
HOLDER = """
import fcntl, mmap, os, sys, threading, time
held = open(sys.argv[1], "w")
fcntl.flock(held, fcntl.LOCK_EX)
memory = mmap.mmap(-1, 3 << 29)
for page in range(0, len(memory), mmap.PAGESIZE):
    memory[page] = 1
threading.Thread(target=time.sleep, args=(62,), daemon=True).start()
open(sys.argv[2], "w").close()
time.sleep(62)
"""


def test_what_was_ended_has_let_go_of_its_files(tmp_dir: str, start: Start, tmp_path: Path) -> None:
    """An OSD that is killed holds its device for longer than it has an environment."""
    held, ready = tmp_path / "held", tmp_path / "ready"
    start(f"{tmp_dir}@localhost", sys.executable, "-c", HOLDER, str(held), str(ready))
    while not ready.exists():
        time.sleep(0.02)
    end(tmp_dir, signals=("KILL",))
    with open(held) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("missing", ["xargs", "grep"])
def test_a_search_that_cannot_be_made_is_no_success(
    tmp_dir: str, start: Start, tmp_path: Path, missing: str
) -> None:
    """What was not found for want of a program was said to have ended."""
    process = start(f"{tmp_dir}@localhost")
    (programs := tmp_path / "bin").mkdir()
    for folder in reversed(os.environ["PATH"].split(":")):
        for path in Path(folder).glob("*"):
            (programs / path.name).unlink(missing_ok=True)
            (programs / path.name).symlink_to(path)
    (programs / missing).unlink()
    script = f"PATH={shlex.quote(str(programs))}\n{kill_script()}"
    with pytest.raises(HostError, match="processes cannot be searched for: xargs, grep"):
        Remote(common, tmp_dir).run({"localhost": script}, "end the daemons")
    assert process.poll() is None
