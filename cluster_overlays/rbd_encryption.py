"""Volumes that their clients encrypt: LUKS and dm-crypt over RBD, on the client's side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Optional

from pydantic import Field
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import rbd_encryption_on_host
from cbt_crypto.cluster_overlays.base import Overlay, Seen, Transition, Verdict, Watch
from cbt_crypto.cluster_overlays.luks.mapping import CryptTable, crypt_of, may_encrypt
from cbt_crypto.cluster_overlays.luks.preparation import SCRIPT, DmCrypt
from cbt_crypto.hosts import samplers, shell
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, Site, VolumeEncryption

#: MiB in front of the data: cryptsetup's default for LUKS2, said so that it stays so.
_HEADER_MB = 16
_SECTORS_PER_MB = 2048


class RbdEncryption(Overlay):
    """Encrypt volumes on their clients, so that neither the wire nor an OSD sees what is in them.

    It is what Kubernetes (ceph-csi) and OpenStack do: a LUKS2 header in the image, and dm-crypt
    over the device that the kernel's client makes of it.
    """

    name: ClassVar[str] = "rbd_encryption"
    needs_root: ClassVar[bool] = True

    type: Literal["luks2"] = Field("luks2", description="format of the header in the image")
    cipher: str = Field(
        "aes-xts-plain64",
        pattern=r"^[A-Za-z0-9:()_,.-]+$",
        description="cipher, mode and IV, as cryptsetup spells them",
    )
    key_size: int = Field(
        512, ge=64, le=1024, multiple_of=8, description="bits; XTS splits them into two keys"
    )
    sector_size: Literal[512, 1024, 2048, 4096] = Field(
        512, description="bytes encrypted as one unit; librbd's own layer has 4096"
    )

    @classmethod
    @override
    def absent(cls) -> Self:
        return cls.make_absent()

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        if not self.is_present:
            return ()
        options = ("sector_size",) if self.sector_size != 512 else ()
        return (DmCrypt("dm-crypt", site.active_clients, SCRIPT, options=options),)

    @override
    def volume_encryption(self) -> Optional[VolumeEncryption]:
        if not self.is_present:
            return None
        words = (
            *("--type", self.type, "--cipher", self.cipher, "--key-size", str(self.key_size)),
            *("--sector-size", str(self.sector_size)),
            *("--offset", str(_HEADER_MB * _SECTORS_PER_MB)),
            *("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"),
        )
        label = f"{self.cipher}-{self.key_size}-{self.sector_size}"
        return VolumeEncryption(re.sub(r"[^A-Za-z0-9_-]", ".", label), words, _HEADER_MB)

    @override
    def transition_to(self, new: Self) -> Transition:
        # Their volumes are others, and those of both are on the same cluster.
        return Transition.NONE

    @override
    def watch(self, site: Site) -> Mapping[str, Watch]:
        asked = {"programs": samplers.CLIENT_PROGRAMS, "tmp_dir": site.tmp_dir}
        watch = Watch(shell.program(rbd_encryption_on_host), asked)
        return {} if site.drives else dict.fromkeys(site.active_clients, watch)

    @override
    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        for host, looks in seen.items():
            opened = [layers for look in looks for layers in look.value]
            for layers in opened:
                fault = self._fault(layers) if self.is_present else _plain_fault(layers)
                fault = fault or (site.filesystem and _fault_of_file(layers, site.filesystem))
                if fault:
                    return f"what client processes had open on {host} {fault}"
            if (self.is_present or site.filesystem) and not opened:
                return f"no client process was seen on {host} have a volume open"
        return None

    def _fault(self, layers: Sequence[Mapping[str, Any]]) -> Optional[str]:
        """What contradicts that this is dm-crypt as configured, right over a mapped image."""
        table = crypt_of(layers[0])
        if table is None:
            return "is not dm-crypt"
        if len(layers) != 2 or not str(layers[1]["name"]).startswith("rbd"):
            return "is not directly on an image that the kernel has mapped"
        below = str(layers[1]["device"])
        wanted = CryptTable(self.cipher, self.key_size, below, self.sector_size, frozenset())
        return table.difference_from(wanted)

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        if self.is_present:
            reason = "client processes worked through dm-crypt over RBD, as configured"
        else:
            reason = "no client process worked through dm-crypt over RBD"
        if site.filesystem:
            reason += f"; each worked on a file of {site.filesystem} in a mapped image"
        return Verdict(True, reason)


def _fault_of_file(layers: Sequence[Mapping[str, Any]], filesystem: str) -> Optional[str]:
    kind, lowest = layers[0].get("filesystem"), str(layers[-1]["name"])
    if kind == filesystem and lowest.startswith("rbd"):
        return None
    return (
        f"is {f'a file of {kind}' if kind else 'no file'} on {lowest}, not of {filesystem} on RBD"
    )


def _plain_fault(layers: Sequence[Mapping[str, Any]]) -> Optional[str]:
    is_rbd = any(str(layer["name"]).startswith("rbd") for layer in layers)
    return "is encrypted there" if is_rbd and any(map(may_encrypt, layers)) else None
