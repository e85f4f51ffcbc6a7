"""What a person sees while a campaign runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Optional

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from typing_extensions import Self


class CampaignProgress:
    """Shows the cell, its phase, and the time that is left by the file's own times."""

    def __init__(self, console: Console, cells: int, seconds: int) -> None:
        """`seconds`: what the cells measure in all, ramps included."""
        self._console = console
        self._cells = cells
        self._number = 0
        self._label = ""
        self._started = time.monotonic()
        self._bar: Optional[Progress] = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.fields[cell]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:3.0f} %"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[phase]}"),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=max(1, seconds), cell="", phase="")

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:  # fmt: skip
        """Remove the bar."""
        if self._bar:
            self._bar.stop()

    def phase(self, text: str) -> None:
        """What is being done now: deploy, prefill, measure, prove."""
        if self._bar:
            self._bar.update(self._task, phase=text)
        else:
            minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
            self._console.print(
                f"[{minutes:3d}:{seconds:02d}] {text}", highlight=False, markup=False,
                soft_wrap=True,
            )  # fmt: skip

    def cell(self, label: str) -> None:
        """A cell begins."""
        self._number += 1
        self._label = f"{self._number}/{self._cells}"
        if self._bar:
            self._bar.update(self._task, cell=self._label)
        self.phase(f"cell {self._label}: {label}")

    def done(self, seconds: int) -> None:
        """A cell ended, which was to take so long."""
        if self._bar:
            self._bar.advance(self._task, seconds)

    def skipped(self, seconds: int) -> None:
        """A cell is not needed, which was to take so long."""
        self._number += 1
        self.done(seconds)

    def note(self, text: str) -> None:
        """Something to be read later too, such as a failed cell."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
