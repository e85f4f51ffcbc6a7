"""Binds a stack of overlays to the engine's cluster class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, leftovers
from cbt_crypto.engine import Engine
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostScripts, Osd
from cbt_crypto.plan.file.dimensions import Place, at, places
from cbt_crypto.plan.layout import drives_of, section_of, site_of
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
