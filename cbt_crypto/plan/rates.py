"""`rate: 50%`: which cell's maximum it is a part of, and that this cell comes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from cbt_crypto.benchmarks.base import share_of
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign


def share(cell: Cell) -> Optional[float]:
    """The part of the baseline's maximum that the cell is to be loaded with; None for no part."""
    return share_of(cell.scenario.target_rate)


def reference_of(cell: Cell, cells: Iterable[Cell], baseline: str) -> Optional[Cell]:
    """The cell whose figure is the maximum: the same load in the baseline, at `max`.

    Always that of the first iteration, so that the load is the same in all. None where the
    campaign has no such cell.
    """
    wanted = cell.scenario.model_copy(update={"rate": "max", "configuration": baseline})
    candidates = (c for c in cells if c.scenario == wanted and c.variant == cell.variant)
    return next((c for c in candidates if not c.iteration), None)


def problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[str]:
    """A sentence for each cell whose load cannot be known when it is its turn."""
    positions = {cell.path: number for number, cell in enumerate(cells)}
    for number, cell in enumerate(cells):
        if share(cell) is None:
            continue
        baseline = campaign.first_configuration
        reference = reference_of(cell, cells, baseline)
        rate = cell.scenario.target_rate
        if reference is None:
            yield (
                f"{cell.scenario.name}: rate: {rate} is a part of what {baseline} does at max, "
                f"which is not measured; say rate: [max, {rate}], for {baseline} too"
            )
        elif positions[reference.path] > number:
            yield (
                f"{cell.scenario.name}: rate: {rate} is a part of what {baseline} does at max, "
                "which is measured later; put max first, and leave out order: interleaved"
            )
