"""Starts a campaign that outlives its terminal and the ssh that brought it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cbt_crypto.errors import UsageError
from cbt_crypto.run.detached.running import running

_LOOK_S = 0.1


def detach(archive: Path, arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Run this program with `arguments` in a session of its own; return an exit status.

    Returns 0 as soon as it holds the archive, or its own status when it ends before: what it said
    is printed then. Raises UsageError when the archive cannot be written or is in use.
    """
    if running(archive):
        raise UsageError(f"{archive}: a campaign runs into it; see: cbt-crypto watch {archive}")
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
    with os.fdopen(log, "r+b", buffering=0) as file:
        begin = file.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command(arguments), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
        while process.poll() is None:
            campaign = running(archive)
            if campaign is not None and campaign.pid == process.pid:
                say(f"running as process {process.pid}; it prints to {path}")
                say(f"  cbt-crypto watch {archive}\n  cbt-crypto stop {archive}")
                return 0
            time.sleep(_LOOK_S)
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
    if os.geteuid() != 0 or not os.path.isdir("/run/systemd/system"):
        return program
    if shutil.which("systemd-run") is None:
        return program
    return ["systemd-run", "--scope", "--quiet", "--collect", "--", *program]
