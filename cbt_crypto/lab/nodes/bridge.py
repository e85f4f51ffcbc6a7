"""The network of namespace nodes: one bridge a lab, on which this machine has an address too."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from cbt_crypto.errors import RunError, UsageError

#: Labs take the first /24 of this range that no route of this machine touches.
_RANGE = ipaddress.IPv4Network("10.231.0.0/16")


def bridge_name(directory: Path) -> str:
    """The lab's bridge, named after its directory so that `down` finds it without a record."""
    return f"cbt-{hashlib.sha256(str(directory).encode()).hexdigest()[:7]}"


def link_name(directory: Path, index: int) -> str:
    """The end of node `index`'s link that stays on this machine; at most 15 characters."""
    return f"{bridge_name(directory)}-{index}"


def free_network() -> ipaddress.IPv4Network:
    """A /24 for a new lab. Raises UsageError when this machine routes all of the range."""
    destinations = [route["dst"] for route in _ip("route", "show", "table", "all")]
    return choose_network(destination for destination in destinations if destination != "default")


def choose_network(routed: Iterable[str]) -> ipaddress.IPv4Network:
    """The first /24 of the range that overlaps none of `routed`."""
    taken = [ipaddress.ip_network(text, strict=False) for text in routed]
    for network in _RANGE.subnets(new_prefix=24):
        if not any(network.overlaps(other) for other in taken if other.version == 4):
            return network
    raise UsageError(
        f"no free network for the lab: this machine has routes into all of {_RANGE}; take another "
        "lab down, or use --kind vm"
    )


def make(directory: Path, network: ipaddress.IPv4Network) -> None:
    """Make the lab's bridge, with the network's first address for this machine."""
    name = bridge_name(directory)
    _run("link", "add", name, "type", "bridge")
    _run("address", "add", f"{network.network_address + 1}/{network.prefixlen}", "dev", name)
    _run("link", "set", name, "up")


def attach(directory: Path, index: int, pid: int) -> None:
    """Give the network namespace of process `pid` an eth0 on the lab's bridge."""
    name = link_name(directory, index)
    _run("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _run("link", "set", name, "master", bridge_name(directory), "up")


def remove(directory: Path) -> None:
    """Remove the bridge and the links of the lab, when they are there."""
    for link in _links(directory):
        # A link goes with the last process of its namespace, perhaps just now.
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
    left = _links(directory)
    if left:
        raise RunError(f"network links {', '.join(left)} cannot be removed; try ip link delete")


def _links(directory: Path) -> list[str]:
    name = bridge_name(directory)
    links = sorted(os.listdir("/sys/class/net"))
    return [link for link in links if link == name or link.startswith(f"{name}-")]


def _ip(*arguments: str) -> list[dict[str, str]]:
    output = _call("ip", "-json", *arguments)
    parsed: list[dict[str, str]] = json.loads(output or "[]")
    return parsed


def _run(*arguments: str) -> None:
    _call("ip", *arguments)


def _call(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError("ip is missing; install the package iproute2") from None
    if result.returncode != 0:
        raise RunError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
