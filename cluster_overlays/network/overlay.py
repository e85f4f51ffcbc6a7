"""Ceph's public and cluster network on a tunnel between the nodes."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Optional

from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays.base import Overlay, Transition, Verdict
from cbt_crypto.cluster_overlays.network import paths_on_host, proof, tunnel_on_host
from cbt_crypto.cluster_overlays.network.proof import Look
from cbt_crypto.hosts import admin_socket, shell
from cbt_crypto.hosts.requirement import KeysInMemory, Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

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

# In a network namespace of its own, which goes with it: nothing of the host is touched.
_CHECK = """
PATH=$PATH:/usr/sbin:/sbin
for program in ip unshare python3 PROGRAMS; do
    command -v $program > /dev/null && continue
    case $program in wg) package=wireguard-tools ;; ip|bridge) package=iproute2 ;;
        unshare) package=util-linux ;; *) package=$program ;; esac
    echo "$program is missing; install $package"; exit 0
done
said=$($SUDO unshare -n sh -c TRY 2>&1) && echo ok ||
    echo "its kernel, $(uname -r), cannot make a KIND tunnel ($(echo "$said" | tail -n 1));" \\
        "take another kernel, or a lab of virtual machines"
""".strip()
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

    @classmethod
    @override
    def absent(cls) -> Self:
        return cls.make_absent(type="", subnet="10.207.0.0/24", addresses={})

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
        if not self.is_present:
            return ()
        check = _CHECK.replace("PROGRAMS", _PROGRAMS[self.type]).replace("KIND", self.type)
        script = check.replace("TRY", shlex.quote(_TRY[self.type]))
        needs = [
            Requirement(f"a {self.type} tunnel", site.hosts, script),
            Requirement(f"addresses of {self.subnet}", site.hosts, self._unused(site)),
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

    def _unused(self, site: Site) -> str:
        network, link = ipaddress.IPv4Network(self.subnet), self._link(site)
        program = (
            "import ipaddress, json, subprocess, sys\n"
            "text = subprocess.check_output(['ip', '-j', '-4', 'addr'])\n"
            "for one in json.loads(text.decode()):\n"
            "    for info in one.get('addr_info', ()):\n"
            "        own = one['ifname'].startswith(sys.argv[2])\n"
            "        if not own and ipaddress.ip_address(info['local']) in "
            "ipaddress.ip_network(sys.argv[1]):\n"
            "            sys.exit(print('has an address in', sys.argv[1], 'on', one['ifname'] + "
            "'; name another network.subnet'))\n"
            "print('ok')"
        )
        return f"python3 -I -c {shlex.quote(program)} {network} {link}"

    @override
    def check_ceph_conf(self, conf: Mapping[str, Mapping[str, str]]) -> Optional[str]:
        if not self.is_present:
            return None
        for section, options in conf.items():
            for option in options:
                if option in ("public_addr", "cluster_addr", "public_bind_addr", "mon_host"):
                    return f"[{section}] {option} leads around the tunnel; remove the line"
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
    def transition_to(self, new: Self) -> Transition:
        return Transition.NONE if self == new else Transition.REBUILD

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
            parts = [(proof.TUNNEL, show[host])]
            if site.osds_of(host):
                parts.append((proof.BYTES, admin_socket.script(_questions(site, host))))
                parts.append((proof.TUNNEL, show[host]))
            if host == site.head:
                for section, dump in proof.DUMPS.items():
                    parts.append((section, f"{site.ceph_command} {dump} -f json"))
            scripts[host] = "\n".join(f"echo {section}\n{text}" for section, text in parts)
        return scripts

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        if not self.is_present:
            return proof.judge_absence(site, (before, after))
        looks = (Look.parse(before), Look.parse(after))
        kind = tunnel_on_host.LINK_TYPES[self.type]
        return proof.judge(self.type, kind, self._tunnel(site), site, *looks)


def _look_at_paths(site: Site, host: str) -> str:
    """Shell text for what the site itself encrypts on the way to the others; they may be none."""
    peers = [other for other in site.hosts if other != host]
    source = shell.program(paths_on_host)
    return f"\necho {proof.PATHS}\n{shell.python(source, peers)}" if peers else ""


def _questions(site: Site, host: str) -> list[admin_socket.Question]:
    return [proof.question(osd) for osd in site.osds_of(host)]
