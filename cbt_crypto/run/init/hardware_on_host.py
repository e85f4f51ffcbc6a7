"""What a host has that a campaign could use; only reads. Runs on hosts: Python 3.6 alone."""

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from cbt_crypto.hosts.devices.identity_on_host import bluestore_uuids
from cbt_crypto.hosts.devices.layers_on_host import numa_of, text_at

COLUMNS = "NAME,TYPE,SIZE,MODEL,SERIAL,ROTA,TRAN,RM,RO,FSTYPE,MOUNTPOINT"
#: Program -> how it is asked for its version.
PROGRAMS = {
    "ceph": "--version",
    "fio": "--version",
    "cryptsetup": "--version",
    "collectl": "--version",
    "pdsh": "-V",
    "tuned-adm": "--version",
}
#: A program that takes longer to answer is left alone.
SLOWEST_S = 20


def printed(command: List[str]) -> Optional[str]:
    """What a program says, on either stream; None when it is not there."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            universal_newlines=True, timeout=SLOWEST_S, check=False,  # noqa: UP021 - Python 3.6
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout


def is_set(value: Any) -> bool:
    """lsblk's booleans: "1" before util-linux 2.33, true since."""
    return str(value).lower() in ("1", "true")


def links() -> Dict[str, List[str]]:
    """Kernel's device path -> stable names that lead to it."""
    by_device = {}  # type: Dict[str, List[str]]
    for folder in ("/dev/disk/by-id", "/dev/disk/by-partlabel"):
        for link in sorted(Path(folder).glob("*")) if os.path.isdir(folder) else []:
            by_device.setdefault(os.path.realpath(str(link)), []).append(str(link))
    return by_device


def osd_label(path: str) -> Optional[str]:
    """The uuid in BlueStore's label, when the device carries one."""
    try:
        return next(iter(bluestore_uuids(path)), None)
    except OSError:
        return None


def drive(entry: Dict[str, Any], names: Dict[str, List[str]]) -> Dict[str, Any]:
    """One device of lsblk, its partitions and what is on it flattened into lists."""
    name = entry["name"]
    path = os.path.realpath("/dev/" + name.replace("!", "/"))
    under = flat(entry)
    return {
        "name": name,
        "path": path,
        "type": entry["type"],
        "size": int(entry["size"] or 0),
        "model": (entry["model"] or "").strip(),
        "serial": (entry["serial"] or "").strip(),
        "rotational": is_set(entry["rota"]),
        "transport": entry["tran"] or "",
        "removable": is_set(entry["rm"]),
        "read_only": is_set(entry["ro"]),
        "numa": numa_of(Path("/sys/class/block") / name),
        "links": names.get(path, []),
        "mounts": sorted({device["mountpoint"] for device in under if device["mountpoint"]}),
        "content": sorted({device["fstype"] for device in under if device["fstype"]}),
        "volumes": sorted({device["name"] for device in under[1:] if device["type"] != "part"}),
        "partitions": sum(device["type"] == "part" for device in under[1:]),
        "osd": osd_label(path),
    }


def flat(entry: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A device and all that is on it."""
    return [entry] + [device for child in entry.get("children", []) for device in flat(child)]


def drives() -> List[Dict[str, Any]]:
    """Whole devices, and partitions with the labels that CBT gives the devices of OSDs."""
    answer = printed(["lsblk", "-J", "-b", "-o", COLUMNS])
    try:
        tree = json.loads(answer or "")["blockdevices"]
    except (ValueError, KeyError):
        return []
    names, whole_devices = links(), []
    for top in tree:
        for entry in flat(top):
            seen = drive(entry, names)
            labelled = any("/by-partlabel/osd-device-" in link for link in seen["links"])
            if not (entry is top or labelled) or seen["size"] == 0:
                continue
            if os.path.exists(seen["path"]) and stat.S_ISBLK(os.stat(seen["path"]).st_mode):
                whole_devices.append(seen)
    return whole_devices


def networks() -> List[Dict[str, Any]]:
    """Interfaces with an IPv4 address of more than this machine; speed in Mbit/s, 0 unknown."""
    interfaces = []
    for line in (printed(["ip", "-o", "-4", "addr", "show", "scope", "global"]) or "").splitlines():
        words = line.split()
        if len(words) < 4:
            continue
        name = words[1].partition("@")[0]
        folder = Path("/sys/class/net") / name
        speed = text_at(folder / "speed")
        interfaces.append({
            "name": name,
            "address": words[3],
            "mtu": int(text_at(folder / "mtu") or 0),
            "speed": int(speed) if speed.isdigit() else 0,
            "numa": numa_of(folder),
            "hardware": (folder / "device").exists(),
        })  # fmt: skip
    return interfaces


def memory_bytes() -> int:
    """MemTotal of /proc/meminfo in bytes; 0 where it does not say."""
    match = re.search(r"MemTotal:\s*(\d+) kB", text_at(Path("/proc/meminfo")))
    return int(match.group(1)) * 1024 if match else 0


def free_bytes(path: str) -> int:
    """What the file system has left that a directory would be made on."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def processor() -> str:
    """The first `model name` of /proc/cpuinfo, else the machine type of uname."""
    match = re.search(r"model name\s*: (.*)", text_at(Path("/proc/cpuinfo")))
    return match.group(1).strip() if match else platform.machine()


def versions() -> Dict[str, str]:
    """Program -> the first of its words that looks like a version, `?` for none.

    Absent ones are left out; one that takes too long to say is not absent.
    """
    by_program = {}
    for program, option in PROGRAMS.items():
        if shutil.which(program):
            version = re.search(r"\d+\.\d+[\w.]*", printed([program, option]) or "")
            by_program[program] = version.group() if version else "?"
    return by_program


def main(tmp_dir: str) -> None:
    """Print everything as one JSON object."""
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', text_at(Path("/etc/os-release")), re.M)
    print(json.dumps({
        "system": release.group(1) if release else "",
        "kernel": platform.release(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
        "memory": memory_bytes(),
        "free": free_bytes(tmp_dir),
        "versions": versions(),
        "networks": networks(),
        "drives": drives(),
    }))  # fmt: skip


if __name__ == "__main__":
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
    main(json.loads(sys.argv[1]))
