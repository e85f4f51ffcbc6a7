"""What all processes of a run did together in a second: what other figures are divided by."""

from __future__ import annotations

from typing import Optional

from cbt_crypto.results.cell.record import Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.readers.fio import SYNC


def records_of(run: Run, direction: str) -> list[Record]:
    """The records of one direction."""
    return [record for record in run.records if record.direction == direction]


def rate(run: Run, direction: str, field: str) -> float:
    """What all processes did together in a second of the window.

    It is the sum of what fio says; where that is of other seconds, what its logs say.
    """
    logged = run.in_window.get(direction)
    if logged is not None:
        return float(getattr(logged, field))
    return float(sum(getattr(record, field) for record in records_of(run, direction)))


def total_rate(run: Run, field: str) -> float:
    """Of reads and writes: CPU time cannot be told apart by them, and syncs are no IO."""
    directions = {record.direction for record in run.records} - {SYNC}
    return sum(rate(run, direction, field) for direction in sorted(directions))


def per(amount: float, total: float) -> Optional[float]:
    """None of nothing: etcd's benchmark, for one, tells of requests and not of bytes."""
    return amount / total if total else None
