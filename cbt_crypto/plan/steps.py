"""From a campaign to the steps that measure it. Touches nothing; can be printed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Optional, Union

from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.benchmarks.rbd import RbdFio
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan import order
from cbt_crypto.plan.cells import Cell, rate_problems, select
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.checks import Change, origin_of
from cbt_crypto.plan.file.cluster import CONTROL, Variant, at
from cbt_crypto.plan.file.cluster import words as variant_words
from cbt_crypto.plan.layout import cell_site, site_of
from cbt_crypto.plan.order import pause_s
from cbt_crypto.plan.side_by_side import conf_of, group_of


def client_encryption_problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[str]:
    """A sentence for each such pair."""
    encryptions = {name: each.volume_encryption() for name, each in campaign.stacks.items()}
    for cell in cells:
        encryption, scenario = encryptions[cell.configuration], cell.scenario
        key = f"cluster.configurations.{cell.configuration}.rbd_encryption"
        if encryption is not None and not scenario.takes_encryption:
            yield (
                f'{scenario.name}: the clients of "{cell.configuration}" are to encrypt their '
                "volumes, which is done over block devices alone; name configurations "
                f"without rbd_encryption there, or measure it by rbd_krbd or rbd_nbd ({key})"
            )
        elif encryption and encryption.by_librbd and not getattr(scenario, "on_nbd", False):
            yield (
                f"{key}.by: librbd encrypts for rbd_nbd alone, and {scenario.name} works on "
                "devices of the kernel's client; say by: dm-crypt, or measure it by rbd_nbd"
            )


#: Modes of fio that read.
_READS = ("read", "randread", "rw", "randrw")


def never_written_problems(cells: Sequence[Cell]) -> Iterable[str]:
    """A sentence for each scenario that reads volumes which are not filled."""
    for cell in cells:
        scenario = cell.scenario
        if isinstance(scenario, RbdFio) and not scenario.prefill and scenario.mode in _READS:
            yield (
                f"{scenario.name}: prefill: false with mode: {scenario.mode} reads what was never "
                "written, which OSDs answer without their drives; leave prefill out, or measure "
                "write or randwrite"
            )


#: Options of a scenario that say how its volumes are made and filled.
_FILLING = (
    "pool_profile", "data_pool_profile", "vol_size", "order", "prefill", "prefill_op_size",
    "prefill_iodepth", "fio_cmd", "precondition", "precondition_random", "precondition_op_size",
    "filesystem", "uses_client_libraries", "on_nbd",
)  # fmt: skip


@dataclass(frozen=True)
class Deploy:
    """Bring the cluster, or one drive, into a configuration; `how` says what that takes."""

    configuration: str
    how: Transition
    reason: str
    variant: Variant = ()
    drive: Optional[str] = None
    #: The number of the deployment, where configurations stand side by side on it.
    deployment: Optional[int] = None


@dataclass(frozen=True)
class Prefill:
    """Make and fill volumes not on this cluster yet; `used_by`: volume -> cells that use it."""

    scenario: Scenario
    volumes: tuple[Volume, ...]
    used_by: Mapping[str, Sequence[Cell]] = field(default_factory=dict, compare=False)

    @property
    def mib(self) -> int:
        """What is written to fill them, in MiB, before replication."""
        return sum(volume.written_mb for volume in self.volumes)

    def only(self, is_needed: Callable[[Cell], bool]) -> Prefill:
        """Leave out the volumes that no cell needs."""
        volumes = tuple(
            volume
            for volume in self.volumes
            if volume.name not in self.used_by or any(map(is_needed, self.used_by[volume.name]))
        )
        return replace(self, volumes=volumes)


@dataclass(frozen=True)
class Measure:
    """Run one cell, `pause_s` later: so nothing that recurs keeps step with the rounds."""

    cell: Cell
    pause_s: float = 0.0


Step = Union[Deploy, Prefill, Measure]


@dataclass(frozen=True)
class Plan:
    """All cells of a campaign in order, and the steps for those that are still to be run."""

    campaign: Campaign
    cells: tuple[Cell, ...]
    steps: tuple[Step, ...]
    #: What an earlier archive lets expect, as `predict.noted` has it.
    predicted: Optional[Mapping[str, Any]] = None

    @property
    def to_measure(self) -> tuple[Cell, ...]:
        """The cells that the steps measure."""
        return tuple(step.cell for step in self.steps if isinstance(step, Measure))

    @property
    def seconds(self) -> int:
        """Time that the file itself asks for: ramps and measured times. No deployments."""
        return sum(cell.seconds for cell in self.to_measure)

    @property
    def pauses_s(self) -> float:
        """Pauses before the visits of a round, all together."""
        return sum(step.pause_s for step in self.steps if isinstance(step, Measure))

    @property
    def prefill_mb(self) -> int:
        """What is written to fill volumes, in MiB, before replication."""
        return sum(step.mib for step in self.steps if isinstance(step, Prefill))

    def deployments(self, how: Transition) -> int:
        """The number of deployments of one kind."""
        return sum(isinstance(step, Deploy) and step.how is how for step in self.steps)


def plan(campaign: Campaign, only: Sequence[str] = (), finished: Iterable[str] = ()) -> Plan:
    """The steps for the cells that `only` (patterns of labels) selects, without `finished` paths.

    Raises UsageError when `rebuild: never` cannot be kept, or a pattern matches no cell.
    """
    cells = order.cells_of(campaign)
    sentences = (
        *rate_problems(campaign, cells),
        *never_written_problems(cells),
        *client_encryption_problems(campaign, cells),
        *order.deployment_problems(campaign, cells),
    )
    wrong = list(dict.fromkeys(sentences))
    if wrong:
        raise UsageError("\n".join(f"{campaign.title}: {sentence}" for sentence in wrong))
    done = set(finished)
    wanted = [cell for cell in select(cells, only) if cell.path not in done]
    return Plan(campaign, cells, tuple(_steps(campaign, wanted)))


def volumes_of(campaign: Campaign, cells: Iterable[Cell]) -> tuple[Volume, ...]:
    """The volumes of all these cells, each once."""
    of_cell = _Volumes(campaign)
    return tuple(dict.fromkeys(volume for cell in cells for volume in of_cell(cell)))


def _steps(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[Step]:
    there: set[str] = set()
    of_cell = _Volumes(campaign)
    changes = _changes(campaign, cells)
    rebuilds = [n for n, each in enumerate(changes) if each and each.how is Transition.REBUILD]
    pauses = _pauses(campaign, cells)
    for number, (cell, change) in enumerate(zip(cells, changes)):
        if change is not None:
            yield change
            if change.how is Transition.REBUILD:
                there.clear()
        needed = of_cell(cell)
        if any(volume.name not in there for volume in needed):
            rebuilt = next((n for n in rebuilds if n > number), len(cells))
            prefill = _missing(of_cell, cells[number:rebuilt], there)
            yield prefill
            there.update(volume.name for volume in prefill.volumes)
        yield Measure(cell, pauses[number])


def _pauses(campaign: Campaign, cells: Sequence[Cell]) -> list[float]:
    """Before the first cell of each visit to a configuration or a place, but for the very first."""
    section, seed = campaign.cluster, order.seed_of(campaign)
    in_turns = section.order == "interleaved" or bool(campaign.groups)
    if not in_turns and not order.is_in_rounds(campaign):
        return [0.0] * len(cells)
    names = [f"{cell.configuration} {variant_words(cell.place)}".rstrip() for cell in cells]
    visits = len(set(names))
    pauses = [0.0]
    for n, cell in enumerate(cells[1:]):
        goes_on = (names[n], cells[n].iteration) == (names[n + 1], cell.iteration)
        longest = order.longest_pause_s(cell.scenario.measured_s, visits, in_turns)
        pause = 0.0 if goes_on else pause_s(seed, cell.iteration, names[n + 1], visits, longest)
        pauses.append(pause)
    return pauses


def _changes(campaign: Campaign, cells: Sequence[Cell]) -> list[Optional[Deploy]]:
    transitions = []
    last: Optional[Cell] = None
    for cell in cells:
        if last is not None and last.scenario.needs_cluster != cell.scenario.needs_cluster:
            last = None
        how_to_change = _change if cell.scenario.needs_cluster else _drive_change
        transitions.append(how_to_change(campaign, last, cell))
        last = cell
    return transitions


class _Volumes:
    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._sites: dict[Variant, Site] = {}
        self._volumes: dict[tuple[int, Variant], tuple[Volume, ...]] = {}

    def __call__(self, cell: Cell) -> tuple[Volume, ...]:
        # The campaign keeps its scenario objects, so that none takes another one's place.
        key = (id(cell.scenario), cell.variant)
        if key not in self._volumes:
            self._volumes[key] = cell.scenario.volumes(self._site(cell))
        return self._volumes[key]

    def _site(self, cell: Cell) -> Site:
        campaign = self._campaign
        cluster = at(campaign.cluster, cell.variant)
        if cell.variant not in self._sites:
            self._sites[cell.variant] = site_of(cluster)
        whole = self._sites[cell.variant]
        stack = campaign.stacks[cell.configuration]
        site = cell_site(cluster, cell.scenario, stack, whole)
        if campaign.groups:
            group = group_of(campaign.groups, cell.configuration)
            site = replace(site, group=group.name, conf=conf_of(site, group.number))
        return site


def _missing(volumes_of: _Volumes, cells: Sequence[Cell], there: Container[str]) -> Prefill:
    """Volumes that are filled as the first cell's are: all that any cell needs, so all at once."""
    first = cells[0].scenario
    wanted = _filling(first)
    volumes: dict[str, Volume] = {}
    used_by: dict[str, list[Cell]] = {}
    for cell in cells:
        if _filling(cell.scenario) != wanted:
            continue
        for volume in volumes_of(cell):
            if volume.name not in there:
                volumes[volume.name] = volume
                used_by.setdefault(volume.name, []).append(cell)
    return Prefill(first, tuple(volumes.values()), used_by)


def _filling(scenario: Scenario) -> dict[str, Any]:
    return {"drive": scenario.drive_name, **{key: getattr(scenario, key, None) for key in _FILLING}}


def _change(campaign: Campaign, last: Optional[Cell], cell: Cell) -> Optional[Deploy]:
    if campaign.groups:
        return _turn(campaign, last, cell)
    origin = origin_of(campaign.cluster)
    if last is None:
        return Deploy(cell.configuration, *origin.first_change, cell.variant)
    change = origin.change(partial(_compared, campaign, last, cell))
    return Deploy(cell.configuration, *change, cell.variant) if change else None


def _turn(campaign: Campaign, last: Optional[Cell], cell: Cell) -> Optional[Deploy]:
    section, name = campaign.cluster, cell.configuration
    number = order.deployment_of(section, cell.scenario, cell.iteration)
    if last is None or number != order.deployment_of(section, last.scenario, last.iteration):
        reason = f"deployment {number + 1} of {order.deployments_of(section, cell.scenario)}"
        return Deploy(name, Transition.REBUILD, reason, cell.variant, deployment=number)
    if last.configuration == name:
        return None
    group = group_of(campaign.groups, name).name
    return Deploy(name, Transition.LIVE, f"{group} takes its turn", cell.variant)


def _compared(campaign: Campaign, last: Cell, cell: Cell) -> Optional[Change]:
    if last.variant != cell.variant:
        return Transition.REBUILD, variant_words(cell.variant)
    if _needs_own(campaign, last, cell):
        return Transition.REBUILD, f"round {cell.iteration + 1}"
    return _change_of_configuration(campaign, last, cell)


def _needs_own(campaign: Campaign, last: Cell, cell: Cell) -> bool:
    """Whether a round does not measure the cell on what the last one was measured on."""
    if not order.is_in_rounds(campaign) or campaign.cluster.rebuild == "never":
        return False
    if cell.iteration != last.iteration:
        return True
    return CONTROL in (last.configuration, cell.configuration) and not (
        last.configuration == cell.configuration
        or order.shares(campaign, last.configuration, cell.configuration)
    )


def _change_of_configuration(campaign: Campaign, last: Cell, cell: Cell) -> Optional[Change]:
    name = cell.configuration
    if campaign.cluster.rebuild_every_test:
        return Transition.REBUILD, "rebuild_every_test"
    changed = last.configuration != name
    policy = campaign.cluster.rebuild
    if policy == "scenario" and (changed or last.scenario.name != cell.scenario.name):
        return Transition.REBUILD, "rebuild: scenario"
    if policy == "configuration" and changed:
        return Transition.REBUILD, "rebuild: configuration"
    if not changed or policy in ("scenario", "configuration"):
        return None
    how = campaign.stacks[last.configuration].transition_to(campaign.stacks[name])
    if policy == "never" and how is Transition.REBUILD:
        raise UsageError(
            f'{campaign.title}: "{last.configuration}" cannot become "{name}" without a rebuild; '
            "say rebuild: needed, or measure it in a campaign of its own"
        )
    return how, f"after {last.configuration}"


def _drive_change(campaign: Campaign, last: Optional[Cell], cell: Cell) -> Optional[Deploy]:
    """A drive is prepared anew for each configuration, unless the file has it changed live."""
    name, drive = cell.configuration, cell.scenario.drive_name
    if last is None or last.scenario.drive_name != drive:
        return Deploy(name, Transition.REBUILD, f"drive {drive}", drive=drive)
    if _needs_own(campaign, last, cell):
        reason = f"drive {drive}, round {cell.iteration + 1}"
        return Deploy(name, Transition.REBUILD, reason, drive=drive)
    if last.configuration == name:
        return None
    how = campaign.stacks[last.configuration].transition_to(campaign.stacks[name])
    if campaign.cluster.rebuild in ("scenario", "configuration") or how > Transition.LIVE:
        how = Transition.REBUILD
    return Deploy(name, how, f"drive {drive}", drive=drive)


@dataclass
class Pending:
    """What the next measured cell needs. Cells that are known already need no deployment."""

    deploy: Optional[Deploy] = None
    prefills: list[Prefill] = field(default_factory=list)

    def add(self, step: Union[Deploy, Prefill]) -> None:
        """Put a step off. A configuration that nothing was measured in is passed over."""
        if isinstance(step, Prefill):
            self.prefills.append(step)
        elif step.how is Transition.REBUILD:
            # the volumes were to be on a cluster that nobody needed
            self.deploy, self.prefills = step, []
        elif self.deploy is not None and self.deploy.how is Transition.REBUILD:
            self.deploy = replace(self.deploy, configuration=step.configuration)
        else:
            self.deploy = step

    def take(
        self, is_needed: Callable[[Cell], bool] = lambda _: True
    ) -> list[Union[Deploy, Prefill]]:
        """All that is put off, in order, without volumes that no cell which `is_needed` uses."""
        prefills = [prefill.only(is_needed) for prefill in self.prefills]
        steps: list[Union[Deploy, Prefill]] = [
            *([self.deploy] if self.deploy else []),
            *(prefill for prefill in prefills if prefill.volumes),
        ]
        self.deploy, self.prefills = None, []
        return steps
