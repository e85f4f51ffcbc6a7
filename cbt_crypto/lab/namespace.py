"""Nodes as namespaces of this machine: native speed, one kernel, no device-mapper of their own."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import access
from cbt_crypto.lab.access import make_disks
from cbt_crypto.lab.image import Image
from cbt_crypto.lab.shape import Lab, Node, Shape, lab_dir, make_nodes

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


_NODE_SCRIPT = Path(__file__).parent / "node.sh"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SSH_PORT = 22
_PATIENCE_S = 60.0


def check_machine() -> None:
    """Raise UsageError when this machine or user cannot have namespace nodes."""
    if os.geteuid() != 0:
        raise UsageError(
            "--kind namespace needs root: it mounts file systems and makes network links; "
            "use sudo, or --kind vm"
        )
    for tool, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if not shutil.which(tool):
            raise UsageError(f"{tool} is missing; install the package {package}")


def plan(name: str, shape: Shape, image: Image) -> Lab:
    """The lab that `name` would be now. Raises UsageError when the image cannot serve it."""
    if not image.root.is_dir():
        raise UsageError(
            f"the image in {image.directory} was not built by root and has no tree for "
            "namespaces; remove that directory and run lab up again"
        )
    network = free_network()
    return Lab(
        name=name,
        directory=lab_dir(name),
        shape=shape,
        image=image.key,
        network=network,
        nodes=make_nodes(network, [(None, _SSH_PORT)] * shape.nodes),
        accelerator="none",
    )


class Nodes:
    """The nodes of one lab, as their starter sees them."""

    #: How long nodes may take until their sshd answers; a machine under load is slow.
    patience_s = _PATIENCE_S

    def __init__(self, lab: Lab, image: Image, builds: Optional[Mapping[str, Path]] = None) -> None:
        """Nothing is started yet. `builds` are roots of other releases, for /opt/ceph-RELEASE."""
        self._builds = builds
        self.lab = lab
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every node; they answer by ssh a moment later."""
        make(self.lab.directory, self.lab.network)
        for index, node in enumerate(self.lab.nodes):
            make_disks(self.lab, node)
            access.write_seed(self.lab, node)
            process = self._start_node(node)
            self._processes[node.name] = process
            self._wait_for_network_namespace(node, process)
            attach(self.lab.directory, index, process.pid)

    def finish(self) -> None:
        """Nothing is left to do on nodes that answer."""

    def problem(self, node: Node) -> Optional[str]:
        """One sentence when the node has ended, else None."""
        status = self._processes[node.name].poll()
        return None if status is None else f"{node.name} ended while it started, status {status}"

    def _start_node(self, node: Node) -> subprocess.Popen[bytes]:
        mark = marked_processes.lab_environment(self.lab.node_dir(node))
        with self.lab.console(node).open("wb") as console:
            return subprocess.Popen(
                command(self.lab, node, self._image, self._builds),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**mark, "PATH": _PATH},
            )

    def _wait_for_network_namespace(self, node: Node, process: subprocess.Popen[bytes]) -> None:
        of_this_process = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if os.readlink(f"/proc/{process.pid}/ns/net") != of_this_process:
                return
            time.sleep(0.01)
        raise RunError(
            f"{node.name} did not start in a network namespace of its own; its log is "
            f"{self.lab.console(node)}"
        )


def command(
    lab: Lab, node: Node, image: Image, builds: Optional[Mapping[str, Path]] = None
) -> list[str]:
    """The command line that becomes the node. `builds` are roots of other releases."""
    return [
        *("unshare", "--mount", "--propagation", "private", "--pid", "--net", "--uts", "--ipc"),
        *("--fork", "--kill-child", "--", "sh", str(_NODE_SCRIPT)),
        str(image.root),
        str(lab.node_dir(node)),
        node.name,
        f"{node.address}/{lab.network.prefixlen}",
        *(f"{release}={root}" for release, root in (builds or {}).items()),
    ]
