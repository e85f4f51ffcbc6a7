"""Find sockets and processes of a cluster's OSDs, also in containers. Runs on hosts, Python 3.6.

Each ceph-osd is looked at in its own namespace; each socket says which OSD it is.
"""

import concurrent.futures
import glob
import json
import os
import stat
import sys
from typing import Any, Container, Dict, Iterator, List, Optional, Set, Tuple

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask_and_identify
from cbt_crypto.hosts.trust_on_host import ceph_users, is_believed

_TIMEOUT_S = 10
_PROGRAM = "ceph-osd"
#: Where cephadm and Rook put the sockets of daemons that share no process table with the host.
_FOLDERS = ("/run/ceph", "/var/run/ceph", "/var/lib/rook")


def osd_processes(proc: str = "/proc") -> List[str]:
    """Pids of all OSDs that this host sees, also those in containers."""
    pids = []
    for path in glob.glob(f"{proc}/[0-9]*/comm"):
        try:
            pid = path.split("/")[-2]
            with open(path, errors="replace") as file:
                if file.read().strip() == _PROGRAM and is_believed(pid, ceph_users(), proc):
                    pids.append(pid)
        except OSError:
            continue
    return sorted(pids, key=int)


def own_sockets(proc: str, pid: str) -> Set[str]:
    """Numbers of the sockets that a process has open, as /proc/<pid>/net/unix has them."""
    numbers = set()
    for link in glob.glob(f"{proc}/{pid}/fd/*"):
        try:
            kind, _, number = os.readlink(link).partition(":")
        except OSError:
            continue  # closed meanwhile
        if kind == "socket":
            numbers.add(number.strip("[]"))
    return numbers


def listening(table: str, root: str = "", own: Container[str] = ()) -> Iterator[str]:
    """Paths of sockets, in a /proc/PID/net/unix, that are `own` or have an OSD's usual name."""
    for line in table.splitlines():
        fields = line.split(None, 7)
        path = fields[7] if len(fields) > 7 else ""
        if path.startswith("/") and (fields[6] in own or path.endswith(".asok")):
            yield root + path


def candidates(proc: str = "/proc") -> Iterator[str]:
    """All sockets that may be OSDs': those of each process as it sees them, and those in files."""
    seen = set()
    paths = []  # type: List[str]
    for pid in osd_processes(proc):
        try:
            with open(f"{proc}/{pid}/net/unix", errors="surrogateescape") as file:
                table = file.read()
            paths += listening(table, f"{proc}/{pid}/root", own_sockets(proc, pid))
        except OSError:
            continue
    for folder in _FOLDERS:
        paths += sorted(glob.glob(folder + "/**/*osd.*.asok", recursive=True))
    for path in paths:
        try:
            # Where a link leads is its owner's word.
            status = os.lstat(path)
        except OSError:
            continue
        is_new = stat.S_ISSOCK(status.st_mode) and (status.st_dev, status.st_ino) not in seen
        if is_new and status.st_uid in ceph_users():
            seen.add((status.st_dev, status.st_ino))
            yield path


def block(pid: int, data_dir: str, name: str) -> Optional[str]:
    """The device or file that the OSD's directory names, as its own process sees it."""
    entry = f"/proc/{pid}/root{data_dir}/{name}"
    if os.path.islink(entry):
        target = os.readlink(entry)
        return os.path.realpath(target) if target.startswith("/") else target
    return f"{data_dir}/{name}" if os.path.exists(entry) else None


def is_file(pid: int, data_dir: str) -> bool:
    """Whether the OSD keeps its data in a plain file."""
    entry = f"/proc/{pid}/root{data_dir}/block"
    if os.path.islink(entry) and os.readlink(entry).startswith("/"):
        entry = f"/proc/{pid}/root{os.readlink(entry)}"
    try:
        return stat.S_ISREG(os.stat(entry).st_mode)
    except OSError:
        return False


def _status(path: str) -> Tuple[Any, int]:
    try:
        return ask_and_identify(path, {"prefix": "status"}, _TIMEOUT_S, ceph_users())
    except ASK_ERRORS:
        return {}, 0


def main(parameters: Dict[str, Any]) -> None:
    """Print OSD id -> `socket`, `pid`, `device`, `db_device`, `is_file` of those found here.

    `asked`: the cluster's `fsid`, and `osds`, id -> data directory of those on this host.
    """
    by_osd = {}  # type: Dict[str, Dict[str, Any]]
    paths = list(candidates())
    # At once: by a name with a line break, anybody can list sockets of root's that never answer.
    with concurrent.futures.ThreadPoolExecutor(32) as several:
        answers = list(several.map(_status, paths))
    for path, (answer, pid) in zip(paths, answers):
        osd = str(answer.get("whoami"))
        if answer.get("cluster_fsid") == parameters["fsid"] and osd in parameters["osds"]:
            if osd in by_osd:
                both = f"{by_osd[osd]['socket']} and {path}"
                raise SystemExit(f"osd.{osd} answers at {both}; stop the process that is not it")
            directory = parameters["osds"][osd]
            by_osd[osd] = {
                "socket": path,
                "pid": pid,
                "device": block(pid, directory, "block") or "",
                "db_device": block(pid, directory, "block.db"),
                "is_file": is_file(pid, directory),
            }
    print(json.dumps(by_osd))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
