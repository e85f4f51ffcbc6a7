"""Hosts, roles, OSDs and devices as plain values, so that hooks can be tested without a cluster."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional, Union

from cbt_crypto.hosts import ceph_conf
from cbt_crypto.units import grouped

#: Host name -> POSIX sh text to run there. What every hook returns instead of running anything.
#: `$SUDO` stands for what makes a command root's on that host: empty, or `sudo -n`.
#: The text runs under `set -eu`: the first command that fails, fails the host.
HostScripts = Mapping[str, str]

#: Host name -> standard output of its script.
HostOutputs = Mapping[str, str]


@dataclass(frozen=True)
class Osd:
    """One OSD: `device` is what the campaign names, a block device or, with `is_file`, a file."""

    id: int
    host: str
    device: str
    data_dir: str
    admin_socket: str
    pid_file: str
    is_file: bool = False
    db_device: Optional[str] = None
    #: Its number on its host, from 0.
    number: int = 0
    #: The whole device, where `device` is a volume on one that several OSDs share.
    disk: Optional[str] = None
    #: Deployed by somebody else: what it is on has their names.
    is_existing: bool = False

    @property
    def devices(self) -> tuple[str, ...]:
        """The block devices, whole ones, that deploying it writes to."""
        data = None if self.is_file else self.disk or self.device
        return tuple(device for device in (data, self.db_device) if device)


@dataclass(frozen=True)
class Drive:
    """A drive without Ceph: `devices` named (or an `array`'s), our `folder`, the top `path`."""

    name: str
    host: str
    devices: tuple[str, ...]
    folder: str
    array: Optional[str] = None
    chunk_kib: int = 512
    encrypts_members: bool = False
    plp: Optional[bool] = None
    path: str = ""

    @property
    def parts(self) -> dict[str, str]:
        """What an overlay may lay itself over: part -> device."""
        if self.array is not None and not self.encrypts_members:
            return {"data": self.array}
        if len(self.devices) == 1:
            return {"data": self.devices[0]}
        return {f"member{number}": device for number, device in enumerate(self.devices)}

    @property
    def mount_point(self) -> str:
        """Where a scenario mounts a file system that it makes on the drive."""
        return f"{self.folder}/mnt"

    @property
    def note(self) -> str:
        """The file that says what the measuring process had open."""
        return f"{self.folder}/opened"


def name_of(carrier: Union[Osd, Drive]) -> str:
    """`osd.3`, or `drive NVMe`."""
    return f"osd.{carrier.id}" if isinstance(carrier, Osd) else f"drive {carrier.name}"


@dataclass(frozen=True)
class VolumeEncryption:
    """LUKS on a client's volume, by dm-crypt or librbd: part of its name, options, MiB in front."""

    label: str
    formatting: tuple[str, ...]
    header_mb: int
    by_librbd: bool = False


@dataclass(frozen=True)
class Site:
    """What a hook may know of the cluster: roles, OSDs and the one directory we write in."""

    tmp_dir: str
    conf: str
    head: str
    clients: tuple[str, ...]
    osds: tuple[Osd, ...]
    mons: tuple[str, ...] = ()
    mgrs: tuple[str, ...] = ()
    #: Whether devices that carry a foreign signature may be overwritten.
    wipe: Union[bool, tuple[str, ...]] = False
    #: Whether devices are discarded before each deployment.
    discard: bool = False
    #: The campaign's name for ceph(8).
    ceph_cmd: str = "ceph"
    #: The id of the campaign's client of the cluster: `bench` is client.bench.
    client_id: str = ceph_conf.ADMIN
    #: Hosts of OSDs that somebody else deployed, as the file names them.
    beside: tuple[str, ...] = ()
    #: Hosts on which client processes of the running scenario are; a subset of `clients`.
    active_clients: tuple[str, ...] = field(default=())
    #: Drives that are worked on without Ceph. A cell has OSDs or one of these.
    drives: tuple[Drive, ...] = field(default=())
    #: The group of configurations whose OSDs these are, where others stand beside them on the
    #: same cluster: those are `idle`. `unlike` names the overlays in which groups differ, `slices`
    #: is the number of the deployment, which says which part of each drive is whose.
    group: str = ""
    slices: int = 0
    idle: tuple[Osd, ...] = field(default=())
    unlike: tuple[str, ...] = field(default=())
    #: (host, overlay): where it changes what a host has but once, whatever `tmp_dir` is.
    changed: tuple[tuple[str, str], ...] = field(default=())
    #: How clients of the configuration encrypt their volumes; None where they do not.
    volume_encryption: Optional[VolumeEncryption] = None
    #: The file system in their volumes, where they work on files.
    filesystem: Optional[str] = None
    #: Whether they are block devices of rbd-nbd.
    on_nbd: bool = False

    def pool(self, profile: str) -> str:
        """The name of a profile's pool, the group's own where it has one."""
        return f"{profile}.{self.group}" if self.group else profile

    @property
    def storage_hosts(self) -> tuple[str, ...]:
        """Hosts with an OSD or a drive that is worked on, each once."""
        return tuple(dict.fromkeys((*self.osd_hosts, *(drive.host for drive in self.drives))))

    @property
    def ceph_command(self) -> str:
        """How ceph(8) is called on the head."""
        words = ceph_conf.client_words(self.conf, self.client_id)
        return f"{shlex.join(shlex.split(self.ceph_cmd))} {words}"

    @property
    def osd_hosts(self) -> tuple[str, ...]:
        """Hosts with at least one OSD, each once, in the campaign's order."""
        return tuple(dict.fromkeys(osd.host for osd in self.osds))

    @property
    def daemon_hosts(self) -> tuple[str, ...]:
        """Hosts with a monitor, a manager or an OSD, each once."""
        return tuple(dict.fromkeys((*self.mons, *self.mgrs, *self.osd_hosts)))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host of the campaign, each once."""
        daemons = (*self.mons, *self.mgrs, *self.storage_hosts, *self.beside)
        return tuple(dict.fromkeys((self.head, *daemons, *self.clients)))

    def role(self, *named: str) -> tuple[str, ...]:
        """Hosts of CBT's roles, each once: head, clients, osds, mons, mgrs. KeyError for others."""
        roles = {
            "head": (self.head,),
            "clients": self.clients,
            "osds": self.osd_hosts,
            "mons": self.mons,
            "mgrs": self.mgrs,
        }
        return tuple(dict.fromkeys(host for name in named for host in roles[name]))

    def devices_of(self, host: str) -> tuple[str, ...]:
        """The block devices, each once, of one host's OSDs and drives."""
        drives = (drive for drive in self.drives if drive.host == host)
        named = [osd.devices for osd in self.osds_of(host)] + [drive.devices for drive in drives]
        return tuple(dict.fromkeys(itertools.chain(*named)))

    def osds_of(self, host: str) -> tuple[Osd, ...]:
        """The OSDs of one host, by id."""
        return self._osds_by_host.get(host, ())

    def own(self, host: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Of what `host` answered, by `osd.3`, `osd.3 bytes` or `drive NVMe`, only what it has.

        One that speaks for another's OSDs is broken, or lies.
        """
        own, said = self._names_by_host.get(host, set()), dict(answers).items()
        return {key: value for key, value in said if {key, str(key).partition(" ")[0]} & own}

    def heard(self, host: str, said: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        """What `host` says of its OSDs, and of monitors and managers beside what others said."""
        others = ((who, about) for who, about in said.items() if not who.startswith("osd."))
        told = {w if known.get(w, a) == a else f"{w} on {host}": a for w, a in others}
        return {**told, **self.own(host, said)}

    @cached_property
    def _names_by_host(self) -> Mapping[str, set[str]]:
        by_host: dict[str, set[str]] = {}
        carriers: tuple[Union[Osd, Drive], ...] = (*self.osds, *self.idle, *self.drives)
        for carrier in carriers:
            by_host.setdefault(carrier.host, set()).add(name_of(carrier))
        return by_host

    @cached_property
    def _osds_by_host(self) -> Mapping[str, tuple[Osd, ...]]:
        by_host = grouped((osd.host, osd) for osd in self.osds)
        return {host: tuple(osds) for host, osds in by_host.items()}
