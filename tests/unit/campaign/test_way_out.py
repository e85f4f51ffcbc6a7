"""One way out of a campaign: a signal, a closed pipe or a full disk at each step of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from cbt_crypto import report
from cbt_crypto.engine.embedded.ceph import Ceph
from cbt_crypto.errors import HostError, UsageError
from cbt_crypto.run import campaign, interrupt, journal, locks
from cbt_crypto.run.campaign import CampaignRun
from cbt_crypto.run.cell.proof import CellProof
from cbt_crypto.run.devices import identities_in
from cbt_crypto.run.interrupt import Abandoned, Interrupts
from cbt_crypto.run.journal import Journal, left_over
from cbt_crypto.run.prepare import Preparation
from cbt_crypto.run.progress import CampaignProgress

pytestmark = pytest.mark.unit


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp")


def closed_pipe() -> None:
    raise SystemExit(1)  # as rich does


def signalled(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


#: Fault -> what brings it.
FAULTS: dict[str, Callable[[], None]] = {
    "SIGINT": signalled(signal.SIGINT),
    "full disk": full_disk,
    "closed pipe": closed_pipe,
}
#: Step -> the method that is interrupted there.
STEPS: dict[str, tuple[Any, str]] = {
    "note devices": (CampaignRun, "_note_devices"),
    "decide": (CampaignRun, "_decide"),
    "deploy": (Ceph, "initialize"),
    "prefill": (Preparation, "_prefill"),
    "cell": (CampaignRun, "_measure"),
    "shut down": (Ceph, "shutdown"),
    "clean up": (Ceph, "cleanup"),
    "purge": (Ceph, "purge"),
    "journal's end": (Journal, "end"),
    "print": (CampaignProgress, "phase"),
}


def left(host: Any) -> list[str]:
    """What is there of the campaign after its end."""
    state = left_over(host.archive) if host.archive.exists() else []
    return [str(host.tmp_dir)] * host.tmp_dir.exists() + [each.run for each in state]


def is_keeper(process: psutil.Process, tmp_dir: Path) -> bool:
    """Whether it holds a host's names for the campaign of this directory."""
    with contextlib.suppress(psutil.Error):
        order = process.cmdline()[-1:]
        return any('"action": "hold"' in word and f'"{tmp_dir}"' in word for word in order)
    return False


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_step_leaves_anything_in_silence(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch, fault: str, step: str
) -> None:
    owner, name = STEPS[step]
    method = getattr(owner, name)
    seen: list[str] = []

    def faulty(self: Any, *arguments: Any, **named: Any) -> Any:
        if not seen:
            seen.append(step)
            FAULTS[fault]()
        return method(self, *arguments, **named)

    monkeypatch.setattr(owner, name, faulty)
    result = host.cbt(host.write())
    assert seen, "the step was not taken"
    sentence = f"remove it with: cbt-crypto cleanup {host.archive}"
    assert (sentence in result.stderr) is bool(left(host) and host.tmp_dir.exists()), result.output
    assert ("torn down: nothing is left on localhost" in result.stdout) is (
        not host.tmp_dir.exists()
    ), result.output
    if fault.startswith("SIG"):
        assert not left(host), result.output


@pytest.mark.parametrize("step", ["decide", "deploy", "cell", "prove"])
def test_hosts_that_say_what_makes_no_sense_are_told_of(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """An answer of another form than was asked for ended in a traceback."""
    owner, name = {**STEPS, "prove": (CellProof, "judge")}[step]
    monkeypatch.setattr(owner, name, lambda *_: json.loads("<html>"))
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert "cannot be understood (JSONDecodeError: Expecting value" in result.output
    assert not host.tmp_dir.exists()
    log = (host.archive / "results" / "commands.log").read_text()
    assert "read what hosts said: decoder.py:" in log and "campaign.py:" in log


@pytest.mark.parametrize("step", ["shut down", "clean up", "purge", "journal's end"])
def test_one_signal_while_tearing_down_is_no_end_of_it(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It printed "Aborted!", and OSDs and tmp_dir stayed."""
    owner, name = STEPS[step]
    method, end = getattr(owner, name), Preparation.end
    due: list[bool] = []

    def signalled_once(self: Any) -> None:
        if due:
            due.clear()
            FAULTS["SIGINT"]()
        method(self)

    monkeypatch.setattr(owner, name, signalled_once)

    # The same steps clear the hosts before a deployment; there a signal ends the campaign.
    def begin_to_end(self: Preparation) -> None:
        due.append(True)
        end(self)

    monkeypatch.setattr(Preparation, "end", begin_to_end)
    result = host.cbt(host.write())
    assert due == []
    assert left(host) == []
    assert "Aborted" not in result.output


def test_a_second_signal_while_tearing_down_says_what_is_left(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(self: Preparation) -> None:
        FAULTS["SIGINT"]()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Preparation, "end", twice)
    monkeypatch.setattr(os, "_exit", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert "the cluster is being torn down, and this goes on; once more" in result.stdout
    left_there = f"left on localhost: processes with CBT_CRYPTO_MARK={host.tmp_dir}@"
    assert f"stopped at once; {left_there}" in result.stderr
    assert f"remove it with: cbt-crypto cleanup {host.archive}" in result.stderr
    assert left(host)
    # Its holder, this process, lives on, so that no command ends what keeps the host's names.
    keepers = [one for one in psutil.process_iter() if is_keeper(one, host.tmp_dir)]
    assert keepers
    for keeper in keepers:
        keeper.kill()


def test_a_second_signal_while_hosts_are_only_held_says_so(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended without a word, and each host kept what held it."""

    free_hosts = locks.free_hosts

    def interrupted(*asked: Any) -> None:
        free_hosts(*asked)
        FAULTS["SIGINT"]()

    monkeypatch.setattr("cbt_crypto.launch.run_campaign", lambda *_: FAULTS["SIGINT"]())
    monkeypatch.setattr(locks, "free_hosts", interrupted)
    monkeypatch.setattr(os, "_exit", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert "stopped at once; localhost may be held until the next start or" in result.stderr


def test_ctrl_c_while_a_failure_is_diagnosed_tears_down(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Ceph) -> None:
        host.tmp_dir.mkdir(exist_ok=True)
        raise HostError("localhost", "deploy", "exit status 1", "")

    monkeypatch.setattr(Ceph, "initialize", fail)
    monkeypatch.setattr(campaign, "diagnosis", lambda *_: FAULTS["SIGINT"]())
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert "localhost: deploy: exit status 1" in result.stderr
    assert left_over(host.archive) == []


def test_what_a_full_disk_leaves_is_not_called_down(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's $TMPDIR was full, nothing was torn down, and the archive was blamed."""
    monkeypatch.setattr(Preparation, "end", lambda self: full_disk())
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert "not everything could be torn down: /tmp: No space left on device; left on " in (
        result.stderr
    )
    assert left_over(host.archive)


def test_a_full_state_directory_is_not_blamed_on_the_archive(
    host: Any, no_overlays: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ARCHIVE: cannot be written; name another with -a`, which changed nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(journal, "write_json", lambda *_: full_disk())
    result = host.cbt(host.write())
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2, f"{tmp_path}/state/cbt-crypto/open-runs: cannot be written (No space left on device); "
        "make room there, or set XDG_STATE_HOME"
    )  # fmt: skip


@pytest.mark.parametrize("report", [False, True])
def test_an_archive_that_is_removed_meanwhile_is_no_success(
    report: bool, host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CampaignProgress.done

    def remove(self: CampaignProgress, seconds: int) -> None:
        """A journal that is made anew has the old one's inode number, unless that is kept open."""
        journal = host.archive / "results" / "journal.jsonl"
        number = journal.stat().st_ino
        # What the cell left is still being fetched, so no tree that is removed entry by entry.
        journal.unlink()
        journal.parent.rename(host.archive / "gone")
        for again in range(100):
            journal.parent.mkdir(exist_ok=True)
            journal.with_name(f"journal.{again}").touch()
            if journal.with_name(f"journal.{again}").stat().st_ino == number:
                journal.with_name(f"journal.{again}").rename(journal)
                break
        done(self, seconds)

    monkeypatch.setattr(CampaignProgress, "done", remove)
    result = host.cbt(host.write(), report=report)
    assert result.exit_code == 1
    assert "journal.jsonl: was removed or replaced while the campaign ran" in result.stderr
    assert "upstream CBT" not in result.stderr
    assert not host.tmp_dir.exists()


def test_a_signal_in_the_report_is_told_of(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ended the program without a word, or changed nothing, as it fell."""
    monkeypatch.setattr(report, "publish", lambda *_: signalled(signal.SIGTERM)())
    result = host.cbt(host.write(), report=True)
    assert result.exit_code == 1
    assert f"interrupted; for the report run: cbt-crypto report {host.archive}" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not left(host)


def test_signals_in_their_order() -> None:
    said: list[str] = []
    handled = Interrupts(said.append)
    with pytest.raises(KeyboardInterrupt):
        handled.receive(signal.SIGHUP)
    handled.receive(signal.SIGHUP)  # the shell sends one after the kernel's
    assert not handled.is_abandoned
    with pytest.raises(Abandoned):
        handled.receive(signal.SIGINT)
    handled.receive(signal.SIGTERM)
    assert handled.is_abandoned
    assert len(said) == 1


def test_a_second_signal_ends_any_other_command_in_words() -> None:
    """`cleanup` ended without a word, and what it had begun stayed."""
    script = (
        "import signal; from cbt_crypto.run.interrupt import like_ctrl_c\n"
        "with like_ctrl_c():\n"
        "    try: signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt: signal.raise_signal(signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stderr == b"stopped at once: what this command was doing is unfinished\n"


def test_words_that_cannot_be_said_change_nothing() -> None:
    def fail(text: str) -> None:
        raise SystemExit(1)

    handled = Interrupts(fail)
    handled.shield()
    handled.receive(signal.SIGINT)
    with pytest.raises(Abandoned):
        handled.receive(signal.SIGINT)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt.interrupts(print):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_host_that_lies_about_devices_is_an_error_of_it(host: Any) -> None:
    assert identities_in(json.dumps({"/dev/x": {"size": "1"}})) == {"/dev/x": {"size": "1"}}
    for said in ("", "[]", "3", '{"/dev/x": 3}', '{"/dev/x": {"size": 1}}'):
        with pytest.raises((ValueError, AttributeError, TypeError)):
            identities_in(said)
    assert UsageError.exit_status == 2
