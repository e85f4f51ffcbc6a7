"""A cluster whose hosts are a notebook: what would have run there, step by step."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
import yaml

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.choice import embedded
from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts.remote import HostResult, Remote
from cbt_crypto.plan.file import Campaign
from cbt_crypto.run.targets import target_of
from cbt_crypto.run.targets.cluster import DeployedCluster, overlaid


@dataclass
class Notebook(Remote):
    """Takes the place of a cluster's Remote, and of pdcp."""

    #: (step, host -> script), in order.
    steps: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    #: (hosts, target, content), in order.
    copies: list[tuple[list[str], str, str]] = field(default_factory=list)
    #: What ceph-authtool prints there, of Ceph 16.2.
    key: str = "AQAhTwJrhpn1DRAA9jO1pPCjO4UjDjYZ3Ea7bQ==\n"
    #: What each monitor step prints; the OSD map's epoch is all that anybody reads.
    answer: str = json.dumps(json.dumps({"epoch": 41}))

    def run(
        self, scripts: Mapping[str, str], what: str, timeout: Optional[float] = None
    ) -> dict[str, str]:
        self.steps.append((what, dict(scripts)))
        if what.startswith("make a key"):
            return dict.fromkeys(scripts, self.key)
        return {host: f"{self.answer}\n" for host in scripts}

    def begin(
        self, scripts: Mapping[str, str], what: str, timeout: Optional[float] = None
    ) -> Callable[[], dict[str, str]]:
        printed = self.run(scripts, what, timeout)
        return lambda: printed

    def attempt(
        self, scripts: Mapping[str, str], timeout: Optional[float] = None, what: str = "look"
    ) -> dict[str, HostResult]:
        printed = self.run(scripts, what, timeout)
        return {host: HostResult(text, "", 0) for host, text in printed.items()}

    def pdcp(self, nodes: str, flags: str, local: str, remote: str) -> Any:
        self.copies.append((nodes.split(","), remote, Path(local).read_text()))

        class Handle:
            returncode, timed_out = 0, False

            def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
                return "", ""

        return Handle()

    def scripts(self, what: str) -> dict[str, str]:
        """The scripts of the only step of that name."""
        (found,) = [scripts for step, scripts in self.steps if step == what]
        return found

    @property
    def names(self) -> list[str]:
        """The steps' names."""
        return [step for step, _ in self.steps]

    def monitor_steps(self) -> list[dict[str, Any]]:
        """What the monitors were asked, in order."""
        found = []
        for step, scripts in self.steps:
            if step == "wait for the cluster":
                (text,) = scripts.values()
                call = text.partition("\npython_of_ceph ")[2].partition("\n")[0]
                words = shlex.split(call.partition("<<")[0])
                found += json.loads(words[-2])
        return found


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setattr(common, "pdcp", made.pdcp)
    return made


@pytest.fixture
def cluster_of(notebook: Notebook) -> Callable[..., Any]:
    """The embedded engine's cluster for a campaign, in its first configuration, on paper."""

    def make(campaign: Campaign) -> Any:
        stacks = [Stack(overlays) for overlays in campaign.configurations.values()]
        section = yaml.safe_load(yaml.safe_dump(campaign.document["cluster"]))
        kind = target_of(campaign.cluster)
        cluster, _ = overlaid(kind.maker(embedded()), section, stacks)
        cluster.remote = notebook
        return cluster

    return make


@pytest.fixture(name="target_of")
def _target(notebook: Notebook) -> Callable[..., DeployedCluster]:
    """Return that cluster as the target of a campaign."""

    def make(campaign: Campaign) -> DeployedCluster:
        engine = embedded()
        engine.settings.cluster.clear()
        engine.settings.cluster.update(campaign.document["cluster"])
        stacks = {name: Stack(named) for name, named in campaign.configurations.items()}
        target = DeployedCluster(engine, notebook, campaign.cluster, stacks)
        target.cluster.remote = notebook
        return target

    return make
