"""Which of Ceph's libraries client processes have mapped: a `Watch`. Runs on hosts: Python 3.6.

What a program is linked with says less: fio's engines are loaded at run time.
"""

import json
import os
import re
import sys
from typing import Any, Dict, List, Set  # noqa: F401 - in comments

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask
from cbt_crypto.hosts.clients_on_host import Clients

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


def read_daemon(folder: str, name: str) -> Dict[str, object]:
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
                daemons[name] = read_daemon(folder, name)
            except (*ASK_ERRORS, StopIteration) as error:
                daemons[name] = {"error": str(error)}
    print(json.dumps(daemons))


if __name__ == "__main__":
    main()

# What was asked -> who knows what it has looked at already.
_BY_QUESTION = {}  # type: Dict[str, Clients]


def see(asked: Dict[str, Any]) -> List[str]:
    """Files of Ceph mapped by processes called one of `programs` with the mark of `tmp_dir`."""
    clients = _BY_QUESTION.setdefault(json.dumps(asked, sort_keys=True), Clients(asked))
    paths = set()  # type: Set[str]
    for pid in clients.present():
        try:
            paths.update(mapped(pid))
        except OSError:
            continue
    return sorted(paths)
