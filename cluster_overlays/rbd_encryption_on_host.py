"""What client processes have open, and what is below: a `Watch`. Runs on hosts: Python 3.6."""

import contextlib
import ctypes
import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple  # noqa: F401 - in comments

from cbt_crypto.hosts.clients_on_host import Clients
from cbt_crypto.hosts.devices.layers_on_host import Layers, opened, text_at
from cbt_crypto.hosts.rados_client_on_host import connected, require, value_of
from cbt_crypto.hosts.trust_on_host import mounts


class Opened:
    """Block devices that client processes have open; of each, what it is on, looked at once."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        self.clients, self.asked = Clients(asked), asked
        self.mounts = asked["tmp_dir"] + "/mnt/"
        self.layers = {}  # type: Dict[Tuple[str, str, str], List[Any]]

    def read_mappings(self) -> List[List[Any]]:
        """The layers of each open device, or of what an open file of ours is on, from the top."""
        devices, kinds = set(), self.file_systems()  # type: Set[str], Dict[str, str]
        for pid in self.clients.present():
            try:
                devices.update(opened(pid, lambda target, _: target.startswith(self.mounts)))
            except OSError:
                continue
        # What was mounted before may be unmounted by now, as its process has ended.
        kinds.update(self.file_systems())
        return [self.below(device, kinds.get(device, "")) for device in sorted(devices)]

    def below(self, device: str, kind: str) -> List[Any]:
        """Numbers are given anew; the id that device-mapper knows a mapping by is not."""
        folder = Path("/sys/dev/block") / device
        key = device, text_at(folder / "dm/uuid") or text_at(folder / "pid"), kind
        if key not in self.layers:
            self.layers[key] = Layers().below(device)
            self.layers[key][0].update({"filesystem": kind} if kind else {})
            lowest = self.layers[key][-1]
            if lowest["name"].startswith("nbd"):
                lowest["served"] = served(lowest["name"], self.asked)
        return self.layers[key]

    def file_systems(self) -> Dict[str, str]:
        """Device -> the file system on it, of all that is mounted below our directory."""
        ours = (fields for fields in mounts() if fields[4].startswith(self.mounts))
        return {fields[2]: fields[fields.index("-") + 1] for fields in ours}


#: What a LUKS header begins with; bytes that are read of it: its text ends sooner.
_LUKS, _HEADER = b"LUKS\xba\xbe", 1 << 16


def served(name: str, asked: Dict[str, Any], root: Path = Path("/")) -> Dict[str, Any]:
    """What is behind a device of nbd, if it is ours: who serves it, and what is in its image."""
    folder = root / "sys/block" / name
    process = root / "proc" / (text_at(folder / "pid") or "none")
    prefix, _, origin = text_at(folder / "backend").partition("/")
    try:
        program = os.path.basename(os.readlink(str(process / "exe")))
        if (prefix, program) != (asked["prefix"], "rbd-nbd"):
            return {"why": "is not served by an rbd-nbd of this campaign"}
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        with (root / "dev" / name).open("rb") as device:
            begins = device.read(len(_LUKS))
        return {
            "options": [word for word in words if word.startswith("--encryption")],
            "size": 512 * int(text_at(folder / "size")),
            "begins_with_header": begins == _LUKS,
            **stored(origin, asked),
        }
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        return {"why": f"cannot be looked into: {error}"}


def stored(origin: str, asked: Dict[str, Any]) -> Dict[str, Any]:
    """Of fsid/pool/image: its size, and the LUKS header that it begins with, not decrypted."""
    fsid, pool, image = origin.split("/")
    librbd = ctypes.CDLL("librbd.so.1")
    size, text = ctypes.c_uint64(), ctypes.create_string_buffer(_HEADER)
    place, handle = ctypes.c_void_p(), ctypes.c_void_p()
    with contextlib.ExitStack() as ends:
        librados, cluster = ends.enter_context(connected(asked["conf"], asked["user"]))
        if fsid != value_of(librados, cluster, "fsid"):
            raise ValueError(f"it is from {fsid}, another cluster")
        require(librados.rados_ioctx_create(cluster, pool.encode(), ctypes.byref(place)))
        ends.callback(librados.rados_ioctx_destroy, place)
        require(librbd.rbd_open_read_only(place, image.encode(), ctypes.byref(handle), None))
        ends.callback(librbd.rbd_close, handle)
        require(librbd.rbd_get_size(handle, ctypes.byref(size)))
        require(librbd.rbd_read(handle, ctypes.c_uint64(0), ctypes.c_size_t(_HEADER), text))
    header = header_of(text.raw) if text.raw.startswith(_LUKS) else None
    return {"image": f"{pool}/{image}", "stored": size.value, "header": header}


def header_of(text: bytes) -> Dict[str, Any]:
    """What a LUKS2 header says of the data behind it: their offset, and how they are encrypted."""
    # Its text begins behind 4 KiB of numbers.
    said = json.loads(text[4096:].split(b"\0", 1)[0].decode())
    (segment,), slots = said["segments"].values(), said["keyslots"].values()
    return {
        "offset": int(segment["offset"]),
        "cipher": segment["encryption"],
        "key_size": 8 * max(slot["key_size"] for slot in slots),
        "sector_size": segment["sector_size"],
    }


_opened = None  # type: Optional[Opened]


def see(asked: Dict[str, Any]) -> List[List[Any]]:
    """What processes called one of `programs` that carry the mark of `tmp_dir` have open."""
    global _opened  # noqa: PLW0603
    _opened = _opened or Opened(asked)
    return _opened.read_mappings()
