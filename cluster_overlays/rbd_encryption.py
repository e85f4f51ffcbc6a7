"""Volumes that their clients encrypt: LUKS, by dm-crypt over RBD or by librbd."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Optional

from pydantic import Field, model_validator
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import rbd_encryption_on_host
from cbt_crypto.cluster_overlays.base import Absent, Overlay, Seen, Transition, Verdict, Watch
from cbt_crypto.cluster_overlays.luks.mapping import CryptTable, crypt_of, may_encrypt
from cbt_crypto.cluster_overlays.luks.preparation import SCRIPT, DmCrypt
from cbt_crypto.hosts import samplers, shell
from cbt_crypto.hosts.devices.rbd_images import mapping_prefix
from cbt_crypto.hosts.requirement import KeysInMemory, Requirement
from cbt_crypto.hosts.site import HostOutputs, Site, VolumeEncryption

#: MiB in front of the data: cryptsetup's default for LUKS2, said so that it stays so.
_HEADER_MB = 16
_SECTORS_PER_MB = 2048
#: How the kernel's names begin of what it has mapped.
_RBD = ("rbd", "nbd")
#: librbd's ciphers, by the bits of an XTS key.
_LIBRBD = {256: "aes-128", 512: "aes-256"}


class RbdEncryption(Overlay):
    """Encrypt volumes on their clients, so that neither the wire nor an OSD sees what is in them.

    It is what Kubernetes (ceph-csi) and OpenStack do: a LUKS2 header in the image, and dm-crypt
    over the device that the kernel's client makes of it; or librbd's own encryption.
    """

    name: ClassVar[str] = "rbd_encryption"
    if_absent: ClassVar[Absent] = {}
    needs_root: ClassVar[bool] = True

    by: Literal["dm-crypt", "librbd"] = Field(
        "dm-crypt", description="who encrypts: the client's kernel, or librbd, for rbd_nbd alone"
    )
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
        512, description="bytes encrypted as one unit; by librbd always 4096"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_librbd_has_it(cls, data: Any) -> Any:
        is_by_librbd = isinstance(data, dict) and data.get("by") == "librbd"
        return {"sector_size": 4096, **data} if is_by_librbd else data

    @model_validator(mode="after")
    def _what_librbd_can(self) -> Self:
        has = (self.cipher, self.key_size in _LIBRBD, self.sector_size)
        if self.by == "librbd" and has != ("aes-xts-plain64", True, 4096):
            raise ValueError(
                "by: librbd has cipher aes-xts-plain64, key_size 256 or 512, and sector_size 4096; "
                "leave the others out, or say by: dm-crypt"
            )
        return self

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        if self.by == "librbd":
            return (KeysInMemory("keys", site.active_clients),)
        options = ("sector_size",) if self.sector_size != 512 else ()
        return (DmCrypt("dm-crypt", site.active_clients, SCRIPT, options=options),)

    @override
    def volume_encryption(self) -> Optional[VolumeEncryption]:
        if not self.is_present:
            return None
        if self.by == "librbd":
            cipher = _LIBRBD[self.key_size]
            return VolumeEncryption(
                f"librbd-{cipher}", ("--cipher-alg", cipher), _HEADER_MB, by_librbd=True
            )
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
        asked = {
            # What rbd-nbd itself has open is no evidence.
            "programs": [name for name in samplers.CLIENT_PROGRAMS if name != "rbd-nbd"],
            "tmp_dir": site.tmp_dir,
            "prefix": mapping_prefix(site.tmp_dir),
            "conf": site.conf,
            "user": site.client_id,
        }
        watch = Watch(shell.program(rbd_encryption_on_host), asked)
        return {} if site.drives else dict.fromkeys(site.active_clients, watch)

    @override
    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        for host, looks in seen.items():
            opened = [layers for look in looks for layers in look.value]
            for layers in opened:
                fault = self._fault(layers) if self.is_present else _plain_fault(layers)
                fault = fault or self._nbd_fault(site, layers[-1])
                fault = fault or (site.filesystem and _fault_of_file(layers, site.filesystem))
                if fault:
                    return f"what client processes had open on {host} {fault}"
            if (self.is_present or site.filesystem or site.on_nbd) and not opened:
                return f"no client process was seen on {host} have a volume open"
        return None

    def _fault(self, layers: Sequence[Mapping[str, Any]]) -> Optional[str]:
        """What contradicts that this is dm-crypt as configured, right over a mapped image."""
        table = crypt_of(layers[0])
        if self.by == "librbd":
            return None if len(layers) == 1 else "is not directly on what librbd decrypts"
        if table is None:
            return "is not dm-crypt"
        if len(layers) != 2 or not str(layers[1]["name"]).startswith(_RBD):
            return "is not directly on an image that the kernel has mapped"
        below = str(layers[1]["device"])
        wanted = CryptTable(self.cipher, self.key_size, below, self.sector_size, frozenset())
        return table.difference_from(wanted)

    def _nbd_fault(self, site: Site, lowest: Mapping[str, Any]) -> Optional[str]:
        """What contradicts that it is a device of rbd-nbd, and librbd encrypts as configured."""
        name, served = lowest["name"], lowest.get("served")
        if served is None:
            return f"is on {name}, and not on a device of rbd-nbd" if site.on_nbd else None
        if "why" in served:
            return f"is on {name}, which {served['why']}" if site.on_nbd else None
        header, lost = served["header"], served["stored"] - served["size"]
        if not (self.is_present and self.by == "librbd"):
            is_plain = not served["options"] and lost == 0
            is_plain &= self.is_present or header is None
            return None if is_plain else f"is on {name}, which librbd encrypts"
        if not served["options"] or served["begins_with_header"]:
            return f"is on {name}, which rbd-nbd does not decrypt"
        if header is None:
            return f"is on {name}, whose image {served['image']} begins with no LUKS header"
        if lost != header["offset"]:
            return f"is {lost} bytes smaller than its image, whose data begin at {header['offset']}"
        for key in ("cipher", "key_size", "sector_size"):
            if header[key] != getattr(self, key):
                return f"has {key} {header[key]} and not {getattr(self, key)}"
        return None

    @override
    def evidence_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Mapping[str, Any]:
        served = {}
        for host, looks in seen.items():
            lowest = [layers[-1] for look in looks for layers in look.value]
            served.update({f"{host} {one['name']}": one.get("served") for one in lowest})
        served = {name: told for name, told in served.items() if told}
        return {"served": served} if served else {}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        if self.is_present and self.by == "librbd":
            reason = "client processes worked on images that librbd encrypts, as configured"
        elif self.is_present:
            reason = "client processes worked through dm-crypt over RBD, as configured"
        else:
            reason = "no client process worked through dm-crypt over RBD"
        if site.on_nbd and not self.is_present:
            reason += "; each worked on an image that rbd-nbd serves and librbd does not encrypt"
        if site.filesystem:
            reason += f"; each worked on a file of {site.filesystem} in a mapped image"
        return Verdict(True, reason)


def _fault_of_file(layers: Sequence[Mapping[str, Any]], filesystem: str) -> Optional[str]:
    kind, lowest = layers[0].get("filesystem"), str(layers[-1]["name"])
    if kind == filesystem and lowest.startswith(_RBD):
        return None
    return (
        f"is {f'a file of {kind}' if kind else 'no file'} on {lowest}, not of {filesystem} on RBD"
    )


def _plain_fault(layers: Sequence[Mapping[str, Any]]) -> Optional[str]:
    is_rbd = any(str(layer["name"]).startswith(_RBD) for layer in layers)
    return "is encrypted there" if is_rbd and any(map(may_encrypt, layers)) else None
