"""Find what a block device is on, by its numbers "major:minor". This file runs on the hosts."""

import fcntl
import os
import stat
import struct
import subprocess
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from cbt_crypto.hosts.trust_on_host import mounts


def number(device: int) -> str:
    """ "254:0" of a device as `stat` returns it."""
    return f"{os.major(device)}:{os.minor(device)}"


def number_at(path: str) -> Optional[str]:
    """The number of the block device that a path from / leads to; None where there is none."""
    # A mount's source may be a word, and a user's file here have that name.
    if not path.startswith("/"):
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return number(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None


def opened(
    pid: str, counts: Callable[[str, os.stat_result], bool] = lambda target, status: False
) -> List[str]:
    """A process's open block devices, and its open files that `counts(path, status)` takes.

    Raises OSError when the process has ended, or may not be read.
    """
    devices = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        link = f"/proc/{pid}/fd/{name}"
        try:
            status, target = os.stat(link), os.readlink(link)
        except FileNotFoundError:
            continue  # closed meanwhile
        if stat.S_ISBLK(status.st_mode):
            devices.add(number(status.st_rdev))
        elif counts(target, status):
            devices.add(number(status.st_dev))
    return sorted(devices)


def text_at(path: Path, errors: str = "replace") -> str:
    """A small file of /sys or /proc, stripped; empty when it cannot be read."""
    try:
        return path.read_text(errors=errors).strip()
    except OSError:
        return ""


def numa_of(folder: Path) -> Optional[int]:
    """The NUMA node that a device's folder in /sys names, there or further up."""
    # Below NVMe's own multipath are its controllers.
    controllers = sorted(folder.glob("device/nvme*"))
    real = folder.resolve()
    for place in (*controllers, folder / "device", *real.parents):
        number = text_at(place / "numa_node")
        if number.isdigit():
            return int(number)
    return None


def disks(path: str) -> List[str]:
    """The whole disks at the bottom of a device, by the kernel's names; the path itself of none."""
    device = number_at(path)
    if device is None:
        return [path]
    return sorted(set(bottoms(os.path.realpath("/sys/dev/block/" + device))))


def bottoms(folder: str) -> List[str]:
    """The whole disks at the bottom of a device's directory in sysfs."""
    if os.path.exists(folder + "/partition"):
        folder = os.path.dirname(folder)
    backing = text_at(Path(folder) / "loop/backing_file", "surrogateescape")
    if number_at(backing):
        return disks(backing)
    slaves = os.path.join(folder, "slaves")
    below = os.listdir(slaves) if os.path.isdir(slaves) else []
    names = [name for each in below for name in bottoms(os.path.realpath(f"{slaves}/{each}"))]
    return names or [os.path.basename(folder)]


Layer = Dict[str, Optional[str]]


class Layers:
    """Walks from a device down to the hardware, in the kernel's own tree below `root`."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)

    def below(self, device: str) -> List[Layer]:
        """The device itself and everything under it, from the top down."""
        folder = self.root / "sys/dev/block" / device
        if not folder.exists():
            return self._without_number(device)
        folder = folder.resolve()
        path, lower = [self._layer(device, folder)], self._lower(folder)
        if lower:
            path[0]["on"] = " ".join(lower)
        for each in lower:
            path += self.below(each)
        return path

    def _layer(self, device: str, folder: Path) -> Layer:
        layer = {"device": device, "name": folder.name}  # type: Layer
        rotational = text_at(folder / "queue/rotational")
        if rotational:
            layer["rotational"] = rotational
        if (folder / "md").is_dir():
            level, disks, chunk = (
                (folder / "md" / name).read_text(errors="replace").strip()
                for name in ("level", "raid_disks", "chunk_size")
            )
            layer["array"] = f"{level} of {disks}, chunks of {int(chunk) // 1024} KiB"
        if (folder / "dm").is_dir():
            layer["mapping"] = (folder / "dm/name").read_text(errors="replace").strip()
            layer["uuid"] = (folder / "dm/uuid").read_text(errors="replace").strip()
            layer["table"] = self.table(device)
        return layer

    def _lower(self, folder: Path) -> List[str]:
        if (folder / "partition").exists():
            return [(folder.parent / "dev").read_text().strip()]
        backing = text_at(folder / "loop/backing_file", "surrogateescape")
        if backing:
            return [self._below_loop(folder.name, backing)]
        return [(slave / "dev").read_text().strip() for slave in sorted(folder.glob("slaves/*"))]

    def _below_loop(self, name: str, file: str) -> str:
        try:
            return number_at(file) or number(os.stat(file).st_dev)
        except OSError:
            # It was deleted, or this is a container that has no such path: the kernel knows.
            return loop_below(str(self.root / "dev" / name)) or "unknown"

    def _without_number(self, device: str) -> List[Layer]:
        for fields in mounts(str(self.root / "proc/self/mountinfo")):
            kind, source = fields[fields.index("-") + 1 :][:2]
            if fields[2] == device:
                lower = number_at(source)
                layer = {"device": device, "name": kind, **({"on": lower} if lower else {})}  # type: Layer
                return [layer, *(self.below(lower) if lower else [])]
        return [{"device": device, "name": "unknown"}]

    def table(self, device: str) -> Optional[str]:
        """What device-mapper does there, keys left out; None when dmsetup is missing."""
        major, _, minor = device.partition(":")
        command = ["dmsetup", "table", "-j", major, "-m", minor]
        try:
            printed = subprocess.check_output(command, universal_newlines=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return "\n".join(without_key(line) for line in printed.splitlines())


def loop_below(node: str) -> Optional[str]:
    """The number of the device below a loop device, or with its file, as the kernel has it."""
    told = loop_file(node)
    return number(told[2] or told[0]) if told else None


def loop_file(node: str) -> Optional[Tuple[int, ...]]:
    """Of a loop device's file, as the kernel has it: st_dev, st_ino, and st_rdev of a device."""
    # So begins struct loop_info64 of linux/loop.h.
    get_status, status = 0x4C05, bytearray(232)
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.ioctl(descriptor, get_status, status)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return struct.unpack_from("=QQQ", status)


def without_key(line: str) -> str:
    """A line of a table with a key's length in place of the key: dmsetup prints it as zeros."""
    words = line.split()
    if words[2:3] == ["crypt"] and not words[4].startswith(":"):
        words[4] = f":{len(words[4]) // 2}:hidden"
    return " ".join(words)
