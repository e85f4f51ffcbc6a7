"""A configuration's overlays, stacked: what they ask of a deployment together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.hosts.shell import joined, sequence
from cbt_crypto.hosts.site import Drive, HostScripts, Osd, Site, VolumeEncryption


class Stack:
    """Every known overlay once: as the configuration names it, else as it states its absence."""

    def __init__(self, named: Iterable[Overlay]) -> None:
        """`named` are the configuration's own, bottom first."""
        self.named = tuple(named)
        names = {overlay.name for overlay in self.named}
        stated = (cls.absent() for name, cls in OVERLAYS.items() if name not in names)
        self.overlays: tuple[Overlay, ...] = (
            *(overlay for overlay in stated if overlay is not None),
            *_laid(self.named),
        )

    def ceph_conf(self) -> dict[str, dict[str, str]]:
        """The options of all overlays; a later overlay's replace an earlier one's."""
        result: dict[str, dict[str, str]] = {}
        for overlay in self.overlays:
            for section, options in overlay.ceph_conf().items():
                result.setdefault(section, {}).update(options)
        return result

    def mon_address(self, site: Site, host: str, address: str) -> str:
        """A monitor's address, on top of all overlays."""
        for overlay in self.overlays:
            address = overlay.mon_address(site, host, address)
        return address

    def program(self, site: Site, name: str) -> str:
        """What is called in place of one of Ceph's programs."""
        for overlay in self.overlays:
            name = overlay.program(site, name)
        return name

    def osd_device(self, osd: Osd) -> str:
        """The device that the OSD opens, on top of all overlays."""
        device = osd.device
        for overlay in self.overlays:
            device = overlay.osd_device(osd, device)
        return device

    def osd_db_device(self, osd: Osd) -> Optional[str]:
        """The device that all overlays together give the OSD for its RocksDB."""
        device = osd.db_device
        for overlay in self.overlays:
            device = overlay.osd_db_device(osd, device)
        return device

    def below(self, overlay: Overlay, site: Site) -> Site:
        """The site as `overlay` finds it: each OSD with the devices that those below it offer."""
        lower = Stack.__new__(Stack)
        lower.overlays = self.overlays[: self.overlays.index(overlay)]
        osds = tuple(
            replace(osd, device=lower.osd_device(osd), db_device=lower.osd_db_device(osd))
            for osd in site.osds
        )
        return replace(site, osds=osds)

    def drive_device(self, drive: Drive, part: str) -> str:
        """The device that all overlays together give for a part of a drive."""
        device = drive.parts[part]
        for overlay in self.overlays:
            device = overlay.drive_device(drive, part, device)
        return device

    def drive_path(self, drive: Drive) -> str:
        """What a process opens that works on the drive."""
        if drive.array is not None and drive.encrypts_members:
            return drive.array
        return self.drive_device(drive, "data")

    def wrap_osd(self, osd: Osd, command: str) -> str:
        """The command that starts the OSD, wrapped by every overlay."""
        for overlay in self.overlays:
            command = overlay.wrap_osd(osd, command)
        return command

    def wrap_client(self, host: str, command: str) -> str:
        """The command that starts a client process, wrapped by every overlay."""
        for overlay in self.overlays:
            command = overlay.wrap_client(host, command)
        return command

    def volume_encryption(self) -> Optional[VolumeEncryption]:
        """How clients encrypt their volumes; None where they do not."""
        encryptions = (overlay.volume_encryption() for overlay in self.overlays)
        return next((encryption for encryption in encryptions if encryption is not None), None)

    def before_osds(self, site: Site) -> HostScripts:
        """What makes devices before the OSDs, from the lowest overlay to the highest."""
        return joined(overlay.before_osds(self.below(overlay, site)) for overlay in self.overlays)

    def after_osds(self, site: Site) -> HostScripts:
        """What runs when the OSDs are up, from the lowest overlay to the highest."""
        return joined(overlay.after_osds(self.below(overlay, site)) for overlay in self.overlays)

    def takings_down(self, site: Site) -> Iterable[tuple[Overlay, HostScripts]]:
        """What takes each overlay down, top first."""
        for overlay in reversed(self.overlays):
            yield overlay, overlay.take_down(self.below(overlay, site))

    def check_ceph_conf(self, conf: Mapping[str, Mapping[str, str]]) -> list[str]:
        """A sentence for each overlay that the campaign's own ceph.conf contradicts."""
        answers = (overlay.check_ceph_conf(conf) for overlay in self.overlays)
        return [answer for answer in answers if answer]


def transition(old: Stack, new: Stack) -> Transition:
    """What it takes to go from one configuration to another: the dearest of its overlays."""
    old_by_name = {overlay.name: overlay for overlay in old.overlays}
    new_by_name = {overlay.name: overlay for overlay in new.overlays}
    if old_by_name.keys() != new_by_name.keys():
        return Transition.REBUILD  # an overlay that cannot state its absence comes or goes
    return max(
        (overlay.transition_to(new_by_name[name]) for name, overlay in old_by_name.items()),
        default=Transition.NONE,
    )


def leftovers(stacks: Sequence[Stack], *sites: Site) -> HostScripts:
    """Taking down whatever any of these configurations may have left behind."""
    scripts: dict[str, list[str]] = {}
    parts = [part for site in sites for stack in stacks for part in stack.takings_down(site)]
    # Of all configurations first what lies on top: nothing can be removed from under it.
    for _, part in sorted(
        parts, key=lambda part: (not part[0].lies_on, not part[0].covers_devices)
    ):
        for host, text in part.items():
            if text not in scripts.setdefault(host, []):
                scripts[host].append(text)
    return {host: sequence(texts, keep_going=True) for host, texts in scripts.items()}


def _laid(named: Sequence[Overlay]) -> list[Overlay]:
    """In the file's order, but nothing below what it lies on."""
    laid: list[Overlay] = []
    for overlay in named:
        lower = [other for other in named if other.name in overlay.lies_on and other not in laid]
        laid += [*lower, *([] if overlay in laid else [overlay])]
    return laid
