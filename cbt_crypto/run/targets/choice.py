"""Which targets a campaign works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from cbt_crypto.benchmarks.base import Volume
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine import Engine
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign
from cbt_crypto.run.targets.base import Target
from cbt_crypto.run.targets.cluster import DeployedCluster
from cbt_crypto.run.targets.drive import DriveTarget
from cbt_crypto.run.targets.existing import ExistingCluster


class Targets:
    """The campaign's cluster, and its drives; `current` is the one that was deployed last."""

    def __init__(
        self, engine: Engine, remote: Remote, campaign: Campaign, stacks: Mapping[str, Stack]
    ) -> None:
        """The engine's settings must have been initialized. Touches nothing."""
        kind = ExistingCluster if campaign.cluster.use_existing else DeployedCluster
        self._cluster: Target = kind(engine, remote, campaign.cluster, stacks)
        self._drive: Target = DriveTarget(remote, campaign.cluster, stacks, self._cluster)
        self.current: Target = self._cluster

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """As of a Target."""
        for target in (self._cluster, self._drive):
            target.begin(stacks)

    def select(self, drive: Optional[str]) -> Target:
        """Work on that drive from now on, or on the cluster."""
        self.current = self._cluster if drive is None else self._drive
        return self.current

    def end(self, filled: Sequence[Volume]) -> None:
        """As of a Target; what takes the cluster down frees the drives too."""
        self._cluster.end(filled)
