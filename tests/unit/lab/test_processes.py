from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cbt_crypto.errors import RunError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import lifecycle
from cbt_crypto.lab.shape import lab_dir

pytestmark = pytest.mark.unit

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes, and ends what a failed test leaves."""
    started: list[subprocess.Popen[bytes]] = []

    def run(command: list[str], directory: Path) -> subprocess.Popen[bytes]:
        directory.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(command, env=marked_processes.lab_environment(directory))
        started.append(process)
        deadline = time.monotonic() + 10
        while process.pid not in marked_processes.of_lab(directory):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_marked_processes_are_found_by_lab_and_by_node(tmp_path: Path, start: Start) -> None:
    process = start(["sleep", "60"], tmp_path / "lab" / "node1")
    assert marked_processes.of_lab(tmp_path / "lab") == [process.pid]
    assert marked_processes.of_lab(tmp_path / "lab" / "node1") == [process.pid]
    assert marked_processes.of_lab(tmp_path / "lab" / "node") == []
    assert marked_processes.of_lab(tmp_path / "la") == []


def test_only_those_are_ended(tmp_path: Path, start: Start) -> None:
    stubborn = ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 0.1; done"]
    doomed, other = start(stubborn, tmp_path / "one"), start(["sleep", "60"], tmp_path / "two")
    marked_processes.end_lab(tmp_path / "one")
    assert doomed.wait(10) != 0
    assert other.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="pid namespaces need root")
def test_what_runs_in_a_marked_process_s_namespace_ends_with_it(
    tmp_path: Path, start: Start
) -> None:
    unmarked = "env -i sleep 61.25 & exec sleep 60"
    command = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", unmarked]
    start(command, tmp_path / "lab")
    deadline = time.monotonic() + 10
    while not _commands("61.25"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    marked_processes.end_lab(tmp_path / "lab")
    assert not _commands("61.25")


def test_a_lab_of_another_container_at_the_same_path_goes_on(tmp_path: Path, start: Start) -> None:
    """`lab down` killed the nodes of one that another container of the same image had made."""
    process = start(["sleep", "60"], tmp_path / "lab" / "node1")
    (tmp_path / "lab").rename(tmp_path / "theirs")
    (tmp_path / "lab" / "node1").mkdir(parents=True)
    assert marked_processes.of_lab(tmp_path / "lab") == []
    marked_processes.end_lab(tmp_path / "lab")
    assert process.poll() is None


def test_what_a_lab_had_is_named_when_its_directory_was_removed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lab down` said that the lab was down already, and its machines went on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = lab_dir("lost")
    process = start(["sleep", "60"], directory / "node1")
    shutil.rmtree(directory)
    with pytest.raises(RunError, match=rf"was removed while its .*: process {process.pid}; if"):
        lifecycle.down("lost")
    assert process.poll() is None
    process.kill()
    process.wait()
    assert not lifecycle.down("lost")


def test_ending_nothing_is_no_error(tmp_path: Path) -> None:
    marked_processes.end_lab(tmp_path / "lab")


def _commands(argument: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0] == b"sleep" and argument.encode() in command:
            found.append(path.parent.name)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's processes need root")
def test_another_user_s_marked_process_is_none_of_the_lab_s(tmp_path: Path) -> None:
    """In a pid namespace of his own, its end was waited for in vain, and `lab down` failed."""
    (tmp_path / "lab").mkdir()
    environment = marked_processes.lab_environment(tmp_path / "lab")
    command = [*SETPRIV, "unshare", "--user", "--pid", "--fork", "sleep", "60"]
    with subprocess.Popen(command, env=environment) as stranger:
        try:
            time.sleep(0.5)
            assert stranger.poll() is None
            assert marked_processes.of_lab(tmp_path / "lab") == []
            marked_processes.end_lab(tmp_path / "lab")
            assert stranger.poll() is None
        finally:
            stranger.kill()


SETPRIV = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
