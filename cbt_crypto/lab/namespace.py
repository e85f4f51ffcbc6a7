"""Nodes as namespaces of this machine: native speed, its kernel, its dm-crypt where it has one.

Data disks are loop devices over files in the lab's directory, by which they are known as ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.hosts.devices.layers_on_host import loop_file, text_at
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.lab import access
from cbt_crypto.lab.access import make_disks
from cbt_crypto.lab.image import Image
from cbt_crypto.lab.shape import Lab, Node, Shape, lab_dir, locked

NETWORK = Path("/sys/class/net")
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
    printed = _call("ip", "-json", "route", "show", "table", "all")
    destinations = [route["dst"] for route in json.loads(printed or "[]")]
    return choose_network(destination for destination in destinations if destination != "default")


def choose_network(routed: Iterable[str]) -> ipaddress.IPv4Network:
    """The first /24 of the range that overlaps none of `routed`."""
    taken = [ipaddress.ip_network(text, strict=False) for text in routed]
    for network in _RANGE.subnets(new_prefix=24):
        if not any(network.overlaps(other) for other in taken if other.version == 4):
            return network
    raise UsageError(
        f"no free network for the lab: this machine has routes into all of {_RANGE}; stop another "
        "lab, or use --kind vm"
    )


def make(directory: Path) -> ipaddress.IPv4Network:
    """Make the lab's bridge, with the first address of a free network for this machine."""
    name = bridge_name(directory)
    # Another lab that starts now would take the same network until it is routed.
    with locked(cache_dir() / "network.lock", lambda: None):
        network = free_network()
        _call("ip", "link", "add", name, "type", "bridge")
        first = f"{network.network_address + 1}/{network.prefixlen}"
        _call("ip", "address", "add", first, "dev", name)
        _call("ip", "link", "set", name, "up")
    return network


def attach(directory: Path, index: int, pid: int) -> None:
    """Give the network namespace of process `pid` an eth0 on the lab's bridge."""
    name = link_name(directory, index)
    _call("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    bridge = bridge_name(directory)
    _call("ip", "link", "set", name, "master", bridge, "up")
    _call("ip", "link", "set", bridge, "alias", marked_processes.mark_of(directory)[-250:])


def remove(directory: Path) -> None:
    """Remove the bridge and the links of the lab, when they are there."""
    for link in _links(directory):
        # A link goes with the last process of its namespace, perhaps just now.
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
    left = _links(directory)
    if left:
        raise RunError(f"network links {', '.join(left)} cannot be removed; try ip link delete")


def _links(directory: Path) -> list[str]:
    """None of a bridge that says that it is another container's, whose lab has the same path."""
    name = bridge_name(directory)
    said = text_at(NETWORK / name / "ifalias")
    # An earlier version's says nothing, nor does one without nodes.
    if said and not (directory.exists() and said == marked_processes.mark_of(directory)[-250:]):
        return []
    links = sorted(os.listdir(NETWORK))
    return [link for link in links if link == name or link.startswith(f"{name}-")]


def _call(*command: str, given: str = "") -> str:
    try:
        result = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        package = {"ip": "iproute2", "losetup": "mount"}.get(command[0], command[0])
        raise UsageError(f"{command[0]} is missing; install the package {package}") from None
    if result.returncode != 0:
        raise RunError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


#: Where the kernel lists block devices.
_BLOCK = Path("/sys/block")
#: How names begin of what campaigns put on their devices: mappings, and volumes as LVM spells them.
_OURS = ("cbt-crypto-", "cbt--crypto--")
_LOOP_PATIENCE_S = 10.0


def without_luks(directory: Path) -> Optional[str]:
    """Why namespace nodes cannot have LUKS here, or None after a try in `directory`."""
    if os.geteuid() != 0:
        return "dm-crypt of this machine needs root"
    for tool in ("losetup", "dmsetup"):
        if not shutil.which(tool):
            return f"{tool} is missing"
    load_modules()
    file = directory / "try"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file.open("wb") as disk:
            disk.truncate(1 << 20)
        sectors = f"0 2048 crypt aes-xts-plain64 {secrets.token_hex(64)} 0 {attach_disk(file)} 0\n"
        # By stdin, so that the key is in no list of processes.
        _call("dmsetup", "create", f"{_OURS[0]}{bridge_name(directory)}", given=sectors)
    except RunError as error:
        # Of dmsetup's lines, the first says what the kernel answered.
        return f"this machine has no dm-crypt for the lab ({str(error).splitlines()[0]})"
    finally:
        release(directory)
        file.unlink(missing_ok=True)
    return None


def load_modules() -> None:
    """Have the kernel load what data disks need; built-in or missing ones are no error here."""
    with contextlib.suppress(FileNotFoundError):  # a container has no modules, and perhaps no kmod
        for module in ("loop", "dm-crypt"):
            subprocess.run(["modprobe", "-q", module], capture_output=True, check=False)


def attach_disk(file: Path) -> str:
    """Put a loop device over `file` and return its path. Raises RunError."""
    device = _call("losetup", "--find", "--show", str(file)).strip()
    # Past the page cache where the file system can, as the bytes of a drive would be.
    subprocess.run(["losetup", "--direct-io=on", device], capture_output=True, check=False)
    return device


def release(directory: Path) -> None:
    """Remove the mappings on the lab's data disks and detach these; RunError if in use."""
    ends = time.monotonic() + _LOOP_PATIENCE_S
    for loop in _loops(directory):
        _remove_holders(loop)
        _call("losetup", "--detach", f"/dev/{loop.name}")
    # It is gone when the last that had it open, such as udev, has closed it.
    while left := _loops(directory):
        if time.monotonic() > ends:
            names = ", ".join(loop.name for loop in left)
            raise RunError(
                f"{names}, data disks of the lab, are in use; see lsblk and /proc/mounts"
            )
        time.sleep(0.05)


def lost(directory: Path) -> list[str]:
    """Devices and links of a lab whose directory was removed, by what they say of themselves."""
    files = _BLOCK.glob("loop*/loop/backing_file")
    disks = [f"/dev/{f.parents[1].name}" for f in files if directory in Path(text_at(f)).parents]
    name = bridge_name(directory)
    is_there = text_at(NETWORK / name / "ifalias").startswith(f"{directory}@")
    return [*sorted(disks), *([f"the network link {name}"] if is_there else [])]


def _loops(directory: Path) -> list[Path]:
    found = []
    for file in sorted(_BLOCK.glob("loop*/loop/backing_file")):
        device = file.parents[1]
        with contextlib.suppress(OSError):
            backing = Path(file.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n"))
            # The path is that of the mount namespace of whoever attached it.
            if directory in backing.parents:
                status, told = backing.stat(), loop_file(f"/dev/{device.name}")
                if told and told[:2] == (status.st_dev, status.st_ino):
                    found.append(device)
    return found


def _remove_holders(device: Path) -> None:
    """Remove what is on a device of ours, the uppermost first. Raises RunError for another's."""
    for holder in sorted((device / "holders").iterdir()):
        name_file = holder / "dm" / "name"
        name = name_file.read_text(encoding="utf-8").strip() if name_file.exists() else holder.name
        if not name.startswith(_OURS):
            raise RunError(
                f"{name} is on {device.name}, a data disk of the lab, and is not the lab's"
            )
        _remove_holders(holder.resolve())
        number = (holder / "dev").read_text(encoding="ascii").strip()
        major, _, minor = number.partition(":")
        _call("dmsetup", "remove", "--retry", "-j", major, "-m", minor)


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
    """The lab `name`, whose network is made. Raises UsageError when the image cannot serve it."""
    if not image.root.is_dir():
        raise UsageError(
            f"the image in {image.directory} was not built by root and has no tree for "
            "namespaces; remove that directory and run lab up again"
        )
    network = make(lab_dir(name))
    return Lab.of(name, shape, image.key, network, [(None, _SSH_PORT)] * shape.nodes, "none")


class Nodes:
    """The nodes of one lab, as their starter sees them."""

    #: How long nodes may take until their sshd answers; a machine under load is slow.
    patience_s = _PATIENCE_S

    def __init__(self, lab: Lab, image: Image, builds: Optional[Mapping[str, Path]] = None) -> None:
        self._builds = builds
        self.lab = lab
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every node; they answer by ssh a moment later."""
        load_modules()
        for index, node in enumerate(self.lab.nodes):
            self._make_disks(node)
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

    def _make_disks(self, node: Node) -> None:
        devices = self.lab.node_dir(node) / "devices"
        with devices.open("w", encoding="ascii") as file:
            for disk in make_disks(self.lab, node):
                try:
                    device = os.stat(attach_disk(disk)).st_rdev
                except RunError:
                    continue
                file.write(f"{disk.name} {os.major(device)} {os.minor(device)}\n")

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
        *("unshare", "--mount", "--propagation", "slave", "--pid", "--net", "--uts", "--ipc"),
        *("--fork", "--kill-child", "--", "sh", str(_NODE_SCRIPT)),
        str(image.root),
        str(lab.node_dir(node)),
        node.name,
        f"{node.address}/{lab.network.prefixlen}",
        *(f"{release}={root}" for release, root in (builds or {}).items()),
    ]
