"""A campaign file proposed for hosts: roles, drives, memory and PGs, and beside each value why."""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Optional

import yaml

from cbt_crypto.archive.files import one_line
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.results.repetition import FEWEST_ROUNDS
from cbt_crypto.run.init.hardware import HostDrive, HostHardware, HostNetwork
from cbt_crypto.run.preflight.survey import survey

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
    # Bytes for each OSD, on the host with least memory.
    memory = min(
        int(h.memory * (_SHARE_WITH_CLIENT if h in clients else _SHARE)) // count for h in osds
    )
    return Proposal(
        osds=osds,
        clients=clients,
        drives=chosen,
        spare=tuple(d for h in osds for d in h.free_drives if (d.host, d.path) not in taken),
        network=network,
        network_is_shared=is_shared,
        osds_per_node=count,
        replication=replication,
        pg_num=max(1, 2 ** round(math.log2(count * len(osds) * _PGS_PER_OSD / replication))),
        memory_target=_memory_target(memory),
        is_short_of_memory=memory < _LEAST_TARGET,
        file_bytes=None if per_node else _file_bytes(osds, count),
    )


def _roles(
    hosts: Sequence[HostHardware],
) -> tuple[tuple[HostHardware, ...], tuple[HostHardware, ...]]:
    for has_osds in (
        lambda host: _OSD_NAME.match(host.name),
        lambda host: not _CLIENT_NAME.match(host.name),
        lambda host: host.free_drives,
    ):
        osds = tuple(host for host in hosts if has_osds(host))
        clients = tuple(host for host in hosts if host not in osds)
        if osds and clients:
            return osds, clients
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
    """The fastest network that all hosts are in, else the monitor's fastest; and which of both."""
    shared = [network for network in mon.networks if _leads_to_all(network, hosts)]
    candidates = shared or list(mon.networks)
    if not candidates:
        raise UsageError(f"{mon.name}: has no IPv4 address; give it one for the monitor")
    fastest = max(candidates, key=lambda network: (network.hardware, network.speed, network.mtu))
    return fastest, bool(shared)


def _leads_to_all(network: HostNetwork, hosts: Sequence[HostHardware]) -> bool:
    """Whether each host has an address of its own there, and none another's, as behind a NAT."""
    inside = ipaddress.ip_interface(network.address).network
    found = [
        {ip for n in host.networks if (ip := ipaddress.ip_interface(n.address).ip) in inside}
        for host in hosts
    ]
    return all(found) and len(set.union(*found)) == sum(map(len, found))


def _memory_target(bytes_each: int) -> int:
    """osd_memory_target in whole GiB from 1 GiB on; without one Ceph takes 4 GiB."""
    unit = 1 << 30 if bytes_each >= 1 << 30 else 1 << 20
    return max(_LEAST_TARGET, min(_MOST_TARGET, bytes_each // unit * unit))


def _file_bytes(osds: Sequence[HostHardware], count: int) -> int:
    """As large as files may become where there is the least room."""
    room = min(host.free for host in osds) // 2 // count
    return max(1 << 30, min(_FILE_BYTES, room >> 30 << 30))


_ARTICLES = Path(__file__).parent / "articles"
#: Articles whose files name no devices beyond those of the OSDs.
ARTICLES = ("reef_encryption", "network_overhead")
#: Keys of `cluster` that are the experiment's and not the hosts'.
_KEPT = ("rebuild", "order", "iterations", "baseline", "deploy_timeout")
#: What the quickstart, in an emulated machine, has no time for.
_NO_WORKQUEUES = {
    "LUKS, no workqueues": {"luks": {"no_read_workqueue": True, "no_write_workqueue": True}}
}
#: Rounds of a file that starts from no article. A verdict takes four; of six, deployments that toss
#: between two levels are all on one side in 3 % of campaigns.
_ROUNDS = 6


@dataclass(frozen=True)
class Size:
    """Bounds of a campaign: seconds of a cell, rounds, MiB of a volume, sections of workloads."""

    seconds: int = 86400
    rounds: int = _ROUNDS
    volume: int = 1 << 30
    sections: int = 9


#: From the largest campaign to the smallest one that ends in verdicts.
SIZES = (
    *(Size(), Size(30), Size(20), Size(20, 5), Size(20, FEWEST_ROUNDS)),
    *(Size(20, FEWEST_ROUNDS, 2048), Size(10, FEWEST_ROUNDS, 2048)),
    *(Size(10, FEWEST_ROUNDS, 1024, sections) for sections in (9, 2, 1)),
)
#: Part of all OSDs' room that volumes may fill, replicas counted.
_FILLED = 0.3
_LEAST_VOLUME_MIB = 64


@dataclass(frozen=True)
class Start:
    """What a file says of the experiment, its hosts left out.

    `left_out`: configuration -> why these hosts cannot have it. `dropped`: overlay that all
    configurations had -> why. `cut`: what was cut to fit the hours, empty if nothing was.
    """

    cluster: Mapping[str, Any]
    settings: Mapping[str, Any]
    configurations: Mapping[str, Mapping[str, Any]]
    benchmarks: Mapping[str, Any]
    left_out: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    cut: str = ""

    @property
    def usable(self) -> dict[str, Mapping[str, Any]]:
        """The configurations that these hosts can have."""
        return {
            name: {key: value for key, value in named.items() if key not in self.dropped}
            for name, named in self.configurations.items()
            if name not in self.left_out
        }

    @property
    def baseline(self) -> str:
        """The file's baseline, or the first that is left of its configurations."""
        named = self.cluster.get("baseline")
        usable = self.usable
        return str(named) if named in usable else next(iter(usable))


def start_from(
    article: Optional[str], proposal: Proposal, seconds: Optional[int], size: Size = SIZES[0]
) -> Start:
    """A published experiment, or the story of the quickstart under loads of both op sizes.

    `seconds` replaces the time that each cell is measured, and bounds the ramp before it. Volumes
    are made to fit the OSDs, and all of it `size`.
    """
    file = _ARTICLES / f"{article or 'quickstart'}.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    benchmarks = document["benchmarks"] if article else _loads(len(proposal.clients))
    benchmarks = dict(islice(benchmarks.items(), size.sections))
    cluster = dict(document["cluster"])
    cluster["iterations"] = min(cluster["iterations"] if article else _ROUNDS, size.rounds)
    further = {} if article else _NO_WORKQUEUES
    return Start(
        cluster={key: cluster[key] for key in _KEPT if key in cluster},
        settings=cluster.get("settings", {}) if article else {},
        configurations={**cluster["configurations"], **further},
        benchmarks=_fitted(benchmarks, proposal, seconds, size),
    )


def cut_from(whole: Start, start: Start) -> str:
    """What a start lacks of the whole one, such as `4 rounds instead of 6, cells of ...`."""

    def most(key: str) -> list[int]:
        sections = ([*map(_parts, one.benchmarks.values())] for one in (whole, start))
        return [max(part[key] for parts in of_one for part in parts) for of_one in sections]

    rounds, sizes = [one.cluster["iterations"] for one in (whole, start)], most("vol_size")
    cuts = {"{} rounds": rounds, "cells of {} s": most("time"), "volumes of {} MiB": sizes}
    said = [f"{text.format(to)} instead of {of}" for text, (of, to) in cuts.items() if to != of]
    without = [f"without {name}" for name in whole.benchmarks if name not in start.benchmarks]
    return ", ".join([*said, *without])


def _loads(clients: int) -> dict[str, Any]:
    both = {"op_size": [4194304, 4096], "mode": ["randread", "randwrite"]}
    asynchronous = {"vol_size": 8192, "iodepth": 128, "time": 60, "ramp": 10, "workloads": both}
    sync = {
        "vol_size": 8192, "iodepth": 1, "time": 60, "ramp": 10, "op_size": 4096,
        "workloads": {"mode": ["randread", "randwrite"]},
    }  # fmt: skip
    loads: dict[str, Any] = {"rbd_single_client": asynchronous, "rbd_single_client_sync": sync}
    if clients > 1:
        loads = {"rbd_multi_client": {"volumes_per_client": 4, **asynchronous}, **loads}
    return loads


def _fitted(
    benchmarks: Mapping[str, Any], proposal: Proposal, seconds: Optional[int], most_of: Size
) -> dict[str, Any]:
    """The workloads with one size for all volumes, which are so shared, and with `seconds`."""
    sections = [part for section in benchmarks.values() for part in _parts(section)]
    most = max(part.get("volumes_per_client", 1) for part in sections) * len(proposal.clients)
    room = proposal.capacity * _FILLED / proposal.replication / most / 2**20
    size = max(int(part.get("vol_size", 1024)) for part in sections)
    while size > max(min(room, most_of.volume), _LEAST_VOLUME_MIB):
        size //= 2

    def fitted(part: Mapping[str, Any]) -> dict[str, Any]:
        measured = seconds or min(part["time"], most_of.seconds)
        ramp = {"ramp": min(part["ramp"], measured)} if "ramp" in part else {}
        return {**part, "vol_size": size, "time": measured, **ramp}

    return {
        name: list(map(fitted, section)) if isinstance(section, list) else fitted(section)
        for name, section in benchmarks.items()
    }


def _parts(section: Any) -> list[Mapping[str, Any]]:
    return section if isinstance(section, list) else [section]


def fitting(start: Start, campaign: Campaign, remote: Remote) -> Start:
    """The start without what the hosts lack for it: each overlay's own requirements are asked."""
    site = site_of(campaign.cluster)
    checks: list[Requirement] = []
    columns: dict[str, tuple[str, str]] = {}
    for name, stack in campaign.stacks.items():
        for overlay in stack.named:
            column = f"requirement {len(columns)}"
            columns[column] = (name, overlay.name)
            needs = overlay.requirements(stack.below(overlay, site))
            checks += [replace(need, column=column) for need in needs]
    wanting: dict[tuple[str, str], str] = {}
    for finding in survey(remote, site.hosts, checks) if checks else ():
        if finding.error and finding.column in columns:
            sentence = f"{finding.host}: {finding.error}"
            wanting.setdefault(columns[finding.column], " ".join(sentence.split()))
    return without_rows_that_fail(start, wanting)


def without_rows_that_fail(start: Start, wanting: Mapping[tuple[str, str], str]) -> Start:
    """The start without what the hosts lack; `wanting` is (configuration, overlay) -> why."""
    common = set.intersection(*(set(named) for named in start.configurations.values()))
    dropped = {overlay: why for (_, overlay), why in wanting.items() if overlay in common}
    left_out: dict[str, str] = {}
    for (name, overlay), why in wanting.items():
        if overlay not in common:
            left_out.setdefault(name, why)
    return replace(start, left_out=left_out, dropped=dropped)


def text(proposal: Proposal, start: Start, name: str, user: str | None, origin: str) -> str:
    """The whole file. `name` is what it will be called, `origin` what it starts from."""
    parts = (
        _heading(name, origin),
        _hosts(proposal, user),
        _devices(proposal),
        _pools(proposal, start),
        _experiment(start),
        _monitoring(proposal),
        _benchmarks(proposal, start),
    )
    return "".join(f"{line}\n" for part in parts for line in part)


def _heading(name: str, origin: str) -> Iterator[str]:
    yield f"# Proposed by `cbt-crypto init` from what the hosts have; it starts from {origin}."
    yield "# Nothing was touched. Read it, change it, then:"
    yield "#"
    yield f"#   cbt-crypto check {name}"
    yield f"#   cbt-crypto plan {name}"
    yield f"#   cbt-crypto run {name}"
    yield "#"
    yield "# docs/file.md describes every key."


def _hosts(proposal: Proposal, user: str | None) -> Iterator[str]:
    network, mon = proposal.network, proposal.osds[0].name
    speed = f"{network.speed / 1000:g} Gbit/s" if network.speed else "speed unknown"
    yield "cluster:"
    if user:
        yield f"  user: {user}"
    yield f"  head: {proposal.clients[0].name}"
    yield f"  clients: {flow([host.name for host in proposal.clients])}"
    yield f"  osds: {flow([host.name for host in proposal.osds])}"
    why = "the fastest network that all are in"
    if not proposal.network_is_shared:
        why = f"the fastest of {mon}; the hosts have none in common, so it has to be routed"
    yield f"  # {network.name}, {speed}, MTU {network.mtu}: {why}."
    address = network.address.partition("/")[0]
    yield f"  mons: {{{mon}: {{a: {json.dumps(address)}}}}}"
    yield f"  mgrs: {{{mon}: {{x: ~}}}}"
    yield f"  osds_per_node: {proposal.osds_per_node}"


def _devices(proposal: Proposal) -> Iterator[str]:
    if proposal.file_bytes:
        yield "  # Not every OSD host has a free drive: OSDs are sparse files below tmp_dir, whose"
        yield "  # figures say nothing about drives, and LUKS needs block devices."
        yield f"  osd_file_size: {binary(proposal.file_bytes)}"
        return
    yield "  # Free, unmounted, without anybody's signature. Their content is overwritten."
    yield "  osd_devices:"
    for host, drives in proposal.drives.items():
        yield f"    {host}:"
        yield from (f"      - {_path(drive)}   # {one_line(drive.described)}" for drive in drives)
    if proposal.spare:
        yield "  # Free too, and left out as every host is to have as many and alike:"
        yield from (f"  #   {d.host}: {_path(d)}   {one_line(d.described)}" for d in proposal.spare)


def _pools(proposal: Proposal, start: Start) -> Iterator[str]:
    count = proposal.osds_per_node * len(proposal.osds)
    each = round(proposal.pg_num * proposal.replication / count)
    profile = dict.fromkeys(("pg_size", "pgp_size"), proposal.pg_num)
    profile["replication"] = proposal.replication
    yield f"  # {each} PGs an OSD, replicas counted; Ceph's documentation aims at 100 to 200."
    yield f"  pool_profiles: {flow({'rbd': profile})}"
    least = min(host.memory for host in proposal.osds)
    settings = {key: v for key, v in start.settings.items() if key != "osd_memory_target"}
    is_short = proposal.is_short_of_memory
    bound = "the least that Ceph takes, and too much" if is_short else "16G at most"
    yield f"  # For {proposal.osds_per_node} a host, of {least / 2**30:.3g} GiB; {bound}."
    settings = {"osd_memory_target": binary(proposal.memory_target), **settings}
    yield f"  settings: {flow(settings)}"


def _experiment(start: Start) -> Iterator[str]:
    for key, value in start.cluster.items():
        if key == "iterations":
            yield "  # Rounds: each deploys and measures every configuration once. Verdicts take 4."
        if key != "baseline":
            yield f"  {key}: {flow(value)}"
    yield f"  baseline: {flow(start.baseline)}"
    for overlay, why in start.dropped.items():
        yield f"  # {overlay} is left out of all of them: {one_line(why)}"
    yield "  configurations:"
    for name, overlays in start.usable.items():
        yield f"    {flow(name)}: {flow(overlays)}"
    for name, why in start.left_out.items():
        yield f"    # {one_line(why)}"
        yield f"    # {flow(name)}: {flow(start.configurations[name])}"


def _monitoring(proposal: Proposal) -> Iterator[str]:
    hosts = {host.name: host for host in (*proposal.clients, *proposal.osds)}
    without = [name for name, host in hosts.items() if "collectl" not in host.versions]
    if without:
        yield f"# Our own sampler watches all hosts: collectl is missing on {' '.join(without)}."
        yield "# Where collectl is on every host, leave this section out."
        yield "monitoring_profiles:"
        yield "  sampler: {}"


def _benchmarks(proposal: Proposal, start: Start) -> Iterator[str]:
    if start.cut:
        yield f"# To fit --hours: {start.cut}."
    yield "benchmarks:"
    for name, section in start.benchmarks.items():
        yield f"  {name}:"
        sections = _parts(section)
        yield from _from_memory(name, sections, proposal)
        for part in sections:
            for index, (key, value) in enumerate(part.items()):
                dash = ("- " if index == 0 else "  ") if isinstance(section, list) else ""
                yield f"    {dash}{key}: {flow(value)}"


def _from_memory(
    name: str, sections: Sequence[Mapping[str, Any]], proposal: Proposal
) -> Iterator[str]:
    """What reads of these volumes measure, where the OSDs' memory has room for all of them."""
    osds = proposal.osds_per_node * len(proposal.osds)
    memory = proposal.memory_target * osds // proposal.replication
    clients = 1 if "single_client" in name else len(proposal.clients)
    for part in sections:
        volumes = int(part.get("volumes_per_client", 1)) * clients
        if "vol_size" in part and (part["vol_size"] << 20) * volumes <= memory:
            larger = (memory >> 20) // volumes + 1
            yield "    # Its volumes fit into the OSDs' memory, so reads measure memory; vol_size"
            yield f"    # {larger} or more measures drives, and takes as much longer to fill."
            return


def flow(value: Any) -> str:
    """A value in one line of YAML."""
    # Through JSON: what two keys share must not become an anchor and an alias.
    plain = json.loads(json.dumps(value))
    text = yaml.safe_dump(plain, default_flow_style=True, width=1 << 30, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def binary(size: int) -> str:
    """Bytes as the file has them: `16G`, `900M`."""
    return f"{size >> 30}G" if size % (1 << 30) == 0 else f"{size >> 20}M"


def _path(drive: HostDrive) -> str:
    return flow(drive.stable)
