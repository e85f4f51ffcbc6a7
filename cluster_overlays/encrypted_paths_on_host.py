"""Find what a site itself encrypts on the way to other hosts. Runs on hosts: Python 3.6, iproute2.

A baseline over WireGuard, IPsec or MACsec is not plain.
"""

import ipaddress
import json
import re
import socket
import subprocess
import sys
from typing import Collection, Iterator, List, Optional

from cbt_crypto.hosts.trust_on_host import ceph_users

#: Kinds of links that encrypt. What a program does behind a tun device cannot be seen.
_KINDS = ("wireguard", "xfrm", "macsec", "tun")
#: Where Ceph's daemons listen.
_PORTS = (range(3300, 3301), range(6789, 6790), range(6800, 7569))


def _said(*command: str) -> str:
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return ""


def connected(ss: str, users: Collection[int]) -> Iterator[str]:
    """Addresses of daemons, of the text of `ss -Htne state established`: of connections of `users`.

    Anybody may connect to such a port. Those of the kernel's clients are root's.
    """
    for line in ss.splitlines():
        fields = line.split()
        address, _, port = fields[3].rpartition(":")
        user = next((field[4:] for field in fields[4:] if field.startswith("uid:")), "0")
        is_one = port.isdigit() and any(int(port) in ports for ports in _PORTS)
        if is_one and int(user) in users:
            yield address.strip("[]").partition("%")[0]


def link_kind(links: str) -> Optional[str]:
    """ "wg0 (wireguard)", of what `ip -d -o link show` printed; None: it does not encrypt."""
    name = links.split(":")[1].strip().partition("@")[0] if links.count(":") > 1 else ""
    kinds = [kind for kind in _KINDS if re.search(rf"[ \\]{kind}\b", links)]
    return f"{name} ({kinds[0]})" if kinds else None


def lower(links: str) -> Optional[str]:
    """The link below a VLAN or the like."""
    match = re.match(r"\d+: [^@:]+@([^:]+):", links)
    return match.group(1) if match and not match.group(1).startswith("if") else None


def covered(policies: str, address: str) -> bool:
    """Whether a policy of IPsec, of the text of `ip xfrm policy`, holds for what is sent there."""
    for text in re.split(r"^(?=src )", policies, flags=re.MULTILINE):
        selector = re.match(r"src \S+ dst (\S+)", text)
        if not selector or "dir out" not in text or "proto esp" not in text or "if_id" in text:
            continue
        try:
            network = ipaddress.ip_network(selector.group(1), strict=False)
            if ipaddress.ip_address(address) in network:
                return True
        except ValueError:
            continue
    return False


def encrypts(address: str, policies: str) -> Optional[str]:
    """What encrypts on the way to an address; None when nothing that can be seen does."""
    if covered(policies, address):
        return "IPsec"
    match = re.search(r" dev (\S+)", _said("ip", "-o", "route", "get", address))
    link = match.group(1) if match else None
    for _ in range(4):
        links = _said("ip", "-d", "-o", "link", "show", "dev", link) if link else ""
        kind = link_kind(links)
        if kind or not links:
            return kind
        link = lower(links)
    return None


def main(peers: List[str]) -> None:
    """Print address -> what encrypts on the way there, of `peers` and of Ceph's connections."""
    addresses = set(connected(_said("ss", "-Htne", "state", "established"), ceph_users()))
    for peer in peers:
        try:
            addresses.add(str(socket.getaddrinfo(peer, None)[0][4][0]))
        except OSError:
            continue
    policies = _said("ip", "xfrm", "policy")
    encrypted = {}
    for address in sorted(addresses):
        how = encrypts(address, policies)
        if how:
            encrypted[address] = how
    print(json.dumps(encrypted))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
