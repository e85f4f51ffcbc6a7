"""How upstream reaches hosts: its `common`, and programs in place of Ceph's and fio's."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts import fetch, shell
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.remote import LONGEST, TOO_LONG, answered, own_name, packed, preamble
from cbt_crypto.hosts.secret import masked
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.units import whole

quote = shlex.quote

#: Linux allows 128 KiB for one argument of a program, and quotes and pdsh add to ours.
_ARGUMENT_BYTES = 60_000


class Fan:
    """Handles of upstream's, one for each host, that are waited for together."""

    def __init__(self, handles: Mapping[str, Any], local: type[Any]) -> None:
        """`local` is the class of handles whose programs do not label their lines."""
        self.timed_out = False
        self._local = local
        self._handles = dict(handles)
        self._answers: dict[tuple[str, bool], str] = {}
        self._readers = [
            threading.Thread(target=self._read, args=(host, is_error), daemon=True)
            for host in self._handles
            for is_error in (False, True)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, host: str, is_error: bool) -> None:
        """Read as much as an answer may have; what says more is ended."""
        handle = self._handles[host]
        process: subprocess.Popen[bytes] = handle.popen_obj
        stream = process.stderr if is_error else process.stdout
        data = stream.read(LONGEST + 1) if stream is not None else b""
        if len(data) > LONGEST:
            _kill(process)
        lines = answered(data)
        if not isinstance(handle, self._local) and lines != [TOO_LONG]:
            lines = [line.partition(": ")[2] for line in lines]
        self._answers[host, is_error] = "".join(f"{host}: {line}\n" for line in lines)

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """(stdout, stderr) of all, each line as `host: text`; ends them after `timeout` seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        for reader in self._readers:
            reader.join(None if ends is None else max(0.0, ends - time.monotonic()))
        if any(reader.is_alive() for reader in self._readers):
            self.timed_out = True
            for handle in self._handles.values():
                _kill(handle.popen_obj)
            for reader in self._readers:
                reader.join(5)
        for handle in self._handles.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                handle.popen_obj.wait(5 if self.timed_out else None)
        out, err = (
            "".join(self._answers.get((host, is_error), "") for host in self._handles)
            for is_error in (False, True)
        )
        return out, err

    def wait(self) -> int:
        """The worst exit status."""
        self.communicate()
        return max(
            (int(handle.popen_obj.returncode) for handle in self._handles.values()), default=0
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Upstream makes each command the leader of a group of its own.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Brought:
    """Files that have come, as upstream waits for them: without an error for what did not."""

    said: str

    def communicate(self) -> tuple[str, str]:
        """Nothing, and which hosts sent nothing fit."""
        return "", self.said

    def wait(self) -> int:
        """The exit status of a copy: 1 where a host failed."""
        return int(bool(self.said))


def _fetched(orders: Sequence[Mapping[str, Any]]) -> str:
    """Take the orders; return what hosts failed to send, and why."""
    process = subprocess.Popen(
        fetch.program(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(json.dumps(orders).encode(), fetch.COLLECT_S)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.communicate()
        return f"not all came within {fetch.COLLECT_S} s"
    return said.decode(errors="replace")


class Common:
    """Upstream's module; a name that is not here is upstream's own."""

    def __init__(self, module: Any, settings: Any) -> None:
        self._module = module
        self._settings = settings
        self._said = ""
        self._rpdcp = module.rpdcp
        # Upstream's benchmarks fetch their files by it.
        module.rpdcp = self.rpdcp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def pdsh_each(self, commands: Mapping[str, str]) -> Fan:
        """Run text of its own on each `user@host`, all at once, with `$CBT_HOST` set there."""
        handles = {}
        for node, text in commands.items():
            host = node.rpartition("@")[2]
            command_text = text if len(text.encode()) < _ARGUMENT_BYTES else packed(text)
            command = f"exec env CBT_HOST={host} sh -c {quote(command_text)}"
            try:
                handles[host] = self._module.pdsh(node, command)
            except OSError as error:
                raise RunError(f"{host}: a command cannot be started there: {error}") from error
        return Fan(handles, self._module.CheckedPopenLocal)

    def rpdcp(self, nodes: str, flags: Optional[str], remotefile: str, localdir: str) -> Any:
        """Bring every node's file or directory as `name.host`, or all in `DIRECTORY/*`, checked."""
        if self._module.get_localnode(nodes):
            return self._rpdcp(nodes, flags, remotefile, localdir)
        hosts = {node.rpartition("@")[2]: node for node in nodes.split(",")}
        remote, is_content, _ = remotefile.partition("/*")
        name = os.path.basename(remote.rstrip("/"))
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=localdir) as staging:
            orders = [
                fetch.order(host, self._ssh(node), remote, f"{staging}/{host}/{name}")
                for host, node in hosts.items()
            ]
            said = _fetched(orders)
            taken: set[str] = set()
            for host in hosts:
                arrived = Path(staging, host, *([name] if is_content else []))
                if arrived.is_dir():
                    fetch.place(arrived, host, Path(localdir), taken)
        self._said = said
        return Brought(said)

    def _ssh(self, node: str) -> list[str]:
        """As pdsh starts it for upstream."""
        user, _, host = node.rpartition("@")
        given = getattr(self._settings, "common", {}).get("pdsh_ssh_args")
        words = given or os.environ.get("PDSH_SSH_ARGS") or "-a -x -l%u %h"
        values = {"%u": user or own_name(), "%h": host}
        more = os.environ.get("PDSH_SSH_ARGS_APPEND", "")
        named = re.sub("%[uh]", lambda match: values[match[0]], words)
        return ["ssh", "-oBatchMode=yes", *shlex.split(f"{more} {named}"), "--"]

    def sync_files(self, remote: str, local: str) -> None:
        """Bring the entries of a directory from every node: `a` as `a.host`."""
        self._said = ""
        with contextlib.redirect_stdout(io.StringIO()):
            self._module.sync_files(f"{remote}/*", local)
        names = os.listdir(local)
        # Upstream's order is a set's.
        for node in sorted(self._settings.getnodes("clients").split(",")):
            host = node.rpartition("@")[2]
            if not any(name.endswith(f".{host}") for name in names):
                raise HostError(host, f"copy {remote} from it", "nothing came", self._said[-600:])

    def make_remote_dir(self, remote: str) -> None:
        """Make a directory on every node."""
        self._module.make_remote_dir(remote)

    def empty_remote_dir(self, remote: str) -> None:
        """Make a directory on every node empty, or make it where there is none."""
        self.clean_remote_dir(remote)
        self.make_remote_dir(remote)

    def clean_remote_dir(self, remote: str) -> None:
        """Remove a directory on every node; refuses one that is not below `tmp_dir`."""
        tmp_dir = Path(os.path.normpath(self._settings.cluster["tmp_dir"]))
        if tmp_dir not in Path(os.path.normpath(remote)).parents:
            raise ValueError(f"{remote} is not below tmp_dir, {tmp_dir}")
        # Upstream prints what it removes, where a campaign prints its progress.
        with contextlib.redirect_stdout(io.StringIO()):
            self._module.clean_remote_dir(remote)


@dataclass(frozen=True)
class Names:
    """The real programs, as the campaign's file has them.

    plain: find the cluster by their environment. clients: load it, and how each process ended is
    noted. fuse, mount: mount CephFS, by upstream's two ways.
    """

    plain: Mapping[str, str]
    clients: Mapping[str, str]
    mon: str
    mgr: str
    osd: str
    mds: str = "ceph-mds"
    fuse: str = "ceph-fuse"
    mount: str = "mount.ceph"


def directory(base: str) -> str:
    """Where they are, on every host."""
    return f"{base}/bin"


def install(
    site: Site,
    base: str,
    names: Names,
    wrap_osd: Callable[[Osd, str], str],
    wrap_client: Callable[[str, str], str],
    device: Callable[[Osd], str],
) -> HostScripts:
    """Shell text for every host that writes them below `base`; an OSD is made on `device`."""
    daemons = {"ceph-mon": names.mon, "ceph-mgr": names.mgr, "ceph-mds": names.mds}
    mounting = {
        "ceph-fuse": _mounting("fuse_namespace", f'{quote(names.fuse)} "$@"', "ceph-fuse"),
        "mount.ceph": _mounting("kernel_namespace", _kernel_mount(site, names.mount), "mount.ceph"),
    }
    scripts = {}
    for host in site.hosts:
        files = {name: _noting(f'{quote(real)} "$@"', name) for name, real in names.plain.items()}
        files.update({name: _daemon(real, name) for name, real in daemons.items()})
        files.update(mounting)
        for name, real in names.clients.items():
            # As `benchmarks.base.command` does.
            client = wrap_client(host, f'env TMPDIR={quote(base)} {quote(real)} "$@"')
            files[name] = _noting(client, name, always=True)
        files["ceph-osd"] = _osd(site, site.osds_of(host), names.osd, wrap_osd, device)
        scripts[host] = _write(base, {n: _head(site, host, base) + t for n, t in files.items()})
    return scripts


def _head(site: Site, host: str, base: str) -> str:
    return (
        "#!/bin/sh\n"
        f"export CBT_HOST={host} CEPH_CONF={quote(site.conf)}\n"
        f"base={quote(base)}\n{preamble(site.tmp_dir)}\n"
    )


def _noting(command: str, name: str, always: bool = False) -> str:
    when = "" if always else "[ $s = 0 ] || "
    return f'{{ {command}; }}\ns=$?\n{when}echo "$s {name} $*" > "$base/ended/{name}.$$"\nexit $s\n'


def _mounting(namespace: str, command: str, name: str) -> str:
    text = f'fs=$({namespace} "$@")\n{_noting(f"is_served && {command}", name)}'
    return shell.calling(__file__, text)


def _kernel_mount(site: Site, program: str) -> str:
    """Upstream's own names the monitors in a form that mount.ceph does not know, and no mode."""
    options = f"name={site.client_id},mds_namespace=$fs,ms_mode=$(kernel_mode),conf=$CEPH_CONF"
    return f'{quote(program)} :/ "$2" -o "{options}"'


def _daemon(program: str, name: str) -> str:
    """A daemon's own words go to a log, and the end of them into the note of a bad end."""
    started = _noted_daemon(f'{quote(program)} "$@"', name)
    return f"log=$base/log/{name}.out\ncd /\n{started}"


def _noted_daemon(command: str, name: str) -> str:
    return (
        f'{command} >> "$log" 2>&1\ns=$?\n'
        f"[ $s = 0 ] || echo \"$s {name} $*: $(tail -n 3 \"$log\" | tr '\\n' ' ')\" "
        f'> "$base/ended/{name}.$$"\nexit $s\n'
    )


def _osd(
    site: Site, osds: Sequence[Osd], program: str, wrap: Callable[[Osd, str], str],
    device: Callable[[Osd], str],
) -> str:  # fmt: skip
    """mkfs as upstream asks for it; a start as overlays have it, with the pid where ours is."""
    proofs, cases = [], []
    for osd in osds:
        if not osd.is_file:
            proofs.append(f'*" -i {osd.id} "*) device={quote(device(osd))} ;;')
        command = f"{quote(program)} -c {quote(site.conf)} -i {osd.id} --pid-file={osd.pid_file}"
        start = _noted_daemon(f"{{ {wrap(osd, command)}; }}", "ceph-osd")
        cases.append(f'*" -i {osd.id} "*)\n{start};;')
    mkfs = _noted_daemon(f'{{ ours "$@" && {quote(program)} "$@"; }}', "ceph-osd")
    which = 'device=\ncase " $* " in\n' + "\n".join(proofs) + "\nesac\n"
    by_osd = f'case " $* " in\n*" --mkfs "*)\n{which}{mkfs};;\n' + "\n".join(cases) + "\nesac\n"
    return (
        f"log=$base/log/ceph-osd.out\ncd /\n{destroy.proof(site.tmp_dir)}"
        # What runs this as root is sudo, of the campaign's user.
        f"CBT_CRYPTO_UID=${{SUDO_UID:-$CBT_CRYPTO_UID}}\n{shell.calling(__file__, by_osd)}"
        'echo "ceph-osd $*: not an OSD of this host" >&2\nexit 2\n'
    )


def _write(base: str, files: Mapping[str, str]) -> str:
    where = quote(directory(base))
    lines = [f"mkdir -p {where} {quote(base)}/ended"]
    for name, text in files.items():
        lines.append(f"cat > {where}/{name} <<'END_OF_PROGRAM'\n{text}END_OF_PROGRAM")
    return "\n".join((*lines, f"chmod 755 {where}/*"))


def read_notes(base: str) -> str:
    """Shell text that prints the notes, one a line, and removes them."""
    where = f"{quote(base)}/ended"
    return f'for note in {where}/*; do [ ! -f "$note" ] || cat "$note"; done\n$SUDO rm -f {where}/*'


@dataclass(frozen=True)
class Ending:
    """How one process of these programs ended; `words` are its arguments and what it said."""

    host: str
    status: int
    program: str
    words: str

    def sentence(self) -> str:
        """One sentence: host, program, exit status, and the first 400 characters it said."""
        words = masked(self.words)[:400]
        return f"{self.host}: {self.program} exited with {self.status}: {words}"


#: More in one line is no fio's; patterns are looked for in it.
_LONGEST_WORDS = 16384


def endings(outputs: Mapping[str, str]) -> list[Ending]:
    """From what `read_notes` printed on each host."""
    all_endings = []
    for host, text in outputs.items():
        for line in text.splitlines():
            status, _, rest = line.partition(" ")
            program, _, words = rest.partition(" ")
            if (number := whole(status)) is not None:
                all_endings.append(Ending(host, number, program, words[:_LONGEST_WORDS]))
    return all_endings
