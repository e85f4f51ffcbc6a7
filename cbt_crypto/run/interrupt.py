"""Signals during a campaign: the first one tears the cluster down, the second one stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Optional

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Abandoned(BaseException):
    """The second signal: nothing is waited for and nothing torn down any more."""


class Interrupts:
    """What signals do: KeyboardInterrupt once, and only until tearing down begins."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self._say = say
        self._is_ending = False
        self._seen = 0

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal came, also one that interrupted nothing."""
        return self._seen > 0

    @property
    def is_abandoned(self) -> bool:
        """Whether the second signal came."""
        return self._seen > 1

    def shield(self) -> None:
        """Tearing down begins: from now on the first signal is told of, and interrupts nothing."""
        self._is_ending = True

    def receive(self, number: int, frame: Optional[FrameType] = None) -> None:
        """Handle a signal. Raises KeyboardInterrupt or Abandoned."""
        # A closing terminal sends SIGHUP more than once: from the kernel and from the shell.
        if self.is_abandoned or (self._seen and number == signal.SIGHUP):
            return
        self._seen += 1
        if self.is_abandoned:
            raise Abandoned
        was_ending, self._is_ending = self._is_ending, True
        if was_ending:
            self._tell("the cluster is being torn down, and this goes on; once more stops at once")
            return
        self._tell("ending this cell and tearing the cluster down; once more stops at once")
        raise KeyboardInterrupt

    def _tell(self, text: str) -> None:
        # Whatever becomes of the words, such as in a print that this signal came into.
        with contextlib.suppress(Exception, SystemExit):
            self._say(text)


@contextlib.contextmanager
def interrupts(say: Callable[[str], None]) -> Iterator[Interrupts]:
    """Handle SIGINT, SIGTERM and SIGHUP while the block runs."""
    handled = Interrupts(say)
    with _handled_by(handled.receive):
        yield handled


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Have the first signal that comes while the block runs come behind it."""
    came: list[int] = []
    with _handled_by(lambda number, frame: came.append(number)):
        yield
    for number in came[:1]:
        signal.raise_signal(number)


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Have the first signal raise KeyboardInterrupt while the block runs, and a second one end."""

    def end(number: int, frame: Optional[FrameType]) -> None:
        with contextlib.suppress(OSError):
            os.write(2, b"stopped at once: what this command was doing is unfinished\n")
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def receive(number: int, frame: Optional[FrameType]) -> None:
        for each in _SIGNALS:
            signal.signal(each, end)
        raise KeyboardInterrupt

    with _handled_by(receive):
        yield


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, Optional[FrameType]], None]) -> Iterator[None]:
    # nohup means it.
    numbers = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
