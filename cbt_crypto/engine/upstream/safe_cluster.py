"""What upstream has no safe way for: ending exactly our processes, clearing what is ours, waiting.

The embedded engine's cluster does it, through upstream's remote execution.
"""

from __future__ import annotations

import json
from typing import Optional

from cbt_crypto.engine.contract import Hooks, Section
from cbt_crypto.engine.embedded.admin_session import Step
from cbt_crypto.engine.embedded.ceph import Ceph
from cbt_crypto.engine.embedded.existing import ExistingCeph
from cbt_crypto.hosts.execution import Execution
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.plan.file.cluster import ClusterSection


class Directory(Ceph):
    """A campaign's directory on every host; `hooks` say what else is to be taken down."""

    def __init__(self, config: Section, common: Execution, hooks: Hooks) -> None:
        """`common` is the engine's."""
        super().__init__(config, hooks)
        self.remote = Remote(common, self.tmp_dir, self.section.user)

    def run(
        self, scripts: HostScripts, what: str, timeout: Optional[float] = None
    ) -> dict[str, str]:
        """Run scripts within `deploy_timeout`. Raises HostError."""
        return self._run(scripts, what, timeout)

    @property
    def addressed(self) -> ClusterSection:
        """The section, with the addresses that monitors really have."""
        return self._addressed()

    def claim_devices(self) -> None:
        """Note the OSDs' devices as ours, before anything is written to them, and divide them."""
        self._run({h: self._claim_devices(h) for h in self.site.osd_hosts}, "claim the devices")
        self._run(self._volumes(), "divide the devices")

    def ask(self, *steps: Step) -> list[str]:
        """Take monitor steps, within `deploy_timeout`. Raises HostError."""
        return self._session(list(steps))

    def forget_older(self) -> None:
        """What `wait_for_osds` then waits for came up after this moment."""
        (stat,) = self.ask({"mon": {"prefix": "osd stat", "format": "json"}})
        self._epoch = int(json.loads(stat)["epoch"])

    def quiet(self) -> None:
        """What `cluster.settings` keeps from disturbing a measurement."""
        self._session(self._quiet())

    def wait_for_osds(self) -> None:
        """Wait until every OSD is up."""
        self._session([self._all_osds()])

    def knows_pool(self, name: str) -> bool:
        """Whether the pool was made since the deployment."""
        return name in self._pools

    def note_pool(self, name: str) -> None:
        """`check_health` waits for its placement groups too."""
        self._pools.add(name)

    def forget_pool(self, name: str) -> None:
        """`check_health` does not wait for the placement groups of a removed pool."""
        self._pools.discard(name)

    def new_epoch(self) -> None:
        """Forget the epoch: a new cluster counts from 1 again."""
        self._epoch = 0


class ExistingDirectory(Directory, ExistingCeph):
    """A campaign's directories beside a cluster that exists already."""
