"""QEMU's command lines, as plain values: a node, and the probe that tells whether KVM works."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BINARY = "qemu-system-x86_64"
PACKAGE = "qemu-system-x86"
#: All nodes of a lab join this multicast group, on the loopback interface and a port of their own.
_GROUP = "230.0.0.1"
#: Where QEMU's user-mode network expects a guest to be.
_HOST_SIDE_ADDRESS = "10.0.2.15/24"
#: Without the controllers that no node uses, and that its kernel would search for drives.
_MACHINE = "q35,sata=off,smbus=off"
_INIT = "/usr/lib/cbt-crypto-lab/init"
#: Features that cost an emulated CPU more than they bring it: AVX2 is slower than what libraries
#: use without it, with ERMS memory is cleared and copied byte by byte, a fifth level of page tables
#: is walked at every miss, and SMAP ends every translated block that copies to or from a process.
_SLOW_WHEN_EMULATED = "-avx2,-erms,-la57,-smap"
#: What a kernel does for safety between processes, which nodes that live for minutes do not need.
#: Above all: with random addresses QEMU before 8.0 translates each program anew at each start.
_EMULATED_KERNEL = "norandmaps mitigations=off init_on_alloc=0"
#: Before QEMU 10, TCG corrupts flags around cmpxchg16b, and the guest's kernel panics in kmalloc.
_FIXED_CMPXCHG16B = 10


@dataclass(frozen=True)
class Machine:
    """How guests run here: the accelerator, and the QEMU that drives it."""

    accelerator: str
    qemu_version: tuple[int, int]

    def options(self) -> list[str]:
        """Machine, accelerator and CPU."""
        if self.accelerator == "kvm":
            return ["-machine", _MACHINE, "-accel", "kvm", "-cpu", "host"]
        cpu = f"max,{_SLOW_WHEN_EMULATED}"
        if self.qemu_version[0] < _FIXED_CMPXCHG16B:
            cpu += ",-cx16"
        return ["-machine", _MACHINE, "-accel", "tcg,thread=multi", "-cpu", cpu]

    def kernel_options(self) -> list[str]:
        """Words for the guest's kernel command line that follow from that."""
        return [] if self.accelerator == "kvm" else [_EMULATED_KERNEL]


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
    lab_address: str
    lab_mac: str
    host_mac: str
    #: UDP port of the lab's multicast group, and TCP port of 127.0.0.1 that leads to its sshd.
    lab_port: int
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
    return [
        *_base(machine, guest.kernel, guest.system, _arguments(guest)),
        *(
            "-name",
            f"{guest.lab}-{guest.name}",
            "-smp",
            str(guest.cpus),
            "-m",
            f"{guest.memory // 2**20}M",
        ),
        *("-serial", f"file:{_path(guest.console)}"),
        *("-fw_cfg", f"name=opt/cbt-crypto/seed,file={_path(guest.seed)}"),
        *_disks(guest.disks),
        *("-netdev", f"socket,id=lab,mcast={_GROUP}:{guest.lab_port},localaddr=127.0.0.1"),
        *("-device", f"virtio-net-pci,netdev=lab,mac={guest.lab_mac}"),
        *("-netdev", f"user,id=host,restrict=on,hostfwd=tcp:127.0.0.1:{guest.ssh_port}-:22"),
        *("-device", f"virtio-net-pci,netdev=host,mac={guest.host_mac},romfile="),
    ]


def probe_command(machine: Machine, kernel: Path, system: Path) -> list[str]:
    """A boot into userspace that says so on stdout and powers off."""
    return [
        *_base(machine, kernel, system, "probe"),
        *("-smp", "1", "-m", "512M", "-serial", "stdio"),
    ]


def _base(machine: Machine, kernel: Path, system: Path, arguments: str) -> list[str]:
    root = "root=/dev/nvme0n1 rw rootflags=noinit_itable"
    kernel_words = ["console=ttyS0 quiet panic=-1 net.ifnames=0", *machine.kernel_options(), root]
    append = f"{' '.join(kernel_words)} init={_INIT} -- {arguments}"
    return [
        *(BINARY, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *machine.options(),
        *("-kernel", str(kernel), "-append", append),
        *("-rtc", "base=utc,clock=host"),
        *("-device", "virtio-rng-pci"),
        *("-drive", f"{_raw('system', system)},snapshot=on"),
        *("-device", "nvme,drive=system,serial=system"),
    ]


def _arguments(guest: Guest) -> str:
    return f"{guest.name} {guest.lab_address} {guest.lab_mac} {_HOST_SIDE_ADDRESS} {guest.host_mac}"


def _disks(disks: Sequence[Path]) -> list[str]:
    options = []
    for number, disk in enumerate(disks):
        options += ["-drive", f"{_raw(f'disk{number}', disk)},discard=unmap"]
        options += ["-device", f"virtio-blk-pci,drive=disk{number},serial={disk.name}"]
    return options


def _raw(name: str, path: Path) -> str:
    return f"if=none,id={name},format=raw,file={_path(path)}"


def _path(path: Path) -> str:
    """A path inside an option: QEMU reads a doubled comma as one."""
    return str(path).replace(",", ",,")
