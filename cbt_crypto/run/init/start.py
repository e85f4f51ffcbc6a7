"""The file that a new one starts from, and what of it these hosts can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

import yaml

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.results.repetition import rounds_for
from cbt_crypto.run.init.roles import Proposal
from cbt_crypto.run.preflight.survey import survey

_ARTICLES = Path(__file__).parent / "articles"
#: Articles whose files name no devices beyond those of the OSDs.
ARTICLES = ("reef_encryption", "network_overhead")
#: Keys of `cluster` that are the experiment's and not the hosts'.
_KEPT = ("rebuild", "order", "iterations", "baseline", "deploy_timeout")
#: What the quickstart, in an emulated machine, has no time for.
_NO_WORKQUEUES = {
    "LUKS, no workqueues": {"luks": {"no_read_workqueue": True, "no_write_workqueue": True}}
}
#: Rounds of a file that starts from no article: what shows a difference beside a hundred others.
_ROUNDS = rounds_for(100)
#: Part of all OSDs' room that volumes may fill, replicas counted.
_FILLED = 0.3
_LEAST_VOLUME_MIB = 64


@dataclass(frozen=True)
class Start:
    """What a file says of the experiment, its hosts left out.

    `left_out`: configuration -> why these hosts cannot have it. `dropped`: overlay that all
    configurations had -> why.
    """

    cluster: Mapping[str, Any]
    settings: Mapping[str, Any]
    configurations: Mapping[str, Mapping[str, Any]]
    benchmarks: Mapping[str, Any]
    left_out: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)

    @property
    def usable(self) -> dict[str, Mapping[str, Any]]:
        """The configurations that these hosts can have."""
        return {
            name: {key: value for key, value in named.items() if key not in self.dropped}
            for name, named in self.configurations.items()
            if name not in self.left_out
        }

    @property
    def baseline(self) -> str:
        """The file's baseline, or the first that is left of its configurations."""
        named = self.cluster.get("baseline")
        usable = self.usable
        return str(named) if named in usable else next(iter(usable))


def start_from(article: Optional[str], proposal: Proposal, seconds: Optional[int]) -> Start:
    """A published experiment, or the story of the quickstart under loads of both op sizes.

    `seconds` replaces the time that each cell is measured, and bounds the ramp before it. Volumes
    are made to fit the OSDs.
    """
    document = _document(article or "quickstart")
    benchmarks = document["benchmarks"] if article else _loads(len(proposal.clients))
    cluster = document["cluster"] if article else {**document["cluster"], "iterations": _ROUNDS}
    further = {} if article else _NO_WORKQUEUES
    return Start(
        cluster={key: cluster[key] for key in _KEPT if key in cluster},
        settings=cluster.get("settings", {}) if article else {},
        configurations={**cluster["configurations"], **further},
        benchmarks=_fitted(benchmarks, proposal, seconds),
    )


def _document(name: str) -> Any:
    return yaml.safe_load((_ARTICLES / f"{name}.yaml").read_text(encoding="utf-8"))


def _loads(clients: int) -> dict[str, Any]:
    both = {"op_size": [4194304, 4096], "mode": ["randread", "randwrite"]}
    asynchronous = {"vol_size": 8192, "iodepth": 128, "time": 60, "ramp": 10, "workloads": both}
    sync = {
        "vol_size": 8192, "iodepth": 1, "time": 60, "ramp": 10, "op_size": 4096,
        "workloads": {"mode": ["randread", "randwrite"]},
    }  # fmt: skip
    loads: dict[str, Any] = {"rbd_single_client": asynchronous, "rbd_single_client_sync": sync}
    if clients > 1:
        loads = {"rbd_multi_client": {"volumes_per_client": 4, **asynchronous}, **loads}
    return loads


def _fitted(
    benchmarks: Mapping[str, Any], proposal: Proposal, seconds: Optional[int]
) -> dict[str, Any]:
    """The loads with one size for all volumes, which are so shared, and with `seconds`."""
    sections = [part for section in benchmarks.values() for part in _parts(section)]
    most = max(part.get("volumes_per_client", 1) for part in sections) * len(proposal.clients)
    room = proposal.capacity * _FILLED / proposal.replication / most / 2**20
    size = max(int(part.get("vol_size", 1024)) for part in sections)
    while size > max(room, _LEAST_VOLUME_MIB):
        size //= 2

    def fitted(part: Mapping[str, Any]) -> dict[str, Any]:
        shorter = {"time": seconds, "ramp": min(part.get("ramp", 0), seconds)} if seconds else {}
        return {**part, "vol_size": size, **shorter}

    return {
        name: list(map(fitted, section)) if isinstance(section, list) else fitted(section)
        for name, section in benchmarks.items()
    }


def _parts(section: Any) -> list[Mapping[str, Any]]:
    return section if isinstance(section, list) else [section]


def fitting(start: Start, campaign: Campaign, remote: Remote) -> Start:
    """The start without what the hosts lack for it: each overlay's own requirements are asked."""
    site = site_of(campaign.cluster)
    checks: list[Requirement] = []
    columns: dict[str, tuple[str, str]] = {}
    for name, overlays in campaign.configurations.items():
        stack = Stack(overlays)
        for overlay in stack.named:
            column = f"requirement {len(columns)}"
            columns[column] = (name, overlay.name)
            needs = overlay.requirements(stack.below(overlay, site))
            checks += [replace(need, column=column) for need in needs]
    return without_rows_that_fail(start, _wanting(remote, site.hosts, checks, columns))


def _wanting(
    remote: Remote,
    hosts: Sequence[str],
    checks: Sequence[Requirement],
    columns: Mapping[str, tuple[str, str]],
) -> dict[tuple[str, str], str]:
    """(configuration, overlay) -> the first host's sentence."""
    wanting: dict[tuple[str, str], str] = {}
    for finding in survey(remote, hosts, checks) if checks else ():
        if finding.error and finding.column in columns:
            sentence = f"{finding.host}: {finding.error}"
            wanting.setdefault(columns[finding.column], " ".join(sentence.split()))
    return wanting


def without_rows_that_fail(start: Start, wanting: Mapping[tuple[str, str], str]) -> Start:
    """The start without what the hosts lack; `wanting` is (configuration, overlay) -> why."""
    common = set.intersection(*(set(named) for named in start.configurations.values()))
    dropped = {overlay: why for (_, overlay), why in wanting.items() if overlay in common}
    left_out: dict[str, str] = {}
    for (name, overlay), why in wanting.items():
        if overlay not in common:
            left_out.setdefault(name, why)
    return replace(start, left_out=left_out, dropped=dropped)
