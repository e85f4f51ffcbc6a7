"""Which device a path leads to, and what is on it. Runs on hosts as root: Python 3.6, util-linux.

Disks are told apart by WWN or serial number, else by the number that the kernel gave in this boot.
"""

import ctypes
import errno
import functools
import glob
import hashlib
import os
import queue
import stat
import subprocess
import threading
import time
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

from cbt_crypto.hosts.devices.layers_on_host import loop_file, number, number_at
from cbt_crypto.hosts.directory_on_host import Refused, check_way
from cbt_crypto.hosts.trust_on_host import distrust, mounts, owners

Identity = Dict[str, str]

#: The beginning of a device that a campaign has claimed or left: it says that nothing is lost.
TAG = b"cbt-crypto: there is nothing of worth on this device\n"
TAG_BYTES = 4096
#: Where BlueStore keeps copies of its label, from Squid on; the first is at the beginning.
BLUESTORE_LABELS = (0, 1 << 30, 10 << 30, 100 << 30, 1000 << 30)
BLUESTORE = b"bluestore block device\n"
#: What of an identity must be the same, of what was known.
_TELLING = ("size", "start", "wwn", "serial", "partuuid", "dm", "backing")
#: Any one of these tells a disk from every other, also after a reboot.
_STRONG = ("wwn", "serial", "partuuid", "dm", "backing")
_HEAD = 4 << 20
_SAMPLES = 64
_SAMPLE = 64 << 10
#: A device of so many bytes is looked at in whole, in a second or two.
_WHOLE = 256 << 20
_PATIENCE_S = 3.0
#: For what is taken down: nothing waits for it, and left behind it would be in somebody's way.
LAST_PATIENCE_S = 20.0


def text_of(*paths: str) -> str:
    """The first of these files that says something, on one line."""
    for path in paths:
        try:
            with open(path, "rb") as file:
                content = file.read(4096)
        except OSError:
            continue
        if path.endswith("/vpd_pg80"):
            content = content[4:]
        text = " ".join(content.decode("utf-8", "replace").replace("\0", " ").split())
        if text:
            return text
    return ""


def folder_of(path: str) -> str:
    """The device's directory in sysfs. Raises Refused for what is no block device."""
    device = number_at(path)
    if device is None:
        raise Refused("is not a block device there")
    return os.path.realpath("/sys/dev/block/" + device)


def node_of(path: str) -> str:
    """The kernel's own name of the device, as /dev/sdb."""
    return "/dev/" + os.path.basename(folder_of(path)).replace("!", "/")


def disk_of(folder: str) -> str:
    """The directory of the whole disk that a device is, or is a partition of."""
    return os.path.dirname(folder) if os.path.exists(folder + "/partition") else folder


def identity(path: str) -> Identity:
    """What tells the device from others: text by name, only what is known. Raises Refused."""
    folder = folder_of(path)
    check_way(path)
    disk = disk_of(folder)
    _check_backing(disk)
    facts = {
        "size": str(int(text_of(folder + "/size") or 0) * 512),
        "start": text_of(folder + "/start"),
        "wwn": text_of(disk + "/wwid", disk + "/device/wwid"),
        "serial": text_of(disk + "/serial", disk + "/device/serial", disk + "/device/vpd_pg80"),
        "dm": text_of(disk + "/dm/uuid"),
        "backing": _backing(disk),
        "seen": " ".join(
            (
                text_of("/proc/sys/kernel/random/boot_id"),
                text_of(disk + "/diskseq"),
                text_of(folder + "/dev"),
            )
        ),
    }
    if disk != folder:
        facts["partuuid"] = _said(["blkid", "-p", "-s", "PART_ENTRY_UUID", "-o", "value", path])
    return {name: value for name, value in facts.items() if value}


def _backing(disk: str) -> str:
    path = text_of(disk + "/loop/backing_file")
    # The path is that of the mount namespace of whoever made the loop.
    told = loop_file("/dev/" + os.path.basename(disk)) if path else None
    return f"{path} {told[0]}:{told[1]}" if told else path


def _check_backing(disk: str) -> None:
    """Raise Refused where another user may write to, or replace, the file of a loop device."""
    path = text_of(disk + "/loop/backing_file")
    if os.path.isfile(path):
        check_way(path)
        wrong = distrust(os.stat(path), owners(), is_group_ours=True)
        if wrong:
            raise Refused(f"is a loop over {path}, which {wrong}; name another device")


def is_same_after_all(then: Identity, now: Identity) -> bool:
    """Whether a path leads to the same device in another boot, or in a container made anew. A loop
    device is the one of its file's path then: the file may have been made anew there."""
    before, after = ({**known, "backing": _path_of(known)} for known in (then, now))
    return _is_alike(before, after)


def _is_alike(then: Identity, now: Identity) -> bool:
    return all(then.get(name, "") == now.get(name, "") for name in _TELLING)


def _path_of(known: Identity) -> str:
    backing = known.get("backing", "")
    path, _, number = backing.rpartition(" ")
    return path if number.replace(":", "", 1).isdigit() else backing


def _said(command: List[str]) -> str:
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL).decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def words(known: Identity) -> str:
    """`serial A, 10737418240 bytes`, for people."""
    names = {
        "serial": "serial", "wwn": "WWN", "backing": "file", "dm": "mapping",
        "partuuid": "partition",
    }  # fmt: skip
    parts = [f"{names[key]} {known[key]}" for key in names if key in known]
    text = ", ".join((parts or ["no serial number"]) + [known.get("size", "?") + " bytes"])
    # In one line, whatever a drive or a journal says.
    return " ".join(text.split())


def difference(then: Identity, now: Identity) -> Optional[str]:
    """Why `now` is not the device that `then` was; None when it is."""
    if not _is_alike(then, now):
        return f"is another device now: {words(now)}; it was: {words(then)}"
    if then.get("seen") == now.get("seen"):
        return None
    if not any(name in then for name in _STRONG) or len(alike(now)) > 1:
        return "cannot be told from another since it was plugged in anew: " + words(now)
    return None


def everywhere() -> List[str]:
    """All block devices of this host, by the kernel's names."""
    names = sorted(os.listdir("/sys/class/block"))
    return [path for path in ("/dev/" + n.replace("!", "/") for n in names) if os.path.exists(path)]


def alike(known: Identity) -> List[str]:
    """The devices that say of themselves what `known` says."""
    paths = []
    for path in everywhere():
        try:
            its_identity = identity(path)
        except (Refused, ValueError):
            continue
        if _is_alike(known, its_identity):
            paths.append(path)
    return paths


# -- who uses it ---------------------------------------------------------------------------------


def family(folder: str) -> List[str]:
    """The device, the disk that it is on, and its partitions: directories in sysfs."""
    partitions = [os.path.dirname(path) for path in glob.glob(glob.escape(folder) + "/*/partition")]
    return sorted({folder, disk_of(folder), *partitions})


def check_unused(path: str, ours: Any = None, patience_s: float = _PATIENCE_S) -> None:
    """Raise Refused for a device that something uses. `ours` judges the names of its holders."""
    folder = folder_of(path)
    node = node_of(path)
    if text_of(folder + "/ro") == "1":
        raise Refused("is read-only; name another device")
    _check_mounts(node)
    holders = [name for member in family(folder) for name in _names(member + "/holders")]
    foreign = [name for name in holders if not (ours and ours(name))]
    if foreign:
        raise Refused("is in use by {}; name another device".format(" ".join(foreign)))
    if holders:
        return  # what is on it is ours, and has it open
    # First who writes: to have it alone for a moment, as below, may end what a campaign does on it.
    _check_writers(folder)
    _check_exclusive(node, patience_s)
    _check_other_ways(folder)


def _check_writers(folder: str) -> None:
    for left in range(5, -1, -1):
        users = writers(folder)
        if not users:
            return
        if left:  # losetup or smartd has any drive open for a moment
            time.sleep(0.2)
    raise Refused("is held open by {}; name another device".format(", ".join(users)))


#: Files that name what is given to other hosts, or to a USB host.
_EXPORTS = {
    "NVMe over Fabrics": "/sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path",
    "LIO (targetcli)": "/sys/kernel/config/target/core/*/*/udev_path",
    "SCST": "/sys/kernel/scst_tgt/devices/*/filename",
    "a USB gadget": "/sys/kernel/config/usb_gadget/*/functions/mass_storage.*/lun.*/file",
}


def _check_other_ways(folder: str) -> None:
    """Raise where another device uses these sectors: a loop over it or its file, another path."""
    numbers = {text_of(member + "/dev") for member in family(folder)}
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        over = "/dev/" + path.split("/")[3]
        told = loop_file(over)
        # A container may lack its node.
        if (number(told[2]) if told else number_at(text_of(path))) in numbers:
            raise Refused(f"is in use by {over}, a loop over it; name another device")
    # The kernel opens these for others' use as well, and no process has them.
    for what, pattern in _EXPORTS.items():
        for path in glob.glob(pattern):
            if number_at(text_of(path)) in numbers:
                raise Refused(f"is exported to others by {what} ({path}); end that")
    disk = disk_of(folder)
    for name in _names("/sys/block"):
        twin, node = os.path.realpath("/sys/block/" + name), "/dev/" + name.replace("!", "/")
        # A hidden path of NVMe's own multipath has no node.
        if twin == os.path.realpath(disk) or not os.path.exists(node) or not _is_twin(twin, disk):
            continue
        try:
            _check_mounts(node)
            _check_writers(twin)
            _check_exclusive(node)
        except Refused as error:
            raise Refused(f"is {node} as well, which {error}") from None


def _is_twin(one: str, other: str) -> bool:
    """Whether two disks have sectors in common: loops over one file, or paths to one drive."""
    file, its_file = _file_behind(one), _file_behind(other)
    if file or its_file:
        begin, end = _range_in_file(one)
        its_begin, its_end = _range_in_file(other)
        return file == its_file and begin < its_end and its_begin < end
    said = _says(one)
    return bool(said) and said == _says(other)


def _file_behind(disk: str) -> str:
    return _backing(disk).rpartition(" ")[2]


def _range_in_file(disk: str) -> Tuple[int, int]:
    begin = int(text_of(disk + "/loop/offset") or 0)
    return begin, begin + int(text_of(disk + "/size") or 0) * 512


def _says(disk: str) -> str:
    """What only one drive can say of itself, with its size; empty for nothing."""
    serial = text_of(disk + "/wwid", disk + "/device/wwid") or text_of(disk + "/serial")
    return serial and serial + " " + text_of(disk + "/size")


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _check_mounts(node: str) -> None:
    try:
        listed = subprocess.check_output(
            ["lsblk", "-nro", "MAJ:MIN", node], stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        raise Refused("cannot be read with lsblk; install util-linux") from None
    numbers = set(listed.decode().split())
    for fields in mounts():
        kind, source = fields[fields.index("-") + 1 :][:2]
        # As of Btrfs, which has numbers of its own. Any user calls his FUSE what he likes.
        is_named = not kind.startswith("fuse") and number_at(source) in numbers
        if fields[2] in numbers or is_named:
            raise Refused("is mounted, or a part of it is; name another device")
    if node in _of_the_system():
        raise Refused("holds the system; name another device")


@functools.lru_cache(maxsize=1)
def _of_the_system() -> FrozenSet[str]:
    """The devices that this host runs from. They stay the same for as long as a script runs."""
    places = ("/", "/boot", "/boot/efi", "/usr", "/var")
    sources = {_said(["findmnt", "-nvo", "SOURCE", "-T", place]) for place in places} - {""}
    below = [_said(["lsblk", "-snro", "PATH", source]).splitlines() for source in sources]
    return frozenset(sources.union(*below))


def _check_exclusive(node: str, patience_s: float = _PATIENCE_S) -> None:
    os.close(_alone(node, os.O_RDONLY, patience_s))


def _alone(node: str, flags: int, patience_s: float = _PATIENCE_S) -> int:
    """The kernel gives nobody the only use of a device that is mounted, swapped to or mapped."""
    ends = time.monotonic() + patience_s
    while True:
        try:
            return os.open(node, flags | os.O_EXCL)
        except OSError as error:
            # udev may look at it for a moment.
            if time.monotonic() > ends:
                what = f"cannot be opened ({error.strerror});"
                if error.errno == errno.EBUSY:
                    what = _mounted_elsewhere(folder_of(node)) or "is in use;"
                raise Refused(what + " name another device") from None
        time.sleep(0.1)


def _mounted_elsewhere(folder: str) -> str:
    """Whose mount namespace has it: a container keeps what was mounted when it was started."""
    numbers = {text_of(member + "/dev") for member in family(folder)}
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            if any(fields[2] in numbers for fields in mounts(f"/proc/{pid}/mountinfo")):
                return f"is mounted in the mount namespace of {_process(pid)}; end that, or"
        except OSError:
            continue
    return ""


def _process(pid: str) -> str:
    return "{} (process {})".format(text_of("/proc/" + pid + "/comm"), pid)


def writers(folder: str, patience_s: float = 10.0) -> List[str]:
    """Processes that can write to the device, its disk or its partitions, or to the file behind it.

    A virtual machine, for one, asks for no exclusive use. Raises Refused for a process that does
    not let itself be looked at within `patience_s`.
    """
    numbers = {text_of(member + "/dev") for member in family(folder)} | _passing(folder)
    file = _file_behind(disk_of(folder))
    ends = time.monotonic() + 6 * patience_s
    pids = sorted(set(filter(str.isdigit, os.listdir("/proc"))) - {str(os.getpid())})
    answers = queue.Queue()  # type: queue.Queue[bool]

    def look() -> None:
        for pid in pids:
            paths = (*_descriptors(pid), *_mapped(pid))
            answers.put(any(_leads_to(path, numbers, file) and _is_written(path) for path in paths))

    # A user can make whoever asks for a process's maps wait for ever, past every signal but a kill.
    threading.Thread(target=look, daemon=True).start()
    users = set()
    for pid in pids:
        try:
            if answers.get(timeout=min(patience_s, max(ends - time.monotonic(), 0))):
                users.add(_process(pid))
        except queue.Empty:
            raise Refused(
                f"may be held open by {_process(pid)}, which cannot be looked at; end it"
            ) from None
    return sorted(users)


def _descriptors(pid: str) -> Iterator[str]:
    """A thread may have descriptors of its own, and outlive the process's first."""
    for thread in _names(f"/proc/{pid}/task"):
        if thread == pid or not _has_same_files(pid, thread):
            for path in glob.glob(f"/proc/{pid}/task/{thread}/fd/*"):
                yield path
                yield from _of_ring(pid, path)


def _of_ring(pid: str, path: str) -> List[str]:
    """What an io_uring has in a table of its own: nothing else need have it open."""
    try:
        if os.readlink(path) != "anon_inode:[io_uring]":
            return []
        with open(path.replace("/fd/", "/fdinfo/"), errors="replace", newline="\n") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    of_files = (words for words in lines if len(words) == 2 and words[0][:-1].isdigit())
    return [f"/proc/{pid}/root{path}" for _, path in of_files if path.startswith("/")]


def _passing(folder: str) -> Set[str]:
    """The character devices by which programs send a drive commands: `c` and number of each."""
    disk = disk_of(folder)
    generic = "/sys/class/nvme-generic/" + os.path.basename(disk).replace("nvme", "ng", 1)
    ways = (disk + "/device/scsi_generic/*/dev", disk + "/device/bsg/*/dev", generic + "/dev")
    return {"c" + text_of(path) for way in ways for path in glob.glob(way)}


#: The number of kcmp(2), and the C library, which has no name for it.
_KCMP = {"x86_64": 312, "aarch64": 272, "ppc64le": 354, "s390x": 343}.get(os.uname().machine)
_LIBC = ctypes.CDLL(None)


def _has_same_files(one: str, other: str) -> bool:
    """kcmp(2) with KCMP_FILES; false where the kernel does not say."""
    return _KCMP is not None and _LIBC.syscall(_KCMP, int(one), int(other), 2, 0, 0) == 0


def _mapped(pid: str) -> List[str]:
    try:
        with open(f"/proc/{pid}/maps", errors="replace", newline="\n") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    ranges = [words[0] for words in lines if words[1][1] == "w" and words[1][3] == "s"]
    return [f"/proc/{pid}/map_files/{each}" for each in ranges]


def _leads_to(path: str, numbers: Set[str], file: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    if stat.S_ISBLK(status.st_mode):
        return number(status.st_rdev) in numbers
    if stat.S_ISCHR(status.st_mode):
        return "c" + number(status.st_rdev) in numbers
    return f"{status.st_dev}:{status.st_ino}" == file


def _is_written(path: str) -> bool:
    if "/fd/" not in path:
        return True
    try:
        flags = text_of(path.replace("/fd/", "/fdinfo/")).partition("flags: ")[2].split()[0]
    except IndexError:
        return False
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


# -- what is on it -------------------------------------------------------------------------------


def signatures(path: str) -> List[Dict[str, str]]:
    """What can be recognised on the device: `type` and `uuid` of each. Raises Refused."""
    node = node_of(path)
    command = ["wipefs", "-n", "-p", "-O", "TYPE,UUID", node]
    try:
        done = subprocess.run(  # noqa: UP022 - Python 3.6 has no capture_output
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True
        )
    except OSError:
        raise Refused("cannot be read; install util-linux") from None
    except subprocess.CalledProcessError as error:
        complaint = " ".join(error.stderr.decode("utf-8", "replace").split())
        raise Refused(
            f"cannot be read ({complaint}); use a root user, or give yours sudo"
        ) from None
    rows = [line.split(",") for line in done.stdout.decode("utf-8", "replace").splitlines()]
    entries = [
        {"type": row[0], "uuid": ([*row, ""])[1]} for row in rows if not row[0].startswith("#")
    ]
    uuids = bluestore_uuids(node)
    kept = [entry for entry in entries if entry["type"] != "ceph_bluestore"]
    kept += [{"type": "bluestore", "uuid": uuid} for uuid in uuids]
    folder = folder_of(path)
    parts = [part for part in family(folder) if part not in (folder, disk_of(folder))]
    return kept + [{"type": "partitions", "uuid": ""}] * bool(parts)


def bluestore_uuids(node: str) -> List[str]:
    """The uuids of the OSDs whose labels are on the device, copies included."""
    uuids = []
    with open(node, "rb", buffering=0) as device:
        size = device.seek(0, os.SEEK_END)
        for place in BLUESTORE_LABELS:
            if place + 4096 <= size:
                device.seek(place)
                label = device.read(4096)
                if label.startswith(BLUESTORE):
                    uuid = label[len(BLUESTORE) :].split(b"\n")[0].decode("ascii", "replace")
                    uuids.append(uuid)
    return sorted(set(uuids))


def _beginning(path: str) -> bytes:
    with open(node_of(path), "rb", buffering=0) as device:
        return device.read(TAG_BYTES)


def is_blank(path: str) -> bool:
    """Whether there are zeros in the place of our tag."""
    return not _beginning(path).strip(b"\0")


def tag_of(path: str) -> Optional[str]:
    """What our tag says, `write_tag`'s word; None if the device does not begin with one."""
    begins = _beginning(path)
    word = begins[len(TAG) :].partition(b"\0")[0].decode("ascii", "replace")
    return word if begins.startswith(TAG) else None


def is_as_left(path: str) -> bool:
    """Whether nothing was written behind our tag since the device was emptied, by its samples."""
    word = tag_of(path)
    return bool(word) and word == _digest(path)


def write_tag(path: str, word: str = "", is_first: bool = False) -> None:
    """Say at the beginning of a device that nothing is lost with it.

    The tag's word is of a claim, or else the digest of what is behind it now. The first one leaves
    a partition table for wipefs, which has the kernel forget the partitions.
    """
    text = TAG + (word or _digest(path)).encode() + b"\0"
    text = text if is_first else text.ljust(TAG_BYTES, b"\0")
    with os.fdopen(_alone(node_of(path), os.O_RDWR), "r+b", buffering=0) as device:
        device.write(text)
        os.fsync(device.fileno())


def _digest(path: str) -> str:
    found = hashlib.sha256()
    for place, block in _samples(path, TAG_BYTES):
        found.update(b"%d " % place + block)
    return found.hexdigest()


def is_sampled(path: str) -> bool:
    """Whether only samples say that the device is empty, or what is on it."""
    size = int(text_of(folder_of(path) + "/size") or 0) * 512
    return size > _WHOLE and tag_of(path) is None and not signatures(path)


def raw_data(path: str) -> Optional[int]:
    """The place of bytes that nothing recognises: a database without a file system, for one.

    None for an empty device. Our tag is none.
    """
    for place, block in _samples(path, 0 if tag_of(path) is None else TAG_BYTES):
        if block.strip(b"\0") and block.strip(b"\xff"):
            return place
    return None


def _samples(path: str, begin: int) -> Iterator[Tuple[int, bytes]]:
    """4 MiB from `begin` on, the end, and samples between: data between those are not seen."""
    with open(node_of(path), "rb", buffering=0) as device:
        size = device.seek(0, os.SEEK_END)
        step = max(_SAMPLE, size // _SAMPLES // 4096 * 4096)
        places = [(max(begin, place), 1 << 20) for place in range(0, _HEAD, 1 << 20)]
        places += [(place, _SAMPLE) for place in range(_HEAD, size, step)]
        places.append((max(begin, size - (1 << 20)), 1 << 20))
        if size <= _WHOLE:
            places = [(place, 1 << 20) for place in range(begin, size, 1 << 20)]
        for place, length in places:
            device.seek(place)
            yield place, device.read(length)
