"""A configuration's overlays, stacked: an overlay made of overlays, and that bound to a site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Optional, TypeVar

from pydantic import PrivateAttr
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.shell import joined, sequence
from cbt_crypto.hosts.site import Drive, HostOutputs, HostScripts, Osd, Site, VolumeEncryption

ValueT = TypeVar("ValueT")
#: Runs scripts on their hosts; the second argument names the step in errors.
Run = Callable[[HostScripts, str], HostOutputs]


def _passed(overlays: Iterable[Overlay], hook: str, *where: Any, value: ValueT) -> ValueT:
    for overlay in overlays:
        value = getattr(overlay, hook)(*where, value)
    return value


class Stack(Overlay):
    """Every known overlay once: as the configuration names it, else as it states its absence."""

    name: ClassVar[str] = "stack"

    #: The configuration's own, bottom first.
    named: tuple[Overlay, ...]
    _overlays: tuple[Overlay, ...] = PrivateAttr(default=())

    def __init__(self, named: Iterable[Overlay]) -> None:
        """`named` are the configuration's own, bottom first."""
        super().__init__(**{"named": tuple(named)})
        names = {overlay.name for overlay in self.named}
        stated = (cls.absent() for name, cls in OVERLAYS.items() if name not in names)
        present = (overlay for overlay in stated if overlay is not None)
        self._overlays = (*present, *_laid(self.named))

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """All of them, bottom first."""
        return self._overlays

    @override
    def mon_address(self, site: Site, host: str, address: str) -> str:
        return _passed(self.overlays, "mon_address", site, host, value=address)

    @override
    def program(self, site: Site, name: str) -> str:
        return _passed(self.overlays, "program", site, value=name)

    @override
    def pool_profile(self, name: str) -> str:
        return _passed(self.overlays, "pool_profile", value=name)

    @override
    def osd_device(self, osd: Osd, device: str) -> str:
        return _passed(self.overlays, "osd_device", osd, value=device)

    @override
    def osd_db_device(self, osd: Osd, device: Optional[str]) -> Optional[str]:
        return _passed(self.overlays, "osd_db_device", osd, value=device)

    @override
    def drive_device(self, drive: Drive, part: str, device: str) -> str:
        return _passed(self.overlays, "drive_device", drive, part, value=device)

    @override
    def wrap_osd(self, osd: Osd, command: str) -> str:
        return _passed(self.overlays, "wrap_osd", osd, value=command)

    @override
    def wrap_client(self, host: str, command: str) -> str:
        return _passed(self.overlays, "wrap_client", host, value=command)

    @override
    def before_osds(self, site: Site) -> HostScripts:
        return joined(overlay.before_osds(self.below(overlay, site)) for overlay in self.overlays)

    @override
    def after_osds(self, site: Site) -> HostScripts:
        return joined(overlay.after_osds(self.below(overlay, site)) for overlay in self.overlays)

    @override
    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        return ceph_conf.merged(*(overlay.ceph_conf() for overlay in self.overlays))

    @override
    def volume_encryption(self) -> Optional[VolumeEncryption]:
        encryptions = (overlay.volume_encryption() for overlay in self.overlays)
        return next((encryption for encryption in encryptions if encryption is not None), None)

    @override
    def take_down(self, site: Site) -> HostScripts:
        return leftovers([self], site)

    @override
    def transition_to(self, new: Self) -> Transition:
        """What the change takes: the dearest transition of its overlays."""
        by_name = {overlay.name: overlay for overlay in new.overlays}
        if by_name.keys() != {overlay.name for overlay in self.overlays}:
            return Transition.REBUILD  # an overlay that cannot state its absence comes or goes
        transitions = (each.transition_to(by_name[each.name]) for each in self.overlays)
        return max(transitions, default=Transition.NONE)

    def below(self, overlay: Overlay, site: Site) -> Site:
        """The site as `overlay` finds it: each OSD with the devices that those below it offer."""
        lower = self.overlays[: self.overlays.index(overlay)]
        osds = tuple(
            replace(
                osd,
                device=_passed(lower, "osd_device", osd, value=osd.device),
                db_device=_passed(lower, "osd_db_device", osd, value=osd.db_device),
            )
            for osd in site.osds
        )
        return replace(site, osds=osds)

    def contradictions(self, conf: Mapping[str, Mapping[str, str]]) -> list[str]:
        """A sentence for each overlay that the campaign's own ceph.conf contradicts."""
        answers = (overlay.check_ceph_conf(conf) for overlay in self.overlays)
        return [answer for answer in answers if answer]

    def drive_path(self, drive: Drive) -> str:
        """What a process opens that works on the drive."""
        if drive.array is not None and drive.encrypts_members:
            return drive.array
        return self.drive_device(drive, "data", drive.parts["data"])


@dataclass(frozen=True)
class Part:
    """The OSDs of one group side by side, and the stack that is in force on them."""

    site: Site
    stack: Stack


@dataclass
class BoundStack:
    """A stack bound to the site where it is in force: what an engine asks while it deploys.

    The last of `groups`, if any, has its turn, and the clients' hosts. `clear` makes what removes
    all that this campaign may have left.
    """

    site: Site
    stack: Stack
    clear: Optional[Callable[[Stack], HostScripts]] = None
    groups: Sequence[Part] = ()

    def _alike(self) -> list[Overlay]:
        unlike = self.groups[0].site.unlike if self.groups else ()
        return [overlay for overlay in self.stack.overlays if overlay.name not in unlike]

    def _of(self, osd: Osd) -> Part:
        whole = Part(self.site, self.stack)
        return next((part for part in self.groups if osd in part.site.osds), whole)

    def prepare_hosts(self, run: Run) -> None:
        """Prepare the hosts before there is any daemon."""
        for overlay in self._alike():
            answers = run(overlay.introduce(self.site), f"introduce hosts for {overlay.name}")
            scripts = overlay.before_daemons(self.site, answers)
            run(scripts, f"prepare the hosts for {overlay.name}")

    def program(self, name: str) -> str:
        """What is called in place of one of Ceph's programs that make and run daemons."""
        return self.stack.program(self.site, name)

    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        """ceph.conf's sections: of groups, what all have, monitors' all, and one for each OSD."""
        if not self.groups:
            return self.stack.ceph_conf()
        alike = self._alike()
        of_osds: dict[str, dict[str, str]] = {}
        for part in self.groups:
            options = ceph_conf.of_kind(_conf_beside(part), "osd")
            of_osds.update({f"osd.{osd.id}": options for osd in part.site.osds})
        return ceph_conf.merged(
            *(overlay.ceph_conf() for overlay in alike),
            *(each.conf_of_all() for each in self.stack.overlays if each not in alike),
            of_osds,
        )

    def client_confs(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """Name -> sections over ceph.conf, for clients that need another one: ceph.<name>.conf."""
        confs = {}
        for part in self.groups:
            options = ceph_conf.of_kind(_conf_beside(part), "client")
            confs[part.site.group] = {"global": options, "client": options}
        return confs

    def device_class(self, osd: Osd) -> Optional[str]:
        """The CRUSH device class of the OSD; Ceph's own choice when None."""
        return self._of(osd).site.group or None

    def pool_class(self, pool: str) -> Optional[str]:
        """The device class on which alone a pool is; any when None."""
        name = pool.rpartition(".")[2]
        return name if name in {part.site.group for part in self.groups} else None

    def twins(self, pool: str, other: str) -> Mapping[int, int]:
        """OSDs of `pool` -> those of `other` on which what is placed on them is placed alike."""
        names = [self.pool_class(name) for name in (pool, other)]
        if None in names or pool.rpartition(".")[0] != other.rpartition(".")[0]:
            return {}
        by_name = {part.site.group: part.site.osds for part in self.groups}
        own, others = (by_name[str(name)] for name in names)
        return {osd.id: twin.id for osd, twin in zip(own, others)}

    def before_osds(self) -> HostScripts:
        """Run before the OSDs are made."""
        if not self.groups:
            return self.stack.before_osds(self.site)
        return joined(part.stack.before_osds(part.site) for part in self.groups)

    def osd_device(self, osd: Osd) -> str:
        """The device that the OSD opens."""
        return self._of(osd).stack.osd_device(osd, osd.device)

    def osd_db_device(self, osd: Osd) -> Optional[str]:
        """The device of the OSD's RocksDB, or None."""
        return self._of(osd).stack.osd_db_device(osd, osd.db_device)

    def wrap_osd(self, osd: Osd, command: str) -> str:
        """The command that starts the OSD."""
        return self._of(osd).stack.wrap_osd(osd, command)

    def after_osds(self) -> HostScripts:
        """Run when the OSDs are up."""
        if not self.groups:
            return self.stack.after_osds(self.site)
        return joined(part.stack.after_osds(part.site) for part in self.groups)

    def take_down(self) -> HostScripts:
        """Run when the daemons are gone, before anything is removed. Safe to repeat."""
        return self.stack.take_down(self.site) if self.clear is None else self.clear(self.stack)


def _conf_beside(part: Part) -> Mapping[str, Mapping[str, str]]:
    overlays = (each for each in part.stack.overlays if each.name in part.site.unlike)
    return ceph_conf.merged(*(overlay.conf_beside() for overlay in overlays))


def leftovers(stacks: Sequence[Stack], *sites: Site) -> HostScripts:
    """Tear down whatever any of these configurations may have left behind."""
    takings_down = [
        (overlay, overlay.take_down(stack.below(overlay, site)))
        for site in sites
        for stack in stacks
        for overlay in reversed(stack.overlays)
    ]
    scripts: dict[str, list[str]] = {}
    # Of all configurations first what is on top: nothing can be removed from under it.
    takings_down.sort(key=lambda part: (not part[0].lies_on, not part[0].covers_devices))
    for _, part in takings_down:
        for host, text in part.items():
            if text not in scripts.setdefault(host, []):
                scripts[host].append(text)
    return {host: sequence(texts, keep_going=True) for host, texts in scripts.items()}


def _laid(named: Sequence[Overlay]) -> list[Overlay]:
    """In the file's order, but nothing below what it is on."""
    laid: list[Overlay] = []
    for overlay in named:
        lower = [other for other in named if other.name in overlay.lies_on and other not in laid]
        laid += [*lower, *([] if overlay in laid else [overlay])]
    return laid
