"""Hosts of unit tests: what stands below a real `Remote` where no engine is to be tried."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Optional, Union

from cbt_crypto.hosts.remote import FRAME, Remote


@dataclass(frozen=True)
class Printed:
    """All that a host printed, the line with its exit status included."""

    stdout: str
    stderr: str = ""


#: Host and command -> what it prints before it succeeds; None for a host that never answers.
Say = Callable[[str, str], Union[str, Printed, None]]


@dataclass
class FakeHandle:
    """A command that has ended on all hosts."""

    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """At once."""
        return self.stdout, self.stderr


class FakeHosts:
    """An engine's remote execution, whose hosts do and print what `say` returns."""

    def __init__(self, say: Say) -> None:
        self.say = say
        #: Host -> command, of each call.
        self.calls: list[dict[str, str]] = []

    def pdsh_each(self, commands: Mapping[str, str]) -> FakeHandle:
        """Every host's own command."""
        self.calls.append(dict(commands))
        handle = FakeHandle()
        for host, command in commands.items():
            said = self.say(host, command)
            if isinstance(said, str):
                said = framed(command, said)
            if said is not None:
                handle.stdout += _of(host, said.stdout)
                handle.stderr += _of(host, said.stderr)
        return handle

    def sync_files(self, remote: str, local: str) -> None:
        """No test of this kind brings files."""
        raise NotImplementedError

    def make_remote_dir(self, remote: str) -> None:
        """No test of this kind makes directories."""
        raise NotImplementedError

    def clean_remote_dir(self, remote: str) -> None:
        """No test of this kind removes directories."""
        raise NotImplementedError

    def remote(self, tmp_dir: str = "/t") -> Remote:
        """A real one, to these hosts."""
        return Remote(self, tmp_dir)


def framed(command: str, said: str, status: int = 0) -> Printed:
    """What a host prints for a command that says this and ends so."""
    mark = re.findall(FRAME + "[0-9a-f]+", command)[-1]
    return Printed(f"{mark} begin\n{said}\n\n{mark} {status}")


def in_a_shell(host: str, command: str) -> Printed:
    """Each host is a shell on this machine."""
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "CBT_HOST": host}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return Printed(done.stdout, done.stderr)


def _of(host: str, text: str) -> str:
    return "".join(f"{host}: {line}\n" for line in text.splitlines())
