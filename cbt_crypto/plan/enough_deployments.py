"""`time: {precision: 2%}` over deployments: whether as many as the file allows could ever tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.consistency import too_few_deployments
from cbt_crypto.plan.pacing import load_key
from cbt_crypto.plan.turns import is_in_rounds, shares, turns_on_each
from cbt_crypto.results.precision.deployments import FIRST, FIRST_APART, FIRST_SHARED

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


def problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterator[str]:
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
