"""What a person sees while images are built and nodes start: a spinner, or plain lines."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Optional

from rich.console import Console
from rich.status import Status
from typing_extensions import Self


class Steps:
    """Show one step at a time, with a spinner on a terminal, and how long each took."""

    def __init__(self, console: Console) -> None:
        """`console` should write to stderr: stdout belongs to results."""
        self._console = console
        self._status: Optional[Status] = None
        self._text = ""
        self._started = 0.0

    def __enter__(self) -> Self:
        """Nothing is shown until the first step."""
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:  # fmt: skip
        """Finish the running step; one that was broken off is not called done."""
        self._finish(done=error is None)

    def begin(self, text: str) -> None:
        """The step before is done, and this one runs."""
        self._finish(done=True)
        self._text = text
        self._started = time.monotonic()
        if self._console.is_terminal:
            self._status = self._console.status(text)
            self._status.start()

    def end(self) -> None:
        """The running step is done, and none runs: what follows writes for itself."""
        self._finish(done=True)

    def detail(self, text: str) -> None:
        """What the running step is doing now; shown on a terminal only."""
        if self._status:
            self._status.update(f"{self._text}: {text}")

    def _finish(self, done: bool) -> None:
        if self._status:
            self._status.stop()
            self._status = None
        if self._text and done:
            seconds = time.monotonic() - self._started
            line = f"{self._text}  {seconds:.0f} s"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._text = ""
