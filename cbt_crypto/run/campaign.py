"""Runs a plan: deploy, prefill, measure, prove, keep; and take everything down at the end."""

from __future__ import annotations

import argparse
import uuid
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.json_file import read_json, write_json
from cbt_crypto.archive.timeline import Timeline
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.cluster_overlays.stack import Stack, transition
from cbt_crypto.engine import CellBenchmark, Engine
from cbt_crypto.errors import CampaignError, HostError, RunError, UsageError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file.dimensions import Place, at, words
from cbt_crypto.plan.layout import cell_site, drives_of, site_of
from cbt_crypto.plan.pacing import Pacing, block_state
from cbt_crypto.plan.steps import Deploy, Measure, Pending, Plan, Prefill
from cbt_crypto.results.precision.block import read_block
from cbt_crypto.run import environment
from cbt_crypto.run.collect import Collector
from cbt_crypto.run.diagnosis import diagnosis
from cbt_crypto.run.figures import check_figures
from cbt_crypto.run.host_choices import Choices
from cbt_crypto.run.interrupt import Abandoned
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.locks.holder import this_run
from cbt_crypto.run.locks.hosts import own_id
from cbt_crypto.run.measure import attempt, benchmark_class, commands_of
from cbt_crypto.run.progress import CampaignProgress
from cbt_crypto.run.resume import (
    finished_cells,
    keep_cell,
    set_aside,
    set_aside_strangers,
    write_plan,
)
from cbt_crypto.run.take_down import take_down
from cbt_crypto.run.targets import drive_facts, existing
from cbt_crypto.run.targets.cluster import cluster_class
from cbt_crypto.run.targets.drive import DriveStage

#: Cells that may fail one after another before the rest is given up.
_PATIENCE = 3


@dataclass
class Outcome:
    """How a campaign ended: cells that failed, and the error that ended it early."""

    failed: int = 0
    error: Optional[BaseException] = None


class CampaignRun:
    """One execution of a plan on one engine."""

    def __init__(
        self, plan: Plan, engine: Engine, archive: Path, config_file: Path,
        progress: CampaignProgress, run: Optional[str] = None,
    ) -> None:  # fmt: skip
        """Touches nothing yet. `run` is the name under which the hosts are held."""
        self.plan = plan
        self.engine = engine
        self.archive = archive
        self.config_file = config_file
        self.progress = progress
        self.journal = Journal(archive, run or own_id())
        self.campaign = plan.campaign
        self.place: Place = ()
        self.site = site_of(at(self.campaign.cluster))
        self.stacks = {
            name: Stack(overlays) for name, overlays in self.campaign.configurations.items()
        }
        self.remote = Remote(
            engine.common, self.campaign.cluster.tmp_dir, self.campaign.cluster.user
        )
        self.cluster: Any = None
        self.stage = DriveStage(
            self.remote, self.site, drives_of(self.campaign.cluster), list(self.stacks.values())
        )
        self.stack = next(iter(self.stacks.values()))
        self.outcome = Outcome()
        self._failed_in_a_row = 0
        self._must_rebuild = False
        #: Whether the cluster was seen to be healthy since it was last changed.
        self._healthy = False
        self._drives_cleared = False
        self._confs: dict[str, str] = {}
        self._filled: dict[str, tuple[Scenario, Any]] = {}
        self._pending = Pending()
        to_measure = {cell.path for cell in plan.to_measure}
        done = finished_cells(archive, plan.cells) - to_measure
        self._pacing = Pacing(self.campaign, plan.cells, archive, done)
        self._may_pass_over = any(cell.scenario.until for cell in plan.cells)
        self._collector = Collector(self._failed)
        self._timeline = Timeline(archive)
        self._deployment: Optional[str] = None
        self._energy_hosts: list[str] = []

    def run(self) -> Outcome:
        """Take every step; whatever happens, what is deployed is taken down."""
        self._begin()
        try:
            self._decide()
            for step in self.plan.steps:
                self._take(step)
            self._collector.wait()
        except HostError as error:
            self.outcome.error = RunError(f"{error}{diagnosis(self.remote, self.site)}")
        except (CampaignError, KeyboardInterrupt) as error:
            self.outcome.error = error
        except OSError as error:
            place = error.filename or self.archive
            self.outcome.error = RunError(f"{place}: {error.strerror or error}")
        except Abandoned:
            raise
        except BaseException:
            self._take_down()
            raise
        self._take_down()
        return self.outcome

    def _begin(self) -> None:
        try:
            self._write_down()
        except OSError as error:
            raise UsageError(f"{self.archive}: cannot be written: {error.strerror}") from error
        self._go_to(self.place)

    def _decide(self) -> None:
        """Ask the hosts for what options leave to them, such as the fastest cipher."""
        drives = drives_of(self.campaign.cluster)
        choices = Choices(self.archive, self.remote, replace(self.site, drives=drives))
        decided = {n: Stack(choices.decided(stack.named)) for n, stack in self.stacks.items()}
        self.stack = next(iter(decided.values()))
        self.stacks = decided
        self.stage = DriveStage(self.remote, self.site, drives, list(decided.values()))
        self._go_to(self.place)

    def _go_to(self, place: Place) -> None:
        """Work on the cluster with these values of the section's lists; it is not deployed yet."""
        factory, known = cluster_class(self.engine), list(self.stacks.values())
        self.place = place
        self.site = site_of(at(self.campaign.cluster, place))
        self.cluster = factory(self.engine.settings.cluster, self.stack, known, place)

    def _write_down(self) -> None:
        """Put into the archive what is about to be done, before anything else is touched."""
        cluster = self.campaign.cluster
        self.engine.settings.initialize(
            argparse.Namespace(
                config_file=str(self.config_file), archive=str(self.archive), conf=cluster.conf_file
            )
        )
        # Whoever reads settings finds the defaults too.
        self.engine.settings.cluster.setdefault("tmp_dir", cluster.tmp_dir)
        set_aside_strangers(self.archive, self.plan.cells)
        write_plan(self.archive, self.plan)
        self.journal.begin(self.campaign, this_run(self.archive), self.engine)

    def _take(self, step: Any) -> None:
        if not isinstance(step, Measure):
            self._pending.add(step)
        elif not self._is_needed(step.cell):
            self.progress.skipped(step.cell.scenario.ramp + step.cell.scenario.measured_s)
            return
        if isinstance(step, Measure) or not self._may_pass_over:
            for before in self._pending.take():
                self._prepare(before)
        if isinstance(step, Measure):
            self._measure(step.cell)

    def _is_needed(self, cell: Cell) -> bool:
        if self._pacing.may_settle(cell):
            self._collector.wait()
        return not self._pacing.is_settled(cell)

    def _prepare(self, step: Any) -> None:
        self._healthy = False
        if isinstance(step, Deploy) and self._distrusted and step.how is not Transition.REBUILD:
            self._rebuild(step.configuration, step.drive)
        elif isinstance(step, Deploy):
            self._deploy(step)
        else:
            self._prefill(step)

    # -- deploying ----------------------------------------------------------------------------

    def _deploy(self, step: Deploy) -> None:
        if step.place != self.place:
            self._go_to(step.place)
        stack = self.stacks[step.configuration]
        change = self._change_to(step)
        how = change.name.lower()
        self.progress.phase(f"deploy {step.configuration} ({how}, {step.reason})")
        self.journal.deploy(step.configuration, how)
        with self._timeline.step("deploy", how=how, configuration=step.configuration):
            if change is Transition.REBUILD:
                # What is still to be brought is on the hosts that are cleared now.
                self._collector.wait()
                self._deployment = uuid.uuid4().hex[:12]
            if step.drive is not None:
                self._deploy_drive(step, stack)
            elif change is Transition.REBUILD or self.campaign.cluster.use_existing:
                self.cluster.stack = stack
                self._initialize()
                self._filled.clear()
                self._must_rebuild = False
            else:
                self.cluster.change(stack, change)
        self.stack = stack
        self._note_environment(step.configuration)

    def _deploy_drive(self, step: Deploy, stack: Stack) -> None:
        if step.how is not Transition.REBUILD:
            self.stage.change(stack, step.how)
            return
        if not self._drives_cleared:
            # What a killed run left, on the drives and in tmp_dir.
            self.cluster.shutdown()
            self.cluster.cleanup()
            self._drives_cleared = True
        self.stage.deploy(str(step.drive), stack)
        self._filled.clear()
        self._must_rebuild = False

    def _initialize(self) -> None:
        if not self.campaign.cluster.use_existing:
            self.cluster.initialize()
            return
        found = existing.discover(self.remote, self.site, self.campaign.cluster)
        self.site = found.site
        self.engine.settings.cluster["osds"] = list(found.site.osd_hosts)
        existing.adopt(self.cluster, found.site)
        self.cluster.initialize()
        self.remote.run(found.pid_files, "note the OSDs' processes", 60)

    def _change_to(self, step: Deploy) -> Transition:
        """What it takes from where the cluster is; cells that were passed over change that."""
        if step.drive is not None or self.campaign.cluster.use_existing:
            return step.how
        if step.how is Transition.REBUILD:
            return step.how
        return transition(self.stack, self.stacks[step.configuration])

    def _note_environment(self, configuration: str) -> None:
        name = ", ".join(filter(None, (configuration, words(self.place))))
        self._confs[name] = getattr(self.cluster, "conf_text", "")
        path = self.archive / "results" / "environment.json"
        noted = read_json(path)
        if noted is None or not set(self.site.hosts) <= set(noted.get("hosts", ())):
            drives = drives_of(self.campaign.cluster)
            everywhere = replace(self.site, drives=drives)
            noted = environment.collect(self.remote, everywhere, self.engine, self._described())
            if drives:
                noted["drives"] = drive_facts.collect(self.remote, drives)
        noted.pop("format", None)
        noted["ceph_conf"] = {**noted.get("ceph_conf", {}), **self._confs}
        self._energy_hosts = environment.energy_hosts(noted)
        write_json(path, noted)

    def _described(self) -> list[Overlay]:
        """One overlay of each kind that the campaign names: what it says is about hosts."""
        named = (overlay for stack in self.stacks.values() for overlay in stack.named)
        return list({overlay.name: overlay for overlay in named}.values())

    def _prefill(self, step: Prefill) -> None:
        size = sum(volume.size_mb for volume in step.volumes)
        self.progress.phase(f"prefill {len(step.volumes)} volumes, {size} MiB")
        benchmark = self._benchmark(Cell(step.scenario, 0, ""))
        with self._timeline.step("prefill", mib=size):
            self.engine.common.make_remote_dir(benchmark.run_dir)
            benchmark.fill(step.volumes)
            benchmark.cleanup()
        self._filled.update({v.name: (step.scenario, v) for v in step.volumes})

    @property
    def _distrusted(self) -> bool:
        return self._must_rebuild and not self.campaign.cluster.use_existing

    def _rebuild(self, configuration: str, drive: Optional[str]) -> None:
        """After a failed cell the cluster is not trusted: build it anew, with its volumes."""
        filled = list(self._filled.values())
        reason = "the cell before it failed"
        place = self.place if drive is None else ()
        self._deploy(Deploy(configuration, Transition.REBUILD, reason, place, drive))
        # As they were filled: those of one scenario all at once.
        for first in {id(scenario): scenario for scenario, _ in filled}.values():
            own = tuple(volume for scenario, volume in filled if scenario is first)
            self._prefill(Prefill(first, own))

    # -- measuring ----------------------------------------------------------------------------

    def _measure(self, cell: Cell) -> None:
        healthy, self._healthy = self._healthy, False
        if self._distrusted:
            self._rebuild(cell.configuration, cell.scenario.drive_name)
        self.progress.cell(cell.label)
        directory = self.archive / cell.path
        set_aside(self.archive, directory)
        benchmark = self._benchmark(cell)
        try:
            place = self.cluster if cell.scenario.needs_cluster else self.stage
            with self._timeline.step("measure", seconds_measured=cell.scenario.measured_s):
                outcome = attempt(cell, benchmark, place, directory, healthy)
        except RunError as error:
            self._failed(cell, f"{error}{diagnosis(self.remote, benchmark.site)}")
        else:
            self._failed_in_a_row = 0
            self._healthy = True
            outcome["deployment"] = self._deployment
            self._collector.submit(cell, partial(self._keep, cell, benchmark, outcome))
        self.progress.done(cell.scenario.ramp + cell.scenario.measured_s)

    def _keep(self, cell: Cell, benchmark: CellBenchmark, outcome: dict[str, Any]) -> None:
        """Bring a measured cell's files here, read what it says, and finish it. In a thread."""
        directory = self.archive / cell.path
        benchmark.collect()
        check_figures(self.archive, cell.path, outcome)
        if cell.scenario.until is not None:
            interval_ms = int(cell.parameters.get("log_avg_msec", 1000))
            block = read_block(directory, outcome["processes"], interval_ms)
            outcome["block"] = block_state(block)
        keep_cell(directory, cell, benchmark.site, outcome, None)
        self._pacing.note(cell, outcome)
        if self._pacing.may_settle(cell):
            write_plan(self.archive, self.plan)

    def _benchmark(self, cell: Cell) -> CellBenchmark:
        site = cell_site(at(self.campaign.cluster, self.place), cell.scenario, self.stack)
        if self.campaign.cluster.use_existing:
            site = replace(site, osds=self.site.osds)
        made = benchmark_class(self.engine, cell.scenario)(
            str(self.archive), self.cluster, cell.config, cell.scenario, site, self.stack,
            self.remote,
        )  # fmt: skip
        made.energy_hosts = [host for host in site.hosts if host in self._energy_hosts]
        return made

    def _failed(self, cell: Cell, reason: str) -> None:
        self._collector.wait()
        keep_cell(self.archive / cell.path, cell, self._benchmark(cell).site, {}, reason)
        self.progress.note(f"failed: {cell.label}: {reason}")
        self.outcome.failed += 1
        self._failed_in_a_row += 1
        self._must_rebuild = True
        if self._failed_in_a_row >= _PATIENCE:
            raise RunError(f"{_PATIENCE} cells failed one after another, so the rest was not run")

    # -- the end ------------------------------------------------------------------------------

    def _take_down(self) -> None:
        self.progress.phase("take the cluster down")
        try:
            self._collector.close()
        except (RunError, OSError) as error:
            self.outcome.error = self.outcome.error or error
        try:
            if self.campaign.cluster.use_existing:
                volumes = [volume for _, volume in self._filled.values()]
                existing.remove_images(self.remote, self.site, commands_of(self.cluster), volumes)
            take_down(self.cluster)
            self.journal.end()
        except RunError as error:
            self.progress.note(f"not everything could be taken down: {error}")
            self.outcome.error = self.outcome.error or error
        except OSError as error:
            # All is down; that the journal does not know costs the next start a look.
            failure = RunError(f"{self.archive}: {error.strerror}")
            self.outcome.error = self.outcome.error or failure


def run_campaign(
    plan: Plan, engine: Engine, archive: Path, config_file: Path, progress: CampaignProgress,
    run: Optional[str] = None,
) -> Outcome:  # fmt: skip
    """Execute a plan into an archive. Raises UsageError before anything is touched."""
    with progress:
        return CampaignRun(plan, engine, archive, config_file, progress, run).run()
