"""A campaign's cells, in an order in which the cluster changes as rarely as the file allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cbt_crypto.archive import folder
from cbt_crypto.archive.files import cell_path, digest
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import Variant, at, variants
from cbt_crypto.plan.order import (
    cheapest_order,
    in_rounds,
    in_turns,
    is_in_rounds,
    rounds_of,
    seed_of,
    side_by_side,
)

#: What changes cost beside one another, roughly in seconds of a small cluster. Only their order
#: of magnitude matters: no number of restarts is worth a rebuild with its prefill.
_COST = {
    Transition.NONE: 0.0,
    Transition.LIVE: 1.0,
    Transition.RESTART: 20.0,
    Transition.REBUILD: 1000.0,
}


@dataclass(frozen=True)
class Cell:
    """Configuration x scenario x op size x mode (and any other dimension), in one iteration."""

    scenario: Scenario
    iteration: int
    definition: str
    variant: Variant = ()

    @property
    def configuration(self) -> str:
        """The name of its configuration, as the file spells it."""
        return self.scenario.configuration

    @property
    def config(self) -> dict[str, Any]:
        """The config of CBT's benchmark object for it."""
        options = self.scenario.model_dump(mode="json")
        return {
            "benchmark": self.scenario.name,
            "iteration": self.iteration,
            **options,
            **dict(self.variant),
        }

    @property
    def id(self) -> str:
        """The name of its directory: `id-` and 16 hex digits."""
        return self.path.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Its directory, relative to the archive."""
        return cell_path(self.config)

    @property
    def short_path(self) -> str:
        """What it was in archives of version 0.1 and before: `id-` and 8 hex digits."""
        return self.path[:-8]

    @property
    def parameters(self) -> dict[str, Any]:
        """Its options without the configuration, which has a column of its own."""
        options = self.scenario.model_dump(mode="json")
        del options["configuration"]
        return {**options, **dict(self.variant)}

    @property
    def seconds(self) -> int:
        """Time that the file itself asks for: ramp, measured time, and rounds before, at least."""
        return self.scenario.settling_s + self.scenario.ramp + self.scenario.measured_s

    @property
    def label(self) -> str:
        """One line for people, which `--only` matches too."""
        return folder.label(self.scenario.name, self.configuration, self.parameters, self.iteration)


def cells_of(campaign: Campaign) -> tuple[Cell, ...]:
    """Every cell, in the order in which they are measured.

    Rounds are outermost: each measures every configuration once, in random order. In a single
    round, and with `order: sequential`, configurations are: the baseline first, then, where the
    file leaves it to us with `rebuild: needed` or `never`, in the cheapest order. Scenarios and the
    other dimensions follow in the file's order. With `order: interleaved`, the configurations that
    can be on one cluster take turns instead, round by round; with `layout: side_by_side` all
    do, on one deployment after another. Drives come
    before any cluster, which may be deployed on the same devices. Raises UsageError when two cells
    would be the same.
    """
    by_drive = in_rounds if is_in_rounds(campaign) else _one_by_one
    measured = in_turns if campaign.cluster.order == "interleaved" else by_drive
    if campaign.groups:
        measured = partial(side_by_side, seed=seed_of(campaign))
    cells = [
        Cell(scenario, iteration, _definition(campaign, cluster, scenario), variant)
        for needs_cluster in (False, True)
        for variant, cluster in _measured_clusters(campaign.cluster, needs_cluster)
        for scenario, iteration in (measured if needs_cluster else by_drive)(
            campaign, order_of(campaign)
        )
        if scenario.needs_cluster is needs_cluster
    ]
    seen: dict[str, Cell] = {}
    for cell in cells:
        if cell.path in seen:
            raise UsageError(
                f"{campaign.title}: two cells are the same: {cell.label}; "
                "remove the value that stands twice in a list of benchmarks"
            )
        seen[cell.path] = cell
    return tuple(cells)


def _one_by_one(campaign: Campaign, names: Sequence[str]) -> Iterable[tuple[Scenario, int]]:
    for name in names:
        for scenarios in campaign.scenarios.values():
            of_configuration = [
                scenario for scenario in scenarios if scenario.configuration == name
            ]
            most = max(
                (rounds_of(measured, campaign.cluster.iterations) for measured in of_configuration),
                default=0,
            )
            for iteration in range(most):
                for scenario in of_configuration:
                    if iteration < rounds_of(scenario, campaign.cluster.iterations):
                        yield scenario, iteration


def order_of(campaign: Campaign) -> tuple[str, ...]:
    """The configurations in the order in which they are first deployed."""
    names = campaign.names_of_configurations
    if campaign.cluster.rebuild not in ("needed", "never"):
        return names
    stacks = {name: Stack(overlays) for name, overlays in campaign.configurations.items()}
    return cheapest_order(
        names,
        campaign.first_configuration,
        lambda old, new: _COST[stacks[old].transition_to(stacks[new])],
    )


def select(cells: Sequence[Cell], only: Sequence[str], option: str = "--only") -> tuple[Cell, ...]:
    """The cells whose label contains, or as a glob matches, one of the patterns; all for none."""
    if not only:
        return tuple(cells)
    for pattern in only:
        if not any(_matches(cell, pattern) for cell in cells):
            raise UsageError(
                f'{option} "{pattern}" matches no cell; --plan lists them, e.g. "{cells[0].label}"'
            )
    return tuple(cell for cell in cells if any(_matches(cell, pattern) for pattern in only))


def _matches(cell: Cell, pattern: str) -> bool:
    return folder.matches(cell.label, pattern)


def _measured_clusters(
    section: ClusterSection, needs_cluster: bool
) -> list[tuple[Variant, dict[str, Any]]]:
    """The cluster in each variant; one empty variant where no scenario needs a cluster."""
    measured = variants(section) if needs_cluster else [()]
    return [(variant, _measured_cluster(at(section, variant))) for variant in measured]


def _measured_cluster(section: ClusterSection) -> dict[str, Any]:
    """Of the cluster's section what bears on figures, and what the ceph.conf it names says."""
    cluster = section.model_dump(mode="json")
    for key in ("configurations", "baseline", "iterations", "rebuild", "deploy_timeout", "order"):
        del cluster[key]
    del cluster["seed"], cluster["control"], cluster["turns"]
    # As archives have it that were written before there were these keys.
    if not cluster["discard"]:
        del cluster["discard"]
    if cluster["client_id"] == ceph_conf.ADMIN:
        del cluster["client_id"]
    if section.layout == "separate":
        del cluster["layout"]
    if section.conf_file:
        cluster["conf_file"] = origin_of(section).conf_said
    return cluster


def _definition(campaign: Campaign, cluster: dict[str, Any], scenario: Scenario) -> str:
    """A digest of all that a cell measures: options, overlays, and the cluster."""
    return digest(
        {
            "cluster": cluster,
            "scenario": [scenario.name, scenario.model_dump(mode="json")],
            "overlays": [
                [overlay.name, overlay.model_dump(mode="json")]
                for overlay in campaign.configurations[scenario.configuration]
            ],
        }
    )
