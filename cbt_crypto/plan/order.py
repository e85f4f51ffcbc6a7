"""Which cell comes next: `cells_of` says the order, and `Pacing` which cells are not needed."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Optional, TypeVar

from cbt_crypto.archive import documents
from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed, digest
from cbt_crypto.archive.folder import Folder
from cbt_crypto.benchmarks.base import Scenario, share_of
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.cells import Cell, definition_of, measured_cluster
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.checks import TOO_FEW_DEPLOYMENTS, origin_of
from cbt_crypto.plan.file.cluster import CONTROL, at, variants
from cbt_crypto.plan.side_by_side import partition
from cbt_crypto.results.repetition import FIRST
from cbt_crypto.results.until import Block, LoadPace, Measured, asked_of
from cbt_crypto.units import grouped

NameT = TypeVar("NameT")

#: What changes cost beside one another, roughly in seconds of a small cluster. Only their order
#: of magnitude matters: no number of restarts is worth a rebuild with its prefill.
_COST = {
    Transition.NONE: 0.0,
    Transition.LIVE: 1.0,
    Transition.RESTART: 20.0,
    Transition.REBUILD: 1000.0,
}


def cells_of(campaign: Campaign) -> tuple[Cell, ...]:
    """Every cell, in the order in which they are measured, drives first; docs/file.md has `order`.

    With `rebuild: needed` or `never` the order of configurations is the cheapest that the file
    allows. Raises UsageError for more than an archive holds, or when two would be the same.
    """
    if (number := _number_of_cells(campaign)) > documents.MOST_CELLS:
        raise UsageError(
            f"{campaign.title}: makes {number:,} cells, of at most {documents.MOST_CELLS:,}; lower "
            "iterations, turns, or the max of a time"
        )
    in_rounds = is_in_rounds(campaign)
    by_drive = _in_rounds if in_rounds else _one_by_one
    on_cluster = _in_turns if campaign.cluster.order == "interleaved" else by_drive
    if campaign.groups:
        on_cluster = _side_by_side
    names = deployed_first(campaign)
    seen: dict[str, Cell] = {}
    for needs_cluster, measured in ((False, by_drive), (True, on_cluster)):
        cells = [
            Cell(scenario, iteration, definition_of(campaign, cluster, scenario), variant)
            for variant in (variants(campaign.cluster) if needs_cluster else ((),))
            for cluster in [measured_cluster(at(campaign.cluster, variant))]
            for scenario, iteration in measured(campaign, names)
            if scenario.needs_cluster is needs_cluster
        ]
        for cell in _drawn_in_rounds(campaign, cells) if in_rounds else cells:
            if cell.path in seen:
                raise UsageError(
                    f"{campaign.title}: two cells are the same: {cell.label}; "
                    "remove the value that stands twice in a list of benchmarks"
                )
            seen[cell.path] = cell
    return tuple(seen.values())


def _number_of_cells(campaign: Campaign) -> int:
    """Blocks and turns are cells, too."""
    section = campaign.cluster
    found = 0
    for each in _scenarios(campaign):
        if campaign.groups and each.needs_cluster:
            times = deployments_of(section, each) * rounds_on_each(section, each)
        else:
            times = rounds_of(each, section.iterations)
        found += times * (len(variants(section)) if each.needs_cluster else 1)
    return found


def _drawn_in_rounds(campaign: Campaign, cells: list[Cell]) -> list[Cell]:
    """All places in each round: one after another, a drift would be taken for a difference."""
    places = list(dict.fromkeys(cell.place for cell in cells))
    names = [str(number) for number in range(len(places))]
    compared = campaign.compared, campaign.baseline
    baseline = next((name for name, place in zip(names, places) if compared in place), "")
    rounds = 1 + max((cell.iteration for cell in cells), default=0)
    drawn = round_orders([[name] for name in names], rounds, seed_of(campaign), baseline)
    ranks = [{places[int(name)]: rank for rank, name in enumerate(order)} for order in drawn]
    return sorted(cells, key=lambda cell: (cell.iteration, ranks[cell.iteration][cell.place]))


def _each(
    rounds: Iterable[Sequence[str]],
    scenarios: Sequence[Scenario],
    how_often: Callable[[Scenario], int],
) -> Iterator[tuple[Scenario, int]]:
    """Every scenario object of every round; one visit measures all workloads."""
    for turn, names in enumerate(rounds):
        for name in names:
            for scenario in scenarios:
                if scenario.configuration == name and turn < how_often(scenario):
                    yield scenario, turn


def _scenarios(campaign: Campaign) -> list[Scenario]:
    return [scenario for scenarios in campaign.scenarios.values() for scenario in scenarios]


def _one_by_one(campaign: Campaign, names: Sequence[str]) -> Iterator[tuple[Scenario, int]]:
    how_often = partial(rounds_of, iterations=campaign.cluster.iterations)
    for name in names:
        for scenarios in campaign.scenarios.values():
            most = max(map(how_often, scenarios), default=0)
            yield from _each([[name]] * most, scenarios, how_often)


def _in_rounds(campaign: Campaign, names: Sequence[str]) -> Iterator[tuple[Scenario, int]]:
    iterations = campaign.cluster.iterations
    together = partition(names, lambda this, other: shares(campaign, this, other))
    drawn = round_orders(together, iterations, seed_of(campaign), campaign.first_configuration)
    if asks_the_baseline_first(campaign):
        first = campaign.first_configuration
        # What shares its deployment comes behind it.
        companions = next((group for group in together if first in group), ())
        drawn[0] = baseline_first(drawn[0], first, companions)
    return _each(drawn, _scenarios(campaign), lambda scenario: rounds_of(scenario, iterations))


def _in_turns(campaign: Campaign, names: Sequence[str]) -> Iterator[tuple[Scenario, int]]:
    how_often = partial(rounds_of, iterations=campaign.cluster.iterations)
    for number, group in enumerate(partners(campaign, names)):
        objects = [each for each in _scenarios(campaign) if each.configuration in group]
        most = max(map(how_often, objects), default=0)
        yield from _each(orders(group, most, seed_of(campaign) + number), objects, how_often)


def _side_by_side(campaign: Campaign, names: Sequence[str]) -> Iterator[tuple[Scenario, int]]:
    """Turns on one deployment after another; the iteration counts all turns."""
    section, seed = campaign.cluster, seed_of(campaign)

    def turns(scenario: Scenario) -> int:
        return rounds_on_each(section, scenario)

    objects = _scenarios(campaign)
    most = max((deployments_of(section, each) for each in objects), default=0)
    longest = max(map(turns, objects), default=0)
    # All deployments together: with one turn on each, a place in it is one in the campaign.
    alone, baseline = [[name] for name in names], campaign.first_configuration
    all_turns = round_orders(alone, most * longest, seed, baseline) if most else []
    for deployment in range(most):
        here = [each for each in objects if deployment < deployments_of(section, each)]
        drawn = all_turns[deployment * longest : (deployment + 1) * longest]
        if not deployment and asks_the_baseline_first(campaign):
            drawn[0] = baseline_first(drawn[0], baseline)
        for scenario, turn in _each(drawn, here, turns):
            yield scenario, deployment * turns(scenario) + turn


def deployed_first(campaign: Campaign) -> tuple[str, ...]:
    """The configurations in the order in which they are first deployed."""
    names = campaign.names_of_configurations
    if campaign.cluster.rebuild not in ("needed", "never"):
        return names
    stacks, first = campaign.stacks, campaign.first_configuration
    return cheapest_order(names, first, lambda a, b: _COST[stacks[a].transition_to(stacks[b])])


#: Seconds that the pauses of one round take at most, all visits together. A cycle of up to two
#: minutes then does not meet the same configuration at the same phase in each round.
PAUSES_S = 60.0
#: Draws of a campaign's order before the last one is taken as it is.
_ATTEMPTS = 2000


def orders(names: Sequence[NameT], rounds: int, seed: int) -> tuple[tuple[NameT, ...], ...]:
    """The order of `names` in each round, the same for the same seed, however many rounds."""
    return tuple(
        tuple(_generator(seed, turn).sample(list(names), len(names))) for turn in range(rounds)
    )


def round_orders(
    groups: Sequence[Sequence[str]], rounds: int, seed: int, baseline: str
) -> list[tuple[str, ...]]:
    """The order of each round, a group's names together.

    Drawn anew where the baseline is always next to the same name: drift would look like an effect.
    """
    for attempt in range(_ATTEMPTS):
        start = seed + 1009 * attempt
        outer = orders(range(len(groups)), rounds, start)
        inner = [orders(group, rounds, start + 1 + n) for n, group in enumerate(groups)]
        drawn = [
            tuple(name for number in order for name in inner[number][turn])
            for turn, order in enumerate(outer)
        ]
        if _is_balanced(drawn, baseline):
            break
    return drawn


def _is_balanced(rounds: Sequence[tuple[str, ...]], baseline: str) -> bool:
    """Whether no row is always before, or behind, the baseline, after any number of rounds."""
    if len(rounds) < 2 or len(rounds[0]) < 2 or baseline not in rounds[0]:
        return True
    if len(rounds) == 2:
        return any(order[0] != baseline for order in rounds)
    earlier = dict.fromkeys(set(rounds[0]) - {baseline}, 0)
    for count, order in enumerate(rounds, 1):
        for name in order[: order.index(baseline)]:
            earlier[name] += 1
        is_looked_at = count >= FIRST or count == len(rounds)
        if is_looked_at and not all(0 < before < count for before in earlier.values()):
            return False
    return True


def pause_s(seed: int, turn: int, name: str, visits: int, longest: float) -> float:
    """Seconds to wait before a configuration is measured in a round of `visits`."""
    return round(_generator(seed, turn, name).uniform(0, _longest_pause_s(visits, longest)), 1)


def usual_pause_s(visits: int, longest: float) -> float:
    """The mean of `pause_s`, in seconds."""
    return _longest_pause_s(visits, longest) / 2


#: Seconds that those of rounds of short cells may take all the same: order alone breaks the step of
#: many configurations with a cycle, not of two.
_LEAST_S = 20.0


def longest_pause_s(measured_s: float, visits: int, in_turns: bool) -> float:
    """Seconds of one visit's longest pause: half of what is measured behind it, at most."""
    half = measured_s / 2
    return half if in_turns else max(half, _LEAST_S / max(visits, 1))


def _longest_pause_s(visits: int, longest: float) -> float:
    return min(PAUSES_S / max(visits, 1), longest)


def _generator(*of: object) -> random.Random:
    return random.Random(" ".join(map(str, of)))


#: Of each configuration on each deployment, where the file does not say.
USUAL_TURNS = 6


def turns_of(section: ClusterSection) -> int:
    """Turns of each configuration on each deployment."""
    return USUAL_TURNS if section.turns is None else section.turns


def deployments_of(section: ClusterSection, scenario: Scenario) -> int:
    """On how many deployments a workload is measured at most: the file's, or as time allows."""
    until = scenario.until
    if until is None or "iterations" in section.model_fields_set:
        return section.iterations
    return max(FIRST, math.ceil(until.most / turns_of(section)))


def rounds_on_each(section: ClusterSection, scenario: Scenario) -> int:
    """Turns of a workload on each deployment, at most."""
    until = scenario.until
    is_alone = until is not None and deployments_of(section, scenario) == 1
    return until.most if until is not None and is_alone else turns_of(section)


def deployment_of(section: ClusterSection, scenario: Scenario, iteration: int) -> int:
    """The number of the deployment that a cell of that iteration is measured on."""
    return iteration // rounds_on_each(section, scenario)


def asks_the_baseline_first(campaign: Campaign) -> bool:
    """Whether a workload is a part of what the baseline does at most, which must be known then."""
    return any(share_of(each.target_rate) is not None for each in _scenarios(campaign))


def baseline_first(
    order: Sequence[str], baseline: str, companions: Sequence[str] = ()
) -> tuple[str, ...]:
    """One round with the baseline before all others, and behind it its `companions`."""
    return tuple(sorted(order, key=lambda name: (name != baseline, name not in companions)))


def rounds_of(scenario: Scenario, iterations: int) -> int:
    """How often it is measured, at most: the file's iterations, unless a precision decides."""
    return iterations if scenario.until is None else scenario.until.most


def seed_of(campaign: Campaign) -> int:
    """The file's seed, else one that is always the same for the same file."""
    if campaign.cluster.seed is not None:
        return campaign.cluster.seed
    return int(digest(campaign.document)[:7], 16)


def partners(campaign: Campaign, names: Sequence[str]) -> list[list[str]]:
    """The configurations that take turns with one another; each alone in any other order."""
    if campaign.groups:
        return [list(names)]
    if campaign.cluster.order != "interleaved":
        return [[name] for name in names]
    return partition(names, lambda this, other: _needs_no_rebuild(campaign, this, other))


def is_in_rounds(campaign: Campaign) -> bool:
    """Whether iterations are rounds, with new deployments in each."""
    if campaign.groups:
        return False
    return campaign.cluster.order == "rounds" and campaign.cluster.iterations > 1


def turns_on_each(campaign: Campaign, scenario: Scenario) -> Optional[int]:
    """Rounds on each deployment, where these are added until a precision is reached, or None."""
    if scenario.until is None:
        return None
    if campaign.groups:
        several = deployments_of(campaign.cluster, scenario) > 1
        return rounds_on_each(campaign.cluster, scenario) if several else None
    section = campaign.cluster
    is_new = "never" not in (origin_of(section).rebuild, section.rebuild)
    return 1 if is_new and is_in_rounds(campaign) else None


def certain_rounds(campaign: Campaign, scenario: Scenario) -> float:
    """How many rounds are measured whatever they show; infinite where the file says how many."""
    turns = turns_on_each(campaign, scenario)
    if scenario.until is None:
        return math.inf
    return scenario.until.fewest if turns is None else scenario.until.fewest_of(turns)


def shares(campaign: Campaign, this: str, other: str) -> bool:
    """Whether a round may measure both configurations on one deployment.

    The control has its own where any has: else it would be nearer to the baseline than others.
    """
    section = campaign.cluster
    if origin_of(section).rebuild == "never":
        return True
    if section.rebuild != "needed" or section.rebuild_every_test:
        return False
    if CONTROL in (this, other) and section.control and this != other:
        first = campaign.first_configuration
        if not all(_needs_no_rebuild(campaign, first, name) for name in campaign.configurations):
            return False
    return _needs_no_rebuild(campaign, this, other)


def _needs_no_rebuild(campaign: Campaign, this: str, other: str) -> bool:
    stacks = campaign.stacks[this], campaign.stacks[other]
    both = (stacks[0].transition_to(stacks[1]), stacks[1].transition_to(stacks[0]))
    return Transition.REBUILD not in both


#: From a configuration to another -> cost.
Cost = Callable[[str, str], float]

#: Up to this many after the first, all orders are tried; beyond, the next is always the cheapest.
_EXACT = 8


def cheapest_order(names: Sequence[str], first: str, cost: Cost) -> tuple[str, ...]:
    """`names`, each once, beginning with `first`; among equals, as they stand in `names`."""
    rest = [name for name in names if name != first]
    cost_of = lru_cache(maxsize=None)(cost)
    if len(rest) > _EXACT:
        return _greedy(rest, first, cost_of)
    orders = ((first, *order) for order in itertools.permutations(rest))
    return min(orders, key=lambda order: sum(map(cost_of, order, order[1:])))


def _greedy(rest: list[str], first: str, cost: Cost) -> tuple[str, ...]:
    order = [first]
    while rest:
        nearest = min(rest, key=lambda name: cost(order[-1], name))
        rest.remove(nearest)
        order.append(nearest)
    return tuple(order)


class Pacing:
    """The workloads of a campaign that are measured until a precision is reached."""

    def __init__(
        self, campaign: Campaign, cells: Iterable[Cell], archive: Path, done: Container[str]
    ) -> None:
        self._cells = tuple(cells)
        # Pairs are made of configurations; another dimension's values are compared by themselves.
        is_usual = campaign.compared == "configuration"
        baseline = str(campaign.baseline) if is_usual else ""
        together = partners(campaign, deployed_first(campaign))
        self._loads: dict[str, LoadPace] = {}
        for cell in self._cells:
            until, beside = cell.scenario.until, bool(campaign.groups)
            if until is not None and load_key(cell) not in self._loads:
                turns = turns_on_each(campaign, cell.scenario)
                pace = LoadPace(until, baseline, together, turns=turns, beside=beside)
                self._loads[load_key(cell)] = pace
            if until is not None and cell.path in done:
                self.note(cell, _state(archive, cell))

    def note(self, cell: Cell, state: Mapping[str, Any]) -> None:
        """A cell is finished; `state` is its cell.json."""
        load = self._loads.get(load_key(cell))
        block = state.get("block") or {}
        told: dict[str, Any] = {name: block.get(name) for name in asked_of(cell.parameters)}
        # A block without one of the figures tells nothing: never that the others are enough.
        if load is not None and all(told.values()):
            figures = {f"{name} {way}": v for name, of in told.items() for way, v in of.items()}
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


def _state(archive: Path, cell: Cell) -> dict[str, Any]:
    """Its cell.json; empty where somebody else has put there what is none."""
    noted = None
    with contextlib.suppress(Malformed):
        noted = Folder(archive / cell.path).document("cell.json", CellDocument)
    return {} if noted is None else noted.model_dump()


def load_key(cell: Cell) -> str:
    """A key that cells share which differ by configuration and round alone."""
    return digest([cell.scenario.name, cell.parameters])


def block_state(block: Optional[Block]) -> Optional[dict[str, Any]]:
    """What cell.json says of a block."""
    if block is None:
        return None
    figures = {"iops": block.iops, "clat_ns_mean": block.clat_ns_mean}
    given = {figure: of.items() for figure, of in figures.items() if of}
    rounded = {figure: {n: round(value, 3) for n, value in of} for figure, of in given.items()}
    return {"warmup_s": block.warmup_s, "iops": {}, **rounded}


def wheres(campaign: Campaign) -> set[str]:
    """How rows stand to the baseline: beside it, on a cluster that serves both, or apart."""
    if campaign.groups:
        return {"beside"}
    base = campaign.first_configuration
    others = [name for name in campaign.configurations if name != base]
    return {"shared" if shares(campaign, base, name) else "apart" for name in others}


def deployment_problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterator[str]:
    """A sentence for each key that keeps a precision from being known whatever is measured."""
    scenarios = [each for objects in campaign.scenarios.values() for each in objects]
    asked = [each for each in scenarios if turns_on_each(campaign, each) is not None]
    if not asked:
        return
    if campaign.compared != "configuration":
        yield (
            f"cluster.baseline: compares {campaign.compared}, but a precision adds deployments "
            "only to compare configurations; give seconds as time, or iterations: 1"
        )
    elif not wheres(campaign):
        yield (
            "cluster.configurations: has only one, so no percentage can reach the precision that "
            "time asks for; name another, or give seconds as time"
        )
    elif alone := _without_percents(campaign, cells):
        yield from alone
    elif is_in_rounds(campaign):
        if campaign.cluster.iterations < FIRST:
            yield f"cluster.iterations: {TOO_FEW_DEPLOYMENTS}"
        for scenario in asked:
            if scenario.until is not None and scenario.until.most < FIRST:
                yield (
                    f"{scenario.name}: time: max has room for {scenario.until.most} blocks, one "
                    f"for each deployment, but {FIRST} deployments are needed to know how much "
                    "they differ; raise max, or lower block"
                )


def _without_percents(campaign: Campaign, cells: Sequence[Cell]) -> list[str]:
    of_load = grouped(
        (load_key(cell), cell)
        for cell in cells
        if turns_on_each(campaign, cell.scenario) is not None
    )
    baseline = campaign.first_configuration
    return [
        f"{alike[0].scenario.name}: configuration: is only {baseline}, so no percentage can reach "
        "the precision that time asks for; name another too, or give seconds as time"
        for alike in of_load.values()
        if len({cell.configuration for cell in alike}) == 1
    ]
