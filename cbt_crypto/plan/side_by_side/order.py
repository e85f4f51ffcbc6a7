"""Which cell is measured when: turns in rounds of random order, on one deployment after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cbt_crypto.benchmarks.base import Scenario, share_of
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.rounds import orders
from cbt_crypto.results.precision.deployments import FIRST

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
