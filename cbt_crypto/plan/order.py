"""Which cell is measured when: rounds of deployments, turns on one cluster, groups side by side."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Optional, TypeVar

from cbt_crypto.archive.files import digest
from cbt_crypto.benchmarks.base import Scenario, share_of
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import CONTROL
from cbt_crypto.results.repetition import FIRST

NameT = TypeVar("NameT")

#: Seconds that the pauses of one round take at most, all visits together. A cycle of up to two
#: minutes then does not meet the same configuration at the same phase in each round.
PAUSES_S = 60.0
#: Draws of a campaign's order before the last one is taken as it is.
_ATTEMPTS = 2000


def orders(names: Sequence[NameT], rounds: int, seed: int) -> tuple[tuple[NameT, ...], ...]:
    """The order of `names` in each of so many rounds; the same for the same seed.

    More rounds begin with the same ones.
    """
    return tuple(
        tuple(_generator(seed, turn).sample(list(names), len(names))) for turn in range(rounds)
    )


def round_orders(
    groups: Sequence[Sequence[str]], rounds: int, seed: int, baseline: str
) -> list[tuple[str, ...]]:
    """The order of each round, in which those of one group stand together.

    Drawn anew where chance has the baseline before, or behind, the same configuration in every
    round: a drift would be taken for a difference.
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
    if len(rounds) < 2 or len(rounds[0]) < 2 or baseline not in rounds[0]:
        return True
    if len(rounds) == 2:
        return any(order[0] != baseline for order in rounds)
    behind: list[set[str]] = [
        {name for name in order if order.index(name) > order.index(baseline)} for order in rounds
    ]
    others = set(rounds[0]) - {baseline}
    return all(0 < sum(name in earlier for earlier in behind) < len(rounds) for name in others)


def pause_s(seed: int, turn: int, name: str, visits: int, longest: float = PAUSES_S) -> float:
    """Seconds to wait before a configuration is measured in a round of so many visits."""
    return round(_generator(seed, turn, name).uniform(0, _longest_pause_s(visits, longest)), 1)


def usual_pause_s(visits: int, longest: float = PAUSES_S) -> float:
    """The same on the average."""
    return _longest_pause_s(visits, longest) / 2


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
    """On how many deployments a load is measured, at most.

    Where it is measured until a precision is reached, and the file does not say on how many
    deployments, they are as many as its longest time has room for.
    """
    until = scenario.until
    if until is None or "iterations" in section.model_fields_set:
        return section.iterations
    return max(FIRST, math.ceil(until.most / turns_of(section)))


def rounds_on_each(section: ClusterSection, scenario: Scenario) -> int:
    """Turns of a load on each deployment, at most."""
    until = scenario.until
    is_alone = until is not None and deployments_of(section, scenario) == 1
    return until.most if until is not None and is_alone else turns_of(section)


def deployment_of(section: ClusterSection, scenario: Scenario, iteration: int) -> int:
    """The number of the deployment that a cell of that iteration is measured on."""
    return iteration // rounds_on_each(section, scenario)


def side_by_side(
    campaign: Campaign, names: Sequence[str], seed: int
) -> Iterator[tuple[Scenario, int]]:
    """Every scenario object of every turn, in order; the iteration counts all turns.

    One visit to a configuration measures a block of every load.
    """
    section = campaign.cluster
    objects = [scenario for scenarios in campaign.scenarios.values() for scenario in scenarios]
    deployments = {id(each): deployments_of(section, each) for each in objects}
    turns = {id(each): rounds_on_each(section, each) for each in objects}
    for deployment in range(max(deployments.values(), default=0)):
        here = [each for each in objects if deployment < deployments[id(each)]]
        drawn = list(orders(names, max(turns[id(each)] for each in here), seed + deployment))
        if not deployment and asks_the_baseline_first(campaign):
            drawn[0] = baseline_first(drawn[0], campaign.first_configuration)
        for turn, order in enumerate(drawn):
            for name in order:
                for scenario in here:
                    if scenario.configuration == name and turn < turns[id(scenario)]:
                        yield scenario, deployment * turns[id(scenario)] + turn


def asks_the_baseline_first(campaign: Campaign) -> bool:
    """Whether a load is a part of what the baseline does at most, which must be known then."""
    return any(
        share_of(scenario.target_rate) is not None
        for scenarios in campaign.scenarios.values()
        for scenario in scenarios
    )


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


def groups(names: Sequence[str], together: Callable[[str, str], bool]) -> list[list[str]]:
    """`names` in their order, those that can be on one cluster together; the first name's first."""
    all_groups: list[list[str]] = []
    for name in names:
        own_group = next((group for group in all_groups if together(group[0], name)), None)
        if own_group is None:
            all_groups.append([name])
        else:
            own_group.append(name)
    return all_groups


def partners(campaign: Campaign, names: Sequence[str]) -> list[list[str]]:
    """The configurations that take turns with one another; each alone in any other order."""
    if campaign.groups:
        return [list(names)]
    if campaign.cluster.order != "interleaved":
        return [[name] for name in names]
    return groups(names, lambda this, other: _needs_no_rebuild(campaign, this, other))


def is_in_rounds(campaign: Campaign) -> bool:
    """Whether iterations are rounds, with new deployments in each."""
    if campaign.groups:
        return False
    return campaign.cluster.order == "rounds" and campaign.cluster.iterations > 1


def turns_on_each(campaign: Campaign, scenario: Scenario) -> Optional[int]:
    """Rounds on each deployment, where deployments are added until a precision is reached.

    None where all rounds are on one, or the file says how many there are.
    """
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

    The control has its own where any configuration needs one: else it would be nearer to the
    baseline than what it is a test of.
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
    stacks = [Stack(campaign.configurations[name]) for name in (this, other)]
    both = (stacks[0].transition_to(stacks[1]), stacks[1].transition_to(stacks[0]))
    return Transition.REBUILD not in both


def in_rounds(campaign: Campaign, names: Sequence[str]) -> Iterator[tuple[Scenario, int]]:
    """Every scenario object of every round, in order. Raises nothing; touches nothing.

    Configurations that share a deployment are measured one after another, in random order too.
    """
    iterations = campaign.cluster.iterations
    together = groups(names, lambda this, other: shares(campaign, this, other))
    drawn = round_orders(together, iterations, seed_of(campaign), campaign.first_configuration)
    if asks_the_baseline_first(campaign):
        first = campaign.first_configuration
        # What shares its deployment comes behind it.
        companions = next((group for group in together if first in group), ())
        drawn[0] = baseline_first(drawn[0], first, companions)
    for turn, order in enumerate(drawn):
        for name in order:
            for scenarios in campaign.scenarios.values():
                for scenario in scenarios:
                    if scenario.configuration == name and turn < rounds_of(scenario, iterations):
                        yield scenario, turn


def in_turns(campaign: Campaign, names: Sequence[str]) -> Iterator[tuple[Scenario, int]]:
    """Every scenario object of every round, in order: a round is a block of each configuration.

    One visit to a configuration measures a block of every load, because it is the change of
    configuration that costs time.
    """
    iterations = campaign.cluster.iterations
    for number, group in enumerate(partners(campaign, names)):
        objects = [
            scenario
            for scenarios in campaign.scenarios.values()
            for scenario in scenarios
            if scenario.configuration in group
        ]
        most = max((rounds_of(scenario, iterations) for scenario in objects), default=0)
        for turn, order in enumerate(orders(group, most, seed_of(campaign) + number)):
            for name in order:
                for scenario in objects:
                    if scenario.configuration == name and turn < rounds_of(scenario, iterations):
                        yield scenario, turn


#: From a configuration to another -> cost.
Cost = Callable[[str, str], float]

#: Up to so many behind the first, all orders are tried; beyond, the next is always the cheapest.
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
