"""Counts what has passed the devices that processes have open. This file runs on the hosts.

Its source is sent to them, so it needs nothing but Python 3.6. A device's
`stat` counts 512-byte sectors, whatever its own are (Documentation/block/stat.rst of Linux).
"""

import json
import os
import sys
from typing import Dict, List, Optional, Tuple

from cbt_crypto.hosts.devices.numbers_on_host import opened

_SECTOR = 512


def layers(device: str, root: str = "/sys/dev/block") -> List[Dict[str, object]]:
    """The device and those below it, from the top down, each with the bytes that passed it."""
    folder = os.path.realpath(os.path.join(root, device))
    fields = [int(word) for word in _read(folder, "stat").split()]
    layer = {
        "device": os.path.basename(folder),
        "read_bytes": fields[2] * _SECTOR,
        "written_bytes": fields[6] * _SECTOR,
    }  # type: Dict[str, object]
    mapping = os.path.join(folder, "dm/name")
    if os.path.exists(mapping):
        layer["mapping"] = _read(folder, "dm/name").strip()
    path = [layer]
    slaves = os.path.join(folder, "slaves")
    for lower in sorted(os.listdir(slaves)) if os.path.isdir(slaves) else []:
        path += layers(_read(slaves, lower + "/dev").strip(), root)
    return path


def process(pid: str) -> Optional[Tuple[int, int]]:
    """Bytes that a process had read from and written to storage, also through files."""
    try:
        with open(f"/proc/{pid}/io") as file:
            counted = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return None
    return int(counted["read_bytes"]), int(counted["write_bytes"])


def cpu_ms(pid: str) -> int:
    """Processor time that all threads of a process had, in ms."""
    # Of proc(5)'s numbers, the third stands first here; user and system time are the 14th and 15th.
    fields = _read("/proc", f"{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read()


def main(asked: Dict[str, str]) -> Dict[str, object]:
    """Name -> what its process, whose pid is in the file that is named, moved."""
    told = {}  # type: Dict[str, object]
    for name, pid_file in asked.items():
        try:
            pid = _read("/", pid_file).strip()
            counted = process(pid)
            told[name] = {
                "devices": [layers(device) for device in opened(pid)],
                "process": counted and {"read_bytes": counted[0], "written_bytes": counted[1]},
                "cpu_ms": cpu_ms(pid),
            }
        except (OSError, ValueError, IndexError) as error:
            told[name] = {"error": str(error)}
    return told


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
