"""The IOPS that `rate: 50%` means, from the baseline's cell in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cbt_crypto.archive.files import read_json
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.errors import RunError
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.pacing import reference_of, share
from cbt_crypto.results.until import read_block


def loaded(cell: Cell, cells: Sequence[Cell], baseline: str, archive: Path) -> Scenario:
    """The cell's scenario with IOPS as its rate.

    Raises RunError when the cell that it is a part of was not measured.
    """
    part, reference = share(cell), reference_of(cell, cells, baseline)
    if part is None or reference is None:
        return cell.scenario
    return cell.scenario.model_copy(update={"rate": round(part * _maximum(reference, archive))})


def _maximum(reference: Cell, archive: Path) -> float:
    """Reads and writes together, warm-up excluded."""
    directory = archive / reference.path
    noted = read_json(directory / "cell.json") or {}
    block = None
    if noted.get("state") == "finished":
        interval_ms = int(reference.parameters.get("log_avg_msec", 1000))
        block = read_block(directory, noted.get("processes", ()), interval_ms)
    if block is None or not sum(block.iops.values()):
        raise RunError(
            f"its rate is a part of what {reference.label} does, which was not measured; run the "
            "command again without --only, which measures both"
        )
    return sum(block.iops.values())
