"""Between cells: brings the target into the next cell's configuration, with its volumes filled."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Optional, Union

from cbt_crypto.archive.files import digest, read_json, write_json
from cbt_crypto.archive.folder import Timeline
from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.benchmarks.upstream import OfUpstream
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.contract import CellBenchmark, CellWork, Engine
from cbt_crypto.errors import HostError
from cbt_crypto.hosts.remote import NONSENSE, Remote
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import drives_of
from cbt_crypto.plan.steps import Deploy, Prefill
from cbt_crypto.run.age import Overwrites
from cbt_crypto.run.cell import conditions
from cbt_crypto.run.cell.measure import benchmark_of
from cbt_crypto.run.cell.watch import aside
from cbt_crypto.run.environment import EnvironmentFile
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.progress import CampaignProgress
from cbt_crypto.run.targets import Targets
from cbt_crypto.run.targets.base import Target, commands_of
from cbt_crypto.units import counted

#: Seconds beyond a warm-up in which its processes must have opened their volumes and ended.
_WARM_UP_SLACK_S = 120


class Preparation:
    """What was done to the targets, and whether they can still be trusted."""

    def __init__(
        self, campaign: Campaign, engine: Engine, archive: Path, remote: Remote,
        journal: Journal, progress: CampaignProgress,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._drives = drives_of(campaign.cluster)
        self._call_stacks = campaign.monitoring.stacks
        self._archive = archive
        self._remote = remote
        self._journal = journal
        self._progress = progress
        self.timeline = Timeline(archive)
        self._targets = Targets(engine, remote, campaign)
        self._environment = EnvironmentFile(archive, remote, engine, campaign)
        self._made: dict[str, tuple[Scenario, Volume]] = {}
        self._is_distrusted = False
        #: Which deployment the next cell is measured on.
        self.deployment: Optional[str] = None
        #: Whether the target was seen to be healthy since it was last changed.
        self.is_healthy = False
        self.overwrites = Overwrites()

    @property
    def target(self) -> Target:
        """What was deployed last."""
        return self._targets.current

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """Learn the configurations as hosts decided their options."""
        self._targets.begin(stacks)
        self._environment.describe(stacks.values())

    def take(
        self, step: Union[Deploy, Prefill], before_ending: Callable[[Transition], None]
    ) -> None:
        """Take a step; call `before_ending` before it ends anything. Rebuild the distrusted."""
        self.is_healthy = False
        if isinstance(step, Prefill):
            self._prefill(step)
        elif step.how is Transition.REBUILD or not self.restore_trust(
            step.configuration, step.drive, before_ending
        ):
            self._deploy(step, before_ending)

    def distrust(self) -> None:
        """A cell failed: what is deployed may be the cause, or damaged."""
        self._is_distrusted = True

    def restore_trust(
        self, configuration: str, drive: Optional[str], before_ending: Callable[[Transition], None]
    ) -> bool:
        """Build a target anew that is not trusted, with its volumes; whether that was so."""
        if not self._is_distrusted or not self.target.can_be_rebuilt:
            return False
        made = list(self._made.values())
        reason = "the cell before it failed"
        variant = self.target.variant if drive is None else ()
        rebuild = Deploy(configuration, Transition.REBUILD, reason, variant, drive)
        self._deploy(rebuild, before_ending)
        # As they were filled: those of one scenario all at once.
        for first in {id(scenario): scenario for scenario, _ in made}.values():
            of_scenario = tuple(volume for scenario, volume in made if scenario is first)
            self._prefill(Prefill(first, of_scenario))
        return True

    def _deploy(self, step: Deploy, before_ending: Callable[[Transition], None]) -> None:
        target = self._targets.select(step.drive)
        change = target.transition(step)
        how = change.name.lower()
        self._progress.phase(f"deploy {step.configuration} ({how}, {step.reason})")
        self._journal.deploy(step.configuration, how)
        with self.timeline.step("deploy", how=how, configuration=step.configuration):
            if change >= Transition.RESTART:
                before_ending(change)
            if change is Transition.REBUILD:
                self.deployment = uuid.uuid4().hex[:12]
                self._made.clear()
            self.deployment = target.deployment or self.deployment
            target.change_to(step, change)
        rebuilt = change is Transition.REBUILD
        if rebuilt:
            self._is_distrusted = False
            self.overwrites.begin(conditions.read(self._remote, self._carriers(step.drive)))
        for what in self._environment.note(step.configuration, target, rebuilt):
            self._progress.note(f"changed since earlier cells were measured: {what}")

    def _carriers(self, drive: Optional[str]) -> Site:
        """Where what was deployed lies: the drive of that name, or all OSDs."""
        site = self.target.site
        if drive is None:
            return site
        return replace(site, osds=(), drives=tuple(d for d in self._drives if d.name == drive))

    def _prefill(self, step: Prefill) -> None:
        size = step.mib
        self._progress.phase(f"prefill {counted(len(step.volumes), 'volume')}, {size} MiB")
        benchmark = self.benchmark(Cell(step.scenario, 0, ""))
        self._made.update({v.name: (step.scenario, v) for v in step.volumes})
        tell = self._progress.filling
        site = self.target.site if step.scenario.needs_cluster else None
        with self.timeline.step("prefill", mib=size), followed(self._remote, site, size, tell):
            self._engine.common.make_remote_dir(benchmark.run_dir)
            benchmark.fill(step.volumes)
            benchmark.cleanup()

    def warm_up(self, cell: Cell, seconds: int) -> None:
        """Run a cell's workload for some seconds without measuring it. Raises HostError."""
        if isinstance(cell.scenario, OfUpstream):
            self._progress.note(f"not warmed up: CBT itself runs {cell.scenario.name}")
            return
        scenario = cell.scenario.model_copy(update={"time": seconds, "ramp": 0})
        self._progress.phase(f"warm up for {seconds} s, not measured")
        benchmark = self.benchmark(cell, scenario)
        site = benchmark.site
        commands = commands_of(self.target.cluster, site.client_id, site.conf if site.group else "")
        wrap = benchmark.stack.wrap_client
        with self.timeline.step("warm up", seconds=seconds):
            self._engine.common.make_remote_dir(benchmark.run_dir)
            scripts = scenario.measure(site, benchmark.run_dir, commands, wrap)
            self._remote.run(scripts, "warm up", seconds + _WARM_UP_SLACK_S)
            benchmark.cleanup()

    def benchmark(self, cell: Cell, scenario: Optional[Scenario] = None) -> CellBenchmark:
        """What runs a cell on the target as it is now; with a `scenario`, that as its load."""
        target = self.target
        site = target.measure_on(cell.scenario)
        work = CellWork(
            str(self._archive), target.cluster, cell.config, scenario or cell.scenario, site,
            target.stack, self._remote, "" if target.can_be_rebuilt else self._journal.run,
            self._call_stacks,
        )  # fmt: skip
        benchmark = benchmark_of(self._engine, work)
        benchmark.tell = self._progress.live
        return benchmark

    def end(self) -> None:
        """Leave nothing on the hosts. Raises RunError."""
        self._targets.end([volume for _, volume in self._made.values()], self._journal.run)


#: Smaller fills end before a rate is known, which takes two starts of `ceph`.
_SMALL_MIB = 128
#: Seconds between questions how much a cluster has stored, and for each answer.
_LOOK_EVERY_S, _ANSWER_S = 10.0, 60.0


def followed(
    remote: Remote, site: Optional[Site], mib: int, tell: Callable[[float, float], None],
    every_s: float = _LOOK_EVERY_S,
) -> contextlib.AbstractContextManager[None]:  # fmt: skip
    """Tell MiB/s and percent of `mib` while the block fills volumes; no error of this matters."""
    if site is None or mib <= _SMALL_MIB:
        return contextlib.nullcontext()
    return aside(partial(_follow, remote, site, mib, tell, every_s), _ANSWER_S)


def _follow(
    remote: Remote, site: Site, mib: int, tell: Callable[[float, float], None], every_s: float,
    ended: threading.Event,
) -> None:  # fmt: skip
    ask = {site.head: f"timeout {_ANSWER_S:.0f} {site.ceph_command} df --format json"}
    first = last = None
    while not ended.wait(every_s):
        with contextlib.suppress(HostError, OSError, *NONSENSE):
            pools = json.loads(remote.run(ask, "ask how much is stored", _ANSWER_S)[site.head])
            stored = sum(pool["stats"]["stored"] for pool in pools["pools"]) / 2**20
            now = time.monotonic(), stored
            first = first or now
            # While it grows: later passes write over what is there.
            if last is not None and stored > last and not ended.is_set():
                tell((stored - first[1]) / (now[0] - first[0]), min(100.0, 100 * stored / mib))
            last = stored


_LIMIT_S = 600


class Choices:
    """What hosts answer at this start; what decided a choice stays in `results/choices.json`."""

    def __init__(self, archive: Path, remote: Remote, site: Site) -> None:
        self._path = archive / "results" / "choices.json"
        self._remote = remote
        self._site = site
        self._asked: dict[str, HostOutputs] = {}

    def decided(self, overlays: Iterable[Overlay]) -> tuple[Overlay, ...]:
        """The overlays with every option decided. Raises RunError where that cannot be done."""
        return tuple(self._decided(overlay) for overlay in overlays)

    def _decided(self, overlay: Overlay) -> Overlay:
        scripts = overlay.ask(self._site)
        return overlay.decided(self._answers(overlay, scripts)) if scripts else overlay

    def _answers(self, overlay: Overlay, scripts: HostScripts) -> HostOutputs:
        key = f"{overlay.name} {digest(dict(scripts))[:16]}"
        if key not in self._asked:
            noted = read_json(self._path) or {}
            noted.pop("format", None)
            if not overlay.keeps_choice or key not in noted:
                what = f"ask the hosts for {overlay.name}"
                noted[key] = self._remote.run(scripts, what, _LIMIT_S)
                write_json(self._path, noted)
            self._asked[key] = noted[key]
        return self._asked[key]
