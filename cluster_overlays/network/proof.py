"""What shows that Ceph's daemons talk through the tunnel, and through nothing else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from cbt_crypto.cluster_overlays.base import Verdict
from cbt_crypto.cluster_overlays.secure_messenger.traffic import COUNTERS, Traffic
from cbt_crypto.hosts import admin_socket, shell
from cbt_crypto.hosts.admin_socket import Question
from cbt_crypto.hosts.site import HostOutputs, Osd, Site
from cbt_crypto.units import counted

TUNNEL = "@tunnel"
BYTES = "@bytes"
PATHS = "@paths"
#: Line before the output -> what ceph is asked for.
DUMPS = {"@osds": "osd dump", "@mons": "mon dump"}


def question(osd: Osd) -> Question:
    """For the bytes that an OSD sent and received."""
    return Question(
        f"osd.{osd.id}", osd.admin_socket, {"prefix": "perf dump"}, COUNTERS, steady=True
    )


@dataclass
class Look:
    """What one probe said. `tunnels` has each host's devices, as first and as last seen."""

    tunnels: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    sockets: dict[str, Mapping[str, int]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    osds: Optional[Mapping[str, Any]] = None
    mons: Optional[Mapping[str, Any]] = None

    @classmethod
    def parse(cls, outputs: HostOutputs) -> Look:
        """Of the outputs of all hosts; what cannot be read is left out."""
        look = cls()
        for host, output in outputs.items():
            for section, text in shell.sections(output, TUNNEL, BYTES, *DUMPS):
                try:
                    look.take(host, section, text)
                except (ValueError, KeyError, TypeError):
                    continue
        return look

    def take(self, host: str, what: str, text: str) -> None:
        """Note one part of one host's output."""
        if what == BYTES:
            answers = admin_socket.parse({host: text}).values
            self.bytes.update({k: Traffic.from_answer(v).total for k, v in answers.items()})
            return
        document = json.loads(text)
        if what == TUNNEL:
            self.tunnels.setdefault(host, []).append(document["links"])
            self.sockets.update(
                {
                    osd: addresses
                    for osd, addresses in document["sockets"].items()
                    if addresses is not None
                }
            )
        elif what == "@osds":
            self.osds = {f"osd.{answer['osd']}": answer for answer in document["osds"]}
        else:
            self.mons = {answer["name"]: answer for answer in document["mons"]}


def judge_absence(site: Site, looks: Sequence[HostOutputs]) -> Verdict:
    """Proved when no host has a tunnel of ours.

    What the site itself encrypts below the cluster is no overlay's, and in the evidence.
    """
    evidence: dict[str, Any] = {host: _links(looks[-1], host) for host in site.hosts}
    encrypted = [path for host in site.hosts for path in _encrypted_paths(looks[-1], host)]
    if encrypted:
        evidence["encrypted_paths"] = encrypted
    for look in looks:
        for host in site.hosts:
            links = _links(look, host).split()
            if links != ["none"]:
                fault = f"has {links[0]}" if links else "did not say which links it has"
                return Verdict(False, f"{host} {fault}", evidence)
    return Verdict(True, f"no tunnel of ours is on {counted(len(site.hosts), 'host')}", evidence)


def _links(look: HostOutputs, host: str) -> str:
    return look.get(host, "").partition(PATHS)[0].strip()


def _encrypted_paths(look: HostOutputs, host: str) -> Iterator[str]:
    """ "node0 reaches 10.0.0.2 through wg0 (wireguard)" for each such address."""
    with contextlib.suppress(ValueError, AttributeError):
        ways = json.loads(look.get(host, "").partition(PATHS)[2] or "{}")
        for address, how in ways.items():
            yield f"{host} reaches {address} through {how}"


def judge(
    name: str, kind: str, tunnel: Mapping[str, str], site: Site, before: Look, after: Look
) -> Verdict:
    """Proved when devices, addresses, connections and counters all say so."""
    moved = {host: _moved(host, before, after) for host in site.hosts}
    faults = [
        *_device_faults(kind, site, after),
        *_address_faults(tunnel, site, after),
        *_socket_faults(tunnel, site, (before, after)),
        *_counter_faults(site, moved, before, after),
    ]
    evidence = {
        "addresses": dict(tunnel),
        "links": {host: seen[-1] for host, seen in after.tunnels.items()},
        "tunnel_bytes": moved,
        "osd_bytes": _osd_bytes(site, before, after),
        "connections": after.sockets,
    }
    total = sum(carried for carried in moved.values() if carried)
    reason = f"{len(site.osds)} of {len(site.osds)} OSDs talk through {name}, {total} bytes"
    return Verdict(not faults, faults[0] if faults else reason, evidence)


def _device_faults(kind: str, site: Site, look: Look) -> Iterator[str]:
    for host in site.hosts:
        links = look.tunnels.get(host)
        if not links or not links[-1]:
            yield f"{host} has no tunnel"
            continue
        for link, about in links[-1].items():
            if about["kind"] != kind:
                yield f"{link} on {host} is {about['kind']} and not {kind}"


def _address_faults(tunnel: Mapping[str, str], site: Site, look: Look) -> Iterator[str]:
    """Daemons that are to be reached anywhere but in the tunnel."""
    if look.osds is None or look.mons is None:
        yield "the monitors did not say where the daemons are"
        return
    for osd in site.osds:
        about = look.osds.get(f"osd.{osd.id}", {})
        for network in ("public_addrs", "cluster_addrs"):
            for address in _addresses(about.get(network)) or ["nowhere"]:
                if address != tunnel[osd.host]:
                    yield f"osd.{osd.id} on {osd.host} has {network} at {address}"
    for name, about in look.mons.items():
        for address in _addresses(about.get("public_addrs")) or ["nowhere"]:
            if address not in tunnel.values():
                yield f"mon.{name} is at {address}"


def _addresses(vector: Any) -> list[str]:
    addresses = (vector or {}).get("addrvec", ())
    return [str(address["addr"]).rpartition(":")[0] for address in addresses]


def _socket_faults(tunnel: Mapping[str, str], site: Site, looks: Sequence[Look]) -> Iterator[str]:
    """OSDs with a connection beside the tunnel, or with none."""
    for look in looks:
        for osd in site.osds:
            connections = look.sockets.get(f"osd.{osd.id}")
            if not connections:
                yield f"osd.{osd.id} on {osd.host} has no connection"
                continue
            others = sorted(address for address in connections if address != tunnel[osd.host])
            if others:
                yield f"osd.{osd.id} on {osd.host} has connections from {others[0]}"


def _moved(host: str, before: Look, after: Look) -> Optional[int]:
    """Bytes that went through a host's tunnel, both ways, from probe to probe."""
    seen = before.tunnels.get(host), after.tunnels.get(host)
    if not seen[0] or not seen[1]:
        return None
    first, last = (_counted(links) for links in (seen[0][0], seen[1][-1]))
    return last - first


def _counted(links: Mapping[str, Mapping[str, int]]) -> int:
    return sum(about["rx_bytes"] + about["tx_bytes"] for about in links.values())


def _osd_bytes(site: Site, before: Look, after: Look) -> dict[str, Optional[int]]:
    names = [f"osd.{osd.id}" for osd in site.osds]
    return {
        name: after.bytes[name] - before.bytes[name]
        if name in before.bytes and name in after.bytes
        else None
        for name in names
    }


def _counter_faults(
    site: Site, moved: Mapping[str, Optional[int]], before: Look, after: Look
) -> Iterator[str]:
    """Hosts whose tunnel carried less than it must have."""
    daemons = _osd_bytes(site, before, after)
    for host in site.osd_hosts:
        sent_by_osds = [daemons[f"osd.{osd.id}"] for osd in site.osds_of(host)]
        carried = moved[host]
        if carried is None or None in sent_by_osds:
            yield f"{host} did not say how many bytes were moved"
            continue
        sent = sum(of_osd for of_osd in sent_by_osds if of_osd is not None)
        if carried <= 0:
            yield f"nothing went through the tunnel of {host} in this cell, which proves nothing"
        elif _alone(site, host) and carried < sent:
            yield f"of {sent} bytes of its OSD only {carried} went through the tunnel of {host}"


def _alone(site: Site, host: str) -> bool:
    """Whether one OSD is all of Ceph on a host, so that all that it sends must leave it.

    Elsewhere daemons of one host talk to one another without a tunnel, and how much is not known.
    """
    others = {site.head, *site.mons, *site.mgrs, *site.clients}
    return len(site.osds_of(host)) == 1 and host not in others
