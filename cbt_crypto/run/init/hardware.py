"""What the hosts have, as values: drives that are free or in use and why, networks, memory."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from rich.filesize import decimal

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices.destroy import device_guard
from cbt_crypto.hosts.remote import HostResult, Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file.document import printable
from cbt_crypto.run.init import hardware_on_host
from cbt_crypto.run.preflight.survey import survey

#: More bytes than a host with a thousand drives answers.
MOST_BYTES = 16 << 20


def _device(path: str) -> str:
    """A path below /dev, of characters that neither end a line of a file nor move a cursor."""
    if not path.startswith("/dev/") or not path.isprintable() or " " in path or ".." in path:
        raise ValueError("no path of a device")
    return path


def _devices(paths: list[str]) -> list[str]:
    """Those among them that a file can name: a drive has others, or has no stable name."""
    return [path for path in paths if printable(path) == path and " " not in path]


#: Each drive takes a script, and each network is compared with those of all hosts.
_MOST_DRIVES, _MOST_NETWORKS = 2048, 256
#: Characters of a host's text; what was made printable is checked once more.
_LONGEST = 4096
#: What a person reads: a serial number with an escape sequence loses it.
Text = Annotated[
    str, Field(max_length=_LONGEST), AfterValidator(lambda text: printable(text)[:_LONGEST])
]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Path = Annotated[str, Field(max_length=_LONGEST), AfterValidator(_device)]


_TIMEOUT_S = 120
#: Characters of what a host, or ssh, says of it.
_LONGEST_WHY = 300
_BY_ID, _BY_PARTLABEL = "/dev/disk/by-id/", "/dev/disk/by-partlabel/"
#: Names made of what the drive itself says come before those made of how it is attached.
_PREFERRED = ("wwn-", "nvme-eui.", "nvme-uuid.", "nvme-", "scsi-", "ata-", "virtio-")
#: Smaller ones are no place for an OSD: card readers, virtual floppies.
_LEAST_BYTES = 1 << 30

#: A number in quotes is none.
_AS_TOLD = ConfigDict(strict=True)


@dataclass(frozen=True, config=_AS_TOLD)
class HostNetwork:
    """An interface with an IPv4 address and its prefix; `speed` in Mbit/s, 0 for unknown."""

    name: Text
    address: Annotated[str, AfterValidator(lambda text: str(ipaddress.IPv4Interface(text)))]
    mtu: Count
    speed: Count
    hardware: bool


@dataclass(frozen=True, config=_AS_TOLD)
class HostDrive:
    """A block device of one host. `size` in bytes; `why_not` is None when it is free."""

    name: Text
    path: Path
    size: Count
    model: Text
    serial: Text
    rotational: bool
    removable: bool
    read_only: bool
    numa: Optional[Count]
    links: Annotated[list[str], AfterValidator(_devices)]
    mounts: list[Text]
    content: list[Text]
    volumes: list[Text]
    partitions: Count
    osd: Optional[Text]
    #: What follows no host says of itself: see `_judged`.
    host: str = ""
    #: Its stable name, below /dev/disk; None when it has none.
    stable: Optional[str] = None
    why_not: Optional[str] = None

    @property
    def kind(self) -> tuple[str, int]:
        """What makes two drives alike: model, and size to the GB."""
        return self.model, round(self.size / 1e9)

    @property
    def described(self) -> str:
        """`nvme0n1, SAMSUNG MZQL21T9, 1.9 TB, NUMA node 0`."""
        numa = "" if self.numa is None else f"NUMA node {self.numa}"
        return ", ".join(filter(None, (self.name, self.model, decimal(self.size), numa)))


@dataclass(frozen=True, config=_AS_TOLD)
class HostHardware:
    """One host. `memory` and `free`, that of tmp_dir's file system, are in bytes."""

    system: Text
    kernel: Text
    processor: Text
    cpus: Annotated[int, Field(ge=1, lt=1 << 20)]
    numa_nodes: Count
    memory: Count
    free: Count
    versions: dict[Text, Text]
    networks: Annotated[tuple[HostNetwork, ...], Field(max_length=_MOST_NETWORKS)]
    drives: Annotated[tuple[HostDrive, ...], Field(max_length=_MOST_DRIVES)]
    #: As we call it, whatever it says.
    name: str = ""

    @property
    def free_drives(self) -> list[HostDrive]:
        """The drives that an OSD could have: nothing is on them, and nobody uses them."""
        return [drive for drive in self.drives if drive.why_not is None]


_HARDWARE = TypeAdapter(HostHardware)


def read(host: str, text: str) -> HostHardware:
    """What `hardware_on_host` printed there; nothing is judged yet.

    Raises ValueError with a clause that says what no host has, and where in the answer.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"answered with more than {MOST_BYTES >> 20} MiB")
    try:
        return replace(_HARDWARE.validate_json(text), name=host)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = printable(".".join(map(str, first["loc"])))[:200]
        raise ValueError(f"answered with what no host has, at {place or 'its start'}") from None


def read_hardware(remote: Remote, hosts: Sequence[str], tmp_dir: str) -> list[HostHardware]:
    """Ask all hosts, twice: what they have, then what `check` says of each drive.

    Raises UsageError with a line for each host that cannot be asked. Nothing is touched.
    """
    script = shell.python(shell.program(hardware_on_host), tmp_dir)
    results = remote.attempt(dict.fromkeys(hosts, script), _TIMEOUT_S)
    said: list[HostHardware] = []
    problems = []
    for host in hosts:
        result = results.get(host)
        if result is None or result.status != 0:
            problems.append(f"{host}: {_unreachable(result)}")
            continue
        try:
            said.append(read(host, result.stdout))
        except ValueError as error:
            problems.append(f"{host}: {error}; see which python3 its shell starts")
    if problems:
        raise UsageError("\n".join(problems))
    verdicts = _guarded(remote, said, tmp_dir)
    return [
        replace(host, drives=tuple(_judged(host.name, drive, verdicts) for drive in host.drives))
        for host in said
    ]


def _unreachable(result: Optional[HostResult]) -> str:
    last = result.stderr.strip().splitlines()[-1:] if result else []
    why = f": {last[0][:_LONGEST_WHY]}" if last else ""
    if result is not None and result.status is not None:
        return f"cannot be read{why}; it needs python3"
    return f"cannot be reached{why}; fix its name, or have ssh let you in without a password"


def _guarded(
    remote: Remote, said: Sequence[HostHardware], tmp_dir: str
) -> dict[tuple[str, str], Optional[str]]:
    """(host, device) -> what `check` would have against it, None for nothing."""
    site = Site(tmp_dir=tmp_dir, conf="", head="", clients=(), osds=())
    checks: list[Requirement] = []
    for host in said:
        for drive in host.drives:
            guard = device_guard(site, host.name, drive.path)
            checks.append(replace(guard, column=f"{host.name} {drive.path}"))
    if not checks:
        return {}
    hosts = [host.name for host in said if host.drives]
    findings = survey(remote, hosts, checks)
    return {
        (finding.host, finding.column.partition(" ")[2]): finding.error
        for finding in findings
        if finding.column.startswith(f"{finding.host} ")
    }


def _judged(
    host: str, drive: HostDrive, verdicts: Mapping[tuple[str, str], Optional[str]]
) -> HostDrive:
    # What the guard said nothing about is not taken for free.
    refused, stable = verdicts.get((host, drive.path), "cannot be read"), stable_name(drive.links)
    return replace(drive, host=host, stable=stable, why_not=why_not(vars(drive), stable, refused))


def stable_name(links: Sequence[str]) -> Optional[str]:
    """The name that stays when drives are numbered anew; CBT's label before all others."""
    labels = [link for link in links if link.startswith(f"{_BY_PARTLABEL}osd-device-")]
    if labels:
        return labels[0]
    names = [link for link in links if link.startswith(_BY_ID)]

    def rank(link: str) -> tuple[int, str]:
        name = link.removeprefix(_BY_ID)
        preferred = (n for n, prefix in enumerate(_PREFERRED) if name.startswith(prefix))
        return next(preferred, len(_PREFERRED)), link

    # lvm-pv-uuid-... and dm-... name what is on a drive.
    direct = [name for name in names if not name.startswith((f"{_BY_ID}lvm-", f"{_BY_ID}dm-"))]
    return min(direct, key=rank, default=None)


def why_not(
    facts: Mapping[str, Any], stable: Optional[str], refused: Optional[str]
) -> Optional[str]:
    """Why an OSD cannot have the drive, in words; None when it can."""
    content = _carried(facts)
    if content:
        return ", ".join(content)
    if refused is not None:
        reason = refused.removeprefix(f"{facts['path']} ").partition(";")[0]
        return reason.replace("(LVM2_member)", "(an LVM physical volume)")
    if facts["read_only"] or facts["removable"]:
        return "read-only" if facts["read_only"] else "removable"
    if facts["size"] < _LEAST_BYTES:
        return "smaller than 1 GiB"
    return None if stable else "has no stable name below /dev/disk/by-id"


def _carried(facts: Mapping[str, Any]) -> list[str]:
    """What is on a drive, most telling first."""
    content, volumes = facts["content"], facts["volumes"]
    words = []
    if facts["mounts"]:
        words.append(f"mounted on {' '.join(facts['mounts'])}")
    ceph = any(name.startswith("ceph--") for name in volumes) or "ceph_bluestore" in content
    if facts["osd"] or ceph:
        words.append(f"a Ceph OSD{' ' + facts['osd'] if facts['osd'] else ''}")
    if "LVM2_member" in content:
        named = f" ({' '.join(volumes)})" if volumes else ""
        words.append(f"an LVM physical volume{named}")
    rest = [kind for kind in content if kind not in ("LVM2_member", "ceph_bluestore")]
    if rest and not facts["mounts"]:
        words.append(f"carries {' '.join(rest)}")
    if facts["partitions"] and not words:
        many = "s" if facts["partitions"] > 1 else ""
        words.append(f"{facts['partitions']} partition{many}")
    return words
