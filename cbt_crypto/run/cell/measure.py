"""One cell, from idle volumes to files in the archive."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.documents import KEPT
from cbt_crypto.archive.files import Malformed, read_document, write_json
from cbt_crypto.archive.folder import Folder
from cbt_crypto.benchmarks.base import ClientProcess, Scenario, Volume
from cbt_crypto.benchmarks.upstream import OfUpstream
from cbt_crypto.engine import CellBenchmark, Engine, contract
from cbt_crypto.engine.contract import CellOutcome, CellWork, Looked, Looks
from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts import ceph_conf, samplers
from cbt_crypto.hosts.remote import NONSENSE, Remote, check_clocks, clock_offsets, misread
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.results.readers.process_output import read_results
from cbt_crypto.run import age, recovery
from cbt_crypto.run.cell import conditions, proof, watch
from cbt_crypto.run.targets.base import Target, commands_of
from cbt_crypto.units import whole

#: Host -> path below the cell's directory there -> bytes.
Sizes = Mapping[str, Mapping[str, int]]


def sizes(remote: Remote, hosts: Sequence[str], run_dir: str) -> Sizes:
    """What is in `run_dir` on each host. Raises HostError."""
    script = f"find {shlex.quote(run_dir)} -type f -printf '%s %P\\n'"
    outputs = remote.run(dict.fromkeys(hosts, script), "list the results", 60)
    return {host: _parsed(text) for host, text in outputs.items()}


def check(wanted: Sizes, archive_dir: Path) -> None:
    """Raise HostError for the first file that is missing in the archive, or shorter there."""
    for host, files in wanted.items():
        for name, size in files.items():
            first, slash, rest = name.partition("/")
            path = archive_dir / f"{first}.{host}{slash}{rest}"
            try:
                arrived = path.stat().st_size if path.is_file() else -1
            except OSError:  # no file can have that name
                arrived = -1
            if arrived < size:
                what = "is missing" if arrived < 0 else f"has {arrived} of {size} bytes"
                raise HostError(host, f"copy {name} from it", f"{what} in the archive", "")


def _parsed(text: str) -> dict[str, int]:
    pairs = (line.partition(" ")[::2] for line in text.splitlines())
    return {name: int(size) for size, name in pairs if size.isdigit() and name}


class Collector:
    """At most one cell is under way. `failed` is called where files could not be brought."""

    def __init__(self, failed: Callable[[Cell, str], None]) -> None:
        self._failed = failed
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collect")
        self._under_way: Optional[tuple[Cell, Future[None]]] = None

    def submit(self, cell: Cell, collect: Callable[[], None]) -> None:
        """Collect a cell, when the one before it is there."""
        self.wait()
        self._under_way = (cell, self._pool.submit(collect))

    def wait(self) -> None:
        """Return when nothing is under way. The main thread alone calls this, and `failed`."""
        if self._under_way is None:
            return
        cell, future = self._under_way
        self._under_way = None
        try:
            future.result()
        except (RunError, *NONSENSE) as error:
            failure = error if isinstance(error, RunError) else misread(error, "read the results")
            self._failed(cell, str(failure))

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


#: Seconds beyond ramp and time in which fio must have opened its volume and ended.
_SLACK = 120
#: Looks that are taken together with the proof.
_CACHES, _STORAGE = "caches", "storage"


class ScenarioBenchmark(CellBenchmark):
    """Runs one cell of a scenario, with an engine's benchmark object for its directories."""

    def __init__(self, engine: Engine, work: CellWork) -> None:
        super().__init__(work)
        self._engine = engine
        self._directories = engine.Benchmark(work.archive_dir, work.cluster, work.config)
        self.archive_dir = self._directories.archive_dir
        self.run_dir = self._directories.run_dir
        self._run = work.run
        self._call_stacks = work.call_stacks
        # A group's clients speak as its OSDs do; of any other site it is the cluster's own.
        conf = self.site.conf if self.site.group else ""
        commands = commands_of(work.cluster, self.site.client_id, conf)
        self.commands = replace(commands, rbd_cache=wants_rbd_cache(work))
        self._is_prepared = False
        self._rounds: Optional[dict[str, Any]] = None

    def initialize(self) -> None:
        """Make the directories, empty on the nodes; bring drives and caches into their state."""
        self._directories.initialize()
        self._directories.run()
        self._rounds = age.reach(
            self.remote, self.site, self.scenario, self.run_dir, self.commands,
            self.stack.wrap_client,
        )  # fmt: skip
        conditions.fill(self.remote, self.site, self.scenario, self.run_dir, self.commands)
        self._is_prepared = True
        self._engine.monitoring.prepare(self.run_dir)

    def cleanup(self) -> None:
        """Remove those on the nodes, and end what was started there for a run that did not come."""
        if self._is_prepared:
            self._engine.monitoring.stop(self.run_dir)
        self._directories.cleanup()

    def fill(self, volumes: Sequence[Volume]) -> None:
        """Make and fill the volumes that are not there yet, of all groups at once."""
        everyone = commands_of(self.cluster, self.site.client_id, run=self._run)
        if self.scenario.needs_cluster:
            for pool, profile in _pools(self.scenario, volumes).items():
                self.cluster.mkpool(pool, profile, "rbd")
            create = self.scenario.create(volumes, everyone)
            self.remote.run({self.site.head: create}, "make the volumes", everyone.images_s)
        fill = self.scenario.prefill_scripts(volumes, self.run_dir, everyone)
        # Not `section_of`: upstream writes into its own keys, as osds_per_node: 0.
        default = ClusterSection.model_fields["deploy_timeout"].default
        patience = int(str(self.cluster.config.get("deploy_timeout", default)))
        # A cluster that stopped serving would keep fio waiting for ever.
        most = max((v.written_mb for v in volumes), default=0)
        limit = patience + most / self.scenario.slowest_fill_mb_per_s
        self.remote.run(fill, "prefill the volumes", limit)

    def looks_before(self) -> Looks:
        """Empty the caches that are to be so."""
        return {_CACHES: conditions.emptying(self.site, self.scenario)}

    def note(self, before: Looked) -> None:
        """Add to `outcome` what the hosts said before the cell."""
        if self._rounds is not None:
            self.outcome["steady_state"] = self._rounds
        emptied = before.get(_CACHES, {})
        self.outcome["caches"] = conditions.outcome(self.site, self.scenario, emptied)

    def run(self) -> None:
        """Run the processes under the monitors; `outcome` has window and exit statuses."""
        scripts = self.scenario.measure(
            self.site, self.run_dir, self.commands, self.stack.wrap_client
        )
        show_statuses = f"cd {shlex.quote(self.run_dir)} && grep -H . exit_status.*"
        scripts = {host: f"(\n{text}\n)\n{show_statuses}" for host, text in scripts.items()}
        limit = self.scenario.run_s + _SLACK
        processes = self.scenario.processes(self.site)
        in_flight = self.scenario.in_flight(self.site)
        onlooker = self.tell and watch.Onlooker(
            self.tell, tuple(scripts), len(processes), in_flight
        )
        followed = watch.followed(self.remote, self.run_dir, onlooker)
        recorders = samplers.recorders(self.site, self.run_dir)
        recorded = samplers.recorded(self.remote, recorders, self.run_dir)
        profile = self._call_stacks.model_dump() if self._call_stacks else None
        stacks = samplers.stacks(self.remote, self.site.osd_hosts, self.run_dir, profile)
        self._is_prepared = False
        with stacks, recorded, self._engine.monitoring.monitor(self.run_dir, self.scenario.ramp):
            offsets = clock_offsets(self.remote, self.site)
            started, since = time.time(), time.monotonic()
            with followed:
                statuses = self.remote.run(scripts, "run fio", limit)
            ended = time.time()
            own = ended - started - (time.monotonic() - since)
            check_clocks(offsets, clock_offsets(self.remote, self.site), own)
        ran = [outcome_of(process, statuses) for process in processes]
        self.outcome = contract.outcome((started, ended), offsets, self.site.head, ran)

    def collect(self) -> None:
        """Bring the files of the run to the archive, and remove them from the nodes."""
        try:
            there = sizes(self.remote, self.site.hosts, self.run_dir)
            self._engine.common.sync_files(self.run_dir, self.archive_dir)
            check(there, Path(self.archive_dir))
        finally:
            with contextlib.suppress(HostError):
                self.cleanup()


def wants_rbd_cache(work: CellWork) -> bool:
    """Whether the file, its ceph.conf or an overlay turns librbd's cache on."""
    deployed = ceph_conf.parsed(work.cluster.conf_text)
    conf = ceph_conf.merged(deployed, *(overlay.ceph_conf() for overlay in work.stack.overlays))
    stated = ceph_conf.of_kind(conf, "client").get("rbd_cache", "")
    return stated.lower() in ("true", "1", "yes", "on")


def _pools(scenario: Scenario, volumes: Sequence[Volume]) -> dict[str, str]:
    profile = scenario.pool_profile
    pools = {volume.pool: profile for volume in volumes} or {profile: profile}
    data = {volume.data_pool: scenario.data_pool for volume in volumes if volume.data_pool}
    return {**pools, **data}


def benchmark_of(engine: Engine, work: CellWork) -> CellBenchmark:
    """What runs one cell: the engine, where the scenario is its own; else this package."""
    if isinstance(work.scenario, OfUpstream) and engine.native:
        return engine.native(work)
    return ScenarioBenchmark(engine, work)


def outcome_of(process: ClientProcess, statuses: Mapping[str, str]) -> contract.ProcessOutcome:
    """What result.json says of a client process; `statuses` is what hosts' exit files say."""
    kind: contract.ProcessOutcome = {} if process.kind == "fio" else {"kind": process.kind}
    return {
        **kind,
        "host": process.host,
        "volume": process.volume,
        "exit_status": _status(statuses.get(process.host, ""), process.volume),
        "json": f"{process.results}.{process.volume}.{process.host}",
        "logs": f"output.{process.volume}",
    }


def failed_processes(outcome: CellOutcome, archive_dir: Path) -> None:
    """Raise RunError naming the first fio process that did not succeed, and what it said."""
    for process in outcome["processes"]:
        if process["exit_status"] != 0:
            last_words = _last_words(archive_dir / f"output.{process['volume']}.{process['host']}")
            status = process["exit_status"]
            ending = "left no exit status" if status is None else f"exited with {status}"
            kind = process.get("kind", "fio")
            raise RunError(f"{process['host']}: {kind} {process['volume']} {ending}{last_words}")


def _status(printed: str, volume: str) -> Optional[int]:
    for line in printed.splitlines():
        name, _, status = line.strip().partition(":")
        if name == f"exit_status.{volume}":
            return whole(status)
    return None


def _last_words(path: Path) -> str:
    try:
        lines = read_document(path).decode("utf-8", "replace").strip()[-4096:].splitlines()
    except Malformed:
        return ""
    return f": {lines[-1][:300]}" if lines else ""


def attempt(
    cell: Cell, benchmark: CellBenchmark, target: Target, directory: Path, healthy: bool = False
) -> CellOutcome:
    """Measure and prove; return the cell's outcome. Its files are collected later.

    `healthy` says that the target was already seen so. Raises RunError, with the reason, for a cell
    that must not become a number; its files are in `directory` then.
    """
    if not healthy:
        target.check_health()
    with _cleared(benchmark):
        benchmark.initialize()
        remote, stack, site = benchmark.remote, benchmark.stack, benchmark.site
        is_waived = proof.is_waived(benchmark.cluster.config)
        proving = proof.CellProof(remote, stack, site, is_waived)
        counter = conditions.Counter(site)
        with _proved(proving, target, benchmark, counter):
            load = conditions.declared(benchmark.cluster.config)
            recovered = recovery.running(cell.scenario, remote, site)
            with conditions.running(load, remote, stack, site) as seen, recovered as healed:
                benchmark.run()
        outcome = benchmark.outcome
        outcome.update(watch.moved(site, counter.moved(), counter.seconds))
        if beside := counter.beside():
            outcome["beside"] = beside
        outcome["osd_perf"] = counter.perf()
        if slow := counter.slow():
            outcome["slow_ops"] = slow
        benchmark.counted = counter.readings
        if seen:
            outcome["neighbours"] = seen
        if healed:
            outcome["scrub" if "deep" in healed else "recovery"] = healed
            recovery.check_under_load(healed, outcome["started"] + cell.scenario.ramp)
        target.check_health()
        judged = proving.judge(cell.configuration, target.cluster.up_from)
        judged = watch.judged(judged, site, target.cluster.placed, outcome)
        write_json(directory / "proof.json", judged)
        succeeded = all(process["exit_status"] == 0 for process in outcome["processes"])
        is_refused = not judged["proved"] and not is_waived
        if not succeeded or is_refused:
            # What fio said belongs into the reason.
            benchmark.collect()
        failed_processes(outcome, directory)
        if is_refused:
            raise RunError(proof.failure(judged))
    return outcome


@contextlib.contextmanager
def _cleared(benchmark: CellBenchmark) -> Iterator[None]:
    """Clean up where the block fails, and say what could not be."""
    try:
        yield
    except BaseException as error:
        try:
            benchmark.cleanup()
        except RunError as left:
            if isinstance(error, RunError) and str(left) != str(error):
                raise RunError(f"{error}; {left}") from error
        raise


@contextlib.contextmanager
def _proved(
    proving: proof.CellProof, target: Target, benchmark: CellBenchmark, counter: conditions.Counter
) -> Iterator[None]:
    """The hosts are looked at before, during and after the block; caches are emptied first."""
    try:
        first = {**benchmark.looks_before(), _STORAGE: counter.scripts()}
        before = proving.begin(target.cluster.up_from, first)
        counter.note(before.get(_STORAGE, {}))
        yield
        after = proving.end({_STORAGE: counter.scripts()})
        counter.note(after.get(_STORAGE, {}))
        benchmark.note(before)
    except BaseException:
        proving.abandon()
        raise


def check_figures(archive: Path, path: str, outcome: Mapping[str, Any]) -> None:
    """Raise RunError for the first process of the cell at `path` without figures."""
    folder = Folder(archive).cell(path)
    for process in outcome["processes"]:
        kind, name = process.get("kind", "fio"), process["json"]
        if kind == KEPT:
            continue
        try:
            data = folder.read(name)
            if data is None:
                raise Malformed("is missing")
            read_results(kind, data)
        except Malformed as error:
            raise RunError(
                f"{process['host']}: {kind} {process['volume']} exited with 0 and left no "
                f"figures: {name} {error}"
            ) from None
