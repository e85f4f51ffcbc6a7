"""`order: interleaved`: configurations that take turns on one cluster, in balanced random order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cbt_crypto.archive.json_file import digest
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, transition
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.rounds import orders


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
    found: list[list[str]] = []
    for name in names:
        own = next((group for group in found if together(group[0], name)), None)
        if own is None:
            found.append([name])
        else:
            own.append(name)
    return found


def partners(campaign: Campaign, names: Sequence[str]) -> list[list[str]]:
    """The configurations that take turns with one another; each alone in any other order."""
    if campaign.cluster.order != "interleaved":
        return [[name] for name in names]
    stacks = {name: Stack(overlays) for name, overlays in campaign.configurations.items()}

    def together(one: str, other: str) -> bool:
        both = (transition(stacks[one], stacks[other]), transition(stacks[other], stacks[one]))
        return Transition.REBUILD not in both

    return groups(names, together)


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
