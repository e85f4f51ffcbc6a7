"""What a campaign works on: a cluster that it deploys or finds, or drives without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Union

from cbt_crypto.benchmarks.base import Volume
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine import Engine
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign, ClusterSection
from cbt_crypto.plan.file.checks import Deployed, Existing, Origin, SideBySide, origin_of
from cbt_crypto.run.targets.base import Target
from cbt_crypto.run.targets.cluster import DeployedCluster, SideBySideCluster
from cbt_crypto.run.targets.drive import DriveTarget
from cbt_crypto.run.targets.existing import ExistingCluster

#: Where a section's cluster comes from -> what works on it.
_CLUSTERS: Mapping[type[Origin], Union[type[DeployedCluster], type[ExistingCluster]]] = {
    Deployed: DeployedCluster,
    SideBySide: SideBySideCluster,
    Existing: ExistingCluster,
}


def target_of(section: ClusterSection) -> Union[type[DeployedCluster], type[ExistingCluster]]:
    """The kind of target that the section's cluster is."""
    return _CLUSTERS[type(origin_of(section))]


class Targets:
    """The campaign's cluster, and its drives; `current` is the one that was deployed last."""

    def __init__(self, engine: Engine, remote: Remote, campaign: Campaign) -> None:
        section, stacks = campaign.cluster, campaign.stacks
        self._cluster: Target = target_of(section)(engine, remote, section, stacks)
        self._drive: Target = DriveTarget(remote, section, stacks, self._cluster)
        self.current: Target = self._cluster

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """As of a Target."""
        for target in (self._cluster, self._drive):
            target.begin(stacks)

    def select(self, drive: Optional[str]) -> Target:
        """Work on that drive from now on, or on the cluster."""
        self.current = self._cluster if drive is None else self._drive
        return self.current

    def end(self, made: Sequence[Volume], run: str) -> None:
        """As of a Target; what takes the cluster down frees the drives too."""
        self._cluster.end(made, run)
