"""The sampler of client processes against the kernel's own account of them (getrusage)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cbt_crypto.hosts import samplers
from cbt_crypto.results.cell.client import read_client_cpu

pytestmark = pytest.mark.unit

#: Works in two threads and in system calls, as a client does, and prints what it took by its end.
WORK = """
import os, resource, threading, time
ends = time.monotonic() + 2.5
def work():
    while time.monotonic() < ends:
        for _ in range(200): os.stat('/')
        sum(range(3000))
threads = [threading.Thread(target=work) for _ in range(2)]
[one.start() for one in threads]; [one.join() for one in threads]
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime, used.ru_stime)
time.sleep(1.5)
"""


def run(text: str, mark: str) -> subprocess.CompletedProcess[str]:
    script = f"set -eu\nSUDO=\nexport CBT_CRYPTO_MARK={mark}\n{text}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


def test_it_counts_all_threads_of_ours_and_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    name = Path(sys.executable).name[:15]
    ours = f"{sys.executable} {tmp_path}/work.py & wait"
    strangers = f"env -u CBT_CRYPTO_MARK {sys.executable} {tmp_path}/work.py > /dev/null &"
    text = (
        f"{strangers}\n{samplers.with_client_sampler(ours, str(tmp_path), str(tmp_path), [name])}"
    )
    done = run(text, f"{tmp_path}@host")
    assert done.returncode == 0, done.stderr
    user, system = map(float, done.stdout.split())
    series = read_client_cpu(tmp_path / samplers.CLIENTS_FILE)
    assert series.cpu_s[0].tolist() == [0.0, 0.0]
    # what starting and ending takes is in the one and not in the other
    assert series.cpu_s[-1].sum() == pytest.approx(user + system, rel=0.1, abs=0.15)
    assert series.cpu_s[-1][0] == pytest.approx(user, rel=0.2, abs=0.2)
    assert 3 <= len(series.epoch_s) <= 60


def test_it_fails_as_what_it_stands_around_does(tmp_path: Path) -> None:
    text = samplers.with_client_sampler("echo before; (exit 7)", str(tmp_path), str(tmp_path))
    done = run(f"{text}\necho after", f"{tmp_path}@host")
    assert (done.returncode, done.stdout) == (7, "before\n")


def test_what_is_measured_is_measured_without_a_sampler_too(tmp_path: Path) -> None:
    """As where a host's Python cannot start."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    text = samplers.with_client_sampler("echo measured", str(tmp_path), str(tmp_path))
    done = run(f"PATH={tmp_path}:$PATH\n{text}\necho after", f"{tmp_path}@host")
    assert (done.returncode, done.stdout) == (0, "measured\nafter\n")


def test_it_ends_with_its_file(tmp_path: Path) -> None:
    """A script that was cut off in the middle leaves it; the run's directory is removed then."""
    ending = f"rm {tmp_path}/{samplers.CLIENTS_FILE}; kill -9 $$"
    run(samplers.with_client_sampler(ending, str(tmp_path), str(tmp_path)), f"{tmp_path}@host")
    mark = f"CBT_CRYPTO_MARK={tmp_path}@".encode()
    ends = time.monotonic() + 60
    while any(mark in _environ(path) for path in Path("/proc").glob("[0-9]*/environ")):
        assert time.monotonic() < ends
        time.sleep(0.2)


def _environ(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
