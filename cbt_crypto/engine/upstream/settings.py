"""Upstream's `settings`: fed with a campaign's file, and with what upstream wants besides."""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from cbt_crypto.engine.upstream.failure import failures_named
from cbt_crypto.hosts import command_log
from cbt_crypto.hosts.remote import MARK
from cbt_crypto.hosts.secret import document_without, options_without
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.monitoring import MonitoringProfiles
from cbt_crypto.plan.layout import ceph_dir, section_of

#: The part of upstream's directories that names the cluster; with it they are where ours are.
CLUSTER_ID = "ceph"
#: In pid_dir: perf is started once for each pid that this file lists, so it lists one.
ONE_PID = "monitored.pid"


class Settings:
    """Upstream's module; a name that is not here is upstream's own.

    Its sections are other dicts after each `initialize`: ask for them anew.
    """

    def __init__(self, module: Any, perf_by_pid_files: bool = True) -> None:
        """`perf_by_pid_files`: whether upstream's perf is started once for each of them."""
        self._module = module
        self._perf_by_pid_files = perf_by_pid_files
        #: Roles on whose hosts our sampler takes collectl's place, which upstream does not know.
        self.sampler_roles: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def initialize(self, ctx: argparse.Namespace) -> None:
        """Read the file. Raises RunError where upstream would end the program."""
        _log_to(Path(ctx.archive) / "results" / "cbt.log")
        with tempfile.NamedTemporaryFile(prefix="cbt-crypto-", suffix=".conf") as empty:
            # Upstream ends at once without a ceph.conf; ours is made for each deployment.
            given = argparse.Namespace(
                config_file=ctx.config_file, archive=ctx.archive, conf=empty.name
            )
            with failures_named("read the campaign's file"):
                self._module.initialize(given)
        _mask(Path(ctx.archive) / "results" / "cbt_config.yaml")
        cluster = self._module.cluster
        conf = getattr(ctx, "conf", None) or _conf_file(Path(ctx.config_file))
        del cluster["conf_file"]
        if conf:
            cluster["conf_file"] = str(conf)
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


def _conf_file(config_file: Path) -> Any:
    """The ceph.conf that the file names; upstream has forgotten it for the one it was given."""
    document = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    return document["cluster"].get("conf_file")


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


def write_one_pid(pid_dir: str) -> str:
    """Shell text that writes the file which has upstream start perf once on a host."""
    return f"echo 1 > {Path(pid_dir) / ONE_PID}"
