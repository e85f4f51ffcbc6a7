"""Tell one run of an OSD from the next, and what it served: a `Watch`. Runs on hosts."""

from typing import Dict, List, Optional

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask

_TIMEOUT_S = 10


def process(pid_file: str) -> Optional[List[int]]:
    """Pid and start time (ticks since boot) of an OSD, together unique; None: not running."""
    try:
        with open(pid_file) as file:
            pid = int(file.read().split()[0])
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (OSError, ValueError, IndexError):
        return None
    # Of proc(5)'s numbers, the third stands first here: its state. The start time is the 22nd.
    return None if fields[0] in "ZX" else [pid, int(fields[19])]


def see(osds: Dict[str, Dict[str, str]]) -> Dict[str, Optional[List[int]]]:
    """OSD name -> its process, of OSD name -> `pid_file` and `socket`."""
    return {name: process(osd["pid_file"]) for name, osd in osds.items()}


def count(osds: Dict[str, Dict[str, str]]) -> Dict[str, Dict[str, int]]:
    """OSD name -> clients' operations that it served, and placement groups; without the silent."""
    by_osd = {}
    for name, osd in osds.items():
        try:
            command = {"prefix": "perf dump", "logger": "osd"}
            counters = ask(osd["socket"], command, timeout_s=_TIMEOUT_S)["osd"]
            keys = {"ops": "op", "pgs": "numpg", "primary_pgs": "numpg_primary"}
            by_osd[name] = {key: int(counters[counter]) for key, counter in keys.items()}
        except (*ASK_ERRORS, KeyError, TypeError):
            continue
    return by_osd
