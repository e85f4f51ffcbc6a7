"""Find the block devices below what OSDs have open, as "major:minor". Runs on hosts: Python 3.6."""

import json
import os
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional

from cbt_crypto.hosts.devices.layers_on_host import Layer, Layers, number, opened  # noqa: F401 - in comments


def opened_by_osd(pid: str, file: Optional[str]) -> List[str]:
    """The block devices that a process has open, and that of `file` if it has this one open."""
    data = _as_it_sees(pid, file) if file else None
    return opened(pid, lambda _, status: data is not None and os.path.samestat(status, data))


def _as_it_sees(pid: str, file: str) -> os.stat_result:
    try:
        return os.stat(f"/proc/{pid}/root{file}")
    except OSError:
        return os.stat(file)


def _named(path: str) -> Optional[str]:
    return number(os.stat(path).st_rdev) if os.path.exists(path) else None


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


def read_facts(osd: Dict[str, Any], layers: Layers) -> Dict[str, Any]:
    """One OSD's facts. See `main`."""
    if "path" in osd:
        return look_at_drive(osd, layers)
    named = {part: _named(path) for part, path in osd["devices"].items()}
    try:
        pid = Path(osd["pid_file"]).read_text().strip()
        devices = opened_by_osd(pid, osd["file"])
    except FileNotFoundError:
        return {"running": False, "named": named, "opened": {}}
    below = {device: layers.below(device) for device in devices}
    return {"running": True, "named": named, "opened": below}


class Changes:
    """Count by uevents how often mappings were resumed: a table changed and changed back shows too.

    What udev sends by itself is marked as synthetic.
    """

    def __init__(self) -> None:
        self.counts = Counter()  # type: Counter[str]
        self.is_complete = True
        self.peer = None  # type: Optional[socket.socket]
        try:
            kobject_uevent = 15
            self.peer = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, kobject_uevent)
            self.peer.setblocking(False)
            self.peer.bind((0, 1))
        except OSError:
            self.is_complete = False

    def read(self) -> Dict[str, int]:
        """Device -> how often it was resumed since this began."""
        while self.peer is not None:
            try:
                message, (sender, _) = self.peer.recvfrom(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                self.is_complete = False  # more than fit into the kernel's buffer
                continue
            if sender == 0:
                self.note(message)
        return dict(self.counts)

    def note(self, message: bytes) -> None:
        """Count a uevent, if it is a change of a block device."""
        words = (word.partition("=") for word in message.decode("utf-8", "replace").split("\0"))
        facts = {key: value for key, _, value in words}
        is_change = facts.get("ACTION") == "change" and facts.get("SUBSYSTEM") == "block"
        if is_change and "SYNTH_UUID" not in facts:
            self.counts[f"{facts.get('MAJOR')}:{facts.get('MINOR')}"] += 1


class Mappings:
    """The mappings below OSDs or drives, and what becomes of them while a cell is measured."""

    def __init__(self, places: Dict[str, Dict[str, Any]]) -> None:
        self.changes = Changes()  # before the first look: nothing is missed between the two
        self.layers = Layers()
        self.of = {}  # type: Dict[str, Dict[str, Layer]]
        for name, place in places.items():
            opened_now = read_facts(place, self.layers)["opened"]
            below = [layer for layers in opened_now.values() for layer in layers]
            self.of[name] = {str(layer["device"]): layer for layer in below if "mapping" in layer}

    def read_mappings(self) -> Dict[str, Any]:
        """OSD or drive -> mapping -> its table, and how often it was resumed."""
        counts = self.changes.read()
        states = {}  # type: Dict[str, Any]
        for name, mappings in self.of.items():
            states[name] = {}
            for device, layer in mappings.items():
                # A program for each mapping, where no uevent would tell.
                is_unchanged = self.changes.is_complete and not counts.get(device)
                table = layer["table"] if is_unchanged else self.layers.table(device)
                resumed = {"table": table, "resumed": counts.get(device, 0)}
                states[name][str(layer["mapping"])] = resumed
        return states


_watched = []  # type: List[Mappings]


def see(places: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
    """What `Mappings.read_mappings` finds, of what `main` is given: a `Watch` of overlays."""
    if not _watched:
        _watched.append(Mappings(places))
    return _watched[0].read_mappings()


def main(osds: Dict[str, Dict[str, Any]]) -> None:
    """Print OSD name -> `running`, `named` (data and db device) and `opened` (device -> layers).

    Given for each OSD: `pid_file`, `devices` ("data", "db") and the `file` that it uses instead, or
    null. For a drive without Ceph: `devices`, the `path` that processes open, and the file `note`
    of the last one's open devices; `path`, `note` and an array's `members` are printed too.
    """
    layers = Layers()
    print(json.dumps({name: read_facts(osd, layers) for name, osd in osds.items()}, indent=0))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
