"""The percents so far, below a campaign's bar: made by a program of its own, between cells."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cbt_crypto

#: Of a campaign's time, at most this part is waited for it.
_SHARE = 0.05
_PATIENCE_S = 60.0


class SoFar:
    """Has the report's lines made before a cell is measured, while nothing is.

    The machine that steers may be one of those that are measured.
    """

    def __init__(self, archive: Path, most_lines: int) -> None:
        """`most_lines` is what fits on the page; `renew` is the first to read the archive."""
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
        module = "cbt_crypto.report.so_far"
        # A checkout need not be installed.
        path = str(Path(cbt_crypto.__file__).parent.parent)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [sys.executable, "-m", module, str(self._archive), str(self._most)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, env={**os.environ, "PYTHONPATH": path}, timeout=_PATIENCE_S, check=True,
            )  # fmt: skip
            self.lines = done.stdout.splitlines()
        now = time.monotonic()
        self._not_before = now + (now - began) / _SHARE
