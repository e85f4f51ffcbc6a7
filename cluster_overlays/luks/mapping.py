"""Encrypted mappings: which is on which device, and dm-crypt's line in device-mapper's table."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

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


#: How ids begin of mappings on drives that encrypt by themselves, with dm-crypt or without.
_OPAL = "CRYPT-LUKS2-OPAL-"
#: Beginnings of the ids of mappings that are something else: volumes, several paths to one disk.
_PLAIN = ("LVM-", "mpath-")


@dataclass(frozen=True)
class CryptTable:
    """How a mapping encrypts: cipher, key size in bits, sector size in bytes, optional flags.

    Wanted: `sector_size` None lets cryptsetup choose, `flash_flags` are added on flash. Found:
    `device` is below, as "major:minor"; `on_opal`: it encrypts once more.
    """

    cipher: str
    key_size: int
    device: str
    sector_size: Optional[int]
    flags: frozenset[str]
    on_opal: bool = False
    flash_flags: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, line: str) -> CryptTable:
        """Parse a line of `dmsetup table`, which has no key; ValueError for another target."""
        words = line.split()
        if words[2:3] != ["crypt"] or len(words) < 8:
            raise ValueError(f"not a line of dm-crypt: {line}")
        options = words[9:]
        sizes = [word.partition(":")[2] for word in options if word.startswith("sector_size:")]
        return cls(
            cipher=words[3],
            key_size=int(words[4].split(":")[1]) * 8,
            device=words[6],
            sector_size=int(sizes[0]) if sizes else 512,
            flags=frozenset(word for word in options if ":" not in word),
        )

    def on(self, device: str) -> CryptTable:
        """This table as it would be on another device."""
        return replace(self, device=device)

    def fault(self, layer: Mapping[str, Any]) -> Optional[str]:
        """What contradicts that a layer of `storage_on_host` is such a mapping."""
        table = crypt_of(layer)
        return table.difference_from(self.over(layer)) if table else "is not dm-crypt"

    def over(self, layer: Mapping[str, Any]) -> CryptTable:
        """As wanted of this very mapping: the kernel tells whether it is on flash."""
        if not self.flash_flags or layer.get("rotational") != "0":
            return self
        return replace(self, flags=self.flags | self.flash_flags)

    def difference_from(
        self, wanted: CryptTable, claimed: Optional[Collection[str]] = None
    ) -> Optional[str]:
        """The first difference, for a sentence; of options only `claimed` count, or all if None."""
        if self.device != wanted.device:
            return f"is on device {self.device} and not on {wanted.device}"
        ours, theirs = self.flags, wanted.flags
        if claimed is not None:
            ours, theirs = ours.intersection(claimed), theirs.intersection(claimed)
        if ours != theirs:
            return f"has flags {_list(ours)} and not {_list(theirs)}"
        if self.on_opal != wanted.on_opal:
            return f"is {'' if self.on_opal else 'not '}on a drive that encrypts by itself (OPAL)"
        for name in ("cipher", "key_size", "sector_size"):
            in_force, expected = getattr(self, name), getattr(wanted, name)
            if expected not in (in_force, None) and (claimed is None or name in claimed):
                return f"has {name} {in_force} and not {expected}"
        return None


@dataclass(frozen=True)
class OpalTable:
    """A mapping that leaves encryption to the drive: a stretch of `device`, as "major:minor"."""

    device: str = ""

    def on(self, device: str) -> OpalTable:
        """This table as it would be on another device."""
        return OpalTable(device)

    def fault(self, layer: Mapping[str, Any]) -> Optional[str]:
        """What contradicts that a layer of `storage_on_host` is such a mapping."""
        if not str(layer["uuid"]).startswith(_OPAL):
            return "is not on a drive that encrypts by itself (OPAL)"
        lines = [line.split() for line in (layer["table"] or "").splitlines()]
        if len(lines) != 1 or lines[0][2:3] != ["linear"]:
            return "is not one stretch of a drive"
        below = lines[0][3]
        if below != self.device:
            return f"is on device {below} and not on {self.device}"
        return None


def _list(flags: frozenset[str]) -> str:
    return " ".join(sorted(flags)) or "none"


def crypt_of(layer: Mapping[str, Optional[str]]) -> Optional[CryptTable]:
    """How a layer of `storage_on_host` encrypts; None when it does not."""
    for line in (layer.get("table") or "").splitlines():
        if line.split()[2:3] == ["crypt"]:
            is_on_opal = str(layer.get("uuid")).startswith(_OPAL)
            return replace(CryptTable.parse(line), on_opal=is_on_opal)
    return None


def may_encrypt(layer: Mapping[str, Any]) -> bool:
    """Whether a layer encrypts, or is a mapping of which that is not known."""
    if "mapping" not in layer or str(layer["uuid"]).startswith(_PLAIN):
        return False
    unknown = layer["table"] is None
    return unknown or str(layer["uuid"]).startswith("CRYPT-") or crypt_of(layer) is not None
