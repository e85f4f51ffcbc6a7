"""OSDs on encrypted devices: dm-crypt with a LUKS header under data devices, DB devices or both."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Optional, Union

from pydantic import Field, model_validator
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import base
from cbt_crypto.cluster_overlays.base import Finding, Overlay, Seen, Transition, Verdict, Watch
from cbt_crypto.cluster_overlays.luks import opal, preparation, proof
from cbt_crypto.cluster_overlays.luks.mapping import (
    CryptMapping,
    CryptTable,
    OpalTable,
    crypt_of,
    devices_of,
    mapping_of,
    mapping_of_drive,
    mappings_of,
)
from cbt_crypto.cluster_overlays.luks.preparation import LIVE, SCRIPT, DmCrypt, Flags
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import Drive, HostOutputs, HostScripts, Osd, Site, name_of

#: What only dm-crypt knows.
_OF_DM_CRYPT = {"like", "cipher", "key_size", "sector_size", *LIVE}

#: The cipher's name in the file that stands for the fastest one.
BEST = "best"
_PROC_CRYPTO = "@proc-crypto"


class Luks(Overlay):
    """Encrypt the devices of all OSDs with dm-crypt."""

    name: ClassVar[str] = "luks"
    if_absent: ClassVar[base.Absent] = {}
    is_recognised: ClassVar[bool] = True
    needs_root: ClassVar[bool] = True
    lies_on: ClassVar[tuple[str, ...]] = ("db_device",)
    is_for_drives: ClassVar[bool] = True
    keeps_choice: ClassVar[bool] = True

    like: Optional[Literal["ceph-volume"]] = Field(
        None,
        description="make what Ceph's own tool makes of these devices: a logical volume, discards, "
        "no work queues on flash, and cryptsetup's own sector size unless sector_size is named",
    )
    type: Literal["luks2"] = Field("luks2", description="format of the header")
    cipher: str = Field(
        "aes-xts-plain64",
        pattern=r"^[A-Za-z0-9:()_,.-]+$",
        description="cipher, mode and IV, as cryptsetup spells them; best: the cipher and "
        "key_size that cryptsetup benchmark finds fastest on the hosts",
    )
    key_size: int = Field(
        512, ge=64, le=1024, multiple_of=8, description="bits; XTS splits them into two keys"
    )
    sector_size: Literal[512, 1024, 2048, 4096, "auto"] = Field(
        512,
        description="bytes encrypted as one unit; auto: cryptsetup chooses, and since 2.4 takes "
        "4096 when the drive's sectors have 4096 bytes",
    )
    submit_from_crypt_cpus: bool = Field(
        False, description="submit each write from the CPU that encrypted it, unsorted"
    )
    same_cpu_crypt: bool = Field(
        False, description="encrypt on the CPU that the IO was submitted on"
    )
    no_read_workqueue: bool = Field(False, description="decrypt reads without a work queue")
    no_write_workqueue: bool = Field(False, description="encrypt writes without a work queue")
    high_priority: bool = Field(False, description="run dm-crypt's work queues before others")
    allow_discards: bool = Field(False, description="pass discards on to the device")
    pbkdf: Literal["pbkdf2", "argon2id"] = Field(
        "pbkdf2", description="how the header's key is derived; does not affect IO"
    )
    pbkdf_force_iterations: int = Field(
        1000,
        ge=4,
        description="iterations of pbkdf; the key is random already, so the minimum is enough",
    )
    pbkdf_memory: int = Field(65536, ge=32, description="memory of argon2id, in KiB")
    devices: tuple[Literal["data", "db"], ...] = Field(
        ("data", "db"), min_length=1, description="which of an OSD's devices are encrypted"
    )

    hw_opal: Optional[opal.HwOpal] = Field(
        None,
        description="use the encryption of self-encrypting drives (OPAL): below dm-crypt, or "
        "instead of it; default: not used",
    )

    @model_validator(mode="after")
    def _nothing_that_contradicts(self) -> Self:
        given = sorted(self.model_fields_set & _OF_DM_CRYPT)
        if self.hw_opal == "only" and given:
            raise ValueError(f"hw_opal: only does without dm-crypt; leave out {', '.join(given)}")
        given = sorted(self.model_fields_set & preparation.DECIDES)
        if self.like and given:
            raise ValueError(f"like: {self.like} decides that itself; leave out {', '.join(given)}")
        if self.pbkdf == "pbkdf2" and self.pbkdf_force_iterations < 1000:
            raise ValueError("pbkdf2 takes 1000 iterations or more; raise pbkdf_force_iterations")
        return self

    @property
    def _flags(self) -> Flags:
        live = tuple(flag for flag in LIVE if getattr(self, flag))
        if not self.like:
            return Flags(live)
        return Flags((*preparation.FLAGS.everywhere, *live), preparation.FLAGS.on_flash)

    @property
    def _chosen_sector_size(self) -> Optional[int]:
        """None where cryptsetup chooses."""
        is_left = self.like and "sector_size" not in self.model_fields_set
        return None if is_left or self.sector_size == "auto" else self.sector_size

    @property
    @override
    def covers_devices(self) -> bool:
        return self.like is not None

    @property
    @override
    def stands_beside(self) -> bool:
        return self.hw_opal is None and self.like is None

    @property
    @override
    def why_not_beside(self) -> str:
        key = "like: ceph-volume" if self.like else f"hw_opal: {self.hw_opal}"
        whole = f"luks with {key}, which takes whole drives, and here groups share each drive"
        return f"{whole}; leave {key} out, or layout"

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        options = (*self._flags.everywhere, *self._flags.on_flash)
        options += ("sector_size",) if self._chosen_sector_size not in (None, 512) else ()
        options += ("hw_opal",) if self.hw_opal else ()
        dm_crypt = DmCrypt("dm-crypt", site.storage_hosts, SCRIPT, options=options)
        needs: list[Requirement] = [dm_crypt]
        if self.hw_opal:
            for host, mappings in self._mappings(site).items():
                needs += [opal.requirement(host, mapping) for mapping in mappings]
        if self.like:
            needs += preparation.requirements(site, self.devices)
            sentence = "luks: like: ceph-volume is for OSDs; name its options for a drive"
            script = f"echo {shlex.quote(sentence)}"
            needs += [Requirement("luks", (drive.host,), script) for drive in site.drives]
        for osd in site.osds:
            if osd.is_file:
                sentence = "is on a file; luks needs block devices: name osd_devices"
            elif osd.is_existing or devices_of(osd).keys() & {*self.devices}:
                continue
            else:
                sentence = "has no DB device for luks to encrypt; add db_device, or name data"
            script = f"echo {shlex.quote(f'osd.{osd.id} {sentence}')}"
            needs.append(Requirement(f"device of osd.{osd.id}", (osd.host,), script))
        return needs

    @override
    def before_osds(self, site: Site) -> HostScripts:
        if not self.is_present:
            return {}
        by_host = {
            host: preparation.make(
                mappings, self._formatting(), self._flags, site.tmp_dir, bool(self.hw_opal)
            )
            for host, mappings in self._mappings(site).items()
        }
        return joined((preparation.make_volumes(site, self.devices) if self.like else {}, by_host))

    def _mappings(self, site: Site) -> dict[str, list[CryptMapping]]:
        return mappings_of(self._below(site), self.devices)

    def _below(self, site: Site) -> Site:
        osds = (preparation.on_volumes(osd, self.devices) for osd in site.osds)
        return replace(site, osds=tuple(osds)) if self.like else site

    def _formatting(self) -> list[str]:
        words = ["--type", self.type]
        if self.hw_opal:
            # It would judge the admin key as a password that somebody thought of.
            words += [opal.FORMATTING[self.hw_opal], "--force-password"]
        if self.hw_opal != "only":
            words += ["--cipher", self.cipher, "--key-size", str(self.key_size)]
            size = self._chosen_sector_size
            words += ["--sector-size", str(size)] if size else []
        words += ["--pbkdf", self.pbkdf]
        words += ["--pbkdf-force-iterations", str(self.pbkdf_force_iterations)]
        if self.pbkdf == "argon2id":
            words += ["--pbkdf-memory", str(self.pbkdf_memory)]
        return words

    @override
    def osd_device(self, osd: Osd, device: str) -> str:
        return mapping_of(osd, "data", device).path if self._covers("data") else device

    @override
    def osd_db_device(self, osd: Osd, device: Optional[str]) -> Optional[str]:
        return mapping_of(osd, "db", device).path if device and self._covers("db") else device

    def _covers(self, part: str) -> bool:
        return self.is_present and part in self.devices

    @override
    def drive_device(self, drive: Drive, part: str, device: str) -> str:
        return mapping_of_drive(drive, part, device).path if self.is_present else device

    @override
    def after_osds(self, site: Site) -> HostScripts:
        if not self.is_present:
            return {}
        return {
            host: preparation.refresh(mappings, self._flags)
            for host, mappings in self._mappings(site).items()
        }

    @override
    def describe(self, site: Site) -> HostScripts:
        # A campaign on drives asks what encryption costs: every cipher stands beside its own.
        table = preparation.table_script() if site.drives else ""
        speed = preparation.script(self.cipher, self.key_size)
        text = f"{table or speed}\necho {_PROC_CRYPTO}\ncat /proc/crypto"
        return dict.fromkeys(site.storage_hosts, text)

    @override
    def description(self, output: str) -> Any:
        speeds, _, proc_crypto = output.partition(_PROC_CRYPTO)
        drivers = preparation.drivers(proc_crypto.strip())
        return {"benchmark": preparation.parse(speeds), "drivers": drivers}

    @override
    def ask(self, site: Site) -> HostScripts:
        if self.cipher != BEST:
            return {}
        return dict.fromkeys(site.storage_hosts, preparation.table_script())

    @override
    def decided(self, outputs: HostOutputs) -> Self:
        try:
            cipher, key_size = preparation.best(outputs.values())
        except ValueError as error:
            raise RunError(f"luks: cipher: best: {error}; name a cipher") from None
        return self.model_copy(update={"cipher": cipher, "key_size": key_size})

    @override
    def take_down(self, site: Site) -> HostScripts:
        closed = {
            host: preparation.remove(mappings, site.tmp_dir)
            for host, mappings in mappings_of(self._below(site)).items()
        }
        volumes = preparation.remove_volumes(site) if self.like else {}
        return joined((closed, volumes), keep_going=True) if volumes else closed

    @override
    def transition_to(self, new: Self) -> Transition:
        if self == new:
            return Transition.NONE
        fixed = [overlay.model_dump(exclude=set(LIVE)) for overlay in (self, new)]
        alike = self.is_present == new.is_present and fixed[0] == fixed[1]
        return Transition.LIVE if alike else Transition.REBUILD

    @override
    def probe(self, site: Site) -> HostScripts:
        with_opal = self.hw_opal is not None
        below = self._below(site)
        return {host: proof.script(below, host, with_opal) for host in site.storage_hosts}

    @override
    def watch(self, site: Site) -> Mapping[str, Watch]:
        below = self._below(site)
        return {host: proof.watch(below, host) for host in site.storage_hosts}

    @override
    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        return proof.seen_fault(seen)

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [proof.parse(site, outputs) for outputs in (before, after)]
        carriers: tuple[Union[Osd, Drive], ...] = (*site.osds, *site.drives)
        findings = {
            carrier: self._finding(carrier, [look.get(name_of(carrier)) for look in looks])
            for carrier in carriers
        }
        return base.judge_all(self, findings, self._claim())

    def _claim(self) -> str:
        if not self.is_present:
            return "have no dm-crypt below"
        how = {None: "dm-crypt", "only": "drives that encrypt by themselves"}
        as_what = f"as {self.like} makes it" if self.like else "as configured"
        return f"are on {how.get(self.hw_opal, 'dm-crypt over OPAL')} {as_what}"

    def _finding(
        self, carrier: Union[Osd, Drive], looks: Sequence[Optional[base.StorageFacts]]
    ) -> Finding:
        faults = (self._fault(carrier, facts) for facts in looks)
        return Finding(next(filter(None, faults), None), looks[-1] or {})

    def _fault(
        self, carrier: Union[Osd, Drive], facts: Optional[base.StorageFacts]
    ) -> Optional[str]:
        fault = base.closed_fault(facts)
        if fault or facts is None:
            return fault
        if not self.is_present:
            return proof.plain_fault(facts)
        if isinstance(carrier, Drive):
            fault = proof.encrypted_drive_fault(carrier, facts, self._wanted())
            parts = list(carrier.parts)
        else:
            fault = self._osd_fault(carrier, facts)
            parts = [part for part in facts["named"] if part in self.devices]
        if not fault and self.like:
            opened = facts["opened"].values()
            faults = (preparation.fault(layers) for layers in opened if any(map(crypt_of, layers)))
            fault = next(filter(None, faults), None)
        if fault or self.hw_opal is None:
            return fault
        return opal.drive_fault(facts, parts, self.hw_opal)

    def _osd_fault(self, osd: Osd, facts: base.StorageFacts) -> Optional[str]:
        """What is wrong at an OSD; of another deployer's, only what the file names counts."""
        wanted = self._wanted()
        parts = facts["named"].keys() | ({"data"} if osd.is_existing else set())
        if not parts & {*self.devices}:
            return f"it has no device of {', '.join(self.devices)} that could be encrypted"
        if not osd.is_existing:
            return proof.encrypted_fault(osd, facts, wanted, self.devices)
        if isinstance(wanted, OpalTable) or wanted.on_opal:
            return "hw_opal can be proved only of drives that the campaign itself encrypted"
        claimed = None if self.like else self.model_fields_set
        return proof.found_fault(facts, wanted, claimed, self.devices)

    def _wanted(self) -> proof.Wanted:
        if self.hw_opal == "only":
            return OpalTable()
        flags, flash = frozenset(self._flags.everywhere), frozenset(self._flags.on_flash)
        size, on_opal = self._chosen_sector_size, self.hw_opal is not None
        return CryptTable(self.cipher, self.key_size, "", size, flags, on_opal, flash)
