"""Count what has passed the devices that processes have open. Runs on hosts: Python 3.6 alone.

`stat` counts 512-byte sectors, whatever a device's are (Linux, Documentation/block/stat.rst).
"""

import glob
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from cbt_crypto.hosts.devices.layers_on_host import number_at, opened, text_at

_SECTOR = 512


def layers(device: str, root: str = "/sys/dev/block") -> List[Dict[str, object]]:
    """The device and those below it, top down, with bytes passed; the lowest with its size."""
    folder = os.path.realpath(os.path.join(root, device))
    read, written = _sectors(folder)
    layer = {
        "device": os.path.basename(folder),
        "read_bytes": read * _SECTOR,
        "written_bytes": written * _SECTOR,
    }  # type: Dict[str, object]
    mapping = text_at(Path(folder, "dm/name"))
    if mapping:
        layer["mapping"] = mapping
    path = [layer]
    slaves = os.path.join(folder, "slaves")
    below = sorted(os.listdir(slaves)) if os.path.isdir(slaves) else []
    if not below:
        layer["size_bytes"] = int(_read(folder, "size")) * _SECTOR
    for lower in below:
        path += layers(_read(slaves, lower + "/dev").strip(), root)
    return path


def _sectors(folder: str) -> Tuple[int, int]:
    """Sectors read and written. Before Linux 6.4 NVMe's own multipath counts by path alone."""
    counted = [folder]
    disk = re.match(r"(.*/(nvme[0-9]+)n([0-9]+))(/|$)", folder)
    if disk and not any(map(int, _read(folder, "stat").split())):
        head, subsystem, namespace = disk.group(1, 2, 3)
        paths = glob.glob(f"{head}/device/nvme*/{subsystem}c*n{namespace}")
        if paths and folder != head:
            raise ValueError(f"{os.path.basename(folder)}: this kernel counts nothing of it")
        counted = paths or counted
    counts = [_read(path, "stat").split() for path in counted]
    return sum(int(each[2]) for each in counts), sum(int(each[6]) for each in counts)


def process(pid: str) -> Optional[Tuple[int, int]]:
    """Bytes that a process had read from and written to storage, also through files."""
    try:
        with open(f"/proc/{pid}/io", errors="replace") as file:
            counted = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return None
    return int(counted["read_bytes"]), int(counted["write_bytes"])


def cpu_ms(pid: str) -> int:
    """Processor time that all threads of a process had, in ms."""
    # Of proc(5)'s numbers, the third stands first here; user and system time are the 14th and 15th.
    fields = _read("/proc", f"{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def largest_file(pid: str) -> int:
    """Bytes of the largest file that a process has open: of an OSD on a file, that file's."""
    sizes = [0]
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue  # closed meanwhile
        if stat.S_ISREG(status.st_mode):
            sizes.append(status.st_size)
    return max(sizes)


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), errors="replace") as file:
        return file.read()


def of_process(pid: str) -> Dict[str, object]:
    """What passed the devices that it has open, and what it moved itself."""
    counted, moved = process(pid), None
    if counted:
        moved = {"read_bytes": counted[0], "written_bytes": counted[1]}
        moved["size_bytes"] = largest_file(pid)
    devices = [layers(device) for device in opened(pid)]
    return {"devices": devices, "process": moved, "cpu_ms": cpu_ms(pid)}


def of_drive(paths: List[str]) -> Dict[str, object]:
    """What passed devices that are named."""
    numbers = [number_at(path) for path in paths]
    return {"devices": [layers(device) for device in numbers if device], "process": None}


def main(asked: Dict[str, Any]) -> Dict[str, object]:
    """Name -> what was moved by the process whose pid is in a file, or on a list of devices."""
    told = {}  # type: Dict[str, object]
    for name, where in asked.items():
        try:
            if isinstance(where, list):
                told[name] = of_drive(where)
            else:
                told[name] = of_process(_read("/", where).strip())
        except (OSError, ValueError, IndexError) as error:
            told[name] = {"error": str(error)}
    return told


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
