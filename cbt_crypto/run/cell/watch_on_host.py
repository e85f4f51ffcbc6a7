"""Looks again and again while a cell is measured, and notes what changes. This file runs on hosts.

Its source is sent to them, so it needs nothing but Python 3.6. What is looked at are modules whose
source is sent along; `cluster_overlays/base.py` says what they offer (`Watch`).
"""

import json
import os
import signal
import sys
import time
import types
from typing import Any, Dict


class Watcher:
    """Writes a line of JSON for each new value of each module that it was given."""

    def __init__(self, watches: Dict[str, Dict[str, Any]], path: str) -> None:
        self.watches = {name: (_module(one), one["argument"]) for name, one in watches.items()}
        self.file = open(path, "w")  # noqa: SIM115 - as long as this process
        self.last = {}  # type: Dict[str, Any]
        self.times = []  # type: list[float]

    def look(self) -> None:
        """Note what is not as it was at the look before."""
        self.times.append(time.monotonic())
        for name, (module, argument) in self.watches.items():
            value = _value(module.see, argument)
            if name not in self.last or self.last[name] != value:
                self.last[name] = value
                self.write({"name": name, "since": time.time(), "value": value})

    def count(self) -> None:
        """Note the counters of those modules that have some."""
        for name, (module, argument) in self.watches.items():
            if hasattr(module, "count"):
                counted = _value(module.count, argument)
                self.write({"name": name, "at": time.time(), "counted": counted})

    def end(self) -> None:
        """Look for the last time, and say how closely it was looked."""
        self.look()
        self.count()
        gaps = [after - before for before, after in zip(self.times, self.times[1:])]
        self.write({"looks": len(self.times), "longest_gap_s": round(max(gaps), 3)})

    def write(self, line: Dict[str, Any]) -> None:
        """A line that is whole at once."""
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def _module(watch: Dict[str, Any]) -> Any:
    module = types.ModuleType("watched")
    exec(compile(watch["source"], "<watched>", "exec"), module.__dict__)
    return module


def _value(function: Any, argument: Any) -> Any:
    try:
        return function(argument)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(asked: Dict[str, Any]) -> None:
    """Look every `every_s` seconds, into `file`, until SIGTERM or until the file is gone.

    `watches` is name -> `source` and `argument`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    watcher = Watcher(asked["watches"], asked["file"])
    watcher.count()
    watcher.look()
    while not signal.sigtimedwait([signal.SIGTERM], asked["every_s"]):
        if not os.path.exists(asked["file"]):
            return
        watcher.look()
    watcher.end()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
