"""What a person sees of a running campaign: a bar or lines; also results/progress.json."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text
from typing_extensions import Self, override

from cbt_crypto.archive.files import printable, write_json
from cbt_crypto.engine.contract import LiveFigures
from cbt_crypto.hosts import shell
from cbt_crypto.plan.predict import Forecast

#: Of a campaign's time, at most this part is waited for it.
_SHARE = 0.05
_PATIENCE_S = 60.0
#: Without a bar, a line says this often what still goes on: CI servers end what is silent.
SILENT_S = 120.0


class SoFar:
    """Make the report's lines before a cell: the machine that steers may be measured."""

    def __init__(self, archive: Path, most_lines: int) -> None:
        self._archive, self._most = archive, most_lines
        self._not_before = 0.0
        self.lines: Sequence[str] = ()

    @property
    def is_due(self) -> bool:
        """Whether the campaign can afford it by now."""
        return time.monotonic() >= self._not_before

    def renew(self) -> None:
        """Make them anew; they stay as they are when something goes wrong."""
        began = time.monotonic()
        program = shell.own_program("cbt_crypto.report.so_far")
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [*program, str(self._archive), str(self._most)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=_PATIENCE_S,
                check=True,
            )  # fmt: skip
            self.lines = done.stdout.splitlines()
        now = time.monotonic()
        self._not_before = now + (now - began) / _SHARE


#: Lines of the terminal that the percentages so far leave alone.
_OTHER_LINES, _LEAST_LINES = 8, 5
#: The phase in which a signal would leave what is there.
TEARING_DOWN = "tear the cluster down"


class _LeftColumn(ProgressColumn):
    def __init__(self, forecast: Optional[Forecast]) -> None:
        super().__init__()
        self._forecast = forecast

    def render(self, task: Task) -> Text:
        """The forecast of this moment."""
        return Text("" if self._forecast is None else str(self._forecast.left()), "cyan")


class _Bar(Progress):
    """The bar, and below it what is done, what the clients do now, and the percentages so far."""

    doing = ""
    now = ""
    percents: Sequence[str] = ()

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        """Each of them on lines of its own: they are too long for one."""
        yield from super().get_renderables()
        lines = (self.doing, self.now, *self.percents)
        styles = ("", "cyan", *["dim"] * len(self.percents))
        for line, style in zip(lines, styles):
            if line:
                yield Text(line, style, no_wrap=True, overflow="ellipsis")


class CampaignProgress:
    """Shows the cell, its phase, and the time that is left."""

    def __init__(
        self, console: Console, cells: int, seconds: int, forecast: Optional[Forecast] = None,
        archive: Optional[Path] = None,
    ) -> None:  # fmt: skip
        """Take all cells' seconds with ramps, and the archive for progress.json, if any."""
        self._console = console
        self._cells = cells
        self._number = 0
        self._label = ""
        self._started = time.monotonic()
        self._forecast = forecast
        self._archive = archive
        self._has_measured = self._is_fill_told = False
        self._is_over = threading.Event()
        self._state: dict[str, Any] = {}
        self._bar: Optional[_Bar] = None
        self._so_far: Optional[SoFar] = None
        if console.is_terminal:
            self._bar = _Bar(
                TextColumn("[bold]{task.fields[cell]}"),
                BarColumn(bar_width=16),
                TextColumn("{task.percentage:3.0f} %"),
                _LeftColumn(forecast),
                console=console,
                transient=True,
                # The machine may be one of those that are measured.
                refresh_per_second=1,
            )
            self._task = self._bar.add_task("", total=max(1, seconds), cell=f"0/{cells}")
            if archive is not None:
                most = max(_LEAST_LINES, console.height - _OTHER_LINES)
                self._so_far = SoFar(archive, most)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        else:
            threading.Thread(target=self._tell_it_goes_on, daemon=True).start()
        return self

    def _tell_it_goes_on(self) -> None:
        told = ""
        while not self._is_over.wait(SILENT_S):
            if told and self._state["phase"] == told:
                self._line(f"still: {told}")
            told = self._state.get("phase", "")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Remove the bar; progress.json says from now on that the campaign ended, or stopped."""
        self._is_over.set()
        if self._bar:
            self._bar.stop()
        self._write("ended" if error is None else "stopped", ended=True)

    def phase(self, text: str) -> None:
        """What is being done now: deploy, prefill, measure, prove."""
        if self._forecast:
            self._forecast.learn()
        self._write(text)
        if self._bar:
            self._bar.doing, self._bar.now = text, ""
            self._bar.refresh()
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        line = Text(f"[{minutes:3d}:{seconds:02d}] {printable(text)}")
        self._console.print(line, soft_wrap=True)

    def cell(self, label: str) -> None:
        """Count a cell that begins; `label` names it in the bar and in progress.json."""
        self._number += 1
        self._label = f"{self._number}/{self._cells}"
        if self._bar:
            self._bar.update(self._task, cell=self._label)
        if self._bar and self._so_far and self._has_measured and self._so_far.is_due:
            self.phase("compare what is measured so far")
            self._so_far.renew()
            self._bar.percents = self._so_far.lines
        self.phase(f"cell {self._label}: {label}")

    def live(self, figures: LiveFigures) -> None:
        """What the clients of this cell do at this moment; plain lines do without it."""
        if self._bar:
            self._bar.now = f"now {figures}"
            self._bar.refresh()
        self._state.update(iops=figures.iops, latency_s=figures.latency_s)
        self._write_state()

    def filling(self, mib_per_s: float, percent: float) -> None:
        """How fast volumes are filled; without a bar it is told once, as nothing else is known."""
        if self._forecast:
            self._forecast.filling(mib_per_s)
        text = f"{mib_per_s:,.0f} MiB/s, {percent:.0f} %"
        if self._bar:
            self._bar.now = f"now {text}"
            self._bar.refresh()
        elif not self._is_fill_told:
            left = f": {self._forecast.left()}" if self._forecast else ""
            self.note(f"filled at {text}{left}")
        self._is_fill_told = True
        self._write_state()

    def done(self, seconds: int) -> None:
        """Note that a cell ended which was to take `seconds`."""
        self._has_measured = True
        if self._forecast:
            self._forecast.cell_done()
        if self._bar:
            self._bar.advance(self._task, seconds)

    def skipped(self, seconds: int) -> None:
        """Note that a cell is not needed which was to take `seconds`."""
        self._number += 1
        self.done(seconds)

    def note(self, text: str) -> None:
        """Something to be read later too, such as a failed cell."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def ending(self, text: str) -> None:
        """A signal came, of which `text` tells: the next one would stop at once."""
        self.note(text)
        self._write(TEARING_DOWN)

    def _write(self, phase: str, ended: bool = False) -> None:
        self._state = {
            "format": 1,
            "phase": phase,
            "cell": self._number,
            "cells": self._cells,
            "at": time.time(),
            "ended": ended,
            "pid": os.getpid(),
        }
        self._write_state()

    def _write_state(self) -> None:
        if self._archive is None or not (self._archive / "results").is_dir():
            return
        left = None if self._forecast is None else self._forecast.left()
        if left is not None:
            self._state.update(seconds_left=left.seconds, uncertainty_s=left.uncertainty)
        self._state["written"] = time.time()
        # It is for onlookers: a full disk is told of by what has to be written.
        with contextlib.suppress(OSError):
            write_json(self._archive / "results" / "progress.json", self._state)
