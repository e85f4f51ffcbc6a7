"""What an interrupted campaign leaves, keeps, and goes on with: on real Ceph, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CONFIGURATIONS = {"Unencrypted": {}, "Secure messenger": {"secure_messenger": {}}}
BENCHMARKS = {
    "rbd_single_client": {
        "vol_size": 128, "time": 6, "iodepth": 8, "op_size": 4096, "mode": "randread",
    },
}  # fmt: skip


def _wait(what: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    pytest.fail(f"waited {seconds} s in vain for {what}")


def _fio(machine: Any) -> list[int]:
    """The pids of this campaign's measuring fio processes."""
    mark = f"CBT_CRYPTO_MARK={machine.tmp_dir}@".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            measures = words[0] == b"fio" and b"--time_based" in words
            if measures and mark in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def _start(machine: Any, config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        machine.command(config), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_killed_fio_fails_its_cell_and_no_other(machine: Any) -> None:
    config = machine.write(CONFIGURATIONS, BENCHMARKS)
    running = _start(machine, config)
    os.kill(_wait("fio", lambda: _fio(machine))[0], signal.SIGKILL)
    stdout, stderr = running.communicate(timeout=300)
    assert running.returncode == 1, stdout + stderr
    by_name = {cell["configuration"]: cell for cell in machine.cells()}
    assert by_name["Unencrypted"]["state"] == "failed"
    assert "localhost: fio 0 exited with 137" in by_name["Unencrypted"]["reason"]
    assert by_name["Secure messenger"]["state"] == "finished"
    assert machine.leftovers() == []


def test_ctrl_c_takes_everything_down_and_the_next_run_goes_on(machine: Any) -> None:
    config = machine.write(CONFIGURATIONS, BENCHMARKS)
    running = _start(machine, config)
    _wait("the first cell", machine.cells)
    _wait("fio of the second", lambda: _fio(machine))
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "interrupted" in stderr
    assert "Unencrypted" in stdout
    assert machine.leftovers() == []
    assert [cell["state"] for cell in machine.cells()] == ["finished"]

    again = machine.run(config)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "cell 1/1" in again.stdout
    assert [cell["state"] for cell in machine.cells()] == ["finished", "finished"]


def test_kill_9_leaves_nothing_that_the_next_run_does_not_clear(machine: Any) -> None:
    config = machine.write(CONFIGURATIONS, BENCHMARKS)
    running = _start(machine, config)
    _wait("fio", lambda: _fio(machine))
    running.kill()
    running.communicate()
    assert machine.leftovers() != []
    again = machine.run(config)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [cell["state"] for cell in machine.cells()] == ["finished", "finished"]
    assert machine.leftovers() == []


def test_a_second_run_is_refused_and_a_second_ctrl_c_stops_at_once(machine: Any) -> None:
    config = machine.write(CONFIGURATIONS, BENCHMARKS)
    running = _start(machine, config)
    _wait("fio", lambda: _fio(machine))
    other = machine.run(config, "-a", str(machine.directory / "other"))
    assert other.returncode == 2, other.stdout + other.stderr
    assert f"localhost: tmp_dir {machine.tmp_dir} is in use by " in other.stderr
    assert f"(process {running.pid}, archive {machine.archive}, since " in other.stderr
    running.send_signal(signal.SIGINT)
    assert running.stdout is not None
    assert any("once more stops at once" in line for line in running.stdout)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=20)
    assert running.returncode == 1
    assert f"left on localhost: processes with CBT_CRYPTO_MARK={machine.tmp_dir}@" in stderr
    assert f"remove it with: cbt-crypto cleanup {machine.archive}" in stderr
    assert machine.leftovers() != []

    command = [sys.executable, "-m", "cbt_crypto", "cleanup", "--yes", str(machine.archive)]
    cleaned = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert cleaned.returncode == 0, cleaned.stderr
    assert "tearing down what a run that ended early, " in cleaned.stdout
    assert machine.leftovers() == []
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "nothing is left on any host" in again.stdout
