"""docs/faults.md: what happened to each fault when it was tried last."""

from __future__ import annotations

import re
from pathlib import Path

_TITLE = "# Faults, and what came of them"
_WORDS = """
Written by `make test-faults`: each row is a fault that was made on real Ceph, in a lab of four
namespace nodes (LUKS: one virtual machine), in the middle of a campaign of two cells. Noticed
after: seconds from the fault to the first word about it. Said: that word. Kept: cells that were
finished before the fault, are so after it, and were not measured again. Leftovers: what was there
after the campaign had ended, and after the next start had completed it. The campaigns say
`deploy_timeout: 40` and `time: 6`; a cell's fio may take 120 s longer than its time.

| Fault | Noticed after | What was said | Kept | Leftovers | After the next start |
| --- | --- | --- | --- | --- | --- |
"""


class Table:
    """Rows by their fault, in the order in which they were first there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, str] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            found = re.match(r"\| ([^|]+) \| .* \|$", line)
            if found and found[1] not in ("Fault", "---"):
                self._rows[found[1]] = line

    def add(self, fault: str, *fields: str) -> None:
        cells = [re.sub(r"\s+", " ", text).replace("|", "/") for text in (fault, *fields)]
        self._rows[cells[0]] = "| " + " | ".join(cells) + " |"

    def write(self) -> None:
        if self._rows:
            self._path.write_text(_TITLE + "\n" + _WORDS + "\n".join(self._rows.values()) + "\n")
