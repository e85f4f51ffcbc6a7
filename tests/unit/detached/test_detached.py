"""Who runs a campaign is what the kernel says; only that process is asked to end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cbt_crypto.errors import UsageError
from cbt_crypto.run.detached import (
    command,
    detach,
    log_of,
    running,
    status,
    stop,
    watch,
    watch_steps,
)
from cbt_crypto.run.locks import this_run
from cbt_crypto.run.progress import CampaignProgress

pytestmark = pytest.mark.unit

_LOCKS = """
import fcntl, os, signal, sys, time
file = open(sys.argv[1], "a+")
if sys.argv[2] != "open":
    fcntl.flock(file, fcntl.LOCK_EX)
if sys.argv[2] == "lock":
    print(f"root@here (process {os.getpid()}, archive x)", file=file, flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(60)
"""


#: A campaign that begins a while after it has locked its archive, and cleared what a kill left.
_BEGUN = """
time.sleep(0.5)
place = pathlib.Path(sys.argv[1]).parent / "results/progress.json"
place.write_text('{"format": 1, "pid": %d}' % os.getpid())
time.sleep(60)
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "archive/results").mkdir(parents=True)
    (tmp_path / "archive/results/plan.json").write_text('{"format": 1}')
    return tmp_path / "archive"


@pytest.fixture
def holder(
    start_child: Callable[..., subprocess.Popen[str]],
) -> Callable[..., subprocess.Popen[str]]:
    """Starts a process that has a file open, and locked when it is to."""

    def start(path: Path, how: str = "lock") -> subprocess.Popen[str]:
        return start_child([sys.executable, "-c", _LOCKS, str(path), how], up="ready")

    return start


def test_nobody_runs_into_it(archive: Path) -> None:
    assert running(archive) is None
    assert running(archive / "nowhere") is None
    with pytest.raises(UsageError, match="no campaign is running with it on this machine"):
        stop(archive, print)


def test_another_user_s_campaign_is_not_called_none(archive: Path) -> None:
    """Its lock is seen by its user and root alone, and `stop` recommended `cleanup`."""
    begin = {"event": "begin", "run": "r1", "by": {**this_run(archive), "user": "alice"}}
    (archive / "results/journal.jsonl").write_text(json.dumps(begin))
    with pytest.raises(UsageError, match=r"is of alice@.* \(process \d+, .*; ask them to stop it$"):
        stop(archive, print)


def test_the_one_that_holds_the_lock_is_asked_to_end_and_waited_for(
    archive: Path, holder: Any
) -> None:
    other = holder(archive / ".lock", "open")
    process = holder(archive / ".lock")
    found = running(archive)
    assert found is not None and (found.pid, found.uid) == (process.pid, os.geteuid())
    said: list[str] = []
    stop(archive, said.append)
    assert process.wait(5) == 7
    assert other.poll() is None, "it only had the file open"
    assert said[0] == f"process {process.pid} has been asked to end; it tears its cluster down"


@pytest.mark.parametrize("way", ["by itself", "a signal came", "in a run before"])
def test_a_campaign_that_tears_down_already_is_only_waited_for(
    archive: Path, holder: Any, way: str
) -> None:
    """A second signal, it stopped at once, and left all that `stop` was to wait for."""
    process = holder(archive / ".lock")
    progress = CampaignProgress(Console(file=io.StringIO()), 1, 1, archive=archive)
    begin = progress.ending if way == "a signal came" else progress.phase
    begin("tear the cluster down")
    path = archive / "results/progress.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "pid": process.pid + (way == "in a run before")}))
    said: list[str] = []
    end = threading.Timer(0.5, process.kill)
    end.start()
    stop(archive, said.append)
    end.cancel()
    assert process.wait(5) == (7 if way == "in a run before" else -signal.SIGKILL)
    assert ("was ending already" in said[0]) == (way != "in a run before")


def test_a_lock_of_another_program_is_not_ours(archive: Path, holder: Any) -> None:
    """`stop ~/.cache/uv`, or any directory where a program locks its `.lock`, killed that."""
    other = holder(archive / ".lock", "other")
    for said in ("", f"root@here (process {other.pid + 1}, archive x)"):
        (archive / ".lock").write_text(said)
        assert running(archive) is None
        with pytest.raises(UsageError, match="no campaign is running"):
            stop(archive, print)
    assert other.poll() is None


def test_a_campaign_that_ctrl_z_stopped_ends_too(archive: Path, holder: Any) -> None:
    """It was waited for without end."""
    process = holder(archive / ".lock")
    process.send_signal(signal.SIGSTOP)
    stop(archive, print)
    assert process.wait(5) == 7


def test_what_the_lock_says_in_words_is_no_proof(archive: Path, holder: Any) -> None:
    bystander = holder(archive / "elsewhere")
    (archive / ".lock").write_text(f"root@here (process {bystander.pid}, archive x)")
    journal = {"event": "begin", "run": "1", "by": {"pid": bystander.pid}}
    (archive / "results/journal.jsonl").write_text(json.dumps(journal))
    (archive / "results/progress.json").write_text(json.dumps({"pid": bystander.pid}))
    with pytest.raises(UsageError):
        stop(archive, print)
    assert bystander.poll() is None


@pytest.mark.parametrize("how", ["link", "symlink"])
def test_a_lock_that_is_another_file_is_no_proof(
    archive: Path, tmp_path: Path, holder: Any, how: str
) -> None:
    bystander = holder(tmp_path / "of-another-daemon")
    if how == "link":
        os.link(tmp_path / "of-another-daemon", archive / ".lock")
    else:
        (archive / ".lock").symlink_to(tmp_path / "of-another-daemon")
    with pytest.raises(UsageError):
        stop(archive, print)
    assert bystander.poll() is None


def told(archive: Path, **values: Any) -> None:
    about = {"phase": "deploy", "cell": 3, "cells": 9, "at": time.time(), "ended": False}
    (archive / "results/progress.json").write_text(json.dumps({**about, **values}))


def test_the_line_of_an_onlooker(archive: Path, holder: Any) -> None:
    assert "no campaign is running" in status(archive).plain
    told(archive)
    assert "was killed at: deploy" in status(archive).plain
    assert "cleanup" in status(archive).plain
    told(archive, ended=True, phase="ended")
    assert status(archive).plain == "ended; cell 3 of 9"
    holder(archive / ".lock")
    told(archive, at=time.time() - 10, seconds_left=100, uncertainty_s=5)
    assert status(archive).plain.startswith("3/9  deploy  for 10 s  0:01:30 left ±5 s")
    told(archive, at=time.time() - 60, written=time.time() - 10, seconds_left=100,
         uncertainty_s=5, iops=12345.4, latency_s=0.00207)  # fmt: skip
    line = "3/9  deploy  for 60 s  0:01:30 left ±5 s  now 12,345 IOPS, mean 2.07 ms"
    assert status(archive).plain == line
    told(archive, phase="cell 3/9: rbd / LUKS / randread 4K")
    assert status(archive).plain == "3/9  rbd / LUKS / randread 4K  for 0 s"
    told(archive, phase="evil\x1b[2J\nline", at="x", seconds_left="y", cell={})
    assert "\x1b" not in status(archive).plain and "\n" not in status(archive).plain


def test_a_run_of_another_machine_is_not_called_killed(archive: Path) -> None:
    """`watch` over NFS said so of a living run, and recommended `cleanup`."""
    told(archive)
    by = {**this_run(archive), "host": "head1", "user": "alice", "pid": 4711}
    journal = archive / "results/journal.jsonl"
    journal.write_text(json.dumps({"event": "begin", "run": "r1", "by": by}) + "\n")
    line = status(archive).plain
    assert line.startswith("alice@head1 (process 4711, ") and "may be running elsewhere" in line
    assert line.endswith("at: deploy; watch it there") and "cleanup" not in line
    lines: list[dict[str, Any]] = []
    watch_steps(archive, lambda text: lines.append(json.loads(text)))
    assert [each["running"] for each in lines] == [None]
    journal.write_text("[" * 9 + "\n" + json.dumps({"event": "begin", "run": "r1", "by": {
        **this_run(archive), "pid": 1, "started": 1}}))  # fmt: skip
    assert "was killed at: deploy" in status(archive).plain


def test_a_line_is_short_whatever_an_archive_says(archive: Path) -> None:
    """A phase of 20 MiB was printed whole."""
    told(archive, phase="x" * (20 << 20))
    assert len(status(archive).plain) < 1000
    by = {"host": "y" * (1 << 20), "pid": 1}
    entry = json.dumps({"event": "begin", "run": "r1", "by": by})
    (archive / "results/journal.jsonl").write_text(entry)
    assert len(status(archive).plain) < 1000


def test_watching_from_a_pipe_is_one_look(small_archive: Path, holder: Any) -> None:
    holder(small_archive / ".lock")
    told(small_archive)
    output = io.StringIO()
    watch(small_archive, Console(file=output, width=120))
    assert "random reads" in output.getvalue()
    assert output.getvalue().splitlines()[-1].startswith("3/9  deploy")
    with pytest.raises(UsageError):
        watch(small_archive / "nowhere", Console(file=output))


def test_a_page_that_reloads_itself_until_the_campaign_ends(
    small_archive: Path, tmp_path: Path, holder: Any
) -> None:
    running_now = holder(small_archive / ".lock")
    page = tmp_path / "out/report.html"
    command = [sys.executable, "-m", "cbt_crypto", "report", str(small_archive), "--watch"]
    watching = subprocess.Popen(
        [*command, "-o", str(page.parent)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    ends = time.monotonic() + 120
    while not (page.exists() and 'http-equiv="refresh"' in page.read_text()):
        assert watching.poll() is None and time.monotonic() < ends
        time.sleep(0.2)
    running_now.kill()
    running_now.wait()
    said = watching.communicate(timeout=120)[0]
    assert watching.returncode == 0, said
    assert "which reloads itself" in said and "LUKS" in said
    assert 'http-equiv="refresh"' not in page.read_text(), "it has ended"


@pytest.fixture
def small_archive(tmp_path: Path) -> Path:
    import zipfile  # noqa: PLC0415

    packed = Path(__file__).parent.parent / "data/packs/archive-format-1.zip"
    with zipfile.ZipFile(packed) as file:
        file.extractall(tmp_path / "small")
    return tmp_path / "small"


def test_a_detached_run_has_a_session_of_its_own_and_a_log(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "run.py"
    begins = "import os, pathlib\nprint('sid', os.getsid(0), os.getpid())\n"
    script.write_text(begins + _LOCKS.replace("time.sleep(60)", _BEGUN))
    monkeypatch.setattr(sys, "argv", [str(script)])
    said: list[str] = []
    assert detach(archive, [str(archive / ".lock"), "lock"], said.append) == 0
    found = running(archive)
    assert found is not None and f"process {found.pid}" in said[0]
    assert "cbt-crypto watch" in said[1]
    with pytest.raises(UsageError, match="a campaign is running with this archive"):
        detach(archive, [], said.append)
    os.kill(found.pid, signal.SIGKILL)
    text = log_of(archive).read_text()
    words = text.split()
    assert words[1] == words[2] == str(found.pid), "it leads its session"
    assert not (archive / "campaign.log").exists(), "the archive holds results alone"


def test_a_detached_run_that_only_clears_is_not_called_running(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed run had left was cleared, "running" was said, and then the check failed."""
    script = tmp_path / "run.py"
    refused = "time.sleep(0.5); file.close(); print('host0: no room'); sys.exit(2)"
    script.write_text(_LOCKS.replace("time.sleep(60)", refused))
    monkeypatch.setattr(sys, "argv", [str(script)])
    said: list[str] = []
    assert detach(archive, [str(archive / ".lock"), "lock"], said.append) == 2
    assert said == ["ready\nhost0: no room"]


@pytest.mark.parametrize("at_once", [False, True])
def test_ctrl_c_ends_a_detached_run_that_checks(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """`run --detach` said that it was interrupted; its campaign went on and formatted disks.

    `at_once`: before it is known which process was started.
    """
    start = subprocess.Popen

    def interrupted(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        process = start(*words, **more)
        while not log_of(archive).read_text():
            time.sleep(0.01)
        return process

    if at_once:
        monkeypatch.setattr(subprocess, "Popen", interrupted)
    script = tmp_path / "run.py"
    script.write_text(
        "import os, signal, time\nprint(os.getpid(), flush=True)\n"
        "os.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)"
    )
    monkeypatch.setattr(sys, "argv", [str(script)])
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        detach(archive, [], said.append)
    pid = int(log_of(archive).read_text())
    alive = Path(f"/proc/{pid}").exists()
    if alive:
        os.kill(pid, signal.SIGKILL)
    assert not alive and said == [f"ending process {pid}"]


def test_what_ends_at_once_says_why_here(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "run.py"
    script.write_text("import sys\nprint('of today')\nsys.exit(2)")
    monkeypatch.setattr(sys, "argv", [str(script)])
    log_of(archive).write_text("of yesterday\n")
    said: list[str] = []
    assert detach(archive, [], said.append) == 2
    assert said == ["of today"]


def test_under_systemd_it_leaves_the_scope_of_the_login(
    programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["cbt.py"])
    programs("systemd-run", "exit 0")
    monkeypatch.setattr(os.path, "isdir", lambda path: path == "/run/systemd/system")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert command(["-a", "x"])[:5] == ["systemd-run", "--scope", "--quiet", "--collect", "--"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command(["-a", "x"])[0] == sys.executable


def test_a_state_prints_no_line_of_its_own(archive: Path) -> None:
    told(archive, ended=True, phase="x\nerror: a", cell="1\nerror: b", cells="2\nerror: c")
    assert len(status(archive).plain.splitlines()) == 1


def test_steps_as_lines_of_json(archive: Path, holder: Any) -> None:
    progress = archive / "results/progress.json"
    progress.write_text('{"format": 1, "phase": "cell 1/2: a", "cell": 1, "cells": 2}')
    process = holder(archive / ".lock")
    lines: list[dict[str, Any]] = []

    def write(line: str) -> None:
        lines.append(json.loads(line))
        if len(lines) == 1:
            progress.write_text('{"format": 1, "phase": "ended", "cell": 2, "cells": 2}')
            process.terminate()
            process.wait()

    watch_steps(archive, write)
    assert [(line["phase"], line["running"]) for line in lines] == [
        ("cell 1/2: a", True),
        ("ended", False),
    ]


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_steps_that_are_no_json_are_left_out(archive: Path, number: str) -> None:
    (archive / "results/progress.json").write_text(f'{{"phase": "x", "at": {number}}}')
    lines: list[str] = []
    watch_steps(archive, lines.append)
    assert lines == []
