"""Run the shell text that hooks return on hosts, and say which host failed and why.

An answer is framed by a mark that no host knows: a greeting is no part of it.
"""

from __future__ import annotations

import base64
import getpass
import gzip
import os
import re
import secrets
import shlex
import shutil
import socket
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Optional, Protocol, TypeVar

from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts import command_log, shell
from cbt_crypto.hosts.secret import masked
from cbt_crypto.hosts.site import HostScripts, Site


class Handle(Protocol):
    """A command under way on some hosts."""

    @property
    def timed_out(self) -> bool:
        """Whether `communicate` ended it."""

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """Wait; (stdout, stderr) of all hosts, each line as `host: text`."""


class Execution(Protocol):
    """CBT's `common`, as an engine offers it."""

    def pdsh_each(self, commands: Mapping[str, str]) -> Handle:
        """Run shell text of its own on each `user@host`, all at once."""

    def sync_files(self, remote: str, local: str) -> None:
        """Bring the contents of a directory from every node: `a` as `a.host` into `local`."""

    def make_remote_dir(self, remote: str) -> None:
        """Make a directory on every node."""

    def clean_remote_dir(self, remote: str) -> None:
        """Remove a directory on every node; refuses one that is not below `tmp_dir`."""


@lru_cache(maxsize=1)
def local_names() -> frozenset[str]:
    """Names of this machine. What DNS says of its address alone may be another host's name."""
    name, full = socket.gethostname(), socket.getfqdn()
    short = name.split(".")[0]
    own = {full} if full.split(".")[0] == short else set()
    return frozenset({"localhost", "127.0.0.1", name, short, *own})


def own_name() -> str:
    """Return this user's name, or the number of one without a name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


def is_local(node: str) -> bool:
    """Whether `user@host` or `host` is this machine, as the user who runs this."""
    user, _, host = node.rpartition("@")
    return host in local_names() and user in ("", own_name())


#: What pdsh's package brings; a fan-out over it needs all of them.
PDSH_PROGRAMS = ("pdsh", "pdcp", "rpdcp")


def fan_out() -> str:
    """What reaches all hosts at once: `pdsh`, or where it is not installed `ssh`, one a host."""
    return "pdsh" if all(map(shutil.which, PDSH_PROGRAMS)) else "ssh"


#: In the environment of everything that is started here.
MARK = "CBT_CRYPTO_MARK"
#: Begins the lines that frame an answer; random characters and a word follow.
FRAME = "@cbt-crypto-answer-"
#: Characters of one host's answer; more is no answer.
LONGEST = 64 << 20
#: Lines of it: each takes much more memory than its characters.
MOST_LINES = 1 << 20
#: Lists and mappings in it: `[],` takes thirty times as much memory.
MOST_LISTS = 4_000_000
#: Stands for an answer that has more.
TOO_LONG = (
    f"its answer is longer than {LONGEST} characters, {MOST_LINES} lines or {MOST_LISTS} lists"
)
#: What timeout(1) ends with when the time is over.
_LATE = 124
_STATUS = re.compile("[0-9]{1,3}")
#: Characters of a host's stderr that go into an error, and of an answer that cannot be read.
_STDERR_END = 600
_SHOWN = 200


@dataclass(frozen=True)
class HostResult:
    """What one host answered. `status` is None when it never did, or not in time."""

    stdout: str
    stderr: str
    status: Optional[int]
    timed_out: bool = False

    @property
    def ending(self) -> str:
        """How it ended, as the command log has it."""
        if self.status is not None:
            return f"exit {self.status}"
        return "timed out" if self.timed_out else "no answer"


class Remote:
    """Run scripts through an engine as the campaign's user, with `mark` in their environment."""

    def __init__(self, common: Execution, tmp_dir: str, user: Optional[str] = None) -> None:
        self._common = common
        self._tmp_dir = tmp_dir
        self._user = user

    def run(
        self, scripts: HostScripts, what: str, timeout: Optional[float] = None
    ) -> dict[str, str]:
        """Run each host's script, all at once, and return its standard output by host.

        `what` names the step in errors. Raises HostError for the first host, in the order of
        `scripts`, that failed or did not answer within `timeout` seconds.
        """
        return self.begin(scripts, what, timeout)()

    def begin(
        self, scripts: HostScripts, what: str, timeout: Optional[float] = None
    ) -> Callable[[], dict[str, str]]:
        """Start what `run` does; return what waits for it. Else `kill_script` ends it."""
        wait = self._begin(scripts, what, timeout)

        def outputs() -> dict[str, str]:
            results = wait()
            for host, result in results.items():
                if result.status != 0:
                    raise _error(host, what, result, timeout)
            return {host: result.stdout for host, result in results.items()}

        return outputs

    def attempt(
        self, scripts: HostScripts, timeout: Optional[float] = None, what: str = "look"
    ) -> dict[str, HostResult]:
        """Like `run`, but a failing host is a result and not an error."""
        return self._begin(scripts, what, timeout)()

    def _begin(
        self, scripts: HostScripts, what: str, timeout: Optional[float]
    ) -> Callable[[], dict[str, HostResult]]:
        scripts = {host: text for host, text in scripts.items() if text.strip()}
        if not scripts:
            return dict
        began = time.monotonic()
        mark = FRAME + secrets.token_hex(8)
        user = f"{self._user}@" if self._user else ""
        commands = {f"{user}{h}": self._command(t, mark) for h, t in scripts.items()}
        handle = self._common.pdsh_each(commands)

        def results() -> dict[str, HostResult]:
            stdout, stderr = handle.communicate(timeout) if timeout else handle.communicate()
            out, err = _lines_by_host(stdout), _lines_by_host(stderr)
            late = bool(timeout and handle.timed_out)
            found = {h: _result(out.get(h, []), err.get(h, []), late, mark) for h in scripts}
            _record(scripts, found, what, time.monotonic() - began)
            return found

        return results

    def _command(self, text: str, mark: str) -> str:
        return (
            f"echo; echo {mark} begin\n{preamble(self._tmp_dir)}\n(\nset -eu\n{text}\n)\n"
            f"status=$?; echo; echo {mark} $status"
        )


T = TypeVar("T")
#: What reading an answer of another form than was asked for raises.
NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def misread(error: BaseException, what: str) -> RunError:
    """What became of a step in which hosts said something odd; the command log has where."""
    kind = f"{type(error).__name__}: {error}"[:_SHOWN]
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = ", ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)
    command_log.record(["localhost"], what, f"read what hosts said: {places}", kind, 0)
    return RunError(
        f"{what}: hosts gave an answer that cannot be understood ({kind}); "
        "results/commands.log has what was asked"
    )


def answer_of(host: str, what: str, text: str, read: Callable[[str], T]) -> T:
    """Read a host's answer by `read`; HostError with the answer's beginning where that raises."""
    try:
        return read(text.strip())
    except NONSENSE as error:
        said = masked(text.strip())[:_SHOWN]
        shown = "".join(c if c.isprintable() else "?" for c in said) or "nothing"
        raise HostError(host, what, "an answer that cannot be understood", shown) from error


def _record(
    scripts: HostScripts, results: Mapping[str, HostResult], what: str, seconds: float
) -> None:
    hosts_of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for host, result in results.items():
        errors = result.stderr if result.status != 0 else ""
        hosts_of[scripts[host], result.ending, errors].append(host)
    for (text, ending, errors), hosts in hosts_of.items():
        command_log.record(hosts, what, text, ending, seconds, errors)


def packed(text: str) -> str:
    """Shell text that does the same as a longer one."""
    data = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'eval "$(echo {data} | base64 -d | gzip -dc)"'


def preamble(tmp_dir: str) -> str:
    """What every script relies on: `$SUDO` (keeps our mark), `$BARE_SUDO`, `$CBT_CRYPTO_UID`."""
    return (
        # What somebody has in his environment would be stronger than ceph.conf.
        "unset CEPH_ARGS CEPH_KEYRING\n"
        # Numbers and complaints are read, and ssh forwards the language of whoever starts a run.
        'export LC_NUMERIC=C LC_MESSAGES=C LC_CTYPE="${LC_ALL:-${LC_CTYPE-}}"; unset LC_ALL\n'
        f"export {MARK}={shlex.quote(tmp_dir)}@$CBT_HOST CBT_CRYPTO_UID=$(id -u)\n"
        # Without sudo, OSDs on files work all the same; what needs root says so itself.
        "SUDO=; BARE_SUDO=\n"
        "if [ $CBT_CRYPTO_UID != 0 ] && sudo -n true 2>/dev/null; then\n"
        '    BARE_SUDO="sudo -n env CBT_CRYPTO_UID=$CBT_CRYPTO_UID"\n'
        '    SUDO="$BARE_SUDO CBT_CRYPTO_MARK=$CBT_CRYPTO_MARK"\n'
        "fi"
    )


def kill_script(
    signals: Sequence[str] = ("TERM", "KILL"), timeout: int = 30, pid_files: Sequence[str] = ()
) -> str:
    """End all that carries our mark on this host, or what `pid_files` name, threads too.

    The next signal is sent after `timeout` seconds.
    """
    words = ("end_marked", " ".join(signals), str(timeout), *pid_files)
    return shell.call(shell.__file__, *words)


def kill_osds_scripts(
    site: Site, stateless: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> HostScripts:
    """Scripts that end OSDs before other daemons, as an OSD waits 5 s for monitors to answer.

    `stateless`: host -> pid files of daemons that have nothing to write out, and are killed.
    """
    scripts = {
        host: [f"(\n{kill_script(('KILL',), pid_files=files)}\n)"]
        for host, files in stateless.items()
        if files
    }
    for host in site.osd_hosts:
        osds = kill_script(pid_files=[osd.pid_file for osd in site.osds_of(host)])
        scripts.setdefault(host, []).append(osds)
    return {host: "\n".join(texts) for host, texts in scripts.items()}


def answered(data: bytes) -> list[str]:
    """The lines of an answer, which end at newlines alone; one that says so of what is too long."""
    if len(data) > LONGEST or data.count(b"\n") > MOST_LINES:
        return [TOO_LONG]
    text = data.decode(errors="replace")
    return text.removesuffix("\n").split("\n") if text else []


def _lines_by_host(text: str) -> Mapping[str, list[str]]:
    lines: dict[str, list[str]] = defaultdict(list)
    for line in text.split("\n"):
        host, colon, rest = line.partition(":")
        if colon:
            lines[host.rpartition("@")[2]].append(rest.removeprefix(" "))
    return lines


def _result(stdout: list[str], stderr: list[str], timed_out: bool, mark: str) -> HostResult:
    """What is between the first mark and the last; nothing where one of them is missing."""
    lists = sum(line.count("[") + line.count("{") for line in stdout)
    if TOO_LONG in stdout[:1] or sum(map(len, stdout)) > LONGEST or lists > MOST_LISTS:
        return HostResult("", TOO_LONG, None)
    errors = masked("\n".join(stderr))
    framed = [index for index, line in enumerate(stdout) if line.startswith(mark + " ")]
    status_text = stdout[framed[-1]][len(mark) + 1 :].strip() if len(framed) > 1 else ""
    status = int(status_text) if _STATUS.fullmatch(status_text) else None
    begin, end = (framed[0] + 1, framed[-1]) if status is not None else (0, len(stdout))
    lines = stdout[begin:end]
    text = "\n".join(line for line in lines if not line.startswith(mark))
    return HostResult(text.removesuffix("\n"), errors, status, timed_out and status is None)


def _error(host: str, what: str, result: HostResult, timeout: Optional[float]) -> HostError:
    if result.status is not None:
        late = ", no answer in time" if result.status == _LATE else ""
        ending = f"exit status {result.status}{late}"
    elif result.timed_out:
        ending = f"no answer within {timeout:g} s"
    else:
        ending = "no answer; is the host up, and does ssh to it work without a password"
    return HostError(host, what, ending, result.stderr[-_STDERR_END:].strip())


#: Seconds that a clock may move against ours during a cell; reading it is that inexact at worst.
_CLOCK_JUMP_S = 2.0
#: No clock says more, in seconds since 1970.
_LAST_S = 1e11


def clock_offsets(remote: Remote, site: Site) -> dict[str, float]:
    """Host -> its clock minus this machine's, in seconds; exact to half the round trip."""
    before = time.time()
    outputs = remote.run({host: "date +%s.%N" for host in site.hosts}, "read the clock", 60)
    middle = (before + time.time()) / 2
    return {
        host: round(answer_of(host, "read the clock", text, _seconds) - middle, 4)
        for host, text in outputs.items()
    }


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < _LAST_S:
        raise ValueError("no time of these centuries")
    return seconds


def check_clocks(before: Mapping[str, float], after: Mapping[str, float], own: float) -> None:
    """Raise RunError when a clock was set while it was measured by it; ours was by `own` s."""
    by_host = {host: offset - before[host] for host, offset in after.items()}
    for host, moved in {"this machine": own, **by_host}.items():
        if abs(moved) > _CLOCK_JUMP_S:
            raise RunError(
                f"{host}: its clock was set by {moved:+.1f} s during the cell; let chrony or "
                "systemd-timesyncd finish before a campaign"
            )


def clock_bounds(begin: float, end: float, sent: float, received: float) -> tuple[float, float]:
    """The least and most of a host's clock minus ours, by its own and our times of asking.

    Raises ValueError for what is no time.
    """
    if not (0 < begin < _LAST_S and 0 < end < _LAST_S):
        raise ValueError("no time of these centuries")
    return end - received, begin - sent


def clock_difference(bounds: tuple[float, float], others: tuple[float, float]) -> float:
    """The least difference of two hosts' clocks, by their bounds; 0 when they may agree."""
    least, most = bounds[0] - others[1], bounds[1] - others[0]
    return max(least, 0.0) + min(most, 0.0)
