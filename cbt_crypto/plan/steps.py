"""From a campaign to the steps that measure it. Touches nothing; can be printed."""

from __future__ import annotations

import fnmatch
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional, Union

from cbt_crypto.archive.json_file import digest, hash_of
from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.cell_site import cell_site
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, transition
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.dimensions import CLUSTER_DIMENSIONS, Place, at, places
from cbt_crypto.plan.file.dimensions import words as place_words
from cbt_crypto.plan.order import cheapest_order
from cbt_crypto.turns import in_turns, rounds_of

#: What changes cost beside one another, roughly in seconds of a small cluster. Only their order
#: of magnitude matters: no number of restarts is worth a rebuild with its prefill.
_COST = {
    Transition.NONE: 0.0,
    Transition.LIVE: 1.0,
    Transition.RESTART: 20.0,
    Transition.REBUILD: 1000.0,
}


#: Options of a scenario that say how its volumes are made and filled.
_FILLING = (
    "pool_profile", "vol_size", "order", "prefill", "prefill_op_size", "prefill_iodepth", "fio_cmd",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """Configuration x scenario x op size x mode (and any other dimension), in one iteration."""

    scenario: Scenario
    iteration: int
    definition: str
    place: Place = ()

    @property
    def configuration(self) -> str:
        """The configuration's name."""
        return self.scenario.configuration

    @property
    def config(self) -> dict[str, Any]:
        """The config of CBT's benchmark object for it."""
        options = self.scenario.model_dump(mode="json")
        return {
            "benchmark": self.scenario.name,
            "iteration": self.iteration,
            **options,
            **dict(self.place),
        }

    @property
    def id(self) -> str:
        """The name of its directory: `id-` and 8 hex digits."""
        return f"id-{hash_of(self.config)}"

    @property
    def path(self) -> str:
        """Its directory, relative to the archive."""
        return f"results/{self.iteration:08d}/{self.id}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Its options without the configuration, which has a column of its own."""
        options = self.scenario.model_dump(mode="json")
        del options["configuration"]
        return {**options, **dict(self.place)}

    @property
    def label(self) -> str:
        """One line for people, which `--only` matches too."""
        options = self.parameters
        words = [self.scenario.name, self.configuration, str(options.get("mode", ""))]
        words += [_shown_size(options["op_size"])] if "op_size" in options else []
        words += [f"iodepth {options['iodepth']}"] if "iodepth" in options else []
        words += [f"{key} {options[key]}" for key in CLUSTER_DIMENSIONS if key in options]
        words += [f"iteration {self.iteration}"] if self.iteration else []
        return " / ".join(words[:2]) + " / " + " ".join(words[2:])


def _shown_size(size: int) -> str:
    """4096 as `4K`, 4194304 as `4M`, 2300 as `2300`."""
    for shift, unit in ((20, "M"), (10, "K")):
        if size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


@dataclass(frozen=True)
class Deploy:
    """Bring the cluster, or one drive, into a configuration; `how` says what that takes."""

    configuration: str
    how: Transition
    reason: str
    place: Place = ()
    drive: Optional[str] = None


@dataclass(frozen=True)
class Prefill:
    """Make and fill volumes that are not on this cluster yet."""

    scenario: Scenario
    volumes: tuple[Volume, ...]


@dataclass(frozen=True)
class Measure:
    """Run one cell."""

    cell: Cell


Step = Union[Deploy, Prefill, Measure]


@dataclass(frozen=True)
class Plan:
    """All cells of a campaign in order, and the steps for those that are still to be run."""

    campaign: Campaign
    cells: tuple[Cell, ...]
    steps: tuple[Step, ...]

    @property
    def to_measure(self) -> tuple[Cell, ...]:
        """The cells that the steps measure."""
        return tuple(step.cell for step in self.steps if isinstance(step, Measure))

    @property
    def seconds(self) -> int:
        """Time that the file itself asks for: ramps and measured times. No deployments."""
        return sum(cell.scenario.ramp + cell.scenario.measured_s for cell in self.to_measure)

    @property
    def prefill_mb(self) -> int:
        """What is written to fill volumes, in MiB, before replication."""
        return sum(
            volume.size_mb
            for step in self.steps
            if isinstance(step, Prefill)
            for volume in step.volumes
        )

    def deployments(self, how: Transition) -> int:
        """The number of deployments of one kind."""
        return sum(isinstance(step, Deploy) and step.how is how for step in self.steps)


def cells_of(campaign: Campaign) -> tuple[Cell, ...]:
    """Every cell, in an order in which the cluster changes as rarely as the file allows.

    Configurations are outermost: the baseline first, then, where the file leaves it to us with
    `rebuild: needed` or `never`, in the cheapest order. Scenarios, iterations, and the other
    dimensions follow in the file's order. With `order: interleaved`, the configurations that can
    be on one cluster take turns instead, round by round; iterations are rounds. Drives come
    before any cluster, which may be deployed on the same devices. Raises UsageError when two cells
    would be the same.
    """
    measured = _one_by_one if campaign.cluster.order == "sequential" else in_turns
    cells = [
        Cell(scenario, iteration, _definition(campaign, cluster, scenario), place)
        for needs_cluster in (False, True)
        for place, cluster in _measured_clusters(campaign.cluster, needs_cluster)
        for scenario, iteration in (measured if needs_cluster else _one_by_one)(
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
            own = [scenario for scenario in scenarios if scenario.configuration == name]
            most = max((rounds_of(one, campaign.cluster.iterations) for one in own), default=0)
            for iteration in range(most):
                for scenario in own:
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
        lambda old, new: _COST[transition(stacks[old], stacks[new])],
    )


def plan(
    campaign: Campaign,
    only: Sequence[str] = (),
    finished: Iterable[str] = (),
) -> Plan:
    """The steps for every cell that `only` (patterns of labels) selects and is not `finished`.

    `finished` are paths of cells. Raises UsageError when `rebuild: never` cannot be kept, or a
    pattern matches no cell.
    """
    cells = cells_of(campaign)
    done = set(finished)
    wanted = [cell for cell in select(cells, only) if cell.path not in done]
    return Plan(campaign, cells, tuple(_steps(campaign, wanted)))


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
    label = cell.label.lower()
    return pattern.lower() in label or fnmatch.fnmatchcase(label, pattern.lower())


def _measured_clusters(
    section: ClusterSection, needs_cluster: bool
) -> list[tuple[Place, dict[str, Any]]]:
    """One for each place; for what works without a cluster, one that is nowhere in particular."""
    found = places(section) if needs_cluster else [()]
    return [(place, _measured_cluster(at(section, place))) for place in found]


def _measured_cluster(section: ClusterSection) -> dict[str, Any]:
    """Of the cluster's section what bears on figures, and what the ceph.conf it names says."""
    cluster = section.model_dump(mode="json")
    for key in ("configurations", "baseline", "iterations", "rebuild", "deploy_timeout", "order"):
        del cluster[key]
    del cluster["seed"]
    if section.conf_file:
        cluster["conf_file"] = ceph_conf.read(Path(section.conf_file))
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


def _steps(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[Step]:
    there: set[str] = set()
    changes = _changes(campaign, cells)
    for number, (cell, change) in enumerate(zip(cells, changes)):
        if change is not None:
            yield change
            if change.how is Transition.REBUILD:
                there.clear()
        needed = _volumes(campaign, cell)
        if any(volume.name not in there for volume in needed):
            on_this_cluster = _until_rebuild(cells[number:], changes[number:])
            missing = _missing(campaign, on_this_cluster, there)
            yield Prefill(cell.scenario, missing)
            there.update(volume.name for volume in missing)
        yield Measure(cell)


def _changes(campaign: Campaign, cells: Sequence[Cell]) -> list[Optional[Deploy]]:
    """What each cell needs beside what the cell before it had."""
    stacks = {name: Stack(overlays) for name, overlays in campaign.configurations.items()}
    found = []
    last: Optional[Cell] = None
    for cell in cells:
        if last is not None and last.scenario.needs_cluster != cell.scenario.needs_cluster:
            last = None
        how_to_change = _change if cell.scenario.needs_cluster else _drive_change
        found.append(how_to_change(campaign, stacks, last, cell))
        last = cell
    return found


def _volumes(campaign: Campaign, cell: Cell) -> tuple[Volume, ...]:
    stack = Stack(campaign.configurations[cell.configuration])
    return cell.scenario.volumes(cell_site(at(campaign.cluster, cell.place), cell.scenario, stack))


def _until_rebuild(cells: Sequence[Cell], changes: Sequence[Optional[Deploy]]) -> list[Cell]:
    """The first cell, and those behind it that find its volumes."""
    found = list(cells[:1])
    for cell, change in zip(cells[1:], changes[1:]):
        if change is not None and change.how is Transition.REBUILD:
            break
        found.append(cell)
    return found


def _missing(
    campaign: Campaign, cells: Sequence[Cell], there: Container[str]
) -> tuple[Volume, ...]:
    """Volumes that are filled as the first cell's are: all that any cell needs, so all at once."""
    wanted = _filling(cells[0].scenario)
    alike = [cell for cell in cells if _filling(cell.scenario) == wanted]
    found = {volume.name: volume for cell in alike for volume in _volumes(campaign, cell)}
    return tuple(volume for name, volume in found.items() if name not in there)


def _filling(scenario: Scenario) -> dict[str, Any]:
    """The options that say how a volume is made and filled, and where."""
    return {"drive": scenario.drive_name, **{key: getattr(scenario, key, None) for key in _FILLING}}


def _change(
    campaign: Campaign, stacks: dict[str, Stack], last: Optional[Cell], cell: Cell
) -> Optional[Deploy]:
    name = cell.configuration
    if campaign.cluster.use_existing:
        return (
            Deploy(name, Transition.NONE, "the cluster is there already") if last is None else None
        )
    if last is None:
        return Deploy(name, Transition.REBUILD, "first", cell.place)
    if last.place != cell.place:
        return Deploy(name, Transition.REBUILD, place_words(cell.place), cell.place)
    change = _change_of_configuration(campaign, stacks, last, cell)
    return replace(change, place=cell.place) if change else None


def _change_of_configuration(
    campaign: Campaign, stacks: dict[str, Stack], last: Cell, cell: Cell
) -> Optional[Deploy]:
    name = cell.configuration
    if campaign.cluster.rebuild_every_test:
        return Deploy(name, Transition.REBUILD, "rebuild_every_test")
    changed = last.configuration != name
    policy = campaign.cluster.rebuild
    if policy == "scenario" and (changed or last.scenario.name != cell.scenario.name):
        return Deploy(name, Transition.REBUILD, "rebuild: scenario")
    if policy == "configuration" and changed:
        return Deploy(name, Transition.REBUILD, "rebuild: configuration")
    if not changed or policy in ("scenario", "configuration"):
        return None
    how = transition(stacks[last.configuration], stacks[name])
    if policy == "never" and how is Transition.REBUILD:
        raise UsageError(
            f'{campaign.title}: "{last.configuration}" cannot become "{name}" without a rebuild; '
            "say rebuild: needed, or measure it in a campaign of its own"
        )
    return Deploy(name, how, f"rebuild: {policy}")


def _drive_change(
    campaign: Campaign, stacks: dict[str, Stack], last: Optional[Cell], cell: Cell
) -> Optional[Deploy]:
    """A drive is prepared anew for each configuration, unless the file has it changed live."""
    name, drive = cell.configuration, cell.scenario.drive_name
    if last is None or last.scenario.drive_name != drive:
        return Deploy(name, Transition.REBUILD, f"drive {drive}", drive=drive)
    if last.configuration == name:
        return None
    how = transition(stacks[last.configuration], stacks[name])
    if campaign.cluster.rebuild in ("scenario", "configuration") or how > Transition.LIVE:
        how = Transition.REBUILD
    return Deploy(name, how, f"drive {drive}", drive=drive)
