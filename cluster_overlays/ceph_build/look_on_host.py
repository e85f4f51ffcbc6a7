"""What the daemons of a cluster really run. This file runs on the hosts, with Python 3.6 alone.

The program and the libraries of each are the kernel's word, from /proc; the version is its own.
"""

import json
import os
import re
import sys
from typing import Dict, List

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask

#: Files of Ceph among those that a daemon has mapped; what else it needs is anybody's.
_OF_CEPH = re.compile(
    r"/(ceph-(mon|mgr|osd)|libceph[^/]*|librados[^/]*|librbd[^/]*|libcls_[^/]*|libec_[^/]*)$"
)


def mapped(pid: str) -> List[str]:
    """Ceph's own files that are mapped by a process."""
    with open(f"/proc/{pid}/maps") as file:
        lines = (line.rstrip("\n").split(None, 5) for line in file)
        paths = {line[5] for line in lines if len(line) == 6}
    return sorted(path for path in paths if _OF_CEPH.search(path.replace(" (deleted)", "")))


def look(folder: str, name: str) -> Dict[str, object]:
    """One daemon, by its pid file and admin socket in `folder`."""
    with open(f"{folder}/{name}.pid") as file:
        pid = file.read().strip()
    with open(f"/proc/{pid}/status") as file:
        uid = next(line.split()[1] for line in file if line.startswith("Uid:"))
    about = {"pid": int(pid), "uid": int(uid), "exe": os.readlink(f"/proc/{pid}/exe")}
    about["mapped"] = mapped(pid)
    answer = ask(f"{folder}/{name}.asok", {"prefix": "version"})
    if not isinstance(answer, dict) or "version" not in answer:
        raise ValueError("its admin socket does not tell the version")
    about["version"] = answer["version"]
    return about


def main() -> None:
    """With the daemons' directory of run files as a JSON string."""
    folder = json.loads(sys.argv[1])
    daemons = {}  # type: Dict[str, Dict[str, object]]
    for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        name, extension = os.path.splitext(file)
        if extension == ".pid" and re.match(r"(mon|mgr|osd)\.", name):
            try:
                daemons[name] = look(folder, name)
            except (*ASK_ERRORS, StopIteration) as error:
                daemons[name] = {"error": str(error)}
    print(json.dumps(daemons))


if __name__ == "__main__":
    main()
