"""This package as upstream CBT finds it, by its entry points: docs/upstream.md.

A campaign is one benchmark to upstream's loop, whose cluster stands for all deployments.
"""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

from cbt_crypto.command_line import exit_status, say_error
from cbt_crypto.engine.choice import choose
from cbt_crypto.errors import CampaignError, RunError
from cbt_crypto.main import cbt
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.steps import plan
from cbt_crypto.plan_command import with_conf
from cbt_crypto.run.preflight import check

#: Name of the entry point in the group cbt.benchmarks.
BENCHMARK = "overlay_campaign"


def overlays(config: dict[str, Any]) -> Any:
    """The cluster for `type: overlays`; ends the program with 2 when a need is not met.

    `config` is upstream's `settings.cluster`; its loop's sections are set to what it shall do.
    """
    settings: Any = importlib.import_module("settings")
    Cluster = importlib.import_module("cluster.cluster").Cluster
    # Upstream logs whole commands to the terminal, between the lines of a campaign's progress.
    for handler in logging.getLogger("cbt").handlers:
        handler.setLevel(logging.WARNING)
    try:
        _check(settings)
    except CampaignError as error:
        say_error(error)
        sys.exit(error.exit_status)
    _forget_written_file(Path(config["archive_dir"]) / "results")
    config["iterations"] = 1
    settings.benchmarks = {BENCHMARK: {}}
    settings.report = {}

    class Overlays(Cluster):  # type: ignore[misc, valid-type]
        # Nothing for upstream's loop to deploy: every configuration is a deployment of its own.
        use_existing = True

    return Overlays(config)


def _check(settings: Any) -> None:
    conf = settings.cluster.get("conf_file")
    campaign = with_conf(read_campaign(Path(settings.test_plan)), Path(conf) if conf else None)
    check.check(campaign, choose(_checkout(settings)), plan(campaign).to_measure)


def _checkout(settings: Any) -> Path:
    return Path(settings.__file__).resolve().parent


def _forget_written_file(results: Path) -> None:
    if results.is_dir() and [path.name for path in results.iterdir()] == ["cbt_config.yaml"]:
        (results / "cbt_config.yaml").unlink()
        results.rmdir()


class OverlayCampaign:
    """All cells of a file: the one benchmark that upstream's loop sees."""

    def __init__(self, archive_dir: str, cluster: Any, config: dict[str, Any]) -> None:
        """Called by upstream's loop; `config` is the section, which has no options."""
        self.archive_dir = archive_dir
        self.cluster = cluster

    def getclass(self) -> str:
        """As upstream's benchmarks have it."""
        return type(self).__name__

    def exists(self) -> bool:
        """True: nothing to prepare before the loop, and it is to be run."""
        return True

    def estimate_duration(self) -> int:
        """Return 0, for newer loops that show a bar: a campaign shows its own progress."""
        return 0

    def initialize(self) -> None:
        """Nothing: each configuration is deployed when its turn comes."""

    def initialize_endpoints(self) -> None:
        """Nothing: each scenario makes the volumes that its cells need."""

    def run(self) -> None:
        """Measure what the archive lacks, and print the tables. Raises RunError on failures."""
        settings: Any = importlib.import_module("settings")
        words = ["--cbt", str(_checkout(settings)), "-a", self.archive_dir]
        if settings.cluster.get("conf_file"):
            words += ["-c", settings.cluster["conf_file"]]
        status = exit_status(cbt, [*words, settings.test_plan])
        if status:
            raise RunError(f"the campaign ended with exit status {status}; its message is above")
