"""What Ceph's own tool, `ceph-volume lvm create --dmcrypt`, makes of a device: `like: ceph-volume`.

A logical volume over the whole device, a LUKS2 header on it with cryptsetup's own sector size, and
a mapping that passes discards on, on flash without work queues. A device that is a volume of ours
already, as OSDs share one, gets no second one: nor would it there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from cbt_crypto.cluster_overlays.luks.crypt_table import crypt_of
from cbt_crypto.cluster_overlays.luks.mapping import devices_of
from cbt_crypto.cluster_overlays.luks.scripts import Flags
from cbt_crypto.hosts.devices import logical_volumes
from cbt_crypto.hosts.devices.logical_volumes import Group, LogicalVolume
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostScripts, Osd, Site

#: The name in the file.
NAME = "ceph-volume"
#: From Ceph 18.2.2 on, and everywhere that cryptsetup is 2.3.4 or newer.
FLAGS = Flags(("allow_discards",), ("no_read_workqueue", "no_write_workqueue"))
#: What a file cannot say beside it.
DECIDES = frozenset(
    {"cipher", "key_size", "sector_size", "hw_opal", "same_cpu_crypt", "submit_from_crypt_cpus"}
    | {*FLAGS.everywhere, *FLAGS.on_flash}
)


def volume_of(osd: Osd, part: str, device: str) -> str:
    """The volume that the mapping of an OSD's "data" or "db" lies on."""
    if logical_volumes.is_ours(device):
        return device
    return logical_volumes.path(_group(osd, device), f"osd.{osd.id}-{part}")


def on_volumes(site: Site, parts: Sequence[str]) -> Site:
    """The site with the volumes in place of the devices."""
    return replace(site, osds=tuple(_on_volumes(osd, parts) for osd in site.osds))


def _on_volumes(osd: Osd, parts: Sequence[str]) -> Osd:
    if osd.is_file or osd.is_existing:
        return osd
    paths = {
        part: volume_of(osd, part, device) if part in parts else device
        for part, device in devices_of(osd).items()
    }
    return replace(osd, device=paths["data"], db_device=paths.get("db"))


def requirements(site: Site, parts: Sequence[str]) -> list[Requirement]:
    """LVM, on hosts where volumes are to be made."""
    hosts = tuple(_groups(site, parts))
    return [Requirement("lvm2", hosts, logical_volumes.REQUIREMENT)] if hosts else []


def make(site: Site, parts: Sequence[str]) -> HostScripts:
    """Shell text that makes the volumes."""
    return {
        host: logical_volumes.make(groups, _notes(site))
        for host, groups in _groups(site, parts).items()
    }


def remove(site: Site) -> HostScripts:
    """Shell text that removes what `make` made; safe to repeat."""
    hosts = dict.fromkeys(osd.host for osd in site.osds if not osd.is_file)
    return dict.fromkeys(hosts, logical_volumes.remove(_notes(site)))


def fault(layers: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """What contradicts that the mapping among these layers, top first, lies on a volume."""
    for upper, lower in zip(layers, layers[1:]):
        if crypt_of(upper) is not None:
            is_volume = str(lower.get("uuid", "")).startswith("LVM-")
            return None if is_volume else f"{upper['mapping']} does not lie on a logical volume"
    return "its dm-crypt lies on nothing that is known"


def _groups(site: Site, parts: Sequence[str]) -> dict[str, list[Group]]:
    """Host -> a group for each device that is to carry a volume."""
    by_host: dict[str, list[Group]] = {}
    for osd in site.osds:
        for part, device in devices_of(osd).items():
            if part in parts and not logical_volumes.is_ours(device):
                volume = LogicalVolume(f"osd.{osd.id}-{part}")
                group = Group(_group(osd, device), device, (volume,))
                by_host.setdefault(osd.host, []).append(group)
    return by_host


def _group(osd: Osd, device: str) -> str:
    return logical_volumes.group_name(os.path.dirname(osd.data_dir), osd.host, device)


def _notes(site: Site) -> str:
    return f"{site.tmp_dir}/volumes.luks"
