"""The seam of targets: what a campaign deploys, works on and leaves, whichever kind it is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Optional, Protocol

from cbt_crypto.benchmarks.base import ClusterCommands, Scenario, Volume
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.contract import Cluster
from cbt_crypto.hosts import ceph_conf, shell
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.plan.file.cluster import Variant
from cbt_crypto.plan.steps import Deploy


class Runs(Protocol):
    """A Remote, or what only shows its scripts."""

    def run(
        self, scripts: HostScripts, what: str, timeout: Optional[float] = None
    ) -> dict[str, str]:
        """Run the scripts on their hosts; what each printed. Raises HostError."""


class Target(Protocol):
    """What cells are measured on. A campaign calls it in the order in which the methods stand."""

    #: The configuration that is in force.
    stack: Stack

    @property
    def cluster(self) -> Cluster:
        """The engine's: whatever the target is, its directories are on the hosts."""

    @property
    def site(self) -> Site:
        """Where it is, as far as is known by now."""

    @property
    def variant(self) -> Variant:
        """The values of the section's lists that are in force."""

    @property
    def conf_text(self) -> str:
        """The ceph.conf that was deployed; empty when none was."""

    @property
    def deployment(self) -> Optional[str]:
        """What names the deployment, of a target that is never built; else None."""

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether it can be made anew when it is no longer trusted."""

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """Learn each configuration's stack, its options decided. Touches nothing."""

    def transition(self, step: Deploy) -> Transition:
        """What a step takes from what is in force; cells that were passed over change that."""

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Bring it into the step's configuration. Raises RunError."""

    def measure_on(self, scenario: Scenario) -> Site:
        """Where a cell of this scenario is measured, as the target is now."""

    def check_health(self) -> None:
        """Wait until it is fit to be measured. Raises RunError."""

    def end(self, made: Sequence[Volume], run: str) -> None:
        """Tear all of the campaign down, volumes that `run` made included; RunError. Repeatable."""


def commands_of(cluster: Cluster, client_id: str, conf: str = "", run: str = "") -> ClusterCommands:
    """How ceph's commands find a cluster; `client_id` is its clients', `run` marks images."""
    conf = conf or cluster.tmp_conf
    words = ceph_conf.client_words(conf, client_id)
    return ClusterCommands(
        ceph=f"{shell.command(cluster.ceph_cmd)} {words}",
        rbd=f"{shell.command(cluster.rbd_cmd)} {words}",
        environment=f"env CEPH_CONF={shlex.quote(conf)}",
        client_id=client_id,
        cluster_name=ceph_conf.cluster_name(conf),
        run=run,
        images_s=10 * shell.answer_limit(cluster.rbd_cmd),
    )
