"""docs/faults.md: what happened to each fault when it was tried last."""

from __future__ import annotations

import fcntl
import re
import tempfile
from pathlib import Path

_TITLE = "# Faults that were tried"
_WORDS = """
Written by `make test-faults`. Each row is a fault that was made on real Ceph in the middle of a
campaign of two cells, on four lab nodes (LUKS: one virtual machine). *Noticed after* counts from
the fault to the first message about it; *kept* counts the cells that were finished before the
fault and were not measured again; *leftovers* are what was there after the campaign had ended.

| Fault | Noticed after | What was said | Kept | Leftovers | After the next start |
| --- | --- | --- | --- | --- | --- |
"""


class Table:
    """Rows by their fault, in the order in which they were first there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, fault: str, *fields: str) -> None:
        cells = [re.sub(r"\s+", " ", text).replace("|", "/") for text in (fault, *fields)]
        with (Path(tempfile.gettempdir()) / "cbt-crypto-faults.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = {**self._rows(), cells[0]: "| " + " | ".join(cells) + " |"}
            self._path.write_text(_TITLE + "\n" + _WORDS + "\n".join(rows.values()) + "\n")

    def _rows(self) -> dict[str, str]:
        text = self._path.read_text() if self._path.exists() else ""
        lines = (line for line in text.splitlines() if line.startswith("| "))
        named = {line[2:].partition(" | ")[0]: line for line in lines}
        return {name: line for name, line in named.items() if name not in ("Fault", "---")}
