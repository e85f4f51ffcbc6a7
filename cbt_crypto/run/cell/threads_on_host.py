"""Find the busiest thread of a campaign's clients: a `Watch`. Runs on hosts: Python 3.6 alone."""

import os
import time
from typing import Any, Dict, List, Optional, Tuple  # noqa: F401 - in comments

from cbt_crypto.hosts.clients_on_host import Clients

#: A thread that was seen for less is not judged, in seconds.
_LEAST_S = 3.0
_TICKS = os.sysconf("SC_CLK_TCK")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _cpu_s(stat: str) -> float:
    """Seconds in user and system mode of a /proc/PID/stat: proc(5)'s fields 14 and 15."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Threads:
    """Of each thread, when it was seen first and last, and what it had used by then."""

    def __init__(self) -> None:
        self.clients = None  # type: Optional[Clients]
        self.names = {}  # type: Dict[str, str]
        self.used = {}  # type: Dict[str, List[Tuple[float, float]]]

    def read_threads(self, asked: Dict[str, Any]) -> None:
        """Note what all threads have used by now."""
        self.clients = self.clients or Clients(asked)
        for pid in self.clients.present():
            try:
                for thread in os.listdir(f"/proc/{pid}/task"):
                    stat = _read(f"/proc/{pid}/task/{thread}/stat")
                    self.names[thread] = stat.partition("(")[2].rpartition(")")[0]
                    looks = self.used.setdefault(thread, [])
                    looks[1:] = [(time.monotonic(), _cpu_s(stat))]
            except OSError:
                continue

    def busiest(self) -> Dict[str, Any]:
        """The thread that used most of a CPU while it was seen; empty where there was none."""
        busiest = {}  # type: Dict[str, Any]
        for thread, looks in self.used.items():
            seconds = looks[-1][0] - looks[0][0]
            if seconds < _LEAST_S:
                continue
            percent = round(100 * (looks[-1][1] - looks[0][1]) / seconds, 1)
            if percent > busiest.get("cpu_percent", 0.0):
                busiest = {"thread": self.names[thread], "cpu_percent": percent}
                busiest["seconds"] = round(seconds, 1)
        return busiest


_threads = Threads()


def see(asked: Dict[str, Any]) -> None:
    """Look at processes called one of `programs` that carry the mark of `tmp_dir`."""
    _threads.read_threads(asked)


def count(asked: Dict[str, Any]) -> Dict[str, Any]:
    """The busiest thread so far: `thread`, `cpu_percent` of one CPU, over how many `seconds`."""
    return _threads.busiest()
