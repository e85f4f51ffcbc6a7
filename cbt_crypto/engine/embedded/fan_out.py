"""A command that runs on several hosts: what it reads, what it says, and how it ends.

Input and output are files in a directory of its own, because pdsh cuts a host's name at its first
dot and a line at 128 KiB. Labels are names of hosts, or `@name` for a local program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import HostError
from cbt_crypto.hosts import command_log
from cbt_crypto.hosts.temporary import prefix

#: Seconds between SIGTERM and SIGKILL of a command of ours that ran out of time.
GRACE = 2.0
#: Ends of the names of a label's files: its script, its standard output, its errors.
SCRIPT, STDOUT, STDERR = ".sh", ".out", ".err"


class Handle:
    """Started by its owner with `start`; `communicate` waits and returns the output."""

    def __init__(self, what: str, stop_on_error: bool, scripts: Mapping[str, str]) -> None:
        """`scripts` are what hosts, by name, read from their standard input."""
        self.timed_out = False
        self._what = what
        self._stop_on_error = stop_on_error
        self._hosts = list(scripts)
        self._programs: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._output: Optional[tuple[str, str]] = None
        self._logged: Optional[tuple[Sequence[str], str, str]] = None
        self._began = _now()
        self._files = tempfile.TemporaryDirectory(prefix=prefix("run"))
        for host, text in scripts.items():
            self.path(host, SCRIPT).write_text(text, encoding="utf-8")

    def logged(self, hosts: Sequence[str], what: str, command: str) -> Handle:
        """Record it in the command log when it has ended; whoever runs scripts does so itself."""
        self._logged = hosts, what, command
        return self

    def path(self, label: str, kind: str) -> Path:
        """The file that a label's script, output or errors are in."""
        return Path(self._files.name, label + kind)

    def start(
        self, label: str, argv: Sequence[str], environment: Optional[Mapping[str, str]] = None
    ) -> None:
        """Start a local program; it reads its label's script, if there is one."""
        script = self.path(label, SCRIPT)
        with contextlib.ExitStack() as files:
            self._processes.append(
                subprocess.Popen(
                    argv,
                    stdin=files.enter_context(script.open("rb"))
                    if script.exists()
                    else subprocess.DEVNULL,
                    stdout=files.enter_context(self.path(label, STDOUT).open("wb")),
                    stderr=files.enter_context(self.path(label, STDERR).open("wb")),
                    env={**os.environ, **(environment or {})},
                    # A process group of its own: Ctrl-C reaches us, and we decide what ends.
                    start_new_session=True,
                )
            )
        if label not in self._hosts:
            self._programs.append(label)

    @property
    def returncode(self) -> int:
        """The largest exit status among the hosts; 0 when all succeeded."""
        return max((abs(process.returncode or 0) for process in self._processes), default=0)

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """Wait; return (stdout, stderr) of all hosts, each line as `host: text`.

        After `timeout` seconds the command is ended here and `timed_out` is set; what hosts had
        said by then is returned. Raises HostError for a non-zero exit status where that was
        asked for.
        """
        self.wait(timeout)
        stdout, stderr = self._output or ("", "")
        if self._stop_on_error and self.returncode:
            raise HostError("hosts", self._what, f"exit status {self.returncode}", stderr[-2000:])
        return stdout, stderr

    def wait(self, timeout: Optional[float] = None) -> int:
        """Wait for all hosts and return the exit status."""
        deadline = None if timeout is None else _now() + timeout
        try:
            for process in self._processes:
                process.wait(None if deadline is None else max(0.0, deadline - _now()))
        except subprocess.TimeoutExpired:
            self.timed_out = True
            self.terminate()
        if self._output is None:
            self._output = (self._read(STDOUT), self._read(STDERR))
            self._files.cleanup()
            self._record()
        return self.returncode

    def _record(self) -> None:
        if self._logged:
            hosts, what, command = self._logged
            ending = "timed out" if self.timed_out else f"exit {self.returncode}"
            output = self._output[1] if self._output else ""
            command_log.record(hosts, what, command, ending, _now() - self._began, output)

    def terminate(self) -> None:
        """End the local side; what runs on the hosts is ended by the cluster's shutdown."""
        for process in self._processes:
            _end(process)

    def _read(self, kind: str) -> str:
        labelled = (
            f"{host}: {line}\n" for host in self._hosts for line in _lines(self.path(host, kind))
        )
        unlabelled = (
            f"{line}\n"
            for program in self._programs
            for line in _lines(self.path(program, kind))
            # pdsh's word on a host that failed, which it calls by the first part of its name.
            if "exited with exit code" not in line or program != "@pdsh"
        )
        return "".join((*labelled, *unlabelled))


def _now() -> float:
    return os.times().elapsed


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, such as pdsh's ssh clients: it leads a group of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _lines(path: Path) -> Iterable[str]:
    """Lines end at newlines alone: fio, for one, prints carriage returns within them."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return text.removesuffix("\n").split("\n") if text else []
