"""Which encrypted mapping lies on which device of which OSD or drive."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cbt_crypto.hosts.site import Drive, Osd, Site


@dataclass(frozen=True)
class CryptMapping:
    """A mapping by its name, which is also the label of the header on `device`."""

    name: str
    device: str

    @property
    def path(self) -> str:
        """The device that it offers."""
        return f"/dev/mapper/{self.name}"


def mapping_of(osd: Osd, part: str, device: str) -> CryptMapping:
    """The mapping of an OSD's "data" or "db"; named after its directory, it can be no other's."""
    campaign = hashlib.sha256(osd.data_dir.encode()).hexdigest()[:8]
    return CryptMapping(f"cbt-crypto-{campaign}-osd.{osd.id}-{part}", device)


def mapping_of_drive(drive: Drive, part: str, device: str) -> CryptMapping:
    """The mapping of a part of a drive, named after its folder. A label has 47 characters."""
    campaign = hashlib.sha256(drive.folder.encode()).hexdigest()[:8]
    return CryptMapping(f"cbt-crypto-{campaign}-drive-{part}", device)


def devices_of(osd: Osd) -> dict[str, str]:
    """The devices of an OSD that can carry a mapping: "data", and "db" where there is one."""
    if osd.is_file:
        return {}
    return {"data": osd.device, **({"db": osd.db_device} if osd.db_device else {})}


def mappings_of(site: Site, parts: Sequence[str] = ("data", "db")) -> dict[str, list[CryptMapping]]:
    """Host -> its mappings on these parts, and on its drives; for hosts with OSDs on devices."""
    mappings: dict[str, list[CryptMapping]] = defaultdict(list)
    for osd in site.osds:
        for part, device in devices_of(osd).items():
            if part in parts:
                mappings[osd.host].append(mapping_of(osd, part, device))
    for drive in site.drives:
        for part, device in drive.parts.items():
            mappings[drive.host].append(mapping_of_drive(drive, part, device))
    return dict(mappings)
