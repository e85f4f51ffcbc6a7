"""Upstream's `common`, with what the rest of this project asks of an engine beyond CBT."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts.remote import packed

#: Linux allows 128 KiB for one argument of a program, and quotes and pdsh add to ours.
_ARGUMENT_BYTES = 60_000


class Fan:
    """Handles of upstream's, one for each host, that are waited for together."""

    def __init__(self, handles: Mapping[str, Any], local: type[Any]) -> None:
        """`local` is the class of handles whose output has the host before its first line only."""
        self.timed_out = False
        self._local = local
        self._handles = dict(handles)
        self._answers: dict[str, tuple[str, str]] = {}
        self._waiters = [
            threading.Thread(target=self._wait_for, args=item, daemon=True)
            for item in self._handles.items()
        ]
        for waiter in self._waiters:
            waiter.start()

    def _wait_for(self, host: str, handle: Any) -> None:
        self._answers[host] = handle.communicate()

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """(stdout, stderr) of all, each line as `host: text`; ends them after `timeout` seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        for waiter in self._waiters:
            waiter.join(None if ends is None else max(0.0, ends - time.monotonic()))
        if any(waiter.is_alive() for waiter in self._waiters):
            self.timed_out = True
            self._end()
        outputs = [self._lines(host) for host in self._handles]
        return "".join(out for out, _ in outputs), "".join(err for _, err in outputs)

    def wait(self) -> int:
        """The worst exit status."""
        self.communicate()
        return max(
            (int(handle.popen_obj.returncode) for handle in self._handles.values()), default=0
        )

    def _end(self) -> None:
        for handle in self._handles.values():
            # Upstream makes each command the leader of a group of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(handle.popen_obj.pid, signal.SIGKILL)
        for waiter in self._waiters:
            waiter.join(5)

    def _lines(self, host: str) -> tuple[str, str]:
        stdout, stderr = self._answers.get(host, ("", ""))
        plain = isinstance(self._handles[host], self._local)
        return _labelled(host, stdout, plain), _labelled(host, stderr, plain)


def _labelled(host: str, text: str, once: bool) -> str:
    """Every line with its host: upstream's local handles label the first, pdsh's all."""
    if once:
        text = text.partition(": ")[2]
        lines = text.splitlines()
    else:
        lines = [line.partition(": ")[2] for line in text.splitlines()]
    return "".join(f"{host}: {line}\n" for line in lines)


class Common:
    """Upstream's module; a name that is not here is upstream's own."""

    def __init__(self, module: Any, settings: Any) -> None:
        """`settings` is upstream's module of that name."""
        self._module = module
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def pdsh_each(self, commands: Mapping[str, str]) -> Fan:
        """Run text of its own on each `user@host`, all at once, with `$CBT_HOST` set there."""
        handles = {}
        for node, text in commands.items():
            host = node.rpartition("@")[2]
            command_text = text if len(text.encode()) < _ARGUMENT_BYTES else packed(text)
            command = f"exec env CBT_HOST={host} sh -c {shlex.quote(command_text)}"
            try:
                handles[host] = self._module.pdsh(node, command)
            except OSError as error:
                raise RunError(f"{host}: a command cannot be started there: {error}") from error
        return Fan(handles, self._module.CheckedPopenLocal)

    def sync_files(self, remote: str, local: str) -> None:
        """Bring the entries of a directory from every node: `a` as `a.host`."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._module.sync_files(f"{remote}/*", local)
        names = os.listdir(local)
        for node in self._settings.getnodes("clients").split(","):
            host = node.rpartition("@")[2]
            if not any(name.endswith(f".{host}") for name in names):
                raise HostError(host, f"copy {remote} from it", "nothing came", "")

    def make_remote_dir(self, remote: str) -> None:
        """Make a directory on every node."""
        self._module.make_remote_dir(remote)

    def clean_remote_dir(self, remote: str) -> None:
        """Remove a directory on every node; refuses one that is not below `tmp_dir`."""
        tmp_dir = Path(os.path.normpath(self._settings.cluster["tmp_dir"]))
        if tmp_dir not in Path(os.path.normpath(remote)).parents:
            raise ValueError(f"{remote} is not below tmp_dir, {tmp_dir}")
        # Upstream prints what it removes, where a campaign prints its progress.
        with contextlib.redirect_stdout(io.StringIO()):
            self._module.clean_remote_dir(remote)
