"""Campaigns without a terminal: started, found again, watched and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cbt_crypto.archive.files import Malformed, one_line, open_regular, read_json
from cbt_crypto.archive.folder import open_archive
from cbt_crypto.engine.contract import LiveFigures
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.plan.predict import Left
from cbt_crypto.run.interrupt import held_back
from cbt_crypto.run.journal import left_over
from cbt_crypto.run.locks import describe, is_dead
from cbt_crypto.run.progress import TEARING_DOWN

#: `1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF`; those that wait have an arrow.
_FLOCK = re.compile(r"^\d+:\s+FLOCK\s+\S+\s+WRITE\s+(\d+)\s")


@dataclass(frozen=True)
class Running:
    """A process that holds the lock of an archive, and whom it belongs to."""

    pid: int
    uid: int


def running(archive: Path) -> Optional[Running]:
    """Who runs a campaign into the archive on this machine; None when nobody is seen to."""
    try:
        lock = os.lstat(archive / ".lock")
    except OSError:
        return None
    # A second name of it could be a file that a process of somebody else has locked.
    if not stat.S_ISREG(lock.st_mode) or lock.st_nlink != 1:
        return None
    for pid in _holders():
        if holds(pid, lock) and _is_named(archive / ".lock", pid):
            with contextlib.suppress(OSError):
                return Running(pid, os.stat(f"/proc/{pid}").st_uid)
    return None


def holds(pid: int, lock: os.stat_result) -> bool:
    """Whether the process has that very file open, and locked for itself."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                opened_file = os.stat(f"/proc/{pid}/fd/{name}")
                if os.path.samestat(opened_file, lock) and _locked(pid, name):
                    return True
    return False


def _is_named(path: Path, pid: int) -> bool:
    """Return whether a lock is a campaign's of that process; in a container its number differs."""
    try:
        with open_regular(path) as file:
            said = file.read(4096)
        state = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (Malformed, OSError):
        return False
    numbers = state.partition("\nNSpid:")[2].partition("\n")[0].split() or [str(pid)]
    return any(f" (process {number}, archive ".encode() in said for number in numbers)


def _locked(pid: int, descriptor: str) -> bool:
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(errors="replace").splitlines():
        kind, _, text = line.partition(":")
        match = _FLOCK.match(text.strip()) if kind == "lock" else None
        # One that was handed the descriptor by somebody else has not locked it.
        if match and int(match[1]) == pid:
            return True
    return False


def _holders() -> Iterator[int]:
    """Processes that have a lock of this kind on anything."""
    try:
        lines = Path("/proc/locks").read_text(errors="replace").splitlines()
    except OSError:
        return
    locks = (match for match in map(_FLOCK.match, lines) if match)
    yield from dict.fromkeys(int(match[1]) for match in locks if int(match[1]) > 0)


_LOOK_S = 0.1


def detach(archive: Path, arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Run this program with `arguments` in its own session; return 0 once its campaign has begun.

    Else print what it said; return its status. UsageError for an archive in use or unwritable.
    """
    if running(archive):
        raise UsageError(
            f"{archive}: a campaign is running with this archive; see: cbt-crypto watch {archive}"
        )
    path = log_of(archive)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        log = os.open(path, flags, 0o644)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror}; name another archive with -a"
        ) from None
    status = os.fstat(log)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid != os.geteuid():
        os.close(log)
        raise UsageError(f"{path}: is not a file of yours alone; remove it")
    process = None
    with os.fdopen(log, "r+b", buffering=0) as file:
        begin = file.seek(0, os.SEEK_END)
        try:
            with held_back():
                process = subprocess.Popen(
                    command(arguments), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                    start_new_session=True,
                )  # fmt: skip
            while process.poll() is None:
                campaign = running(archive)
                state = read_json(archive / "results" / "progress.json") or {}
                # It holds the archive before, too, while it clears what a killed run left.
                if campaign is not None and campaign.pid == process.pid == state.get("pid"):
                    say(f"running as process {process.pid}; it prints to {path}")
                    say(f"  cbt-crypto watch {archive}\n  cbt-crypto stop {archive}")
                    return 0
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            # In a session of its own, it would go on without anybody knowing.
            if process is not None:
                process.terminate()
                say(f"ending process {process.pid}")
                process.wait()
            raise
        file.seek(begin)
        say(file.read().decode(errors="replace").rstrip())
    return process.returncode


def log_of(archive: Path) -> Path:
    """What a detached campaign prints: beside its archive, which holds results alone."""
    archive = archive.absolute()
    return archive.parent / f"{archive.name}.log"


def command(arguments: Sequence[str]) -> list[str]:
    """This program again; under systemd out of the login's session, which may end with it."""
    program = [sys.executable, os.path.abspath(sys.argv[0]), *arguments]
    has_systemd = os.path.isdir("/run/systemd/system") and shutil.which("systemd-run") is not None
    scope = ["systemd-run", "--scope", "--quiet", "--collect", "--"]
    return [*scope, *program] if has_systemd and os.geteuid() == 0 else program


def stop(archive: Path, say: Callable[[str], None]) -> None:
    """End the campaign that holds `archive`'s lock, and wait until its cluster is down.

    Raises UsageError when none does here, or it is another user's; RunError for what it left.
    """
    campaign = running(archive)
    if campaign is None:
        raise UsageError(f"{archive}: {_nobody(archive)}")
    if campaign.uid != os.geteuid() and os.geteuid() != 0:
        raise UsageError(
            f"{archive}: process {campaign.pid} is another user's; ask them to stop it"
        )
    # From here on the descriptor stands for that process, even when its number is given anew.
    process = _descriptor(campaign.pid, archive)
    try:
        if not holds(campaign.pid, os.lstat(archive / ".lock")):
            raise _ended_already(archive)
        state = read_json(archive / "results" / "progress.json") or {}
        is_ending = (state.get("pid"), state.get("phase")) == (campaign.pid, TEARING_DOWN)
        if not is_ending:
            signal.pidfd_send_signal(process, signal.SIGTERM)
        # One that Ctrl-Z stopped would not see it.
        signal.pidfd_send_signal(process, signal.SIGCONT)
        begun = "was ending already" if is_ending else "has been asked to end"
        say(f"process {campaign.pid} {begun}; it tears its cluster down")
        select.select([process], [], [])
    except ProcessLookupError:
        raise _ended_already(archive) from None
    finally:
        os.close(process)
    for deployment in left_over(archive):
        raise RunError(
            f"{archive}: stopped, but not all is torn down; left on {deployment.describe()}; "
            f"remove it with: cbt-crypto cleanup {shlex.quote(str(archive))}"
        )
    say("stopped, and all is torn down; the same command continues it")


def _descriptor(pid: int, archive: Path) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise _ended_already(archive) from None
    except OSError as error:
        raise UsageError(
            f"{archive}: this kernel cannot hold on to a process ({error.strerror}); "
            f"end it yourself with: kill {pid}"
        ) from None


def _ended_already(archive: Path) -> UsageError:
    return UsageError(f"{archive}: its campaign has just ended, so there is nothing to stop")


def _nobody(archive: Path) -> str:
    if not archive.is_dir():
        return "there is no such directory; name the archive of a campaign"
    for deployment in left_over(archive):
        # What another user's process has locked is seen by him and by root alone.
        if is_dead(deployment.by) is False:
            return f"is of {describe(deployment.by)}; ask them to stop it"
    return (
        "no campaign is running with it on this machine; if it runs on another one, stop it there. "
        f"To remove what a killed one left: cbt-crypto cleanup {shlex.quote(str(archive))}"
    )


#: Seconds since the epoch will be fewer for three thousand years.
_MOST_S = 1e11
#: Characters of a phase; another program may have written more.
_LONGEST = 200
_REFRESH_S = 1.0


def watch(archive: Path, console: Console) -> None:
    """Show where the campaign is and its tables, until it ends; once if not on a terminal.

    Raises UsageError for no archive.
    """
    open_archive(archive)
    seen: Any = ...
    if not console.is_terminal:
        _tables(archive, console)
        console.print(status(archive), soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            now = changed(archive)
            if now != seen:
                seen = now
                live.update(Text(""), refresh=True)
                _tables(archive, console)
            live.update(status(archive), refresh=True)
            if running(archive) is None:
                return
            time.sleep(_REFRESH_S)


def watch_steps(archive: Path, write: Callable[[str], None]) -> None:
    """Write each change of progress.json as a line, with `running`; UsageError for no archive.

    `running` is None for a run that another machine may have.
    """
    open_archive(archive)
    seen: Any = ...
    while True:
        # Asked first: what is read after a campaign has ended is its last word.
        is_running: Optional[bool] = running(archive) is not None
        state = read_json(archive / "results" / "progress.json") or {}
        if not (is_running or state.get("ended")) and _elsewhere(archive):
            is_running = None
        if state != seen or not is_running:
            seen = state
            with contextlib.suppress(ValueError):
                # What no campaign wrote, as NaN, is no JSON to others.
                write(json.dumps({**state, "running": is_running}, allow_nan=False))
        if not is_running:
            return
        time.sleep(_REFRESH_S)


def changed(archive: Path) -> Optional[int]:
    """Something that is another when a cell has ended; None before the first."""
    try:
        return (archive / "results" / "timeline.json").stat().st_mtime_ns
    except OSError:
        return None


def status(archive: Path) -> Text:
    """One line: the cell, its phase, the time left; or that it ended, and how."""
    state = read_json(archive / "results" / "progress.json") or {}
    phase = one_line(str(state.get("phase", ""))[:_LONGEST])
    is_running = running(archive) is not None
    now = time.time()
    since = max(0.0, now - (_number(state, "at") or now))
    if not is_running:
        return Text(_how_it_ended(archive, state, phase), "yellow")
    position = f"{_shown(state, 'cell')}/{_shown(state, 'cells')}"
    # The time left is of when it was written, the phase's age of when that began.
    written = max(0.0, now - (_number(state, "written") or _number(state, "at") or now))
    # A cell's own phase says where it stands.
    phase = phase.removeprefix(f"cell {position}: ")
    iops, latency_s = _number(state, "iops"), _number(state, "latency_s")
    live = "" if iops is None else f"now {LiveFigures(iops, latency_s)}"
    words = [position, phase, f"for {round(since)} s", _left(state, written), live]
    return Text("  ".join(word for word in words if word), "cyan")


def _how_it_ended(archive: Path, state: dict[str, Any], phase: str) -> str:
    if not state:
        return "no campaign is running with it on this machine"
    if state.get("ended"):
        return f"{phase}; cell {_shown(state, 'cell')} of {_shown(state, 'cells')}"
    for by in _elsewhere(archive):
        who = describe(by)[:_LONGEST]
        return f"{who} may be running elsewhere, or was killed, at: {phase}; watch it there"
    return (
        f"it was killed at: {phase}; the same command continues it, and "
        f"cbt-crypto cleanup {shlex.quote(str(archive))} removes what it left"
    )


def _elsewhere(archive: Path) -> list[Mapping[str, Any]]:
    """Who left something by the archive's own word, and is not known to have ended."""
    with contextlib.suppress(UsageError):
        return [left.by for left in left_over(archive) if is_dead(left.by) is not True]
    return []


def _left(state: dict[str, Any], since: float) -> str:
    seconds, uncertainty = _number(state, "seconds_left"), _number(state, "uncertainty_s")
    if seconds is None or uncertainty is None:
        return ""
    return str(Left(max(0.0, seconds - since), uncertainty))


def _number(state: dict[str, Any], key: str) -> Optional[float]:
    """A number that a time can be: none of what somebody else may have written there."""
    value = state.get(key)
    return value if isinstance(value, (int, float)) and abs(value) < _MOST_S else None


def _shown(state: dict[str, Any], key: str) -> str:
    return one_line(str(state.get(key)))[:20]


def _tables(archive: Path, console: Console) -> None:
    # A node that only measures need not have the libraries of the report.
    try:
        from cbt_crypto import report  # noqa: PLC0415
    except ImportError:
        return
    report.show(report.build(archive), report.widened(console))
