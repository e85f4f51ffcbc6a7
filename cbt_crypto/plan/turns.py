"""Which configuration is measured when: rounds of deployments, or turns on one cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from cbt_crypto.archive.files import digest
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, transition
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.control import CONTROL
from cbt_crypto.plan.file.origin import origin_of
from cbt_crypto.plan.rounds import orders, round_orders
from cbt_crypto.plan.side_by_side.order import (
    asks_the_baseline_first,
    baseline_first,
    deployments_of,
    rounds_on_each,
)


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
    both = (transition(stacks[0], stacks[1]), transition(stacks[1], stacks[0]))
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
