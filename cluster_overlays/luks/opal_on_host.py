"""Ask self-encrypting drives about OPAL, and reset them. Runs on hosts: Python 3.6 alone."""

import errno
import fcntl
import gzip
import json
import os
import re
import stat
import struct
import subprocess
import sys
from typing import Any, Dict, List, Optional

from cbt_crypto.hosts.trust_on_host import distrust

GET_STATUS = 0x800870EC
REVERT_TPR = 0x410870E2
#: struct opal_key: locking range, length of the key, its type and padding, the key.
KEY = "BB6x256s"
#: What kernels answer of a drive, or a device that is none, which does not know OPAL.
NO_OPAL = {errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP, 524}


def flags(path: str) -> int:
    """The drive's OPAL_FL_* flags; 0 when it has no OPAL. Raises OSError."""
    answer = bytearray(8)
    with open(path, "rb", buffering=0) as device:
        try:
            fcntl.ioctl(device, GET_STATUS, answer)
        except OSError as error:
            if error.errno in NO_OPAL:
                return 0
            raise
    return int(struct.unpack("II", answer)[0])


def segments(path: str) -> List[str]:
    """How the LUKS2 header on a device says that its data are encrypted; empty without one."""
    command = ["cryptsetup", "luksDump", "--dump-json-metadata", path]
    try:
        printed = subprocess.check_output(command, stderr=subprocess.DEVNULL)
        return sorted(
            segment["type"] for segment in json.loads(printed.decode())["segments"].values()
        )
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError):
        return []


def has_option(release: str, boot: str = "/boot", proc: str = "/proc") -> Optional[bool]:
    """Whether the kernel was built with CONFIG_BLK_SED_OPAL; None where nothing says so."""
    for path, reader in ((f"{proc}/config.gz", gzip.open), (f"{boot}/config-{release}", open)):
        try:
            with reader(path, "rb") as file:
                return b"\nCONFIG_BLK_SED_OPAL=y\n" in file.read()
        except OSError:
            continue
    return None


def namespaces(name: str, root: str = "/sys/class/block") -> List[str]:
    """The other namespaces of an NVMe drive, which are reset with it; none of any other drive."""
    drive = re.match(r"(nvme\d+n)\d+$", name)
    if not drive:
        return []
    return sorted(
        n for n in os.listdir(root) if re.match(drive.group(1) + r"\d+$", n) and n != name
    )


def is_root_s(key: str) -> bool:
    """Whether a key is there, where nobody but root could have put it."""
    try:
        folder, file = os.lstat(os.path.dirname(key)), os.lstat(key)
    except OSError:
        return False
    ours = (os.geteuid(),)
    closed = stat.S_ISDIR(folder.st_mode) and not folder.st_mode & 0o077
    is_trusted = not distrust(folder, ours) and not distrust(file, ours)
    return closed and is_trusted and stat.S_ISREG(file.st_mode)


def drive(path: str, keys: List[str]) -> Dict[str, Any]:
    """What is to be known of a drive before anything is done to it; `keys` would be our own."""
    release = os.uname().release
    name = os.path.basename(os.path.realpath(path))
    facts = {
        "kernel": release,
        "config": has_option(release),
        "partition": os.path.exists(f"/sys/class/block/{name}/partition"),
        "namespaces": namespaces(name),
        "ours": any(map(is_root_s, keys)),
    }  # type: Dict[str, Any]
    try:
        facts["flags"] = flags(path)
    except OSError as error:
        facts["error"] = error.strerror
    return facts


def part(path: str) -> Dict[str, Any]:
    """What a drive and its header say while it is in use."""
    try:
        return {"flags": flags(path), "segments": segments(path)}
    except OSError as error:
        return {"error": error.strerror}


def revert(path: str, key_file: str) -> Optional[str]:
    """Reset an owned drive, with all its data, by the admin key; return None or why it failed."""
    with open(key_file, "rb") as file:
        key = file.read()
    with open(path, "rb", buffering=0) as device:
        try:
            # Of what can be changed, and of nothing else, Python tells the drive's own answer.
            argument = bytearray(struct.pack(KEY, 0, len(key), key))
            status = fcntl.ioctl(device, REVERT_TPR, argument)
            why = f"OPAL status {status}" if status else None
        except OSError as error:
            why = error.strerror
    # OPAL_FL_LOCKING_ENABLED; the key may have been made and never given to the drive
    return why if flags(path) & 4 else None


def main(words: List[str]) -> int:
    """`revert DEVICE KEY_FILE`; or JSON: `drive` and `keys`, or `parts` by carrier and name."""
    if words[0] == "revert":
        try:
            why = revert(words[1], words[2])
        except OSError as error:
            why = error.strerror
        if why:
            print(f"{words[1]} cannot be reset ({why})", file=sys.stderr)
        return 1 if why else 0
    request = json.loads(words[0])
    if "drive" in request:
        print(json.dumps(drive(request["drive"], request["keys"])))
        return 0
    parts = request["parts"].items()
    told = {name: {n: part(p) for n, p in devices.items()} for name, devices in parts}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
