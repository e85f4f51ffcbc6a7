"""The overlay seam: one change to how a cluster is deployed, with its proof.

Fields are options of the YAML file. Hooks return shell text and parse output; they run nothing.
"""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional, TypeVar, Union, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr
from typing_extensions import Self

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import storage_on_host
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import (
    Drive,
    HostOutputs,
    HostScripts,
    Osd,
    Site,
    VolumeEncryption,
    name_of,
)


class Transition(enum.IntEnum):
    """What a change of options takes, cheapest first, so that `max` combines overlays."""

    NONE = 0
    LIVE = 1
    RESTART = 2
    REBUILD = 3


@dataclass(frozen=True)
class Verdict:
    """Whether an overlay is in force, why in one sentence, and the JSON evidence for proof.json."""

    proved: bool
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Watch:
    """What is looked at on one host every few seconds, from before a cell until after it.

    `source` runs there, on Python 3.6 alone. Its `see(argument)` returns a JSON value, kept when it
    differs from the last; it must cost next to nothing. `count`, if any, is called first and last.
    """

    source: str
    argument: Any


@dataclass(frozen=True)
class Seen:
    """One value that a `Watch` returned; `since` is when, in seconds on that host's clock."""

    value: Any
    since: float


#: Options, or None.
Absent = Optional[Mapping[str, Any]]


class Overlay(BaseModel):
    """One change to how a cluster is deployed. Every hook is optional."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    #: The name in the YAML file.
    name: ClassVar[str]
    #: Whether its commands need root, or sudo without a password, on the hosts of the OSDs and
    #: clients. Its `absent` must do without.
    needs_root: ClassVar[bool] = False
    #: Whether it changes anything for a scenario that works on drives without Ceph.
    is_for_drives: ClassVar[bool] = False

    #: Overlays whose devices this one is laid over, wherever the file names them.
    lies_on: ClassVar[tuple[str, ...]] = ()

    #: Whether OSDs of one host and cluster may differ in it, whatever its options are.
    always_beside: ClassVar[bool] = False

    #: Whether its proof can tell it on a cluster that somebody else deployed.
    is_recognised: ClassVar[bool] = False

    #: Whether hosts' first answer to `ask` counts for all of a campaign; else that of each start.
    keeps_choice: ClassVar[bool] = False

    #: What it takes to change any of its options.
    change: ClassVar[Transition] = Transition.REBUILD

    #: What the options are where a configuration lacks it, if `absent` is to state and prove that.
    if_absent: ClassVar[Absent] = None

    _is_present: bool = PrivateAttr(default=True)

    @classmethod
    def absent(cls) -> Optional[Self]:
        """The overlay that proves its default where a configuration lacks it, or None."""
        return None if cls.if_absent is None else cls.make_absent(**cls.if_absent)

    @classmethod
    def make_absent(cls, **options: Any) -> Self:
        """Return an unvalidated instance whose `is_present` is False; most use it for `absent`."""
        overlay = cast(Self, cls.model_construct(**options))
        overlay._is_present = False
        return overlay

    @classmethod
    def beside(
        cls, configurations: Mapping[str, tuple[Overlay, ...]]
    ) -> dict[str, tuple[Overlay, ...]]:
        """The overlays of all configurations, if its absence is stated by what it is elsewhere."""
        return dict(configurations)

    @property
    def is_present(self) -> bool:
        """False for the instance that `absent` made."""
        return self._is_present

    @property
    def covers_devices(self) -> bool:
        """Whether it adds a layer on a device, torn down before others look at the device."""
        return False

    @property
    def stands_beside(self) -> bool:
        """Whether OSDs of one host and cluster may differ in it, for `layout: side_by_side`."""
        return self.always_beside

    @property
    def why_not_beside(self) -> str:
        """Where they may not: which overlay, why, and what to do."""
        return f"{self.name}, in which OSDs of one host cannot differ; leave layout out"

    @property
    def is_divisible(self) -> bool:
        """Whether each group of OSDs side by side may have it; `before_osds` is asked per group."""
        return True

    @property
    def replaces_client_libraries(self) -> bool:
        """Whether client processes get other libraries of Ceph; the kernel's client takes none."""
        return False

    @property
    def is_for_kernel_clients(self) -> bool:
        """Whether all of it counts for clients whose IO their kernel does."""
        return True

    def requirements(self, site: Site) -> Sequence[Requirement]:
        """What hosts must offer where it is present; checked before anything is touched."""
        return ()

    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        """Section -> option -> value, added to ceph.conf over the campaign's own."""
        return {}

    def conf_beside(self) -> Mapping[str, Mapping[str, str]]:
        """Options for OSDs, and their clients, beside OSDs that differ in this overlay."""
        return self.ceph_conf()

    def conf_of_all(self) -> Mapping[str, Mapping[str, str]]:
        """Options for monitors and managers that serve OSDs which differ in this overlay."""
        return {}

    def check_ceph_conf(self, conf: Mapping[str, Mapping[str, str]]) -> Optional[str]:
        """One sentence when the campaign's own ceph.conf contradicts this overlay, else None."""
        return None

    def introduce(self, site: Site) -> HostScripts:
        """Run before there is any daemon: what hosts have to tell one another, e.g. public keys."""
        return {}

    def before_daemons(self, site: Site, introductions: HostOutputs) -> HostScripts:
        """Run then, with what `introduce` printed on each host, e.g. to make a tunnel."""
        return {}

    def mon_address(self, site: Site, host: str, address: str) -> str:
        """The address of a monitor on `host` instead of `address`, which the file names."""
        return address

    def way_back(self, site: Site) -> HostScripts:
        """Print, before any change, what `take_down` needs and a host may lose; it is kept here."""
        return {}

    def put_back(self, site: Site, way_back: HostOutputs) -> HostScripts:
        """Give hosts that lost it, as in a power cut, what `way_back` printed there.

        It runs before `take_down`. Where `way_back` lacks a host, it prints what remains, by line.
        """
        return {}

    def program(self, site: Site, name: str) -> str:
        """What is called in place of one of Ceph's programs, such as ceph-osd."""
        return name

    def pool_profile(self, name: str) -> str:
        """The pool profile by which the pool of that profile's name is made."""
        return name

    def before_osds(self, site: Site) -> HostScripts:
        """Run before the OSDs are made, e.g. to make the device that `osd_device` names."""
        return {}

    def osd_device(self, osd: Osd, device: str) -> str:
        """The device the OSD shall use instead of `device` (what the overlay below offers)."""
        return device

    def osd_db_device(self, osd: Osd, device: Optional[str]) -> Optional[str]:
        """The device for RocksDB and its log instead of `device`; None where there is none."""
        return device

    def drive_device(self, drive: Drive, part: str, device: str) -> str:
        """The device for a `part` of a drive without Ceph, in place of `device`: `Drive.parts`."""
        return device

    def wrap_osd(self, osd: Osd, command: str) -> str:
        """The shell command that starts this OSD, wrapped."""
        return command

    def wrap_client(self, host: str, command: str) -> str:
        """The shell command that starts one client process on `host`, wrapped."""
        return command

    def volume_encryption(self) -> Optional[VolumeEncryption]:
        """How clients encrypt their volumes; None where this overlay has no part in it."""
        return None

    def after_osds(self, site: Site) -> HostScripts:
        """Run when the OSDs are up, and again for a live change of options: safe to repeat."""
        return {}

    def probe(self, site: Site) -> HostScripts:
        """Commands that read the state which proves the overlay; run before and after a cell."""
        return {}

    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        """Judge the outputs of `probe`, taken before and after a cell, on the same hosts."""
        return Verdict(True, "nothing to prove")

    def watch(self, site: Site) -> Mapping[str, Watch]:
        """Host -> what is looked at during the cell: changed and changed back between probes."""
        return {}

    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        """What contradicts the overlay in all that was seen on every host of `watch`, or None."""
        return None

    def evidence_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Mapping[str, Any]:
        """What of it stands in proof.json, beside the evidence of `judge`."""
        return {}

    def ask(self, site: Site) -> HostScripts:
        """What an option must know of the hosts first; run at each start, before all else."""
        return {}

    def decided(self, outputs: HostOutputs) -> Self:
        """The overlay with that option decided by the outputs of `ask`. May raise RunError."""
        return self

    def describe(self, site: Site) -> HostScripts:
        """Commands whose output belongs into environment.json; run once a campaign."""
        return {}

    def description(self, output: str) -> Any:
        """The output of `describe` on one host as a JSON-serializable value."""
        return output

    def take_down(self, site: Site) -> HostScripts:
        """Undo `before_osds` and `after_osds`; the daemons are gone by then. Safe to repeat."""
        return {}

    def transition_to(self, new: Self) -> Transition:
        """What it takes to go from these options to those of `new`."""
        return Transition.NONE if self == new else self.change


@dataclass(frozen=True)
class Finding:
    """What is wrong at an OSD or drive, a clause without a full stop, or None; what shows it."""

    fault: Optional[str]
    evidence: Mapping[str, Any] = field(default_factory=dict)


#: What carries data: an OSD, or a drive.
CarrierT = TypeVar("CarrierT", bound=Union[Osd, Drive])


def judge_all(overlay: Overlay, findings: Mapping[CarrierT, Finding], claim: str) -> Verdict:
    """Proved when no OSD (or drive) has a fault. `claim` completes the sentence "4 of 4 OSDs ...".

    With no OSDs, on another deployer's cluster, only an overlay's absence is not contradicted.
    """
    if not findings:
        return Verdict(not overlay.is_present, "the campaign deploys no OSD to look at")
    faults = [
        f"{name_of(carrier)} on {carrier.host}: {finding.fault}"
        for carrier, finding in findings.items()
        if finding.fault
    ]
    kind = "OSDs" if all(isinstance(carrier, Osd) for carrier in findings) else "drives"
    reason = f"{len(findings) - len(faults)} of {len(findings)} {kind} {claim}"
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        reason = f"{reason}; {faults[0]}{more}"
    evidence = {name_of(carrier): dict(finding.evidence) for carrier, finding in findings.items()}
    return Verdict(not faults, reason, evidence)


#: What `storage_on_host` found at one OSD.
StorageFacts = Mapping[str, Any]


def storage_script(asked: Mapping[str, Mapping[str, Any]]) -> str:
    """Shell text that runs `storage_on_host` with these arguments."""
    return shell.python(shell.program(storage_on_host), asked)


def storage_of(site: Site, outputs: HostOutputs) -> dict[str, StorageFacts]:
    """Name -> what its own host says of it; an output that is something else has none."""
    facts: dict[str, StorageFacts] = {}
    for host, output in outputs.items():
        with contextlib.suppress(ValueError, TypeError):
            facts.update(site.own(host, json.loads(output)))
    return facts


def closed_fault(facts: Optional[StorageFacts]) -> Optional[str]:
    """Why there is nothing to judge."""
    if not facts:
        return "its host did not say what it has open"
    if not facts["running"]:
        return "it is not running"
    return None if facts["opened"] else "it has no device open"
