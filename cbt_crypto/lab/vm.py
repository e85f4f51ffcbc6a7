"""Nodes as virtual machines: a kernel of their own with real dm-crypt, without root."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import psutil

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes, shell
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.lab import access
from cbt_crypto.lab.access import make_disks
from cbt_crypto.lab.image import SYSTEM_ID, Image, check_tools
from cbt_crypto.lab.shape import Lab, Node, Shape, Steps, gigabytes
from cbt_crypto.units import size_text

BINARY = "qemu-system-x86_64"
PACKAGE = "qemu-system-x86"
#: Where QEMU's user-mode network expects a guest to be.
_HOST_SIDE_ADDRESS = "10.0.2.15/24"
#: Without the controllers that no node uses, and that its kernel would search for drives.
_MACHINE = "q35,sata=off,smbus=off"
MONITOR = "monitor"
_INIT = "/usr/lib/cbt-crypto-lab/init"
#: Features that cost an emulated CPU more than they bring it: AVX2 is slower than what libraries
#: use without it, with ERMS memory is cleared and copied byte by byte, a fifth level of page tables
#: is walked at every miss, and SMAP ends every translated block that copies to or from a process.
_SLOW_WHEN_EMULATED = "-avx2,-erms,-la57,-smap"
#: What a kernel does for safety between processes, which nodes that live for minutes do not need.
#: Above all: with random addresses QEMU before 8.0 translates each program anew at each start.
#: One CPU at first: in QEMU 7 others may run what was there before a kernel rewrote its code.
_EMULATED_KERNEL = "norandmaps mitigations=off init_on_alloc=0 maxcpus=1"
#: Numbers of PCI buses behind the root complex of each NUMA node.
_FIRST_BUS, _BUSES_A_NODE = 32, 24
#: Before QEMU 10, TCG corrupts flags around cmpxchg16b, and the guest's kernel panics in kmalloc.
_FIXED_CMPXCHG16B = 10


@dataclass(frozen=True)
class Machine:
    """How guests run here: the accelerator, and the QEMU that drives it."""

    accelerator: str
    qemu_version: tuple[int, int]

    def options(self, threads: int = 1) -> list[str]:
        """Machine, accelerator and CPU, each core with `threads` hyperthreads."""
        if self.accelerator == "kvm":
            return ["-machine", _MACHINE, "-accel", "kvm", "-cpu", "host"]
        cpu = f"max,{_SLOW_WHEN_EMULATED}"
        if self.qemu_version[0] < _FIXED_CMPXCHG16B:
            cpu += ",-cx16"
        if threads > 1:
            # AMD's are told to a guest by topoext, which an emulated CPU has not.
            cpu += ",vendor=GenuineIntel"
        return ["-machine", _MACHINE, "-accel", "tcg,thread=multi", "-cpu", cpu]


@dataclass(frozen=True)
class Guest:
    """One virtual node: what it is made of, paths and sizes (bytes) on this machine."""

    lab: str
    name: str
    kernel: Path
    system: Path
    seed: Path
    disks: Sequence[Path]
    memory: int
    cpus: int
    #: How many NUMA nodes it has; with more than one, its disks and the lab's card are on them.
    numa: int
    #: Of each core.
    threads: int
    lab_address: str
    lab_mac: str
    host_mac: str
    #: Descriptors of the sockets that lead to other nodes: to all of them from the first node, to
    #: the first from each other one.
    wires: Sequence[int]
    #: TCP port of 127.0.0.1 that leads to its sshd.
    ssh_port: int
    console: Path


def mac(index: int, lab_side: bool) -> str:
    """The address of a network card of node `index`: on the lab's network, or to this machine."""
    return f"52:54:00:cb:{'70' if lab_side else '71'}:{index:02x}"


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor of what `qemu-system-x86_64 --version` prints. Raises ValueError."""
    match = re.search(r"version (\d+)\.(\d+)", text)
    if not match:
        raise ValueError(f"no version in {text!r}")
    return int(match[1]), int(match[2])


def command(machine: Machine, guest: Guest) -> list[str]:
    """The command line of one virtual node."""
    host_side = f"{_HOST_SIDE_ADDRESS} {guest.host_mac}"
    arguments = f"{guest.name} {guest.lab_address} {guest.lab_mac} {host_side}"
    return [
        *_base(machine, guest.kernel, guest.system, arguments, guest.threads),
        *("-name", f"{guest.lab}-{guest.name}"),
        *_processors(guest),
        *("-serial", f"file:{_path(guest.console)}"),
        *("-fw_cfg", f"name=opt/cbt-crypto/seed,file={_path(guest.seed)}"),
        *_disks(guest),
        *_lab_network(guest),
        *_card(guest, "lab", guest.lab_mac, slot=1),
        *("-qmp", f"unix:{MONITOR},server=on,wait=off"),
        *("-netdev", f"user,id=host,restrict=on,hostfwd=tcp:127.0.0.1:{guest.ssh_port}-:22"),
        *_card(guest, "host", guest.host_mac, slot=2),
    ]


def probe_command(machine: Machine, kernel: Path, system: Path) -> list[str]:
    """A boot into userspace that says so on stdout and powers off."""
    return [
        *_base(machine, kernel, system, "probe"),
        *("-smp", "1", "-m", "512M", "-serial", "stdio"),
    ]


def _base(
    machine: Machine, kernel: Path, system: Path, arguments: str, threads: int = 1
) -> list[str]:
    # By no name of a device: other NVMe drives may be found first.
    root = f"root=PARTUUID={SYSTEM_ID} rootwait rw rootflags=noinit_itable"
    emulated = [] if machine.accelerator == "kvm" else [_EMULATED_KERNEL]
    kernel_words = ["console=ttyS0 quiet panic=-1 net.ifnames=0", *emulated, root]
    append = f"{' '.join(kernel_words)} init={_INIT} -- {arguments}"
    return [
        *(BINARY, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *machine.options(threads),
        *("-kernel", str(kernel), "-append", append),
        *("-rtc", "base=utc,clock=host"),
        *("-device", "virtio-rng-pci"),
        *("-drive", f"{_raw('system', system)},snapshot=on"),
        *("-device", "nvme,drive=system,serial=system"),
    ]


def _processors(guest: Guest) -> list[str]:
    cpus, mib = guest.cpus // guest.numa, guest.memory // 2**20 // guest.numa
    smp = f"{guest.cpus},sockets={guest.numa},threads={guest.threads}"
    total = ["-smp", smp, "-m", f"{mib * guest.numa}M"]
    if guest.numa == 1:
        return total
    for node in range(guest.numa):
        first = node * cpus
        total += ["-object", f"memory-backend-ram,id=memory{node},size={mib}M"]
        own = f"cpus={first}-{first + cpus - 1},memdev=memory{node}"
        total += ["-numa", f"node,nodeid={node},{own}"]
        bus = f"bus_nr={_FIRST_BUS + node * _BUSES_A_NODE},numa_node={node}"
        total += ["-device", f"pxb-pcie,id=pxb{node},bus=pcie.0,{bus}"]
    return total


def _port(node: int, slot: int) -> list[str]:
    return ["-device", f"pcie-root-port,id=port{slot},bus=pxb{node},chassis={slot},slot={slot}"]


def _disks(guest: Guest) -> list[str]:
    """Virtio disks; with NUMA nodes NVMe drives, the first beside the lab's card, on the last."""
    options = []
    for number, disk in enumerate(guest.disks):
        # Else QEMU would stop the node, and all who ask it, where this machine's disk is full.
        options += ["-drive", f"{_raw(f'disk{number}', disk)},discard=unmap,werror=report"]
        about = f"drive=disk{number},serial={disk.name}"
        if guest.numa > 1:
            options += _port((guest.numa - 1 - number) % guest.numa, slot=number + 3)
            options += ["-device", f"nvme,{about},bus=port{number + 3}"]
        else:
            options += ["-device", f"virtio-blk-pci,{about}"]
    return options


def _lab_network(guest: Guest) -> list[str]:
    """A hub with the node's card and its wires: a star, whose frames only these processes see."""
    if not guest.wires:
        # What nobody receives would fill a hub's queue, and the card would time out.
        return ["-netdev", "user,id=lab,restrict=on,ipv6=off"]
    options = ["-netdev", "hubport,id=lab,hubid=0"]
    for number, descriptor in enumerate(guest.wires):
        options += ["-netdev", f"socket,id=wire{number},fd={descriptor}"]
        options += ["-netdev", f"hubport,id=plug{number},hubid=0,netdev=wire{number}"]
    return options


def _card(guest: Guest, netdev: str, mac_address: str, slot: int) -> list[str]:
    """A network card. With NUMA nodes both cards are on the last: Ceph looks at the first alone."""
    about = f"netdev={netdev},mac={mac_address},romfile="
    if guest.numa == 1:
        return ["-device", f"virtio-net-pci,{about},bus=pcie.0"]
    return [*_port(guest.numa - 1, slot), "-device", f"vmxnet3,{about},bus=port{slot}"]


def _raw(name: str, path: Path) -> str:
    return f"if=none,id={name},format=raw,file={_path(path)}"


def _path(path: Path) -> str:
    """A path inside an option: QEMU reads a doubled comma as one."""
    return str(path).replace(",", ",,")


#: A guest under KVM says that it runs after a second or two. Where KVM hangs, nothing comes.
_PROBE_S = 10
_PROBE_ANSWER = b"cbt-crypto-lab-probe"
KVM = Path("/dev/kvm")


def check() -> None:
    """Raise UsageError when QEMU is missing."""
    if not shutil.which(BINARY):
        raise UsageError(
            f"--kind vm needs {BINARY}; install the package {PACKAGE}, or use --kind namespace"
        )


def without_kvm(shape: Shape, bootable: Callable[[], Image], steps: Steps) -> Optional[str]:
    """Why virtual machines would be emulated here, or None. UsageError if KVM cannot do it."""
    if not shutil.which(BINARY):
        return f"{BINARY} is missing"
    if not os.access(KVM, os.R_OK | os.W_OK):
        return f"{KVM} cannot be opened" if KVM.exists() else f"there is no {KVM}"
    check_machine(shape)
    return None if detect(bootable(), steps).accelerator == "kvm" else "a guest with KVM hangs here"


def detect(image: Image, steps: Steps) -> Machine:
    """How guests shall run here. KVM is believed after a short boot with it, not before."""
    version = _version()
    kvm = Machine("kvm", version)
    if os.access(KVM, os.R_OK | os.W_OK) and _remembered(kvm, image, steps):
        return kvm
    return Machine("tcg", version)


def _version() -> tuple[int, int]:
    text = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=False)
    try:
        return parse_version(text.stdout)
    except ValueError as error:
        raise RunError(f"{BINARY} --version: {error}") from None


def _remembered(machine: Machine, image: Image, steps: Steps) -> bool:
    """The probe's answer, kept until this machine boots again or its QEMU changes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    case = f"{boot} {machine.qemu_version}"
    memory = cache_dir() / "kvm"
    try:
        remembered, _, answer = memory.read_text(encoding="ascii").partition(": ")
    except FileNotFoundError:
        remembered, answer = "", ""
    if remembered != case:
        steps.begin("Trying KVM")
        answer = "works" if probe(machine, image) else "hangs"
        memory.write_text(f"{case}: {answer}", encoding="ascii")
    return answer == "works"


def probe(machine: Machine, image: Image, timeout: float = _PROBE_S) -> bool:
    """Whether a guest reaches userspace within `timeout` seconds."""
    command = probe_command(machine, image.kernel, image.system)
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "TMPDIR": str(image.directory)},
        )
    except subprocess.TimeoutExpired as error:
        return _PROBE_ANSWER in (error.stdout or b"")
    return _PROBE_ANSWER in result.stdout


#: Exists between the guests only, so it is the same in every lab.
_NETWORK = ipaddress.IPv4Network("10.231.0.0/24")
_LOOPBACK = "127.0.0.1"
#: Where ports of a lab are looked for.
PORTS = range(20000, 32000)


def check_machine(shape: Shape) -> None:
    """Raise UsageError when this machine has no QEMU, or not the memory for `shape`."""
    check()
    check_tools()
    if shape.cpus % (shape.numa * shape.threads):
        raise UsageError(
            f"--cpus {shape.cpus} cannot be shared among --numa {shape.numa} nodes with --threads "
            f"{shape.threads} a core; name a multiple"
        )
    needed, left = shape.nodes * shape.memory, int(psutil.virtual_memory().available)
    if needed > left:
        raise UsageError(
            f"--nodes {shape.nodes} --memory {size_text(shape.memory)} needs {gigabytes(needed)}, "
            f"and this machine has {gigabytes(left)} of memory left; lower one of them"
        )


def plan(name: str, shape: Shape, image: Image, host: Machine) -> Lab:
    """The lab that `name` would be now."""
    ends = [(_LOOPBACK, port) for port in free_tcp_ports(shape.nodes)]
    return Lab.of(name, shape, image.key, _NETWORK, ends, host.accelerator)


class Nodes:
    """The nodes of one lab, as their starter sees them."""

    #: How long nodes may take until their sshd answers: seconds with KVM, but emulated CPUs on a
    #: machine under load need much longer.
    patience_s = 900.0

    def __init__(self, lab: Lab, image: Image, host: Machine) -> None:
        self.lab = lab
        self._image = image
        self._host = host
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every node; they answer by ssh when they have booted."""
        with contextlib.ExitStack() as opened:
            pairs = []
            for _ in self.lab.nodes[1:]:
                pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
                for end in pairs[-1]:
                    opened.enter_context(end)
            wires = [[one.fileno() for one, _ in pairs], *([other.fileno()] for _, other in pairs)]
            for node, own in zip(self.lab.nodes, wires):
                self._processes[node.name] = self._start_node(node, self._guest(node, own))

    def finish(self) -> None:
        """What is left to do on nodes that answer: all CPUs, partitions on the data disks."""
        for node in self.lab.nodes:
            access.run(self.lab, node, shell.call(__file__, "last_steps"))

    def problem(self, node: Node) -> Optional[str]:
        """One sentence when the node has ended, else None."""
        status = self._processes[node.name].poll()
        if status is None:
            return None
        reason = access.ending(self.lab, node) or f"status {status}"
        return f"{node.name} ended while it started: {reason}"

    def _guest(self, node: Node, wires: Sequence[int]) -> Guest:
        lab, index = self.lab, self.lab.nodes.index(node)
        return Guest(
            lab=lab.name,
            name=node.name,
            kernel=self._image.kernel,
            system=self._image.system,
            seed=access.write_seed(lab, node),
            disks=make_disks(lab, node),
            memory=lab.shape.memory,
            cpus=lab.shape.cpus,
            numa=lab.shape.numa,
            threads=lab.shape.threads,
            lab_address=f"{node.address}/{lab.network.prefixlen}",
            lab_mac=mac(index, lab_side=True),
            host_mac=mac(index, lab_side=False),
            wires=wires,
            ssh_port=node.ssh_port,
            console=lab.console(node),
        )

    def _start_node(self, node: Node, guest: Guest) -> subprocess.Popen[bytes]:
        directory = self.lab.node_dir(node)
        # QEMU keeps what a node writes to its system disk in an unlinked file in TMPDIR.
        environment = {**marked_processes.lab_environment(directory), "TMPDIR": str(directory)}
        with self.lab.qemu_log(node).open("wb") as errors:
            return subprocess.Popen(
                command(self._host, guest),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
                cwd=directory,
                pass_fds=guest.wires,
            )


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
        "stop another lab"
    )
