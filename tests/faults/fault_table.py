"""docs/faults.md: what happened to each fault when it was tried last."""

from __future__ import annotations

import fcntl
import re
import tempfile
from pathlib import Path

_TITLE = "# Faults, and what came of them"
_WORDS = """
Written by `make test-faults`: each row is a fault that was made on real Ceph, in a lab of four
namespace nodes (LUKS: one virtual machine), in the middle of a campaign of two cells. Noticed
after: seconds from the fault to the first word about it. Said: that word. Kept: cells that were
finished before the fault, are so after it, and were not measured again. Leftovers: what was there
after the campaign had ended, and after the next start had completed it. The campaigns say
`deploy_timeout: 120` and `time: 6`; a cell's fio may take 120 s longer than its time. A fault
of tests/faults that has no row here has not been tried to its end yet.

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
