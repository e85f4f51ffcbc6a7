"""The two ways in which a campaign ends badly, and the exit status of each."""

from __future__ import annotations

from typing import ClassVar


class CampaignError(Exception):
    """One sentence for the user: what is wrong, where, and what to do about it."""

    exit_status: ClassVar[int] = 1


class UsageError(CampaignError):
    """Found before anything was touched: a bad file, a missing tool, an unreachable host."""

    exit_status: ClassVar[int] = 2


class RunError(CampaignError):
    """Found midway: what is measured is kept and what is deployed is torn down."""


class HostError(RunError):
    """A command failed on a host, or the host could not be reached."""

    def __init__(self, host: str, command: str, status: str, stderr: str) -> None:
        """`status` says how it ended ("exit status 1"); `stderr` is the end of its errors."""
        self.host = host
        self.command = command
        self.status = status
        self.stderr = stderr
        # In one line: what a host says is no line of this program's own.
        lines = " / ".join(filter(None, map(str.strip, stderr.splitlines())))
        detail = f": {lines}" if lines else ""
        super().__init__(f"{host}: {command}: {status}{detail}")
