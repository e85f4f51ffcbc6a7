"""Which cell is measured when: turns in rounds of random order, on one deployment after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.rounds import orders

#: Of each configuration on each deployment, where the file does not say.
USUAL_TURNS = 6


def turns_of(section: ClusterSection) -> int:
    """Turns of each configuration on each deployment."""
    return USUAL_TURNS if section.turns is None else section.turns


def deployment_of(section: ClusterSection, iteration: int) -> int:
    """The number of the deployment that a cell of that iteration is measured on."""
    return 0 if section.iterations == 1 else iteration // turns_of(section)


def side_by_side(
    campaign: Campaign, names: Sequence[str], seed: int
) -> Iterator[tuple[Scenario, int]]:
    """Every scenario object of every turn, in order; the iteration counts all turns.

    One visit to a configuration measures a block of every load. Where a load is measured until a
    precision is reached there is one deployment, and as many turns as it takes.
    """
    turns = turns_of(campaign.cluster)
    objects = [scenario for scenarios in campaign.scenarios.values() for scenario in scenarios]
    most = {id(each): turns if each.until is None else each.until.most for each in objects}
    for deployment in range(campaign.cluster.iterations):
        drawn = orders(names, max(most.values(), default=0), seed + deployment)
        for turn, order in enumerate(drawn):
            for name in order:
                for scenario in objects:
                    if scenario.configuration == name and turn < most[id(scenario)]:
                        yield scenario, deployment * turns + turn
