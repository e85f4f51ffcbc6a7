"""Put Ceph's networks on a tunnel between the nodes, and prove that they use it."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Optional

from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import override

from cbt_crypto.cluster_overlays import encrypted_paths_on_host, tunnel_on_host
from cbt_crypto.cluster_overlays.base import Absent, Overlay, Verdict
from cbt_crypto.cluster_overlays.secure_messenger import COUNTERS, Traffic
from cbt_crypto.hosts import admin_socket, shell
from cbt_crypto.hosts.admin_socket import Question
from cbt_crypto.hosts.requirement import KeysInMemory, Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site
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
    def parse(cls, site: Site, outputs: HostOutputs) -> Look:
        """Of each host for its own OSDs, of the head for daemons; without what cannot be read."""
        look = cls()
        for host, output in outputs.items():
            asked = (TUNNEL, BYTES, *(DUMPS if host == site.head else ()))
            for section, text in shell.sections(output, *asked):
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    look.take(site, host, section, text)
        return look

    def take(self, site: Site, host: str, what: str, text: str) -> None:
        """Note one part of one host's output."""
        if what == BYTES:
            answers = admin_socket.parse(site, {host: text}).values
            self.bytes.update({k: Traffic.from_answer(v).total for k, v in answers.items()})
            return
        document = json.loads(text)
        if what == TUNNEL:
            self.tunnels.setdefault(host, []).append(document["links"])
            own = site.own(host, document["sockets"])
            self.sockets.update({osd: found for osd, found in own.items() if found is not None})
        elif what == "@osds":
            self.osds = {f"osd.{answer['osd']}": answer for answer in document["osds"]}
        else:
            self.mons = {answer["name"]: answer for answer in document["mons"]}


def judge_absence(site: Site, looks: Sequence[HostOutputs]) -> Verdict:
    """Proved when no host has a tunnel of ours; the site's own encryption is in the evidence."""
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
    claim = f"no tunnel of this campaign is on {counted(len(site.hosts), 'host')}"
    return Verdict(True, claim, evidence)


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
    """Whether one OSD is all of Ceph on a host, so that all that it sends must leave it."""
    others = {site.head, *site.mons, *site.mgrs, *site.clients}
    return len(site.osds_of(host)) == 1 and host not in others


#: What all our devices' names begin with.
PREFIX = "cbtx"
_PORTS = {"vxlan": 14789, "wireguard": 51829}


def _subnet(text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ValueError("must be an IPv4 network, as 10.207.0.0/24") from error
    if not 8 <= network.prefixlen <= 29:
        raise ValueError("must be a network of /8 to /29, as 10.207.0.0/24")
    return text


_Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")]

#: What is tried in a network namespace of its own, which goes with it.
_TRY = {
    "vxlan": "ip link add trial0 type vxlan id 1 dstport 4790",
    "ipip": "ip link add trial0 type ipip local 192.0.2.1 remote 192.0.2.2",
    "wireguard": "ip link add trial0 type wireguard",
    "ipsec": "ip link add trial0 type xfrm dev lo if_id 1 && ip xfrm state add src 192.0.2.1 "
    "dst 192.0.2.2 proto esp spi 4096 mode tunnel if_id 1 aead 'rfc4106(gcm(aes))' "
    "0x0000000000000000000000000000000000000000 128",
}
_PROGRAMS = {"vxlan": "bridge", "ipip": "", "wireguard": "wg", "ipsec": "openssl"}


class Network(Overlay):
    """Put Ceph's public and cluster network on a tunnel between the nodes."""

    name: ClassVar[str] = "network"
    if_absent: ClassVar[Absent] = {"type": "", "subnet": "10.207.0.0/24", "addresses": {}}
    needs_root: ClassVar[bool] = True

    type: Literal["vxlan", "ipip", "wireguard", "ipsec"] = Field(
        description="kind of the tunnel; wireguard and ipsec encrypt what goes through it"
    )
    subnet: Annotated[str, AfterValidator(_subnet)] = Field(
        "10.207.0.0/24", description="the tunnel's addresses, one for each host"
    )
    addresses: dict[str, _Address] = Field(
        default_factory=dict,
        description="host: its address below the tunnel, when its name resolves to another one",
    )
    mtu: Optional[int] = Field(
        None, ge=576, le=65535,
        description="default: the MTU of the network below, minus the tunnel's overhead",
    )  # fmt: skip
    port: Optional[int] = Field(
        None, ge=1, le=65535, description="UDP port of vxlan (14789) and wireguard (51829)"
    )
    key_size: Literal[128, 256] = Field(
        128, description="bits of AES-GCM in ipsec; the secure messenger has 128"
    )

    def _tunnel(self, site: Site) -> dict[str, str]:
        """Host -> its address in the tunnel."""
        first = int(ipaddress.IPv4Network(self.subnet).network_address) + 1
        return {host: str(ipaddress.IPv4Address(first + n)) for n, host in enumerate(site.hosts)}

    def _link(self, site: Site) -> str:
        return PREFIX + hashlib.sha256(site.tmp_dir.encode()).hexdigest()[:6]

    def _parameters(self, site: Site, host: str, action: str, **more: Any) -> dict[str, Any]:
        tunnel = self._tunnel(site)
        return {
            "action": action,
            "kind": self.type,
            "link": self._link(site),
            "id": int(self._link(site).removeprefix(PREFIX), 16),
            "me": host,
            "hosts": {
                name: {"tunnel": address, "underlay": self.addresses.get(name, name)}
                for name, address in tunnel.items()
            },
            "prefix": ipaddress.IPv4Network(self.subnet).prefixlen,
            "mtu": self.mtu,
            "port": self.port or _PORTS.get(self.type, 0),
            "key_size": self.key_size,
            "osds": {f"osd.{osd.id}": osd.pid_file for osd in site.osds_of(host)},
            **more,
        }

    def _on_hosts(self, site: Site, action: str, **more: Any) -> HostScripts:
        source = shell.program(tunnel_on_host)
        return {
            host: shell.python(source, self._parameters(site, host, action, **more))
            for host in site.hosts
        }

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        words = ("check_tunnel", self.type, _TRY[self.type], *_PROGRAMS[self.type].split())
        script = shell.call(__file__, *words)
        asked = {"action": "unused", "subnet": self.subnet, "own": self._link(site)}
        unused = shell.python(shell.program(tunnel_on_host), asked)
        needs = [
            Requirement(f"a {self.type} tunnel", site.hosts, script),
            Requirement(f"addresses of {self.subnet}", site.hosts, unused),
        ]
        if self.type in ("wireguard", "ipsec"):
            needs.append(KeysInMemory("keys", site.hosts))
        sentence = self._wrong(site)
        if sentence:
            script = f"echo {shlex.quote(sentence)}"
            needs.append(Requirement("hosts of the tunnel", (site.head,), script))
        return needs

    def _wrong(self, site: Site) -> Optional[str]:
        room = ipaddress.IPv4Network(self.subnet).num_addresses - 2
        if len(site.hosts) < 2:
            return "network needs two hosts or more, and this campaign has one; leave it out"
        if len(site.hosts) > min(room, 250):
            return (
                f"network.subnet {self.subnet} has no room for {len(site.hosts)} hosts; name a "
                "larger one, for 250 hosts at most"
            )
        return None

    @override
    def check_ceph_conf(self, conf: Mapping[str, Mapping[str, str]]) -> Optional[str]:
        if not self.is_present:
            return None
        for section, options in conf.items():
            for option in options:
                if option in ("public_addr", "cluster_addr", "public_bind_addr", "mon_host"):
                    return f"[{section}] {option} leads around the tunnel; remove the line"
                if option in ("public_network", "cluster_network") and not self.addresses:
                    return (
                        f"[{section}] {option} names the network of configurations without the "
                        "tunnel, which goes where hosts' names lead; name network.addresses in it"
                    )
        return None

    @override
    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        if not self.is_present:
            return {}
        return {"global": {"public_network": self.subnet, "cluster_network": self.subnet}}

    @override
    def mon_address(self, site: Site, host: str, address: str) -> str:
        if not self.is_present:
            return address
        _, colon, port = address.partition(":")
        return f"{self._tunnel(site)[host]}{colon}{port}"

    @override
    def introduce(self, site: Site) -> HostScripts:
        return self._on_hosts(site, "introduce") if self.is_present else {}

    @override
    def before_daemons(self, site: Site, introductions: HostOutputs) -> HostScripts:
        if not self.is_present:
            return {}
        introduced = {host: json.loads(text) for host, text in introductions.items()}
        return self._on_hosts(site, "make", said=introduced)

    @override
    def take_down(self, site: Site) -> HostScripts:
        return self._on_hosts(site, "remove") if self.is_present else {}

    @override
    def probe(self, site: Site) -> HostScripts:
        if not self.is_present:
            look = f"ls /sys/class/net | grep '^{PREFIX}' || echo none"
            return {host: look + _look_at_paths(site, host) for host in site.hosts}
        show = self._on_hosts(site, "show")
        scripts = {}
        for host in site.hosts:
            # The tunnel's counters are read before and after the daemons': its bytes between two
            # probes hold all those that the daemons counted between them.
            parts = [(TUNNEL, show[host])]
            if site.osds_of(host):
                ask = admin_socket.script([question(osd) for osd in site.osds_of(host)])
                parts += [(BYTES, ask), (TUNNEL, show[host])]
            dumps = DUMPS.items() if host == site.head else ()
            parts += [(section, f"{site.ceph_command} {dump} -f json") for section, dump in dumps]
            scripts[host] = "\n".join(f"echo {section}\n{text}" for section, text in parts)
        return scripts

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        if not self.is_present:
            return judge_absence(site, (before, after))
        looks = (Look.parse(site, before), Look.parse(site, after))
        kind = tunnel_on_host.LINK_TYPES[self.type]
        return judge(self.type, kind, self._tunnel(site), site, *looks)


def _look_at_paths(site: Site, host: str) -> str:
    """Shell text for what the site itself encrypts on the way to the others; they may be none."""
    peers = [other for other in site.hosts if other != host]
    source = shell.program(encrypted_paths_on_host)
    return f"\necho {PATHS}\n{shell.python(source, peers)}" if peers else ""
