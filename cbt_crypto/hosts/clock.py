"""The nodes' clocks against ours, and whether one was set while it was measured by."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cbt_crypto.errors import RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site

#: Seconds that a clock may move against ours during a cell; reading it is that inexact at worst.
_CLOCK_JUMP_S = 2.0


def clock_offsets(remote: Remote, site: Site) -> dict[str, float]:
    """Host -> its clock minus that of this machine, in seconds.

    As exact as half the round trip to it: some milliseconds over reused connections.
    """
    before = time.time()
    outputs = remote.run({host: "date +%s.%N" for host in site.hosts}, "read the clock", 60)
    middle = (before + time.time()) / 2
    return {host: round(float(text) - middle, 4) for host, text in outputs.items()}


def check_clocks(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Raise RunError when a clock was set while it was measured by it."""
    for host, offset in after.items():
        moved = offset - before[host]
        if abs(moved) > _CLOCK_JUMP_S:
            raise RunError(
                f"{host}: its clock was set by {moved:+.1f} s during the cell; let chrony or "
                "systemd-timesyncd finish before a campaign"
            )


def clock_bounds(begin: float, end: float, sent: float, received: float) -> tuple[float, float]:
    """A host's clock minus ours: the least and the most that it can be.

    `begin` and `end` are what the host's clock said, within our `sent` and `received`.
    """
    return end - received, begin - sent


def clock_difference(bounds: tuple[float, float], others: tuple[float, float]) -> float:
    """One host's clock minus another's, at least: 0 when they may be the same.

    Both are known against ours, which may be wrong, by the bounds of how long they were asked.
    """
    least, most = bounds[0] - others[1], bounds[1] - others[0]
    if least <= 0 <= most:
        return 0.0
    return least if least > 0 else most
