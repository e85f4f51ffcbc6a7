"""A cluster that the campaign deploys: the engine's, under a stack of overlays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, leftovers, transition
from cbt_crypto.engine import Engine
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.file.dimensions import Place, at, places
from cbt_crypto.plan.layout import cell_site, drives_of, section_of, site_of
from cbt_crypto.plan.steps import Deploy
from cbt_crypto.run.targets.drive import undo

if TYPE_CHECKING:
    from cbt_crypto.engine.embedded.ceph import Ceph
else:
    Ceph = object


class _Overlaid(Ceph):
    """Stands before an engine's Ceph class and answers its hooks from a stack of overlays."""

    def __init__(
        self,
        config: Mapping[str, Any],
        stack: Stack,
        known: Sequence[Stack] = (),
        place: Place = (),
    ) -> None:
        """`known` are all stacks that this campaign may have deployed, `place` where this is."""
        super().__init__({**config, **dict(place)})
        self.stack = stack
        self.known = tuple(known)
        whole = section_of(config)
        self._sites = [site_of(at(whole, one)) for one in places(whole)]

    def extra_conf(self) -> Mapping[str, Mapping[str, str]]:
        return self.stack.ceph_conf()

    def prepare_hosts(self) -> None:
        for overlay in self.stack.overlays:
            said = self._run(overlay.introduce(self.site), f"introduce hosts for {overlay.name}")
            scripts = overlay.before_daemons(self.site, said)
            self._run(scripts, f"prepare the hosts for {overlay.name}")

    def mon_address(self, host: str, address: str) -> str:
        return self.stack.mon_address(self.site, host, address)

    def before_osds(self) -> HostScripts:
        return self.stack.before_osds(self.site)

    def osd_device(self, osd: Osd) -> str:
        return self.stack.osd_device(osd)

    def osd_db_device(self, osd: Osd) -> Optional[str]:
        return self.stack.osd_db_device(osd)

    def osd_command(self, osd: Osd, command: str) -> str:
        return self.stack.wrap_osd(osd, command)

    def client_command(self, host: str, command: str) -> str:
        """Asked by an engine that runs benchmarks of its own."""
        return self.stack.wrap_client(host, command)

    def after_osds(self) -> HostScripts:
        return self.stack.after_osds(self.site)

    def undo(self) -> HostScripts:
        # Also what an earlier, killed run may have left in another configuration.
        stacks = (self.stack, *self.known)
        drives = undo(drives_of(self.section), stacks, self.site)
        return joined((drives, leftovers(stacks, *self._sites)), keep_going=True)

    def change(self, stack: Stack, how: Transition) -> None:
        """Go over to another stack without building the cluster anew."""
        self.stack = stack
        if how is Transition.RESTART:
            self.restart()
        elif how is Transition.LIVE:
            self._run(self.after_osds(), "change the configuration")


def cluster_class(engine: Engine) -> type[Any]:
    """The engine's Ceph class under overlays: `cls(config, stack, known)`."""
    return type("OverlaidCluster", (_Overlaid, engine.Ceph), {})


class DeployedCluster:
    """The target of a campaign that deploys its cluster."""

    can_be_rebuilt = True

    def __init__(
        self, engine: Engine, remote: Remote, section: ClusterSection, stacks: Mapping[str, Stack]
    ) -> None:
        """Touches nothing. `remote` is what every target has; the engine's cluster has its own."""
        self._engine = engine
        self._section = section
        self.place: Place = ()
        self.begin(stacks)

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """Learn the stacks."""
        self._stacks = dict(stacks)
        self.stack = next(iter(self._stacks.values()))
        self._go_to(self.place)

    def _go_to(self, place: Place) -> None:
        """Work on the cluster with these values of the section's lists; it is not deployed yet."""
        self.place = place
        self.site: Site = site_of(at(self._section, place))
        known = list(self._stacks.values())
        self.cluster: Any = cluster_class(self._engine)(
            self._engine.settings.cluster, self.stack, known, place
        )

    @property
    def conf_text(self) -> str:
        """The ceph.conf that was deployed."""
        return str(self.cluster.conf_text)

    def transition(self, step: Deploy) -> Transition:
        """From the configuration that is in force."""
        if step.how is Transition.REBUILD:
            return step.how
        return transition(self.stack, self._stacks[step.configuration])

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Deploy the cluster anew, or change it as it runs."""
        if step.place != self.place:
            self._go_to(step.place)
        stack = self._stacks[step.configuration]
        if how is Transition.REBUILD:
            self.cluster.stack = stack
            self.cluster.initialize()
        else:
            self.cluster.change(stack, how)
        self.stack = stack

    def measure_on(self, scenario: Scenario) -> Site:
        """The cluster and the scenario's clients."""
        return cell_site(at(self._section, self.place), scenario, self.stack)

    def check_health(self) -> None:
        """Wait for every OSD and placement group."""
        self.cluster.check_health()

    def end(self, filled: Sequence[Volume]) -> None:
        """Take the cluster down, with its volumes."""
        take_down(self.cluster)


def take_down(cluster: Any) -> None:
    """End a cluster's processes, undo its overlays, empty its devices, remove its directory.

    A host that does not answer keeps none of the others up. Safe to repeat. Raises the first
    RunError.
    """
    errors: list[RunError] = []
    for step in (cluster.shutdown, cluster.cleanup):
        try:
            step()
        except RunError as error:
            errors.append(error)
    if errors:
        # tmp_dir has the notes on the devices, by which the next start clears the rest.
        raise errors[0]
    cluster.purge()
