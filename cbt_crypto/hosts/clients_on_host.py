"""Tell a campaign's client processes from all others. Runs on hosts: Python 3.6 alone."""

import os
from typing import Any, Dict, List, Set

from cbt_crypto.hosts.trust_on_host import is_believed

#: How often a process is asked for our mark until it is believed to have none.
_ASKED = 3


class Clients:
    """Tells a campaign's client processes by their program and its mark."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        self.programs = set(asked["programs"])
        self.mark = f"CBT_CRYPTO_MARK={asked['tmp_dir']}@".encode()
        self.here = os.stat("/proc/self/ns/pid").st_ino
        self.marked = {}  # type: Dict[str, bool]
        self.asked = {}  # type: Dict[str, int]
        self.clients = set()  # type: Set[str]

    def present(self) -> List[str]:
        """The numbers of those that are there now; those of others are given anew."""
        return self.among(set(filter(str.isdigit, os.listdir("/proc"))))

    def among(self, pids: Set[str]) -> List[str]:
        """Those of `pids`, a set of all that are there now."""
        self.marked = {pid: marked for pid, marked in self.marked.items() if pid in pids}
        self.asked = {pid: times for pid, times in self.asked.items() if pid in pids}
        self.clients &= pids
        return [pid for pid in pids if self._is_one(pid)]

    def _is_one(self, pid: str) -> bool:
        try:
            if not self.marked.get(pid):
                # Under sudo it gets the mark with its program, soon after it was made.
                if self.asked.get(pid, 0) >= _ASKED:
                    return False
                self.asked[pid] = self.asked.get(pid, 0) + 1
                self.marked[pid] = self._has_mark(pid)
            if not self.marked[pid] or not self._runs_client(pid):
                return False
            if pid not in self.clients:
                # Whoever made it gave it the mark until its program began, which may have none.
                self.marked[pid] = self._has_mark(pid)
                self.clients.add(pid)
            return self.marked[pid]
        except OSError:
            return False

    def _has_mark(self, pid: str) -> bool:
        if os.stat(f"/proc/{pid}/ns/pid").st_ino != self.here or not is_believed(pid):
            return False  # of a campaign in a container, or of a user who is not believed
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return self.mark in environ.read()

    def _runs_client(self, pid: str) -> bool:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            return file.read().strip() in self.programs
