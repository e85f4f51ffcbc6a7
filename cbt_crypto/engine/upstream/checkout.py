"""An upstream CBT checkout: found, imported, and fed with a campaign's file and ceph.conf.

What its modules raise, or how they end the program, becomes a campaign's error here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Optional

import yaml
from typing_extensions import override

from cbt_crypto.engine.embedded.daemons import Sections, base_options, setting_options, without
from cbt_crypto.errors import CampaignError, RunError, UsageError
from cbt_crypto.hosts import ceph_conf, command_log
from cbt_crypto.hosts.directories import temporary_place
from cbt_crypto.hosts.directory_on_host import Refused, check_directory
from cbt_crypto.hosts.remote import MARK
from cbt_crypto.hosts.secret import document_without, masked, options_without
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.hosts.trust_on_host import distrust
from cbt_crypto.plan.file import of_cbt
from cbt_crypto.plan.file.cluster import ClusterSection, MonitoringProfiles
from cbt_crypto.plan.layout import ceph_dir, section_of

#: What only a checkout of CBT has side by side. This project has a cbt.py too. Of those on one
#: line, one is there: monitoring is a package since 2026.
_FILES = (
    ("cbt.py",),
    ("settings.py",),
    ("common.py",),
    ("monitoring.py", "monitoring/monitoring_factory.py"),
    ("benchmarkfactory.py",),
    ("cluster/ceph.py",),
    ("benchmark/benchmark.py",),
)
#: What is enough for a folder to look like one: then it is one, or it is not understood.
_LOOKS = ("cbt.py", "cluster", "benchmark")
#: In place of a folder: the engine that comes with this package.
EMBEDDED = "embedded"


@dataclass(frozen=True)
class Checkout:
    """A folder with upstream's modules; `commit` and its `date` (`YYYY-MM-DD`) None if unknown."""

    path: Path
    commit: Optional[str]
    date: Optional[str]
    is_changed: bool

    @property
    def version(self) -> str:
        """What tells snapshots apart: upstream has no releases."""
        date = self.date or "of unknown date"
        return f"{date}, changed" if self.is_changed else date


def is_checkout(path: Path) -> bool:
    """Whether the folder holds CBT's modules."""
    return _missing(path) is None


def looks_like_checkout(path: Path) -> bool:
    """Whether somebody who sees the folder takes it for a checkout of CBT."""
    return all((path / name).exists() for name in _LOOKS)


def _missing(path: Path) -> Optional[str]:
    for names in _FILES:
        if not any((path / name).is_file() for name in names):
            return " or ".join(names)
    return None


def read_checkout(path: Path, said_by: str) -> Checkout:
    """Describe the checkout. Raises UsageError when it is none; `said_by` is who named it."""
    path = path.resolve()
    missing = _missing(path)
    if missing and looks_like_checkout(path):
        raise UsageError(
            f"{said_by} {path}: looks like a checkout of CBT, but has no {missing}, so this "
            f"version does not understand it; name another with --cbt DIR, or --cbt {EMBEDDED}"
        )
    if missing:
        raise UsageError(
            f"{said_by} {path}: is no checkout of CBT, it has no {missing}; name a folder made by "
            f"git clone https://github.com/ceph/cbt, or {EMBEDDED}"
        )
    top = git(path, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != path:
        return Checkout(path, None, None, False)
    commit = git(path, "rev-parse", "HEAD")
    date = git(path, "show", "-s", "--format=%cs", "HEAD")
    # Files that git does not know, such as Python's caches, change nothing.
    changed = git(path, "status", "--porcelain", "--untracked-files=no")
    return Checkout(path, commit, date, bool(changed))


def git(path: Path, *arguments: str) -> Optional[str]:
    """What git prints there; None where it fails."""
    try:
        done = subprocess.run(
            # A repository's own configuration names no program that we would run.
            ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
             "-c", "log.showSignature=false", "--no-optional-locks", "-C", str(path), *arguments],
            capture_output=True, text=True, check=False, timeout=30,
            # Nor is what the repository lacks fetched from where it says.
            env={**os.environ, "GIT_NO_LAZY_FETCH": "1"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find(named: Optional[Path], project: Path, cwd: Path) -> Optional[Checkout]:
    """The checkout to use, or None for the embedded engine.

    `named`, else `$CBT_HOME`'s first or a `../cbt`. Raises UsageError for what is named and none,
    and for a `../cbt` that is not understood: never another engine instead.
    """
    if named is not None:
        return None if str(named) == EMBEDDED else read_checkout(named, "--cbt")
    listed = named_by_environment()
    if listed:
        return None if listed[0] == EMBEDDED else read_checkout(Path(listed[0]), "CBT_HOME")
    for path in siblings(project, cwd):
        _check_trusted(path)
        return read_checkout(path, "../cbt")
    return None


def _check_trusted(path: Path) -> None:
    """Raise UsageError for an unnamed folder that others may write to: its code would run."""
    try:
        for part in (path, *(path / names[0] for names in _FILES if (path / names[0]).exists())):
            check_directory(str((part if part.is_dir() else part.parent).resolve()))
            if distrust(part.stat(), (0, os.geteuid())):
                raise Refused(f"{part} can be changed by others")
    except (Refused, OSError) as error:
        reason = str(error).partition(";")[0]
        raise UsageError(
            f"../cbt: {reason}, so its code is not run; name it with --cbt {path} if you trust it, "
            f"or say --cbt {EMBEDDED}"
        ) from None


def named_by_environment() -> list[str]:
    """What `$CBT_HOME` lists; a campaign uses the first, the tests all."""
    return [name for name in os.environ.get("CBT_HOME", "").split(os.pathsep) if name]


def siblings(project: Path, cwd: Path) -> list[Path]:
    """What looks like a checkout, named `cbt`, beside these directories."""
    beside = dict.fromkeys(path.resolve().parent / "cbt" for path in (project, cwd))
    return [path for path in beside if is_checkout(path) or looks_like_checkout(path)]


#: Module and class of each of upstream's benchmarks that a campaign can name.
BENCHMARKS: Mapping[str, tuple[str, str]] = {
    "librbdfio": ("benchmark.librbdfio", "LibrbdFio"),
    "radosbench": ("benchmark.radosbench", "Radosbench"),
    "fio": ("benchmark.fio", "Fio"),
    "rawfio": ("benchmark.rawfio", "RawFio"),
    "rbdfio": ("benchmark.rbdfio", "RbdFio"),
    "kvmrbdfio": ("benchmark.kvmrbdfio", "KvmRbdFio"),
    "hsbench": ("benchmark.hsbench", "Hsbench"),
    "getput": ("benchmark.getput", "Getput"),
    "elbencho": ("benchmark.elbencho", "Elbencho"),
    "cosbench": ("benchmark.cosbench", "Cosbench"),
}


@dataclass(frozen=True)
class Modules:
    """What is used of a checkout."""

    path: Path
    settings: Any
    common: Any
    monitoring: Any
    Ceph: Any

    @property
    def perf_by_pid_files(self) -> bool:
        """Whether perf is started for each pid file, as it was before monitoring was a package."""
        return isinstance(self.monitoring, ModuleType)

    @property
    def divides_total_iodepth(self) -> bool:
        """Whether librbdfio knows the depth of all volumes together; older ones pass it over."""
        return hasattr(self.benchmark("librbdfio"), "_calculate_iodepth_per_volume")

    def benchmark(self, name: str) -> Any:
        """Upstream's own class of that benchmark."""
        module, kind = BENCHMARKS[name]
        return getattr(_imported(self.path, module), kind)

    def forget_endpoints(self) -> None:
        """Have upstream make client endpoints anew: it keeps those of clusters that are gone."""
        factory = sys.modules.get("client_endpoints_factory")
        if factory is not None:
            factory.ce_objects.clear()


def import_checkout(path: Path) -> Modules:
    """Import a checkout, one in a process; UsageError that says why it cannot be."""
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))
    # A checkout is not ours to write into, and that includes caches.
    sys.dont_write_bytecode = True
    settings, common, ceph = (_imported(path, n) for n in ("settings", "common", "cluster.ceph"))
    # What has `start`, `stop` and `monitor`: the module, or the factory of the later package.
    monitoring: Any = None
    if (path / "monitoring.py").is_file():
        monitoring = _imported(path, "monitoring")
    else:
        monitoring = _imported(path, "monitoring.monitoring_factory").MonitoringFactory
    return Modules(path, settings, common, monitoring, ceph.Ceph)


def missing_library(path: Path, name: str) -> Optional[str]:
    """A sentence when upstream's benchmark of that name cannot be imported."""
    module, _ = BENCHMARKS[name]
    if not (path / f"{module.replace('.', '/')}.py").is_file():
        return f"benchmarks.{name}: {path} has no module {module}; take another checkout of CBT"
    try:
        _imported(path, module)
    except UsageError as error:
        return f"benchmarks.{name}: {error}"
    return None


def _imported(path: Path, name: str) -> ModuleType:
    with warnings.catch_warnings():
        # Strings with backslashes that newer Pythons warn about, in files that are not ours.
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"--cbt {path}: its module {name} needs {error.name}, which is not installed; "
                f"run {sys.executable} -m pip install -r {path}/requirements.txt {error.name}"
            ) from error
        except Exception as error:
            raise UsageError(
                f"--cbt {path}: its module {name} cannot be imported ({error!r}); does the "
                "checkout run with this Python?"
            ) from error
    location = Path(module.__file__ or "").resolve()
    if not location.is_relative_to(path.resolve()):
        raise UsageError(
            f"--cbt {path}: Python finds the module {name} in {location}; remove that from the path"
        )
    return module


_LONGEST = 600


@contextlib.contextmanager
def failures_named(what: str) -> Iterator[None]:
    """Raise RunError, naming the step, for whatever upstream raises in the block."""
    try:
        yield
    except CampaignError:
        raise
    except (Exception, SystemExit) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # A failed command's output comes at the end.
        said = masked("; ".join(lines))[-_LONGEST:] or type(error).__name__
        raise RunError(f"upstream CBT: {what}: {said}") from error


def sections(
    cluster: ClusterSection, site: Site, extra: Mapping[str, Mapping[str, str]],
    device: Callable[[Osd], str], db_device: Callable[[Osd], Optional[str]],
) -> Sections:  # fmt: skip
    """Merge the embedded engine's options with where upstream puts keys and devices."""
    base = _upstream_places(cluster)
    of_file = ceph_conf.read(Path(cluster.conf_file)) if cluster.conf_file else {}
    ours = (base, _devices(site, device, db_device), extra)
    return ceph_conf.merged(setting_options(cluster), without(of_file, base), *ours)


def _upstream_places(cluster: ClusterSection) -> Sections:
    sections = base_options(cluster, "")
    directory = ceph_dir(cluster)
    # Upstream's monmaptool makes the cluster's id up.
    del sections["global"]["fsid"]
    sections["mgr"]["keyring"] = f"{directory}/mgr.$id/keyring"
    sections["osd"]["keyring"] = f"{directory}/osd.$id/keyring"
    sections["mds"] = {
        "mds_data": f"{directory}/mds.$id", "keyring": f"{directory}/mds.$id/keyring"
    }  # fmt: skip
    # Clients that stay, one for each mounted CephFS, would share a file.
    sections["client"]["pid_file"] = f"{directory}/run/$name.$pid.pid"
    # Its benchmarks remove a pool before they make it.
    sections["mon"]["mon_allow_pool_delete"] = "true"
    return sections


def _devices(
    site: Site, device: Callable[[Osd], str], db_device: Callable[[Osd], Optional[str]]
) -> Sections:
    """Upstream's mkfs names no device; BlueStore reads them here."""
    by_osd: Sections = {}
    for osd in site.osds:
        options = {"bluestore_block_path": device(osd)}
        database = db_device(osd)
        if database:
            options["bluestore_block_db_path"] = database
        by_osd[f"osd.{osd.id}"] = options
    return by_osd


#: The part of upstream's directories that names the cluster; with it they are where ours are.
CLUSTER_ID = "ceph"
#: In pid_dir: perf is started once for each pid that this file lists, so it lists one.
ONE_PID = "monitored"


class Settings:
    """Upstream's module; its sections are other dicts after each `initialize`: ask anew."""

    def __init__(self, module: Any, perf_by_pid_files: bool = True) -> None:
        self._module = module
        self._perf_by_pid_files = perf_by_pid_files
        #: Roles on whose hosts our sampler takes collectl's place, which upstream does not know.
        self.sampler_roles: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def initialize(self, ctx: argparse.Namespace) -> None:
        """Read the file. Raises RunError where upstream would end the program."""
        _log_to(Path(ctx.archive) / "results" / "cbt.log")
        with tempfile.NamedTemporaryFile(prefix="cbt-crypto-", dir=temporary_place()) as empty:
            # Upstream ends at once without a ceph.conf; ours is made for each deployment.
            given = argparse.Namespace(
                config_file=ctx.config_file, archive=ctx.archive, conf=empty.name
            )
            with failures_named("read the campaign's file"):
                self._module.initialize(given)
        _mask(Path(ctx.archive) / "results" / "cbt_config.yaml")
        cluster = self._module.cluster
        document = yaml.safe_load(Path(ctx.config_file).read_text(encoding="utf-8"))
        # As the file has it: upstream sets two of its keys.
        of_file = document["cluster"]
        conf = getattr(ctx, "conf", None) or of_file.get("conf_file")
        del cluster["conf_file"]
        if conf:
            cluster["conf_file"] = str(conf)
        if "tmp_dir" not in of_file:
            # Upstream has put a directory there that is named after this process.
            del cluster["tmp_dir"]
        if of_cbt.is_of_cbt(document):
            ours = of_cbt.translated_cluster(cluster)
            cluster.clear()
            cluster.update(ours)
        cluster.update(for_upstream(section_of(cluster)))
        profiles = self._module.monitoring_profiles
        sampled_by = "sampler" if "sampler" in profiles else "collectl"
        chosen = MonitoringProfiles.model_validate(
            # Upstream has put collectl there; a file that names both was refused before.
            {name: profiles[name] for name in (sampled_by, "perf") if name in profiles}
        )
        self.sampler_roles = list(chosen.sampler.nodes) if chosen.sampler else []
        profiles.clear()
        profiles.update(monitoring_arguments(chosen, self._perf_by_pid_files))


def _mask(path: Path) -> None:
    """Take passwords out of the file as upstream has noted it in the archive."""
    if path.is_file() and not path.is_symlink():
        document = document_without(yaml.safe_load(path.read_text(encoding="utf-8")))
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


class _Masking(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        return options_without(super().format(record))


def _log_to(path: Path) -> None:
    """What upstream logs goes there, and not between the lines of the campaign's progress."""
    logger = logging.getLogger("cbt")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    to_file = logging.FileHandler(path, encoding="utf-8", delay=True)
    to_file.setFormatter(_Masking("%(asctime)s %(levelname)s %(message)s"))
    to_file.setLevel(logging.INFO)
    logger.addHandler(to_file)
    logger.addHandler(_Commands())
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


class _Commands(logging.Handler):
    """What upstream starts by itself goes to the command log; it does not say how that ended."""

    _BEGINS = re.compile(r"CheckedPopen continue_if_error=\w+, shell=\w+ args=(.*)", re.S)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        begins = self._BEGINS.match(record.getMessage())
        # What we ran through it is logged where we did.
        if begins and MARK not in begins[1]:
            command_log.record(["-"], "upstream CBT starts", begins[1], "started", 0.0)


def for_upstream(section: ClusterSection) -> dict[str, Any]:
    """Keys of the `cluster` section that upstream reads, beside the file's own."""
    base = ceph_dir(section)
    return {
        "clusterid": CLUSTER_ID,
        "tmp_dir": section.tmp_dir,
        "pid_dir": f"{base}/run",
        "log_dir": f"{base}/log",
        "osds_per_node": section.osds_per_node,
        "iterations": section.iterations,
        # Upstream's default is the other one.
        "use_existing": section.use_existing,
    }


def monitoring_arguments(
    profiles: MonitoringProfiles, perf_by_pid_files: bool
) -> dict[str, dict[str, Any]]:
    """`monitoring_profiles` in upstream's words: it puts directories into braces of `args`.

    Where perf is started once a host, `pid_glob` would make it another profile, `osd_perf`.
    """
    chosen: dict[str, dict[str, Any]] = {}
    if profiles.collectl:
        chosen["collectl"] = {
            "nodes": list(profiles.collectl.nodes),
            "args": f"{_braces(profiles.collectl.args)} -F0 -f {{collectl_dir}}",
        }
    if profiles.perf:
        chosen["perf"] = {
            "nodes": list(profiles.perf.nodes),
            "perf_cmd": f"sudo {profiles.perf.perf_cmd}",
            "args": f"{_braces(profiles.perf.args)} -o {{perf_dir}}/perf.out",
        }
        if perf_by_pid_files:
            chosen["perf"]["pid_glob"] = ONE_PID
    return chosen


def _braces(arguments: str) -> str:
    """Arguments that `str.format` leaves as they are."""
    return arguments.replace("{", "{{").replace("}", "}}")
