"""Upstream's own benchmarks as cells of a campaign: its objects do the work, once a cell.

`programs` notes exit statuses, at which upstream does not look.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.documents import KEPT
from cbt_crypto.archive.files import DOCUMENT_LIMIT, cell_path, write_whole
from cbt_crypto.benchmarks.upstream import OfUpstream
from cbt_crypto.engine import contract
from cbt_crypto.engine.contract import CellWork
from cbt_crypto.engine.upstream import execution
from cbt_crypto.engine.upstream.checkout import Modules, Settings, failures_named
from cbt_crypto.engine.upstream.cluster import UpstreamCeph
from cbt_crypto.engine.upstream.execution import Common
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import samplers, shell
from cbt_crypto.hosts.remote import clock_offsets, preamble
from cbt_crypto.hosts.secret import options_without

#: fio's results of one volume, and not its logs: `output.0.client0`, `output.0_iops.1.log.client0`.
_OUTPUT = re.compile(r"output(?:\.\d+)?\.(?!\d+_).+")
#: In fio's output, a JSON document whose braces stand alone on their lines.
_BEGIN, _END = re.compile(r"^\{$", re.MULTILINE), re.compile(r"^\}$\n?", re.MULTILINE)
#: What a cell has beside the output of its benchmark.
_ALWAYS = ("benchmark_config.yaml", "ceph_settings", "historic_ops", "collectl", "perf")
#: Seconds that a script before a cell may take.
_SCRIPT_S = 600
#: Seconds that making and filling a client's file system may take.
_FILL_S = 3600


class NativeBenchmark(contract.CellBenchmark):
    """One cell, run by one object of upstream's, which makes and fills what it works on.

    Nobody is told what its clients do: how upstream starts them is its own. It brings the files.
    """

    cluster: UpstreamCeph
    scenario: OfUpstream

    def __init__(self, modules: Modules, common: Common, work: CellWork) -> None:
        scenario, cluster = work.scenario, work.cluster
        assert isinstance(scenario, OfUpstream)
        assert isinstance(cluster, UpstreamCeph)
        super().__init__(work)
        self._common = common
        self.archive_dir = f"{work.archive_dir}/{cell_path(work.config)}"
        options = {
            "benchmark": scenario.name,
            "iteration": work.config["iteration"],
            **scenario.options(),
            scenario.program_option: f"{execution.directory(cluster.base)}/{scenario.program}",
        }
        cluster.programs = {scenario.program: scenario.path} if scenario.is_noted else {}
        modules.forget_endpoints()
        with failures_named(f"make a {scenario.name}"):
            kind = modules.benchmark(scenario.name)
            self._theirs = kind(work.archive_dir, cluster.theirs, options)
        scenario.adapt(self._theirs)
        self._theirs.osd_ra_changed = False
        self._theirs.archive_dir = self._theirs.out_dir = self.archive_dir
        self.run_dir = str(self._theirs.run_dir)

    def initialize(self) -> None:
        """Have upstream make pool, images and contents. Raises RunError when it did not."""
        self.cluster.write_programs()
        self.cluster.endings()
        self._common.mkdir_p(self.archive_dir)
        self._on_clients(self.scenario.guard(self.site.tmp_dir), "look at block_devices")
        with failures_named(f"prepare {self.scenario.name}"), _without_prints():
            # One that would only watch an idle cluster for a minute is not asked to.
            if not self.scenario.initialize_only_waits:
                self._theirs.initialize()
            self._make_images()
            self._theirs.initialize_endpoints()
            if self.scenario.fills_apart:
                self._theirs.prefill()
        failed = [end for end in self._loads() if end.status != 0]
        if failed:
            raise RunError(f"prepare {self.scenario.name}: {failed[0].sentence()}")

    def _make_images(self) -> None:
        rbd = shlex.join([self.cluster.rbd_cmd, "-c", self.cluster.tmp_conf])
        mounted = self.scenario.mounted(self.site, rbd)
        for pool in dict.fromkeys(image.pool for image in mounted):
            self.cluster.theirs.rmpool(pool, self._theirs.pool_profile)
            self.cluster.theirs.mkpool(pool, self._theirs.pool_profile, "rbd")
        for image in mounted:
            self.cluster.mkimage(image.name, image.size_mb, image.pool)
        scripts = {image.client: text for image, text in mounted.items()}
        self.remote.run(scripts, "make and fill the file systems", _FILL_S)

    def run(self) -> None:
        """Have upstream run it and bring its files; `outcome` has the window and exit statuses.

        They are removed from the nodes at once: the next cell may have the same directories.
        """
        offsets = clock_offsets(self.remote, self.site)
        self._on_clients(self.scenario.before(), "run pre_workload_script")
        started = time.time()
        with failures_named(f"run {self.scenario.name}"), _without_prints():
            self._theirs.run()
        ended = time.time()
        loads = self._loads()
        take_json(Path(self.archive_dir))
        if self.scenario.kind == KEPT and not is_kept(Path(self.archive_dir)):
            how = "".join(f"; {end.sentence()}" for end in loads[:1])
            raise RunError(f"{self.scenario.name} left no output{how}")
        mask(Path(self.archive_dir))
        self._free()
        with contextlib.suppress(RunError):
            self._remove()
        processes: list[contract.ProcessOutcome] = [
            {
                "host": host,
                "volume": volume,
                "exit_status": self._status(loads, host, volume, phase),
                "kind": self.scenario.kind,
                "json": f"{folder}{self.scenario.results}{_number(volume)}.{host}",
                "logs": f"output{_number(volume)}",
            }
            for phase, folder in self.scenario.phases()
            for host in self.site.clients
            for volume in self.scenario.volume_numbers()
        ]
        self.outcome = contract.outcome((started, ended), offsets, self.site.head, processes)

    def cleanup(self) -> None:
        """Remove its directories on the nodes. Upstream's own ends programs by their names."""
        try:
            self._free()
        finally:
            self._remove()

    def _free(self) -> None:
        self._on_clients(self.scenario.after(self.site.tmp_dir), "free what CBT has worked on")

    def _remove(self) -> None:
        with failures_named(f"end {self.scenario.name}"):
            self._common.clean_remote_dir(self.run_dir)

    def _on_clients(self, script: Optional[str], what: str) -> None:
        if script:
            self.remote.run(dict.fromkeys(self.site.clients, script), what, _SCRIPT_S)

    def _status(
        self, loads: Sequence[execution.Ending], host: str, volume: str, phase: str
    ) -> Optional[int]:
        if not self.scenario.is_noted:
            return 0
        statuses = [
            end.status
            for end in loads
            if end.host == host
            and (not phase or f" {phase} " in f" {end.words} ")
            and (match := re.search(self.scenario.volume_pattern, end.words))
            and match.group(1) == volume
        ]
        return max(statuses, default=None)

    def _loads(self) -> list[execution.Ending]:
        own = (end for end in self.cluster.endings() if end.program == self.scenario.program)
        return [end for end in own if self.scenario.is_load(end.words)]


def _number(volume: str) -> str:
    """In names of files: upstream gives numbers where a client has several processes."""
    return f".{volume}" if volume else ""


def is_kept(directory: Path) -> bool:
    """Whether the benchmark left anything that is its own."""
    return any(not path.name.startswith(_ALWAYS) for path in directory.iterdir())


def take_json(directory: Path) -> None:
    """Write `json_output.*`, which upstream's later versions name otherwise, from `output.*`."""
    for path in directory.glob("output.*"):
        target = directory / f"json_{path.name}"
        is_there = target.exists() and target.stat().st_size
        # A host decides how much it says.
        if not _OUTPUT.fullmatch(path.name) or is_there or path.stat().st_size > DOCUMENT_LIMIT:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        begin = _BEGIN.search(text)
        end = begin and _END.search(text, begin.end())
        if begin and end:
            write_whole(target, text[begin.start() : end.end()])


def mask(directory: Path) -> None:
    """Take secrets out of options that upstream prints; other files are the processes' output."""
    for path in (*directory.rglob("ceph_settings.out*"), *directory.rglob("*.yaml")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > DOCUMENT_LIMIT:
            path.unlink()
        else:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            path.write_text(options_without(text), encoding="utf-8", errors="surrogateescape")


def _without_prints() -> contextlib.AbstractContextManager[Any]:
    """Upstream prints lists of hosts where a campaign prints its progress."""
    return contextlib.redirect_stdout(io.StringIO())


#: Seconds that collectl may take to write its first sample; upstream does not wait for it.
_PATIENCE_S = 30


class Monitoring:
    """Upstream's module; a name that is not here is upstream's own."""

    def __init__(self, module: Any, common: Common, settings: Settings) -> None:
        self._module = module
        self._common = common
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def prepare(self, directory: str) -> None:
        """Nothing: upstream starts its monitors when it measures."""

    @contextlib.contextmanager
    def monitor(self, directory: str, lead_s: float = 0) -> Iterator[None]:
        """Run the profiles during the block, from a first sample, which is sure by `lead_s`."""
        upstream = self._module.monitor(directory)
        upstream.__enter__()
        try:
            with self._samples(directory, lead_s):
                yield
        except BaseException:
            # The later of upstream's two kinds stops by itself here, the earlier does not.
            with contextlib.suppress(BaseException):
                upstream.__exit__(*sys.exc_info())
            self._module.stop(directory)
            raise
        upstream.__exit__(None, None, None)

    @contextlib.contextmanager
    def _samples(self, directory: str, lead_s: float) -> Iterator[None]:
        """Wait for collectl, or run our sampler; one without a sample is not waited for."""
        if not self._settings.sampler_roles:
            roles = self._settings.monitoring_profiles["collectl"]["nodes"]
            first = shell.first_sample(f"{directory}/collectl", _PATIENCE_S, lead_s=lead_s)
            self._on(roles, first)
            yield
            return
        started = samplers.start_counters(directory)
        first = shell.first_sample(f"{directory}/{samplers.COUNTERS}", _PATIENCE_S)
        self._on(self._settings.sampler_roles, f"{started}\n{first}")
        try:
            yield
        finally:
            self._on(self._settings.sampler_roles, samplers.stop_counters(directory))

    def _on(self, roles: Sequence[str], text: str) -> None:
        nodes = filter(None, self._settings.getnodes(*roles).split(","))
        marked = f"{preamble(str(self._settings.cluster['tmp_dir']))}\nset -eu\n{text}"
        self._common.pdsh_each(dict.fromkeys(nodes, marked)).communicate(_PATIENCE_S + 15)
