"""One fault, from a campaign's start to the start after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fault_lab import Laboratory, Running, document, until
from fault_table import Table

CELL_2 = "cell 2/2"


@dataclass
class Story:
    """One fault, from a campaign's start to the start after it."""

    lab: Laboratory
    table: Table
    where: Path
    content: Any = None

    def begin(self, at: str = CELL_2, after: float = 2.0, options: str = "") -> Running:
        """A campaign that has come to `at`."""
        self.lab.carry_in(self.content or document(), self.where)
        running = self.lab.start(options)
        running.wait_for(at)
        if at == CELL_2 and after:
            until("fio of the cell", lambda: self._has_fio(running), 180)
        time.sleep(after)
        self.before = self.lab.finished()
        self.since = time.monotonic()
        return running

    def _has_fio(self, running: Running) -> bool:
        assert running.process.poll() is None, running.said()
        return bool(self.lab.pids(1, "fio"))

    def end(
        self, fault: str, running: Running, heal: Optional[Callable[[], Any]] = None,
        status: int = 1, silent: bool = False,
    ) -> str:  # fmt: skip
        """Let it end, heal, start again: then all must be there and nothing else."""
        assert running.finish() == status, running.said()
        after, said = (0.0, "") if silent else running.noticed(self.since)
        if heal:
            heal()
        left = self.lab.leftovers()
        again = self.lab.start()
        assert again.finish() == 0, running.said() + "\n---\n" + again.said()
        if silent:
            said = next(line for _, line in again.lines if line.startswith("tearing down"))
        now = self.lab.finished()
        assert len(now) == 2, again.said()
        assert self.before.items() <= now.items(), "a finished cell was lost or measured again"
        assert self.lab.leftovers() == []
        self.table.add(
            fault,
            "at the next start" if silent else f"{after:.0f} s",
            said,
            f"{len(self.before)} of {len(self.before)}",
            _short(left),
            "complete, nothing left",
        )
        return said


def _short(left: list[str]) -> str:
    """What was left, by kind and node."""
    kinds: dict[str, set[str]] = {}
    for line in left:
        node, _, what = line.partition(": ")
        program = what.split()[0].rpartition("/")[2] if what else "?"
        kind = "tmp_dir" if program == "cbt-crypto" else "hold" if "@" in what[:12] else program
        kinds.setdefault(kind, set()).add(node)
    return "; ".join(f"{kind} on {', '.join(sorted(nodes))}" for kind, nodes in kinds.items()) or (
        "none"
    )
