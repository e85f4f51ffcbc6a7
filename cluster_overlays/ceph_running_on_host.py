"""How processes of Ceph run: files that they have mapped, environment, limits. Runs on hosts.

What a program is linked with says less: fio's engines are loaded at run time. Python 3.6.
"""

import json
import os
import pwd
import re
import sys
from typing import Any, Dict, List, Set  # noqa: F401 - in comments

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask
from cbt_crypto.hosts.clients_on_host import Clients

#: Files of Ceph among those that a daemon has mapped; what else it needs is anybody's.
_OF_CEPH = re.compile(
    r"/(ceph-(mon|mgr|osd)|libceph[^/]*|librados[^/]*|librbd[^/]*|libcls_[^/]*|libec_[^/]*)$"
)

#: GNU's note that tells builds apart, in either order of bytes; the length of what follows.
_BUILD_ID = re.compile(rb"(?s)(?:\x04\0{3}(.)\0{3}\x03\0{3}|\0{3}\x04\0{3}(.)\0{3}\x03)GNU\0")

#: Variables that decide how a daemon allocates memory.
_KEPT = ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES")


def mapped(pid: str) -> List[str]:
    """Ceph's own files that are mapped by a process."""
    with open(f"/proc/{pid}/maps", errors="replace", newline="\n") as file:
        lines = (line.rstrip("\n").split(None, 5) for line in file)
        paths = {line[5] for line in lines if len(line) == 6}
    return sorted(path for path in paths if _OF_CEPH.search(path.replace(" (deleted)", "")))


def build_of(path: str) -> str:
    """The build id of a program or library; of one without, its size."""
    with open(path, "rb") as binary:
        head = binary.read(1 << 16)
        found = _BUILD_ID.search(head)
        if not found:
            return f"{os.fstat(binary.fileno()).st_size} bytes"
    length = ord(found.group(1) or found.group(2))
    return head[found.end() : found.end() + length].hex()


def _builds(pid: str, paths: List[str]) -> Dict[str, str]:
    """Two builds may say one version. What is loaded varies, so each file is told of."""
    builds = {}
    for path in paths:
        try:
            builds[os.path.basename(path)] = build_of(f"/proc/{pid}/root{path}")[:16]
        except OSError:
            continue  # replaced while it ran: its path says so
    return builds


def read_daemon(folder: str, name: str) -> Dict[str, object]:
    """One daemon, by its pid file and admin socket in `folder`."""
    with open(f"{folder}/{name}.pid") as file:
        pid = file.read().strip()
    with open(f"/proc/{pid}/status", errors="replace") as file:
        uid = next(line.split()[1] for line in file if line.startswith("Uid:"))
    about = {"pid": int(pid), "uid": int(uid), "exe": os.readlink(f"/proc/{pid}/exe")}
    paths = mapped(pid)
    about.update(mapped=paths, builds=_builds(pid, paths))
    answer = ask(f"{folder}/{name}.asok", {"prefix": "version"})
    if not isinstance(answer, dict) or "version" not in answer:
        raise ValueError("its admin socket does not tell the version")
    about["version"] = answer["version"]
    return about


def read_settings(pid_files: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """What each process has for environment and limits; empty where it does not run."""
    return {name: _settings(path) for name, path in pid_files.items()}


def _settings(pid_file: str) -> Dict[str, Any]:
    try:
        with open(pid_file) as file:
            pid = file.read().strip()
        with open(f"/proc/{pid}/environ", "rb") as binary:
            environ = binary.read().split(b"\0")
        with open(f"/proc/{pid}/limits", errors="replace") as file:
            limits = file.read().splitlines()
        user = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return {}
    named = dict(one.decode(errors="replace").split("=", 1) for one in environ if b"=" in one)
    files = [line.split()[3:5] for line in limits if line.startswith("Max open files")]
    return {
        "pid": int(pid),
        "environment": {name: named[name] for name in _KEPT if name in named},
        "open_files": files[0][0] if files else None,
        "open_files_allowed": files[0][1] if files else None,
        "user_id": user,
        "user": _name_of(user),
    }


def _name_of(user: int) -> str:
    """Names of people are nobody's business: an archive may be sent."""
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = ""
    return name if name in ("root", "ceph") else f"uid {user}"


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
