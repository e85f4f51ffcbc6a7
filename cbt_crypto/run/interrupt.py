"""Ctrl-C once ends the cell and takes the cluster down; twice stops at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Optional


class Abandoned(BaseException):
    """The second interrupt: nothing is waited for and nothing taken down any more."""


@contextlib.contextmanager
def interrupts(say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs: SIGINT or SIGTERM raises KeyboardInterrupt, the next one Abandoned."""
    seen = 0

    def stop(number: int, frame: Optional[FrameType]) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            raise Abandoned
        say("ending this cell and taking the cluster down; once more stops at once")
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
