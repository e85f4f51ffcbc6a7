"""Between a campaign's cells and `precision.pace`: which blocks are still to be measured."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.files import digest, read_json
from cbt_crypto.plan.cells import Cell, order_of
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.turns import partners, turns_on_each
from cbt_crypto.results.precision.block import Block
from cbt_crypto.results.precision.pace import LoadPace, Measured
from cbt_crypto.results.precision.until import asked_of


class Pacing:
    """The loads of a campaign that are measured until a precision is reached."""

    def __init__(
        self, campaign: Campaign, cells: Iterable[Cell], archive: Path, done: Container[str]
    ) -> None:
        """`done` are the paths of the cells that `archive` has and that count."""
        self._cells = tuple(cells)
        # Pairs are made of configurations; another dimension's values are compared by themselves.
        is_usual = campaign.compared == "configuration"
        baseline = str(campaign.baseline) if is_usual else ""
        together = partners(campaign, order_of(campaign))
        self._loads: dict[str, LoadPace] = {}
        for cell in self._cells:
            if cell.scenario.until is not None and load_key(cell) not in self._loads:
                turns = turns_on_each(campaign, cell.scenario)
                until, beside = cell.scenario.until, bool(campaign.groups)
                pace = LoadPace(until, baseline, together, turns=turns, beside=beside)
                self._loads[load_key(cell)] = pace
        for cell in self._cells:
            if cell.scenario.until is not None and cell.path in done:
                self.note(cell, read_json(archive / cell.path / "cell.json") or {})

    def note(self, cell: Cell, state: Mapping[str, Any]) -> None:
        """A cell is finished; `state` is its cell.json."""
        load = self._loads.get(load_key(cell))
        block = state.get("block") or {}
        asked = asked_of(cell.parameters)
        figures = {
            f"{name} {direction}": value
            for name in asked
            for direction, value in (block.get(name) or {}).items()
        }
        # A block without one of the figures tells nothing: never that the others are enough.
        if load is not None and all(block.get(name) for name in asked):
            measured = Measured(state.get("deployment"), figures, state.get("slices"))
            load.note(cell.configuration, cell.iteration, measured)

    @property
    def may_pass_over(self) -> bool:
        """Whether any cell may turn out not to be needed."""
        return bool(self._loads)

    def may_settle(self, cell: Cell) -> bool:
        """Whether it depends on what was measured if this block is needed."""
        load = self._loads.get(load_key(cell))
        return load is not None and cell.iteration >= load.fewest

    def is_settled(self, cell: Cell) -> bool:
        """Whether this block is not needed any more."""
        load = self._loads.get(load_key(cell))
        return load is not None and load.is_settled(cell.configuration, cell.iteration)

    def settled(self) -> set[str]:
        """Paths of all cells that are not needed any more."""
        return {cell.path for cell in self._cells if self.is_settled(cell)}


def load_key(cell: Cell) -> str:
    """A key that cells share which differ by configuration and round alone."""
    return digest([cell.scenario.name, cell.parameters])


def block_state(block: Optional[Block]) -> Optional[dict[str, Any]]:
    """What cell.json says of a block."""
    if block is None:
        return None
    figures = {"iops": block.iops, "clat_ns_mean": block.clat_ns_mean}
    rounded = {
        figure: {name: round(value, 3) for name, value in of.items()}
        for figure, of in figures.items()
        if of
    }
    return {"warmup_s": block.warmup_s, "iops": {}, **rounded}
