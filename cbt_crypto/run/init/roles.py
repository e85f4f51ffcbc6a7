"""Which host does what, on which drives, with how much memory and how many PGs: a proposal."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.errors import UsageError
from cbt_crypto.run.init.hardware import HostDrive, HostHardware, HostNetwork

#: PGs of one OSD, replicas counted, that Ceph's own documentation aims at.
_PGS_PER_OSD = 100
#: What an OSD needs at least, and what the article gave it.
_LEAST_TARGET, _MOST_TARGET = 896 << 20, 16 << 30
#: Part of a host's memory for its OSDs; less where clients run on it too.
_SHARE, _SHARE_WITH_CLIENT = 0.7, 0.5
#: OSDs on files, where no host has a free drive.
_FILES_PER_NODE, _FILE_BYTES = 2, 10 << 30
_OSD_NAME = re.compile(r"(osd|ceph|stor|data|node-?osd)", re.IGNORECASE)
_CLIENT_NAME = re.compile(r"(client|load|fio|bench|gen)", re.IGNORECASE)


@dataclass(frozen=True)
class Proposal:
    """Roles and numbers. `drives` are those of the OSDs by host; empty for OSDs on files."""

    osds: tuple[HostHardware, ...]
    clients: tuple[HostHardware, ...]
    drives: dict[str, list[HostDrive]]
    #: Free ones that are left out, as they are not like the others or too many.
    spare: tuple[HostDrive, ...]
    network: HostNetwork
    osds_per_node: int
    replication: int
    pg_num: int
    #: Whether every host has an address of its own in `network`.
    network_is_shared: bool
    #: Bytes; not less than Ceph accepts.
    memory_target: int
    #: Whether OSDs of that target may need more than the smallest host can spare.
    is_short_of_memory: bool
    #: Bytes of one OSD's file, None on drives.
    file_bytes: Optional[int]

    @property
    def capacity(self) -> int:
        """Bytes of all OSDs together."""
        if self.file_bytes:
            return self.file_bytes * self.osds_per_node * len(self.osds)
        return sum(drive.size for of_host in self.drives.values() for drive in of_host)


def propose(hosts: Sequence[HostHardware]) -> Proposal:
    """Roles by what hosts have and, where that leaves a choice, by their names."""
    osds, clients = _roles(hosts)
    drives = _drives(osds)
    per_node = min((len(of_host) for of_host in drives.values()), default=0)
    chosen = {host: of_host[:per_node] for host, of_host in drives.items()} if per_node else {}
    taken = {(drive.host, drive.path) for of_host in chosen.values() for drive in of_host}
    count = per_node or _FILES_PER_NODE
    replication = min(3, len(osds))
    network, is_shared = _network(osds[0], hosts)
    memory = _memory_for_each(osds, clients, count)
    return Proposal(
        osds=osds,
        clients=clients,
        drives=chosen,
        spare=tuple(d for h in osds for d in h.free_drives if (d.host, d.path) not in taken),
        network=network,
        network_is_shared=is_shared,
        osds_per_node=count,
        replication=replication,
        pg_num=_pg_num(count * len(osds), replication),
        memory_target=_memory_target(memory),
        is_short_of_memory=memory < _LEAST_TARGET,
        file_bytes=None if per_node else _file_bytes(osds, count),
    )


def _roles(
    hosts: Sequence[HostHardware],
) -> tuple[tuple[HostHardware, ...], tuple[HostHardware, ...]]:
    named = tuple(host for host in hosts if _OSD_NAME.match(host.name))
    rest = tuple(host for host in hosts if host not in named)
    if named and rest:
        return named, rest
    clients = tuple(host for host in hosts if _CLIENT_NAME.match(host.name))
    others = tuple(host for host in hosts if host not in clients)
    if clients and others:
        return others, clients
    with_drives = tuple(host for host in hosts if host.free_drives)
    without = tuple(host for host in hosts if not host.free_drives)
    if with_drives and without:
        return with_drives, without
    if len(hosts) == 1:
        return tuple(hosts), tuple(hosts)
    # All alike: one in four loads the others.
    count = max(1, len(hosts) // 4)
    return tuple(hosts[count:]), tuple(hosts[:count])


def _drives(osds: Sequence[HostHardware]) -> dict[str, list[HostDrive]]:
    """The free drives of the kind of which every OSD host has most; fast ones where equal."""
    kinds = {drive.kind: drive.rotational for host in osds for drive in host.free_drives}
    best: dict[str, list[HostDrive]] = {}
    for kind, _ in sorted(kinds.items(), key=lambda item: (item[1], item[0])):
        of_kind = {h.name: [d for d in h.free_drives if d.kind == kind] for h in osds}
        if min(map(len, of_kind.values())) > min(map(len, best.values()), default=0):
            best = of_kind
    if best:
        return best
    # No kind that all have: whatever is free, as long as everyone has one.
    every = {host.name: host.free_drives for host in osds}
    return every if all(every.values()) else {}


def _network(mon: HostHardware, hosts: Sequence[HostHardware]) -> tuple[HostNetwork, bool]:
    """The fastest network of the monitor's host that every host has an address in, if there is one.

    Else the fastest that it has; which of the two, is the second value.
    """
    shared = [network for network in mon.networks if _leads_to_all(network, hosts)]
    candidates = shared or list(mon.networks)
    if not candidates:
        raise UsageError(f"{mon.name}: has no IPv4 address; give it one for the monitor")
    fastest = max(candidates, key=lambda network: (network.hardware, network.speed, network.mtu))
    return fastest, bool(shared)


def _leads_to_all(network: HostNetwork, hosts: Sequence[HostHardware]) -> bool:
    """Whether each host has an address of its own in the network.

    Where two have the same, as behind a NAT or on a bridge of containers, it is not one network.
    """
    inside = ipaddress.ip_interface(network.address).network
    found = [
        {address for address in map(_address, host.networks) if address in inside} for host in hosts
    ]
    return all(found) and len(set.union(*found)) == sum(map(len, found))


def _address(network: HostNetwork) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_interface(network.address).ip


def _pg_num(osds: int, replication: int) -> int:
    """The power of two nearest to 100 PGs an OSD."""
    wanted = osds * _PGS_PER_OSD / replication
    power = 1
    while power * 2 <= wanted * 2**0.5:
        power *= 2
    return power


def _memory_for_each(
    osds: Sequence[HostHardware], clients: Sequence[HostHardware], count: int
) -> int:
    """Bytes that each OSD may have on the host with least memory."""
    return min(
        int(host.memory * (_SHARE_WITH_CLIENT if host in clients else _SHARE)) // count
        for host in osds
    )


def _memory_target(bytes_each: int) -> int:
    """osd_memory_target in whole GiB from 1 GiB on; without one Ceph takes 4 GiB."""
    unit = 1 << 30 if bytes_each >= 1 << 30 else 1 << 20
    return max(_LEAST_TARGET, min(_MOST_TARGET, bytes_each // unit * unit))


def _file_bytes(osds: Sequence[HostHardware], count: int) -> int:
    """As large as files may become where there is the least room."""
    room = min(host.free for host in osds) // 2 // count
    return max(1 << 30, min(_FILE_BYTES, room >> 30 << 30))
