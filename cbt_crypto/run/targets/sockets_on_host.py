"""Finds the admin sockets and processes of a cluster's OSDs. This file runs on the hosts.

Its source is sent to them, so it needs nothing but Python 3.6. Who deployed the cluster does not
matter: every socket that could be an OSD's is asked which OSD of which cluster it is.
"""

import glob
import json
import os
import socket
import stat
import struct
import sys
from typing import Any, Dict, Iterator, Optional, Tuple

_TIMEOUT_S = 10


def candidates(table: str) -> Iterator[str]:
    """Paths of listening sockets that may be OSDs': the kernel's, and those that containers share.

    `table` is the text of /proc/net/unix, which shows a container's paths as that sees them.
    """
    seen = set()
    listed = (fields[7] for fields in map(str.split, table.splitlines()) if len(fields) > 7)
    shared = sorted(glob.glob("/run/ceph/**/*.asok", recursive=True))
    for path in [*listed, *shared]:
        name = os.path.basename(path)
        if path not in seen and name.endswith(".asok") and "osd." in name and os.path.exists(path):
            seen.add(path)
            yield path


def ask(path: str) -> Tuple[Dict[str, Any], int]:
    """What the daemon behind the socket says of itself, and its pid."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(_TIMEOUT_S)
        peer.connect(path)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        peer.sendall(b'{"prefix": "status"}\0')
        stream = peer.makefile("rb")
        (size,) = struct.unpack(">I", stream.read(4))
        answer = json.loads(stream.read(size).decode())
    return answer, struct.unpack("iii", credentials)[0]


def block(pid: int, data_dir: str, name: str) -> Optional[str]:
    """The device or file behind a link in the OSD's directory, as its own process sees it."""
    link = f"/proc/{pid}/root{data_dir}/{name}"
    return os.path.realpath(os.readlink(link)) if os.path.islink(link) else None


def is_file(path: str) -> bool:
    """Whether it is a plain file."""
    return os.path.exists(path) and stat.S_ISREG(os.stat(path).st_mode)


def main(asked: Dict[str, Any]) -> None:
    """Print OSD id -> `socket`, `pid`, `device`, `db_device` and `is_file` of those found here.

    `asked`: the cluster's `fsid`, and `osds`, id -> data directory of those that live on this host.
    """
    found = {}
    with open("/proc/net/unix") as file:
        table = file.read()
    for path in candidates(table):
        try:
            answer, pid = ask(path)
        except (OSError, ValueError, struct.error):
            continue
        osd = str(answer.get("whoami"))
        if answer.get("cluster_fsid") == asked["fsid"] and osd in asked["osds"]:
            directory = asked["osds"][osd]
            device = block(pid, directory, "block") or ""
            found[osd] = {
                "socket": path,
                "pid": pid,
                "device": device,
                "db_device": block(pid, directory, "block.db"),
                "is_file": is_file(device),
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
