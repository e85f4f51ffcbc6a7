"""Nodes as virtual machines: a kernel of their own with real dm-crypt, without root."""

from __future__ import annotations

import ipaddress
import random
import socket
import subprocess
from pathlib import Path
from typing import Optional

import psutil

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab.image.image import Image, check_tools
from cbt_crypto.lab.nodes import accelerator, qemu, seed, ssh
from cbt_crypto.lab.nodes.disks import make_disks
from cbt_crypto.lab.nodes.qemu import Guest, Machine
from cbt_crypto.lab.paths import gigabytes, lab_dir
from cbt_crypto.lab.shape import Lab, Node, Shape, make_nodes
from cbt_crypto.units import size_text

#: Exists between the guests only, so it is the same in every lab.
_NETWORK = ipaddress.IPv4Network("10.231.0.0/24")
_LOOPBACK = "127.0.0.1"
#: Where ports of a lab are looked for.
PORTS = range(20000, 32000)
#: Partitions, and the word that these are no spinning disks: Ceph takes virtio disks for such, and
#: BlueStore would then write small data twice.
_DISK_SCRIPT = """
for disk in /sys/block/vd*; do
    [ ! -e "$disk" ] || echo 0 > "$disk/queue/rotational"
done
/usr/lib/cbt-crypto-lab/disks
"""


def check_machine(shape: Shape) -> None:
    """Raise UsageError when this machine has no QEMU, or not the memory for `shape`."""
    accelerator.check()
    check_tools()
    needed, left = shape.nodes * shape.memory, memory_left()
    if needed > left:
        raise UsageError(
            f"--nodes {shape.nodes} --memory {size_text(shape.memory)} needs {gigabytes(needed)}, "
            f"and this machine has {gigabytes(left)} of memory left; lower one of them"
        )


def plan(name: str, shape: Shape, image: Image, host: Machine) -> Lab:
    """The lab that `name` would be now."""
    return Lab(
        name=name,
        directory=lab_dir(name),
        shape=shape,
        image=image.key,
        network=_NETWORK,
        nodes=make_nodes(_NETWORK, [(_LOOPBACK, port) for port in free_tcp_ports(shape.nodes)]),
        accelerator=host.accelerator,
    )


class Nodes:
    """The nodes of one lab, as their starter sees them."""

    #: How long nodes may take until their sshd answers: seconds with KVM, but emulated CPUs on a
    #: machine under load need much longer.
    patience_s = 300.0

    def __init__(self, lab: Lab, image: Image, host: Machine) -> None:
        """Nothing is started yet."""
        self.lab = lab
        self._image = image
        self._host = host
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every node; they answer by ssh when they have booted."""
        lab_port = free_udp_port()
        for node in self.lab.nodes:
            guest = self._guest(node, lab_port)
            self._processes[node.name] = self._start_node(node, guest)

    def finish(self) -> None:
        """What is left to do on nodes that answer: partitions on the data disks."""
        for node in self.lab.nodes:
            ssh.run(self.lab, node, _DISK_SCRIPT)

    def problem(self, node: Node) -> Optional[str]:
        """One sentence when the node has ended, else None."""
        status = self._processes[node.name].poll()
        if status is None:
            return None
        console = self.lab.console(node)
        reason = ending(
            self._errors(node).read_text(errors="replace"),
            console.read_text(errors="replace") if console.exists() else "",
        )
        return f"{node.name} ended while it started: {reason or f'status {status}'}"

    def _guest(self, node: Node, lab_port: int) -> Guest:
        lab, index = self.lab, self.lab.nodes.index(node)
        return Guest(
            lab=lab.name,
            name=node.name,
            kernel=self._image.kernel,
            system=self._image.system,
            seed=seed.write_seed(lab, node),
            disks=make_disks(lab, node),
            memory=lab.shape.memory,
            cpus=lab.shape.cpus,
            lab_address=f"{node.address}/{lab.network.prefixlen}",
            lab_mac=qemu.mac(index, lab_side=True),
            host_mac=qemu.mac(index, lab_side=False),
            lab_port=lab_port,
            ssh_port=node.ssh_port,
            console=lab.console(node),
        )

    def _start_node(self, node: Node, guest: Guest) -> subprocess.Popen[bytes]:
        directory = self.lab.node_dir(node)
        # QEMU keeps what a node writes to its system disk in an unlinked file in TMPDIR.
        environment = {**marked_processes.lab_environment(directory), "TMPDIR": str(directory)}
        with self._errors(node).open("wb") as errors:
            return subprocess.Popen(
                qemu.command(self._host, guest),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def _errors(self, node: Node) -> Path:
        return self.lab.node_dir(node) / "qemu.log"


def ending(qemu_said: str, guest_said: str) -> Optional[str]:
    """Why a guest ended: the last that QEMU said, or the guest kernel's panic; None if neither."""
    panics = [line for line in guest_said.splitlines() if "Kernel panic" in line]
    lines = [*panics[:1], *qemu_said.strip().splitlines()]
    return lines[-1].strip() if lines else None


def free_tcp_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on now. Raises RunError when there are too few."""
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
            if candidate.connect_ex((_LOOPBACK, port)) != 0:
                ports.append(port)
        if len(ports) == count:
            return ports
    raise RunError(
        f"too few ports between {PORTS[0]} and {PORTS[-1]} of {_LOOPBACK} are free; "
        "take another lab down"
    )


def free_udp_port() -> int:
    """A UDP port that no other lab's group and nothing else uses now."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as candidate:
            try:
                candidate.bind(("", port))
            except OSError:
                continue
            return port
    raise RunError(f"no UDP port between {PORTS[0]} and {PORTS[-1]} is free; take another lab down")


def memory_left() -> int:
    """Bytes of memory that this machine can give away without swapping."""
    return int(psutil.virtual_memory().available)
