"""`time: {precision: 2%}` over deployments: whether as many as the file allows could ever tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.turns import is_in_rounds, shares, turns_on_each
from cbt_crypto.results.precision.deployments import FIRST, FIRST_APART, FIRST_SHARED


def fewest(campaign: Campaign) -> int:
    """How many deployments there are before any percent is known."""
    if campaign.groups:
        return FIRST
    base = campaign.first_configuration
    others = [name for name in campaign.configurations if name != base]
    is_shared = any(shares(campaign, base, name) for name in others)
    return FIRST_SHARED if is_shared else FIRST_APART


def problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterator[str]:
    """A sentence for each key that keeps a precision from being known whatever is measured."""
    asked = [cell.scenario for cell in cells if turns_on_each(campaign, cell.scenario) is not None]
    if asked and campaign.compared != "configuration":
        yield (
            f"cluster.baseline: compares {campaign.compared}, and deployments are added until "
            "percents of configurations are known; give seconds as time, or iterations: 1"
        )
    elif asked and is_in_rounds(campaign):
        least = fewest(campaign)
        reason = f"is at least {least} where time is a precision: so many deployments tell how far"
        if campaign.cluster.iterations < least:
            yield f"cluster.iterations: {reason} deployments are apart; raise it, or give seconds"
        for scenario in asked:
            if scenario.until is not None and scenario.until.most < least:
                yield (
                    f"{scenario.name}: time: max has room for {scenario.until.most} blocks, of "
                    f"which each deployment takes one, and {least} deployments tell how far "
                    "deployments are apart; raise max, or lower block"
                )
