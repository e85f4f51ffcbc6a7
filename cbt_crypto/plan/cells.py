"""What a cell is: one measurement of a campaign, its directory, its label and its definition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cbt_crypto.archive import folder
from cbt_crypto.archive.files import cell_path, digest
from cbt_crypto.benchmarks.base import Scenario, share_of
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import CONTROL, Variant


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
    def place(self) -> Variant:
        """Its drive, or its value of each of the cluster's lists; nothing where there is one."""
        drive = self.scenario.drive_name
        return self.variant or ((("drive", drive),) if drive is not None else ())

    @property
    def config(self) -> dict[str, Any]:
        """The config of CBT's benchmark object for it."""
        own = {"benchmark": self.scenario.name, "iteration": self.iteration}
        return {**own, **self.scenario.model_dump(mode="json"), **dict(self.variant)}

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
        return self.scenario.settling_s + self.scenario.run_s

    @property
    def label(self) -> str:
        """One line for people, which `--only` matches too."""
        return folder.label(self.scenario.name, self.configuration, self.parameters, self.iteration)


def select(cells: Sequence[Cell], only: Sequence[str], option: str = "--only") -> tuple[Cell, ...]:
    """The cells whose label contains, or as a glob matches, one of the patterns; all for none."""
    if not only:
        return tuple(cells)
    for pattern in only:
        if not pattern.strip() or not any(folder.matches(cell.label, pattern) for cell in cells):
            raise UsageError(
                f'{option} "{pattern}" matches no cell; `cbt-crypto plan FILE` lists '
                f'them, e.g. "{cells[0].label}"'
            )
    return tuple(cell for cell in cells if any(folder.matches(cell.label, each) for each in only))


def measured_cluster(section: ClusterSection) -> dict[str, Any]:
    """Of the cluster's section what bears on figures, and what the ceph.conf it names says."""
    cluster = section.model_dump(mode="json")
    for key in ("configurations", "baseline", "iterations", "rebuild", "deploy_timeout", "order"):
        del cluster[key]
    del cluster["seed"], cluster["control"], cluster["turns"], cluster["matrix"]
    for profile in cluster["pool_profiles"].values():
        for key in ("compression_mode", "compression_algorithm", "allow_ec_optimizations"):
            if not profile[key]:
                del profile[key]
    if section.control and isinstance(section.baseline, dict) and "drive" in section.baseline:
        cluster["drives"].pop(CONTROL, None)  # the baseline's has all that bears on it
    # As archives have it that were written before there were these keys.
    usual = {"discard": False, "client_id": ceph_conf.ADMIN, "layout": "separate"}
    for key, value in usual.items():
        if cluster[key] == value:
            del cluster[key]
    if section.conf_file:
        cluster["conf_file"] = origin_of(section).conf_said
    return cluster


def definition_of(campaign: Campaign, cluster: dict[str, Any], scenario: Scenario) -> str:
    """A digest of all that a cell measures: options, overlays, and the cluster."""
    overlays = [each for each in campaign.configurations[scenario.configuration] if each.is_present]
    said: dict[str, Any] = {
        "cluster": cluster,
        "scenario": [scenario.name, scenario.model_dump(mode="json")],
        "overlays": [[overlay.name, overlay.model_dump(mode="json")] for overlay in overlays],
    }
    if campaign.compared == "drive" and scenario.drive_name == CONTROL:
        said["repeats"] = campaign.baseline
    return digest(said)


def share(cell: Cell) -> Optional[float]:
    """The part of the baseline's maximum that the cell is to be loaded with; None for no part."""
    return share_of(cell.scenario.target_rate)


def reference_of(cell: Cell, cells: Iterable[Cell], baseline: str) -> Optional[Cell]:
    """Return the workload's first cell in the baseline at `max`; None if there is none."""
    wanted = cell.scenario.model_copy(update={"rate": "max", "configuration": baseline})
    candidates = (c for c in cells if c.scenario == wanted and c.variant == cell.variant)
    return next((c for c in candidates if not c.iteration), None)


def rate_problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[str]:
    """A sentence for each cell whose load cannot be known when it is its turn."""
    baseline = campaign.first_configuration
    positions = {cell.path: number for number, cell in enumerate(cells)}
    for number, cell in enumerate(cells):
        if share(cell) is None:
            continue
        rate = cell.scenario.target_rate
        part = f"{cell.scenario.name}: rate: {rate} is a part of what {baseline} does at max, which"
        reference = reference_of(cell, cells, baseline)
        if reference is None:
            said = f"is not measured; say rate: [max, {rate}], and run {baseline} with both"
            yield f"{part} {said}"
        elif positions[reference.path] > number:
            yield f"{part} is measured later; put max first, and leave out order: interleaved"
