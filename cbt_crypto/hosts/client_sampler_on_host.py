"""Runs on a host: writes down the processor time of a campaign's client processes, each second.

Like all programs of ours that run on hosts it needs Python 3.6 and nothing else. A line is a time
in s since 1970 on this host's clock, and the user and system time of all those processes until
then, in ticks, those that have ended included.
"""

import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Tuple  # noqa: F401 - in comments

#: How often a process is asked for our mark until it is believed to have none.
_ASKED = 3


class Clients:
    """Tells a campaign's client processes by their program and its mark."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        """`asked` has `programs`, as the kernel names them, and the campaign's `tmp_dir`."""
        self.programs = set(asked["programs"])
        self.mark = f"CBT_CRYPTO_MARK={asked['tmp_dir']}@".encode()
        self.marked = {}  # type: Dict[str, bool]
        self.asked = {}  # type: Dict[str, int]

    def present(self) -> List[str]:
        """The numbers of those that are there now; those of others are given anew."""
        pids = set(filter(str.isdigit, os.listdir("/proc")))
        self.marked = {pid: marked for pid, marked in self.marked.items() if pid in pids}
        self.asked = {pid: times for pid, times in self.asked.items() if pid in pids}
        return [pid for pid in pids if self._is_one(pid)]

    def _is_one(self, pid: str) -> bool:
        try:
            if not self.marked.get(pid):
                # Under sudo it gets the mark with its program, soon after it was made.
                if self.asked.get(pid, 0) >= _ASKED:
                    return False
                self.asked[pid] = self.asked.get(pid, 0) + 1
                with open(f"/proc/{pid}/environ", "rb") as environ:
                    self.marked[pid] = self.mark in environ.read()
            if not self.marked[pid]:
                return False
            # What carries it may become a client at any time, as a script that ends in fio.
            with open(f"/proc/{pid}/comm") as file:
                return file.read().strip() in self.programs
        except OSError:
            return False


class Times:
    """What each process had used when it was last seen, by its number and its start."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.used = {}  # type: Dict[Tuple[str, str], Tuple[int, int]]

    def sample(self) -> str:
        """The line of now."""
        pids = self.clients.present()
        now = time.time()
        for pid in pids:
            try:
                with open(f"/proc/{pid}/stat") as file:
                    # After the name, which may hold anything: proc(5)'s field 3 and on.
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            self.used[pid, fields[19]] = int(fields[11]), int(fields[12])
        user, system = (sum(used[part] for used in self.used.values()) for part in (0, 1))
        return f"{now:.3f} {user} {system}\n"


def main(asked: Dict[str, Any]) -> None:
    """Sample until SIGTERM, or until `file` is removed; `programs` and `tmp_dir` as above."""
    # Waited for below, and so not delivered: a sample is never cut in the middle.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    times = Times(Clients(asked))
    # Each sample is written at once: the file may be read, or the host lost, any time.
    with open(asked["file"], "w", buffering=1) as file:
        file.write(f"# ticks a second: {os.sysconf('SC_CLK_TCK')}\n")
        while os.path.exists(asked["file"]):
            file.write(times.sample())
            # On the beat of the clock, as the samples of other hosts are.
            if signal.sigtimedwait([signal.SIGTERM], to_next_second()):
                break
        file.write(times.sample())


def to_next_second() -> float:
    """Seconds, one at most, however the clock is set meanwhile."""
    return 1 - time.time() % 1


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
