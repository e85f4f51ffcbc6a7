"""Between a campaign's cells and `precision.pace`: which blocks are still to be measured."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.files import digest, read_json
from cbt_crypto.benchmarks.base import share_of
from cbt_crypto.plan.cells import Cell, order_of
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.checks import too_few_deployments
from cbt_crypto.plan.order import is_in_rounds, partners, shares, turns_on_each
from cbt_crypto.results.repetition import FIRST, FIRST_APART, FIRST_SHARED
from cbt_crypto.results.until import Block, LoadPace, Measured, asked_of


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


def rate_problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[str]:
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


#: How many deployments alone say how far they are apart, by how rows stand to the baseline.
FIRST_OF = {"beside": FIRST, "shared": FIRST_SHARED, "apart": FIRST_APART}


def wheres(campaign: Campaign) -> set[str]:
    """How rows stand to the baseline: beside it, on a cluster that serves both, or apart."""
    if campaign.groups:
        return {"beside"}
    base = campaign.first_configuration
    others = [name for name in campaign.configurations if name != base]
    return {"shared" if shares(campaign, base, name) else "apart" for name in others}


def fewest(campaign: Campaign) -> int:
    """How many deployments there are before every percent can be known."""
    return max(FIRST_OF[where] for where in wheres(campaign))


def deployment_problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterator[str]:
    """A sentence for each key that keeps a precision from being known whatever is measured.

    `cells` are all cells of the campaign.
    """
    scenarios = [each for objects in campaign.scenarios.values() for each in objects]
    asked = [each for each in scenarios if turns_on_each(campaign, each) is not None]
    if not asked:
        return
    if campaign.compared != "configuration":
        yield (
            f"cluster.baseline: compares {campaign.compared}, and deployments are added until "
            "percents of configurations are known; give seconds as time, or iterations: 1"
        )
    elif not wheres(campaign):
        yield (
            "cluster.configurations: has one, and deployments are added until percents of it are "
            "known; name another, or give seconds as time"
        )
    elif alone := _without_percents(campaign, cells):
        yield from alone
    elif is_in_rounds(campaign):
        least = fewest(campaign)
        if campaign.cluster.iterations < least:
            yield f"cluster.iterations: {too_few_deployments(least)}"
        for scenario in asked:
            if scenario.until is not None and scenario.until.most < least:
                yield (
                    f"{scenario.name}: time: max has room for {scenario.until.most} blocks, of "
                    f"which each deployment takes one, and {least} deployments tell how far "
                    "deployments are apart; raise max, or lower block"
                )


def _without_percents(campaign: Campaign, cells: Sequence[Cell]) -> list[str]:
    """A sentence for each load that is measured in the baseline alone."""
    of_load: dict[str, list[Cell]] = {}
    for cell in cells:
        if turns_on_each(campaign, cell.scenario) is not None:
            of_load.setdefault(load_key(cell), []).append(cell)
    baseline = campaign.first_configuration
    return [
        f"{alike[0].scenario.name}: configuration: is {baseline} alone, and deployments are added "
        f"until percents of {baseline} are known; name another too, or give seconds as time"
        for alike in of_load.values()
        if len({cell.configuration for cell in alike}) == 1
    ]
