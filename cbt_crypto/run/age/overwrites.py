"""How often each drive has been written over since its deployment: how old it is, when measured.

A flash drive is slower once all of its blocks were written, and BlueStore fragments. Rows of one
table are alike in this only if somebody counts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cbt_crypto.run.cell.storage_traffic import Reading


class Overwrites:
    """Adds up what readings of the kernel's counters say, from one deployment to the next."""

    def __init__(self) -> None:
        """Nothing is deployed."""
        self._counted: dict[str, int] = {}
        self._drives: dict[str, dict[str, int]] = {}

    def begin(self, reading: Reading) -> None:
        """A new deployment: what drives were before counts no more."""
        self._counted, self._drives = {}, {}
        self.note(reading)

    def note(self, reading: Reading) -> None:
        """Add what was written since the last reading. A counter may begin again meanwhile."""
        for name, written, size in carriers(reading):
            before = self._counted.get(name, written)
            more = written - before if written >= before else written
            drive = self._drives.setdefault(name, {"written_bytes": 0, "size_bytes": size})
            drive["written_bytes"] += more
            self._counted[name] = written

    def around(self, readings: Sequence[Reading]) -> Mapping[str, Mapping[str, int]]:
        """What was written before a cell, of which these are the readings before and after.

        Drive -> `written_bytes` and `size_bytes`, as cell.json has it.
        """
        before, after = readings
        self.note(before)
        written = {name: dict(drive) for name, drive in self._drives.items()}
        self.note(after)
        return written


def carriers(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """What lies at the bottom: its name, bytes written to it by now, and its size.

    Of an OSD on a file that is the file, which its process alone writes to.
    """
    for name, told in reading.items():
        layers = [layer for stack in told["devices"] for layer in stack]
        bottoms = [layer for layer in layers if layer.get("size_bytes")]
        for layer in bottoms:
            yield f"{told['host']} {layer['device']}", *_amounts(layer)
        process = told["process"]
        if not bottoms and process and process.get("size_bytes"):
            yield f"{told['host']} {name}", *_amounts(process)


def _amounts(counted: Mapping[str, Any]) -> tuple[int, int]:
    return counted["written_bytes"], counted["size_bytes"]
