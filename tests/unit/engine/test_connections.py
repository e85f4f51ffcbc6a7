"""Commands on hosts, and directories of ssh connections: a killed run's are removed, no other's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import UsageError

pytestmark = pytest.mark.unit

#: Another run: says where its connections are, and waits.
_RUN = """
from cbt_crypto.engine.embedded import common
print(common.control_directory(), flush=True)
input()
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short one, as sockets want it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        monkeypatch.setenv("TMPDIR", directory)
        common.close_connections()
        yield Path(directory)
        common.close_connections()


def _other_run() -> tuple[subprocess.Popen[str], Path]:
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout
    return run, Path(run.stdout.readline().strip())


def test_those_of_a_killed_run_are_removed_and_of_a_living_one_not(temporary: Path) -> None:
    killed, of_killed = _other_run()
    living, of_living = _other_run()
    killed.kill()
    killed.communicate()
    assert of_killed.is_dir()
    own = Path(common.control_directory())
    assert not of_killed.exists()
    assert set(temporary.iterdir()) == {own, of_living}
    living.communicate("\n")
    common.close_connections()
    assert list(temporary.iterdir()) == []


def test_a_long_place_has_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a `$TMPDIR` of over 32 characters no host could be reached: a socket's path is short."""
    long = tmp_path / ("x" * 40)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(common.directories, "OTHER_PLACES", ("/dev/shm", "/var/tmp", "/tmp"))
    common.close_connections()
    place = common.control_directory()
    with socket.socket(socket.AF_UNIX) as one:
        # ssh binds a name with a suffix of its own, and renames it.
        one.bind(f"{place}/{40 * 'c'}.{16 * 's'}")
    common.close_connections()
    assert list(long.iterdir()) == []


def test_a_place_that_was_refused_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all others full, scripts and keys went to a `$TMPDIR` in which others may rename."""
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(common.directories, "has_room", lambda place: False)
    assert common.directories.temporary_place() == "/dev/shm"
    monkeypatch.setattr(common.directories, "temporary_places", lambda: [])
    with pytest.raises(UsageError, match="others can write to every place for scripts here; set"):
        common.directories.temporary_place()


def test_what_only_has_the_name_is_left_alone(temporary: Path) -> None:
    without_lock = temporary / "cbt-ssh-other"
    without_lock.mkdir()
    common.control_directory()
    assert without_lock.is_dir()


def test_nothing_of_the_user_is_forwarded_to_hosts(tmp_path: Path) -> None:
    """Root of each host could use the agent for as long as a connection was kept."""
    config = tmp_path / "config"
    config.write_text("Host *\n  ForwardAgent yes\n  RemoteForward 7000 localhost:22\n")
    command = ["ssh", "-G", "-F", str(config), *common.SSH_OPTIONS, "host"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {"forwardagent no", "clearallforwardings yes"} <= set(said.splitlines())


def test_an_end_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a campaign's commands was looked at every 50 ms: a second in each minute."""

    def sleep(seconds: float) -> None:
        pytest.fail("it looks for the end from time to time")

    monkeypatch.setattr(time, "sleep", sleep)
    said = common.pdsh("localhost", "sleep 0.2; echo done; exit 3").logged([], "", "")
    assert said.communicate(60) == ("localhost: done\n", "")
    assert (said.returncode, said.timed_out) == (3, False)
    late = common.pdsh("localhost", "sleep 60")
    assert (late.communicate(0.2), late.timed_out) == (("", ""), True)


def test_kernels_that_do_not_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    said = common.pdsh("localhost", "sleep 0.1; echo done")
    assert said.communicate(60) == ("localhost: done\n", "")


def test_a_connection_that_is_stopped_holds_nothing_up(temporary: Path) -> None:
    """An ssh that never answers kept each run from starting, and from ending."""
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(f"{common.control_directory()}/x")
        stopped.listen(1)
        began = time.monotonic()
        common.close_connections()
        assert time.monotonic() - began < 60
    assert list(temporary.iterdir()) == []
