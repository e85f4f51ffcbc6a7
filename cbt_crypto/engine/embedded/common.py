"""Remote execution: CBT's `common`, through pdsh over ssh, or ssh alone; local names run here."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

import yaml

from cbt_crypto.archive.files import cell_path, write_whole
from cbt_crypto.engine.contract import Cluster, Section
from cbt_crypto.engine.embedded import settings
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import command_log, directories, fetch
from cbt_crypto.hosts.directories import prefix
from cbt_crypto.hosts.remote import LONGEST, answered, fan_out, is_local, preamble
from cbt_crypto.hosts.secret import document_without
from cbt_crypto.hosts.trust_on_host import distrust

#: Seconds between SIGTERM and SIGKILL of a command of ours that ran out of time.
GRACE = 2.0
#: Ends of the names of a label's files: its script, its standard output, its errors.
SCRIPT, STDOUT, STDERR = ".sh", ".out", ".err"
#: Bytes of errors that are read.
_ERRORS = 64 << 10


class Handle:
    """Started by its owner with `start`; `communicate` waits and returns the output."""

    def __init__(self, what: str, stop_on_error: bool, scripts: Mapping[str, str]) -> None:
        self.timed_out = False
        self._what = what
        self._stop_on_error = stop_on_error
        self._hosts = list(scripts)
        self._programs: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._output: Optional[tuple[str, str]] = None
        self._logged: Optional[tuple[Sequence[str], str, str]] = None
        self._began = _now()
        place = directories.temporary_place()
        self._files = tempfile.TemporaryDirectory(prefix=prefix("run"), dir=place)
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

        After `timeout` seconds the command is ended, `timed_out` set, and what was said returned.
        Raises HostError for a non-zero exit status where that was asked for.
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
                _wait(process, None if deadline is None else max(0.0, deadline - _now()))
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


def _wait(process: subprocess.Popen[bytes], timeout: Optional[float]) -> None:
    """Popen's own wait with a timeout looks every 50 ms; the kernel tells at once."""
    if timeout is not None and process.poll() is None:
        with contextlib.suppress(AttributeError, OSError):  # kernels before 5.3
            descriptor = os.pidfd_open(process.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                began = _now()
                poll.poll(1000 * min(timeout, 1 << 20))
                timeout = max(0.0, timeout - (_now() - began))
            finally:
                os.close(descriptor)
    process.wait(timeout)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _wait(process, GRACE)


def _lines(path: Path) -> Iterable[str]:
    if not path.exists():
        return []
    data = path.read_bytes()
    return answered(data[-_ERRORS:] if path.name.endswith(STDERR) else data)


#: pdsh's default fan-out is 32; a step is to run on all hosts at once.
MAX_FANOUT = 512
#: Seconds without an answer from a host after which ssh gives a connection up: 3 x 5.
SSH_OPTIONS = (
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oLogLevel=ERROR",
    "-oControlMaster=auto",
    "-oControlPersist=300",
    # Root of a host could use what the user's ssh_config forwards.
    "-oForwardAgent=no",
    "-oClearAllForwardings=yes",
)
_CONTROL_PREFIX = "cbt-ssh-"
#: Of a socket's path, what is left by that prefix, mkdtemp, `/%C` and ssh's own suffix.
_LONGEST_PLACE = 107 - len(_CONTROL_PREFIX) - 1 - 8 - 1 - 40 - 17
#: What an ssh may write of a host's answer, in blocks of 512 bytes: no whole disk.
_LIMIT = f"ulimit -f {(LONGEST + (1 << 20)) // 512}"
#: What each host runs: by standard input a script may be of any length, and no `ps` shows it.
_READ_SCRIPT = 'script=$(cat) && exec </dev/null && eval "$script"'


def _split(nodes: str) -> tuple[list[str], list[str]]:
    names = [name for name in nodes.split(",") if name]
    return [name for name in names if is_local(name)], [n for n in names if not is_local(n)]


@lru_cache(maxsize=1)
def control_directory() -> str:
    """A socket's path is limited to some 100 bytes, so it is not below anybody's tmp_dir."""
    _close_abandoned()
    place = directories.temporary_place(_LONGEST_PLACE)
    directory = tempfile.mkdtemp(prefix=_CONTROL_PREFIX, dir=place)
    # Held open, and so locked, until this process ends in whatever way; filelock's object would
    # give it up when it is collected, and poll for the locks of others.
    descriptor = os.open(f"{directory}/lock", os.O_CREAT | os.O_WRONLY, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    atexit.register(close_connections)
    return directory


def _close_abandoned() -> None:
    """End the connections of runs of this user that were killed, and so could not do it."""
    places = directories.temporary_places()
    for directory in (path for place in places for path in place.glob(f"{_CONTROL_PREFIX}*")):
        with contextlib.suppress(OSError):
            # Anybody may put something of that name there; what is in a directory of ours is ours.
            status = directory.lstat()
            if distrust(status, (os.geteuid(),)) or not stat.S_ISDIR(status.st_mode):
                continue
            with (directory / "lock").open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _end_connections(directory)


def _ssh_arguments() -> list[str]:
    # %C is ssh's own short hash of user, host and port.
    return [*SSH_OPTIONS, f"-oControlPath={control_directory()}/%C"]


def pdsh(nodes: str, command: str, continue_if_error: bool = True) -> Handle:
    """Run shell text on `user@a,user@b` at once; `CBT_HOST` is the host's name in it.

    With `continue_if_error=False`, `communicate` raises HostError for a non-zero exit status.
    """
    each = dict.fromkeys(filter(None, nodes.split(",")), command)
    handle = pdsh_each(each, continue_if_error)
    return handle.logged([_host(node) for node in each], "run", command)


def pdsh_each(commands: Mapping[str, str], continue_if_error: bool = True) -> Handle:
    """Like `pdsh`, for shell text of its own on each `user@host`: still one pdsh for all."""
    local, remote = _split(",".join(commands))
    what = next(iter(commands.values()), "nothing").strip().partition("\n")[0]
    scripts = {_host(node): text for node, text in commands.items()}
    handle = Handle(what, not continue_if_error, scripts)
    for host in map(_host, local):
        script = ["sh", "-c", '. "$0" </dev/null', str(handle.path(host, SCRIPT))]
        handle.start(host, script, {"CBT_HOST": host})
    if remote and fan_out() == "pdsh":
        handle.start("@pdsh", _pdsh_argv(remote, str(handle.path("%h", ""))))
    elif remote:
        for node in remote:
            host = shlex.quote(_host(node))
            command = f"exec env CBT_HOST={host} sh -c {shlex.quote(_READ_SCRIPT)}"
            limited = ["sh", "-c", f'{_LIMIT}; exec "$@"', "sh"]
            handle.start(_host(node), [*limited, *_ssh(node), command])
    return handle


def _host(node: str) -> str:
    return node.rpartition("@")[2]


def _pdsh_argv(nodes: Sequence[str], files: str) -> list[str]:
    # pdsh's exec module starts our own ssh for each host and puts the host's name for %h.
    # The login shell of the user there may be any, so it is given one quoted word for sh.
    command = f"exec env CBT_HOST=%h sh -c {shlex.quote(_READ_SCRIPT)}"
    ssh = ["ssh", "-x", *(option.replace("%", "%%") for option in _ssh_arguments()), "-l", "%u"]
    redirect = f'{_LIMIT}; exec "$@" <"$0{SCRIPT}" >"$0{STDOUT}" 2>"$0{STDERR}"'
    return [
        "pdsh", "-S", "-R", "exec", "-f", str(min(len(nodes), MAX_FANOUT)), "-w", ",".join(nodes),
        "sh", "-c", redirect, files, *ssh, "%h", "--", command,
    ]  # fmt: skip


def _ssh(node: str) -> list[str]:
    user, _, host = node.rpartition("@")
    return ["ssh", "-x", *_ssh_arguments(), *(["-l", user] if user else []), host, "--"]


def pdcp(nodes: str, flags: Optional[str], local: str, remote: str) -> Handle:
    """Copy a local file (or, with flags `-r`, a directory) to a path on every node."""
    here, there = _split(nodes)
    handle = Handle(f"copy {local} to {remote}", False, {})
    handle.logged(list(map(_host, (*here, *there))), "copy to", f"{local} {remote}")
    if here and os.path.realpath(local) != os.path.realpath(remote):
        handle.start("@cp", ["cp", *_cp_flags(flags), "-T", "--", local, remote])
    if there and fan_out() == "pdsh":
        by_ssh = {"PDSH_RCMD_TYPE": "ssh", "PDSH_SSH_ARGS_APPEND": " ".join(_ssh_arguments())}
        fanout = str(min(len(there), MAX_FANOUT))
        options = ["-f", fanout, *shlex.split(flags or ""), "-p", "-w", ",".join(there)]
        handle.start("@pdcp", ["pdcp", *options, local, remote], by_ssh)
    elif there:
        for node in there:
            scp = ["scp", "-q", *_cp_flags(flags), *_ssh_arguments(), local, f"{node}:{remote}"]
            handle.start(f"@scp.{_host(node)}", scp)
    return handle


def rpdcp(nodes: str, flags: Optional[str], remote: str, local: str) -> Handle:
    """Copy a remote file or directory of every node into a local directory, as `name.host`."""
    here, there = _split(nodes)
    handle = Handle(f"copy {remote} from {nodes}", False, {})
    handle.logged(list(map(_host, (*here, *there))), "copy from", f"{remote} {local}")
    name = os.path.basename(remote.rstrip("/"))
    for host in map(_host, here):
        target = os.path.join(local, f"{name}.{host}")
        handle.start(f"@cp.{host}", ["cp", *_cp_flags(flags), "-T", "--", remote, target])
    if there:
        # pdsh's own way back writes where, and what, the host says.
        targets = {node: os.path.join(local, f"{name}.{_host(node)}") for node in there}
        orders = [fetch.order(_host(n), _ssh(n), remote, target) for n, target in targets.items()]
        handle.path("@fetch", SCRIPT).write_text(json.dumps(orders), encoding="utf-8")
        handle.start("@fetch", fetch.program())
    return handle


def _cp_flags(flags: Optional[str]) -> list[str]:
    return ["-r", "-p"] if "-r" in shlex.split(flags or "") else ["-p"]


def sync_files(remote: str, local: str) -> None:
    """Bring the contents of a directory from every node: `a` as `a.host` into `local`."""
    nodes = settings.getnodes("head", "clients", "osds", "mons", "mgrs")
    os.makedirs(local, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=local) as staging:
        copying = rpdcp(nodes, "-r", remote, staging)
        _, said = copying.communicate(fetch.COLLECT_S)
        if copying.timed_out:
            raise HostError(
                nodes, f"copy {remote}", f"not done within {fetch.COLLECT_S} s", said[-600:]
            )
        name = os.path.basename(remote.rstrip("/"))
        arrived = {host: Path(staging, f"{name}.{host}") for host in map(_host, nodes.split(","))}
        missing = [host for host, folder in arrived.items() if not folder.is_dir()]
        if missing or copying.returncode:
            host, what = (missing[0], "nothing") if missing else (nodes, "a part")
            raise HostError(host, f"copy {remote} from it", f"{what} came", said.strip()[-600:])
        taken: set[str] = set()
        for host, folder in arrived.items():
            fetch.place(folder, host, Path(local), taken)


def make_remote_dir(remote: str) -> None:
    """Make a directory on every node."""
    _everywhere(f"mkdir -p -- {shlex.quote(remote)}")


def clean_remote_dir(remote: str) -> None:
    """Remove a directory on every node; refuses one that is not below `tmp_dir`."""
    _everywhere(_removal(remote))


def empty_remote_dir(remote: str) -> None:
    """Make a directory on every node empty, or make it where there is none."""
    where = shlex.quote(remote)
    removal = f'if [ -n "$(ls -A {where} 2>/dev/null)" ]; then\n{_removal(remote)}fi'
    _everywhere(f"{removal}\nmkdir -p -- {where}")


def _removal(remote: str) -> str:
    tmp_dir = str(settings.cluster.get("tmp_dir", directories.DEFAULT))
    if not os.path.normpath(remote).startswith(os.path.normpath(tmp_dir) + "/"):
        raise ValueError(f"{remote} is not below tmp_dir, {tmp_dir}")
    part = os.path.relpath(os.path.normpath(remote), os.path.normpath(tmp_dir))
    return f"{preamble(tmp_dir)}\n{directories.remove(tmp_dir, part)}"


def mkdir_p(path: str) -> None:
    """Make a local directory and its parents."""
    os.makedirs(path, exist_ok=True)


def _everywhere(command: str) -> None:
    nodes = settings.getnodes("head", "clients", "osds", "mons", "mgrs")
    pdsh(nodes, command, continue_if_error=False).communicate(fetch.COLLECT_S)


def close_connections() -> None:
    """End the ssh connections that are kept for reuse."""
    if control_directory.cache_info().currsize:
        _end_connections(Path(control_directory()))
        control_directory.cache_clear()


def _end_connections(directory: Path) -> None:
    for path in filter(Path.is_socket, directory.glob("*")):
        with contextlib.suppress(subprocess.TimeoutExpired):  # One that is stopped never answers.
            subprocess.run(
                # ssh wants a host's name, which it does not look at here; since 9.6 not any name.
                ["ssh", "-O", "exit", f"-oControlPath={path}", "unused"],
                stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=5,
            )  # fmt: skip
    shutil.rmtree(directory, ignore_errors=True)


class Benchmark:
    """Where files of one combination of a section's dimensions go; `config` has all options."""

    def __init__(
        self, archive_dir: str, cluster: Cluster, config: Section, execution: Any = None
    ) -> None:
        self._common = execution or sys.modules[__name__]
        self.config = dict(config)
        self.cluster = cluster
        name = cell_path(self.config)
        self.archive_dir = os.path.join(archive_dir, name)
        self.run_dir = f"{cluster.tmp_dir}/run/{name}"

    def exists(self) -> bool:
        """Whether the archive has this benchmark's directory already."""
        return os.path.exists(self.archive_dir)

    def initialize(self) -> None:
        """Make the directories here and on every node."""
        self._common.make_remote_dir(self.run_dir)
        self._common.mkdir_p(self.archive_dir)
        path = os.path.join(self.archive_dir, "benchmark_config.yaml")
        cluster = {k: v for k, v in self.cluster.config.items() if k != "archive_dir"}
        shown = {"cluster": cluster, **self.config}
        # What has that name is replaced, and no link to another file followed.
        write_whole(Path(path), yaml.safe_dump(document_without(shown)))

    def run(self) -> None:
        """Start anew with empty directories on the nodes."""
        self._common.empty_remote_dir(self.run_dir)

    def cleanup(self) -> None:
        """Remove this benchmark's directory on every node."""
        self._common.clean_remote_dir(self.run_dir)
