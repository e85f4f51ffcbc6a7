"""Look again and again while a cell is measured, and note changes. Runs on hosts: Python 3.6.

It runs `Watch` modules (cluster_overlays/base.py), and programs of scripts before and after it.
"""

import json
import os
import select
import signal
import sys
import time
import traceback
import types
from typing import Any, Dict, List


class Watcher:
    """Writes a line of JSON for each new value of each module that it was given."""

    def __init__(self, watches: Dict[str, Dict[str, Any]], path: str) -> None:
        self.watches = {
            name: (_module(watch), watch["argument"]) for name, watch in watches.items()
        }
        self.file = open(path, "w")  # noqa: SIM115 - as long as this process
        self.last = {}  # type: Dict[str, Any]
        self.times = []  # type: List[float]
        self.longest_gap_s = 0.0

    def look(self, is_after_program: bool = False) -> None:
        """Note what is not as it was at the look before; while a program ran, nobody looked."""
        self.times.append(time.monotonic())
        if self.times[1:] and not is_after_program:
            self.longest_gap_s = max(self.longest_gap_s, self.times[-1] - self.times[-2])
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
        self.write({"looks": len(self.times), "longest_gap_s": round(self.longest_gap_s, 3)})

    def write(self, line: Dict[str, Any]) -> None:
        """A line that is whole at once."""
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


class Programs:
    """Run programs that scripts on this host ask for, each in a process of its own.

    A script (watch.py has it) writes program, argument and a word into a pipe; it reads the exit
    status from another, and the output from files.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.asked = os.open(base + ".ask", os.O_RDWR | os.O_NONBLOCK)
        self.told = os.open(base + ".told", os.O_RDWR)
        self.compiled = {}  # type: Dict[str, Any]

    def words(self) -> List[str]:
        """What was asked for since the last time."""
        return os.read(self.asked, 4096).decode().split()

    def tell(self, status: int) -> None:
        """Let the script that waits for an exit status go on."""
        os.write(self.told, b"%d\n" % status)

    def run(self) -> int:
        """Run the program to its end; its exit status, as a shell would have it."""
        sys.stdout.flush()
        with open(self.base + ".program") as program, open(self.base + ".argument") as argument:
            source, words = program.read(), ["-", argument.read()]
        if source not in self.compiled:
            # Before the process is made: the same program is asked for again after the cell.
            self.compiled[source] = _compiled(source)
        pid = os.fork()
        if pid == 0:
            self._become(self.compiled[source], words)
        _, status = os.waitpid(pid, 0)
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def _become(self, code: Any, words: List[str]) -> None:
        """Be the program; this does not return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for number, name in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(self.base + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.argv = words
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(code, sys.modules["__main__"].__dict__)
            status = 0
        except SystemExit as ending:
            status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
            if isinstance(ending.code, str):
                sys.stderr.write(ending.code + "\n")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status & 255)


def _compiled(source: str) -> Any:
    try:
        return compile(source, "<stdin>", "exec")
    except SyntaxError as error:
        # For its process to say.
        return compile(f"raise SyntaxError({str(error)!r})", "<stdin>", "exec")


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
    """Look every `every_s` seconds until SIGTERM, told to end, or the file is gone.

    `watches` is name -> `source` and `argument`; `base` is how the names of its files begin.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGTERM, lambda *_: None)
    programs = Programs(asked["base"])
    watcher = Watcher(asked["watches"], asked["base"] + ".jsonl")
    watcher.count()
    watcher.look()
    while os.path.exists(watcher.file.name):
        rest = watcher.times[-1] + asked["every_s"] - time.monotonic()
        ready = select.select([programs.asked, woken], [], [], max(0.0, rest))[0]
        if woken in ready:
            watcher.end()
            return
        watcher.look()
        for word in programs.words() if programs.asked in ready else ():
            if word == "end":
                watcher.end()
                programs.tell(0)
                return
            programs.tell(programs.run())
            watcher.look(is_after_program=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
