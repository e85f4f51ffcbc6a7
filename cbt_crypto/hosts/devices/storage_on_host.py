"""Finds the block devices below what OSDs have open. This file runs on the hosts.

Its source is sent to them, so it needs nothing but Python 3.6. Devices are named by their numbers,
"major:minor", as the kernel does.
"""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

Layer = Dict[str, Optional[str]]


def numbers(device: int) -> str:
    """ "254:0" of a device as `stat` returns it."""
    return f"{os.major(device)}:{os.minor(device)}"


def opened(pid: str, file: Optional[str]) -> List[str]:
    """The block devices that a process has open, and that of `file` if it has this one open."""
    own = _as_it_sees(pid, file) if file else None
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if stat.S_ISBLK(status.st_mode):
            found.add(numbers(status.st_rdev))
        elif own and (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino):
            found.add(numbers(status.st_dev))
    return sorted(found)


def _as_it_sees(pid: str, file: str) -> os.stat_result:
    """A file by the name that a process has for it, which may be in a container."""
    try:
        return os.stat(f"/proc/{pid}/root{file}")
    except OSError:
        return os.stat(file)


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
        found = [self._layer(device, folder)]
        for lower in self._lower(folder):
            found += self.below(lower)
        return found

    def _layer(self, device: str, folder: Path) -> Layer:
        layer = {"device": device, "name": folder.name}  # type: Layer
        rotational = folder / "queue/rotational"
        if rotational.exists():
            layer["rotational"] = rotational.read_text().strip()
        if (folder / "md").is_dir():
            level, disks, chunk = (
                (folder / "md" / name).read_text().strip()
                for name in ("level", "raid_disks", "chunk_size")
            )
            layer["array"] = f"{level} of {disks}, chunks of {int(chunk) // 1024} KiB"
        if (folder / "dm").is_dir():
            layer["mapping"] = (folder / "dm/name").read_text().strip()
            layer["uuid"] = (folder / "dm/uuid").read_text().strip()
            layer["table"] = self.table(device)
        return layer

    def _lower(self, folder: Path) -> List[str]:
        if (folder / "partition").exists():
            return [(folder.parent / "dev").read_text().strip()]
        backing = folder / "loop/backing_file"
        if backing.exists():
            return [numbers(os.stat(backing.read_text().strip()).st_dev)]
        return [(slave / "dev").read_text().strip() for slave in sorted(folder.glob("slaves/*"))]

    def _without_number(self, device: str) -> List[Layer]:
        """What a file system that has no device number of its own is mounted from."""
        for line in (self.root / "proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            kind, source = fields[fields.index("-") + 1 :][:2]
            if fields[2] == device:
                layer = {"device": device, "name": kind}  # type: Layer
                is_block = os.path.exists(source) and stat.S_ISBLK(os.stat(source).st_mode)
                lower = self.below(numbers(os.stat(source).st_rdev)) if is_block else []
                return [layer, *lower]
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


def without_key(line: str) -> str:
    """A line of a table with a key's length in place of the key: dmsetup prints it as zeros."""
    words = line.split()
    if words[2:3] == ["crypt"] and not words[4].startswith(":"):
        words[4] = f":{len(words[4]) // 2}:hidden"
    return " ".join(words)


def _named(path: str) -> Optional[str]:
    return numbers(os.stat(path).st_rdev) if os.path.exists(path) else None


def look_at_drive(drive: Dict[str, Any], layers: Layers) -> Dict[str, Any]:
    """One drive's facts. See `main`."""
    named = {part: _named(path) for part, path in drive["devices"].items()}
    path = _named(drive["path"])
    note = {}  # type: Dict[str, Any]
    if os.path.exists(drive["note"]):
        note = json.loads(Path(drive["note"]).read_text())
    devices = ([path] if path else []) + note.get("devices", [])
    return {
        "running": path is not None,
        "named": named,
        "path": path,
        "note": note,
        "members": {member: _named(member) for member in drive.get("members", [])},
        "opened": {device: layers.below(device) for device in sorted(set(devices))},
    }


def look(osd: Dict[str, Any], layers: Layers) -> Dict[str, Any]:
    """One OSD's facts. See `main`."""
    if "path" in osd:
        return look_at_drive(osd, layers)
    named = {part: _named(path) for part, path in osd["devices"].items()}
    try:
        pid = Path(osd["pid_file"]).read_text().strip()
        devices = opened(pid, osd["file"])
    except FileNotFoundError:
        return {"running": False, "named": named, "opened": {}}
    return {
        "running": True,
        "named": named,
        "opened": {device: layers.below(device) for device in devices},
    }


def main(osds: Dict[str, Dict[str, Any]]) -> None:
    """Print OSD name -> `running`, `named` (data and db device) and `opened` (device -> layers).

    Of each OSD is given its `pid_file`, its `devices` ("data", "db") and the `file` that it uses
    instead, or null. Of a drive that is worked on without Ceph: its `devices`, the `path` that
    processes open, and the file `note` where the last one's open devices stand; `path`, `note`
    and the `members` of an array are printed too, and `opened` is of path and note.
    """
    layers = Layers()
    print(json.dumps({name: look(osd, layers) for name, osd in osds.items()}, indent=0))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
