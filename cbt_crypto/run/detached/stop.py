"""Stops a campaign as Ctrl-C does: its cell ends, and its cluster is taken down."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

from cbt_crypto.errors import UsageError
from cbt_crypto.run.detached.running import holds, running


def stop(archive: Path, say: Callable[[str], None]) -> None:
    """End the campaign that runs into `archive`, and wait until its cluster is down.

    The process is asked to end only while it is seen to hold the archive's lock. Raises
    UsageError when none does on this machine, or it is another user's.
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
            raise _ended(archive)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        say(f"asked process {campaign.pid} to end; it takes its cluster down")
        select.select([process], [], [])
    except ProcessLookupError:
        raise _ended(archive) from None
    finally:
        os.close(process)
    say("stopped; the command that started it goes on where it was")


def _descriptor(pid: int, archive: Path) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise _ended(archive) from None
    except OSError as error:
        raise UsageError(
            f"{archive}: this kernel cannot hold on to a process ({error.strerror}); "
            f"end it yourself with: kill {pid}"
        ) from None


def _ended(archive: Path) -> UsageError:
    return UsageError(f"{archive}: its campaign has just ended, so there is nothing to stop")


def _nobody(archive: Path) -> str:
    if not archive.is_dir():
        return "there is no such directory; name the archive of a campaign"
    return (
        "no campaign runs into it on this machine; on another one, stop it there. What a killed "
        f"one left is taken down by: cbt-crypto cleanup {archive}"
    )
