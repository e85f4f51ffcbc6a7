"""Runs a plan: deploy, prefill, measure, prove, keep; and tear everything down at the end."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Optional

from cbt_crypto.archive.files import printable
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.contract import CellBenchmark, CellOutcome, Engine
from cbt_crypto.errors import CampaignError, HostError, RunError, UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import NONSENSE, Remote, misread
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.plan.cells import Cell, share
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.layout import whole_site
from cbt_crypto.plan.order import Pacing, block_state, cells_of
from cbt_crypto.plan.side_by_side import engine_keys
from cbt_crypto.plan.steps import Measure, Pending, Plan, Step
from cbt_crypto.results.until import asked_of, read_block
from cbt_crypto.run import devices, journal, resume
from cbt_crypto.run.cell.conditions import loaded
from cbt_crypto.run.cell.measure import Collector, attempt, check_figures
from cbt_crypto.run.interrupt import Interrupts
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.locks import own_id, this_run
from cbt_crypto.run.prepare import Choices, Preparation
from cbt_crypto.run.progress import TEARING_DOWN, CampaignProgress
from cbt_crypto.run.targets import existing

_TIMEOUT_S = 40
#: Less than this, in KiB, is no room for anything.
_FULL_KB = 2048
#: Of what one host says is wrong with it, of a line's characters, and of why a cell failed.
_MOST_LINES, _LONGEST, _LONGEST_REASON = 100, 200, 20_000


def diagnosis(remote: Remote, site: Site) -> str:
    """What is wrong on the hosts now: clauses that each begin with `; `, or nothing."""
    script = shell.call(__file__, "diagnose", f"{site.tmp_dir}/ceph/run", str(_FULL_KB))
    results = remote.attempt(dict.fromkeys(site.hosts, script), _TIMEOUT_S, "diagnose")
    clauses: list[str] = []
    for host, result in results.items():
        if result.status is None:
            clauses.append(f"{host} does not answer")
            continue
        lines = (line.strip()[:_LONGEST] for line in result.stdout.splitlines()[:_MOST_LINES])
        clauses += [f"{line} on {host}" for line in lines if line]
    return "".join(f"; {clause}" for clause in clauses)


#: How old the last look may be at whether the hosts are still held, in seconds.
HOLD_S = 60.0
#: Cells that may fail one after another before the rest is given up.
_PATIENCE = 3


@dataclass
class Outcome:
    """How a campaign ended: cells that failed, and the error that ended it early."""

    failed: int = 0
    error: Optional[BaseException] = None


@dataclass(frozen=True)
class Holding:
    """What a run has while it works on hosts."""

    #: The name under which they are held.
    run: str = field(default_factory=own_id)
    #: Raises LostHold when they are so no more.
    check: Callable[[], None] = lambda: None
    #: Told when tearing down begins.
    interrupts: Interrupts = field(default_factory=Interrupts)


class CampaignRun:
    """One execution of a plan on one engine: a loop over its steps, whatever the target is."""

    def __init__(
        self, plan: Plan, engine: Engine, archive: Path, config_file: Path,
        progress: CampaignProgress, holding: Holding,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.campaign = plan.campaign
        self.archive = archive
        self.progress = progress
        self.outcome = Outcome()
        self._engine = engine
        self._config_file = config_file
        self._remote = engine.remote(self.campaign.cluster)
        self._journal = Journal(archive, holding.run)
        to_measure = {cell.path for cell in plan.to_measure}
        done = resume.finished_cells(archive, plan.cells) - to_measure
        self._pacing = Pacing(self.campaign, plan.cells, archive, done)
        self._pending = Pending()
        self._collector = Collector(self._failed)
        self._failed_in_a_row = 0
        self._warm_up_s = self.campaign.cluster.warm_up
        self._check_hold = holding.check
        self._conf_said: object = None
        self._devices: devices.Notes = {}
        self._held_at = time.monotonic()
        self._interrupts = holding.interrupts
        self._preparation: Preparation

    def run(self) -> Outcome:
        """Take every step; whatever happens, tear down what is deployed.

        Raises UsageError before anything is touched, and Abandoned for a second signal.
        """
        self._begin()
        try:
            self._torn_down()
        except KeyboardInterrupt as error:
            self.outcome.error = self.outcome.error or error
        return self.outcome

    def _torn_down(self) -> None:
        """Take the steps, and tear down after them: only Abandoned, a second signal, skips that.

        One signal interrupts until `shield`, so one KeyboardInterrupt at most arrives: in the
        steps, in what handles their failure, or in the inner `finally`, but not in the outer one.
        """
        try:
            try:
                self._take_steps()
            finally:
                self._interrupts.shield()
        finally:
            try:
                if not self._interrupts.is_abandoned:
                    self._end()
            finally:
                if self._interrupts.is_abandoned:
                    self._tell_left("stopped at once")

    def _take_steps(self) -> None:
        try:
            self._note_devices(devices.recording)
            printed = journal.ask(self._remote, whole_site(self.campaign), self.campaign)
            self._journal.keep_ways_back(printed)
            self._decide()
            for step in self.plan.steps:
                self._take(step)
            self._collector.wait()
            self._check_archive()
        except HostError as error:
            # Kept first: what is wrong on the hosts may not be found out.
            self.outcome.error = error
            clauses = diagnosis(self._remote, self._preparation.target.site)
            self.outcome.error = RunError(f"{error}{clauses}")
        except (CampaignError, KeyboardInterrupt) as error:
            self.outcome.error = error
        except OSError as error:
            self.outcome.error = self._of_system(error)
        except NONSENSE as error:
            self.outcome.error = misread(error, "deploy")

    def _of_system(self, error: OSError) -> RunError:
        return RunError(f"{error.filename or self.archive}: {error.strerror or error}")

    def _begin(self) -> None:
        try:
            self._write_down()
        except OSError as error:
            raise UsageError(
                f"{self.archive}: cannot be written: {error.strerror}; name another archive with -a"
            ) from error
        self._preparation = Preparation(
            self.campaign, self._engine, self.archive, self._remote, self._journal, self.progress
        )

    def _write_down(self) -> None:
        """Put into the archive what is about to be done, before anything else is touched."""
        cluster, settings = self.campaign.cluster, self._engine.settings
        # Engines read it for themselves, and it may have been saved while hosts were checked.
        if read_campaign(self._config_file).document != self.campaign.document:
            raise UsageError(
                f"{self._config_file}: was changed while this run checked the hosts; run the same "
                "command again"
            )
        file, archive = str(self._config_file), str(self.archive)
        settings.initialize(
            argparse.Namespace(config_file=file, archive=archive, conf=cluster.conf_file)
        )
        # Whoever reads settings finds the defaults too.
        settings.cluster.setdefault("tmp_dir", cluster.tmp_dir)
        settings.cluster.update(engine_keys(cluster))
        self._devices = devices.read_identities(self._remote, self.campaign, self.plan.cells)
        devices.check_same(self.archive, self._devices)
        fsid = existing.check_same(self._remote, self.campaign, journal.fsid_before(self.archive))
        for directory in list(resume.strangers(self.archive, self.plan.cells)):
            resume.set_aside(self.archive, directory)
        resume.write_plan(self.archive, self.plan)
        this = this_run(self.archive)
        self._journal.begin(self.campaign, this, self._engine, self._devices, fsid)
        # Kept open: else a file that is made in its place may have its number.
        self._written = journal.path_of(self.archive).open("rb")

    def _check_conf(self) -> None:
        """Each deployment reads ceph.conf anew; what it said is a part of cells' definitions."""
        origin = origin_of(self.campaign.cluster)
        if origin.conf_template is None or (said := origin.conf_said) == self._conf_said:
            return
        now = {cell.definition for cell in cells_of(self.campaign)}
        if not now.issuperset(cell.definition for cell in self.plan.cells):
            raise UsageError(
                f"{origin.conf_template}: was changed since this run read it, so the rest was not "
                "run; change it back and run the same command again, or name a new archive with -a"
            )
        self._conf_said = said

    def _check_archive(self) -> None:
        path = journal.path_of(self.archive)
        try:
            is_same = os.path.samestat(os.lstat(path), os.fstat(self._written.fileno()))
        except OSError:
            is_same = False
        if not is_same:
            raise RunError(
                f"{path}: was removed or replaced while the campaign ran, and with it what was "
                "measured; the rest was not run"
            )

    def _note_devices(self, scripts: Callable[[str, devices.Notes], HostScripts]) -> None:
        """Note on the hosts which devices the paths led to when this run began."""
        by_host = scripts(self.campaign.cluster.tmp_dir, self._devices)
        self._remote.run(by_host, "note the devices", self.campaign.cluster.deploy_timeout)

    def _before_ending(self, change: Transition) -> None:
        """Hosts must be held; what brings the last files has our mark and would end, too."""
        self._collector.wait()
        self._check_conf()
        if change is Transition.REBUILD:
            self._check_hold()
            self._held_at = time.monotonic()
            self._note_devices(devices.restoring)

    def _decide(self) -> None:
        choices = Choices(self.archive, self._remote, whole_site(self.campaign))
        configurations = self.campaign.configurations.items()
        stacks = {name: Stack(choices.decided(overlays)) for name, overlays in configurations}
        self._preparation.begin(stacks)

    def _take(self, step: Step) -> None:
        """Only what a measured cell needs is deployed: a cell may be known well enough by now."""
        if isinstance(step, Measure):
            if not self._is_needed(step.cell):
                self.progress.skipped(step.cell.seconds)
                return
        else:
            self._pending.add(step)
        if isinstance(step, Measure) or not self._pacing.may_pass_over:
            for before in self._pending.take(self._is_needed):
                self._check_hold_seldom()
                self._preparation.take(before, self._before_ending)
        if isinstance(step, Measure):
            self._check_hold_seldom()
            self._check_archive()
            if self._warm_up_s:
                self._preparation.warm_up(step.cell, self._warm_up_s)
                self._warm_up_s = 0
            time.sleep(step.pause_s)
            self._measure(step.cell)

    def _check_hold_seldom(self) -> None:
        """A run may go on for hours on one deployment; each look costs a moment on every host."""
        now = time.monotonic()
        if now - self._held_at >= HOLD_S:
            self._check_hold()
            self._held_at = now

    def _is_needed(self, cell: Cell) -> bool:
        if self._pacing.may_settle(cell):
            self._collector.wait()
        return not self._pacing.is_settled(cell)

    def _measure(self, cell: Cell) -> None:
        done = self._preparation
        healthy, done.is_healthy = done.is_healthy, False
        done.restore_trust(cell.configuration, cell.scenario.drive_name, self._before_ending)
        self.progress.cell(cell.label)
        directory = self.archive / cell.path
        resume.set_aside(self.archive, directory)
        benchmark = done.benchmark(cell)
        try:
            scenario = self._at_equal_load(cell)
            benchmark = done.benchmark(cell, scenario)
            of_file = {"seconds_measured": scenario.measured_s, "seconds_ramp": scenario.ramp}
            with done.timeline.step("measure", **of_file):
                outcome = attempt(cell, benchmark, done.target, directory, healthy)
        except (RunError, *NONSENSE) as error:
            failure = error if isinstance(error, RunError) else misread(error, "measure")
            self._failed(cell, f"{failure}{diagnosis(self._remote, benchmark.site)}")
        else:
            self._failed_in_a_row = 0
            done.is_healthy = True
            outcome["deployment"] = done.deployment
            if benchmark.counted:
                outcome["overwritten"] = done.overwrites.around(benchmark.counted)
            if isinstance(scenario.target_rate, int):
                outcome["rate_iops"] = scenario.target_rate
            self._collector.submit(cell, partial(self._keep, cell, benchmark, outcome))
        self.progress.done(cell.seconds)

    def _at_equal_load(self, cell: Cell) -> Scenario:
        """The cell's workload, with IOPS where its rate is a part of another cell's."""
        if share(cell) is None:
            return cell.scenario
        self._collector.wait()
        baseline = self.campaign.first_configuration
        return loaded(cell, self.plan.cells, baseline, self.archive)

    def _keep(self, cell: Cell, benchmark: CellBenchmark, outcome: CellOutcome) -> None:
        """Bring a measured cell's files here, read what it says, and finish it. In a thread."""
        directory = self.archive / cell.path
        benchmark.collect()
        check_figures(self.archive, cell.path, outcome)
        if cell.scenario.until is not None:
            interval_ms = int(cell.parameters.get("log_avg_msec", 1000))
            warmup_s = cell.scenario.until.warmup_s
            latency = "clat_ns_mean" in asked_of(cell.parameters)
            block = read_block(directory, outcome["processes"], interval_ms, warmup_s, latency)
            outcome["block"] = block_state(block)
        resume.keep_cell(directory, cell, benchmark.site, outcome, None)
        self._pacing.note(cell, outcome)
        if self._pacing.may_settle(cell):
            resume.write_plan(self.archive, self.plan)

    def _failed(self, cell: Cell, reason: str) -> None:
        reason = reason[:_LONGEST_REASON]
        self._collector.wait()
        site = self._preparation.benchmark(cell).site
        resume.keep_cell(self.archive / cell.path, cell, site, {}, reason)
        self.progress.note(f"failed: {cell.label}: {reason}")
        self.outcome.failed += 1
        self._failed_in_a_row += 1
        self._preparation.distrust()
        if self._failed_in_a_row >= _PATIENCE:
            raise RunError(
                f"{_PATIENCE} cells failed one after another, so the rest was not run; fix what "
                "they say above, and run the same command again"
            )

    def _end(self) -> None:
        """Tear down, and say in one sentence that all is down, or what is left. Raises nothing."""
        self._attempt(partial(self.progress.phase, TEARING_DOWN))
        self._attempt(self._collector.close)
        # What somebody else holds by now is not torn down.
        failure = self._attempt(self._check_hold) or self._attempt(self._preparation.end)
        if failure is not None:
            self._tell_left(f"not everything could be torn down: {failure}")
            return
        hosts = ", ".join(whole_site(self.campaign).hosts)
        self._attempt(partial(self.progress.note, f"torn down: nothing is left on {hosts}"))
        # Where this cannot be written, the next start looks once more.
        self._attempt(self._journal.end)

    def _attempt(self, step: Callable[[], None]) -> Optional[BaseException]:
        try:
            step()
        # A library may end the program where a pipe is closed.
        except (Exception, SystemExit) as error:
            failure = self._of_system(error) if isinstance(error, OSError) else error
            if not isinstance(failure, CampaignError):
                failure = RunError(f"tearing down: {type(error).__name__}: {error}")
            self.outcome.error = self.outcome.error or failure
            return failure
        return None

    def _tell_left(self, why: str) -> None:
        """Say what may be left, where, and which command removes it: also where stdout is gone."""
        deployment = self._journal.deployment
        left = deployment.describe() if deployment is not None else "its hosts"
        archive = shlex.quote(str(self.archive))
        sentence = f"{why}; left on {left}; remove it with: cbt-crypto cleanup {archive}"
        with contextlib.suppress(Exception, SystemExit):
            print(printable(sentence), file=sys.stderr, flush=True)


def run_campaign(
    plan: Plan, engine: Engine, archive: Path, config_file: Path, progress: CampaignProgress,
    holding: Optional[Holding] = None,
) -> Outcome:  # fmt: skip
    """Execute a plan into an archive. Raises UsageError before anything is touched."""
    holding = holding or Holding()
    with progress:
        return CampaignRun(plan, engine, archive, config_file, progress, holding).run()
