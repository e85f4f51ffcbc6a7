"""Programs that upstream starts on the hosts, in place of Ceph's and fio's of the same names.

Upstream calls them by an attribute for each. Ours find the cluster below `tmp_dir`, so that
nothing need stand in /etc/ceph; mark what they start, so that exactly that can be ended; apply
what overlays wrap around OSDs and clients; and note how they ended, which upstream ignores.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.remote import preamble
from cbt_crypto.hosts.site import HostScripts, Osd, Site

#: Programs that load the cluster: how each of their processes ended is noted, good or bad.
CLIENTS = ("fio", "rados")


@dataclass(frozen=True)
class Names:
    """The real programs, as the campaign's file has them."""

    ceph: str
    rbd: str
    mon: str
    mgr: str
    osd: str
    fio: str = "fio"
    rados: str = "rados"


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
    """Shell text for every host that writes them. `base` is the cluster's directory.

    `device` is what an OSD is made on.
    """
    plain = {"ceph": names.ceph, "rbd": names.rbd}
    daemons = {"ceph-mon": names.mon, "ceph-mgr": names.mgr}
    clients = dict(zip(CLIENTS, (names.fio, names.rados)))
    scripts = {}
    for host in site.hosts:
        files = {name: _noting(f'{_word(real)} "$@"', name) for name, real in plain.items()}
        files.update({name: _daemon(real, name) for name, real in daemons.items()})
        for name, real in clients.items():
            files[name] = _noting(wrap_client(host, f'{_word(real)} "$@"'), name, always=True)
        files["ceph-osd"] = _osd(site, site.osds_of(host), names.osd, wrap_osd, device)
        scripts[host] = _write(base, {n: _head(site, host, base) + t for n, t in files.items()})
    return scripts


def _word(program: str) -> str:
    return shlex.quote(program)


def _head(site: Site, host: str, base: str) -> str:
    return (
        "#!/bin/sh\n"
        f"export CBT_HOST={host} CEPH_CONF={shlex.quote(site.conf)}\n"
        f"base={shlex.quote(base)}\n{preamble(site.tmp_dir)}\n"
    )


def _noting(command: str, name: str, always: bool = False) -> str:
    """Run it and note how it ended; with `always` also a good end."""
    when = "" if always else "[ $s = 0 ] || "
    return f'{{ {command}; }}\ns=$?\n{when}echo "$s {name} $*" > "$base/ended/{name}.$$"\nexit $s\n'


def _daemon(program: str, name: str) -> str:
    """A daemon's own words go to a log, and the end of them into the note of a bad end."""
    started = _noted_daemon(f'{_word(program)} "$@"', name)
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
            proofs.append(f'*" -i {osd.id} "*) device={_word(device(osd))} ;;')
        command = f"{_word(program)} -c {_word(site.conf)} -i {osd.id} --pid-file={osd.pid_file}"
        start = _noted_daemon(f"{{ {wrap(osd, command)}; }}", "ceph-osd")
        cases.append(f'*" -i {osd.id} "*)\n{start};;')
    mkfs = _noted_daemon(f'{{ ours "$@" && {_word(program)} "$@"; }}', "ceph-osd")
    which = 'device=\ncase " $* " in\n' + "\n".join(proofs) + "\nesac\n"
    return (
        f"log=$base/log/ceph-osd.out\ncd /\n{destroy.proof(site.tmp_dir)}{_OURS}"
        f'case " $* " in\n*" --mkfs "*)\n{which}{mkfs};;\n' + "\n".join(cases) + "\nesac\n"
        'echo "ceph-osd $*: not an OSD of this host" >&2\nexit 2\n'
    )


# Upstream chooses the OSD's uuid itself. What runs this as root is sudo, of the campaign's user.
_OURS = """
CBT_CRYPTO_UID=${SUDO_UID:-$CBT_CRYPTO_UID}
ours() {
    [ -n "$device" ] || return 0
    uuid=
    for word; do
        [ "$uuid" != next ] || uuid=$word
        [ "$word" != --osd-uuid ] || uuid=next
    done
    prove ready "$device" bluestore > /dev/null && prove share "$device" "$uuid"
}
"""


def _write(base: str, files: Mapping[str, str]) -> str:
    where = shlex.quote(directory(base))
    lines = [f"mkdir -p {where} {shlex.quote(base)}/ended"]
    for name, text in files.items():
        lines.append(f"cat > {where}/{name} <<'END_OF_PROGRAM'\n{text}END_OF_PROGRAM")
    return "\n".join((*lines, f"chmod 755 {where}/*"))


def read_notes(base: str) -> str:
    """Shell text that prints the notes, one a line, and removes them."""
    where = f"{shlex.quote(base)}/ended"
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
        return f"{self.host}: {self.program} exited with {self.status}: {self.words[:400]}"


def endings(outputs: Mapping[str, str]) -> list[Ending]:
    """From what `read_notes` printed on each host."""
    all_endings = []
    for host, text in outputs.items():
        for line in text.splitlines():
            status, _, rest = line.partition(" ")
            program, _, words = rest.partition(" ")
            if status.isdigit():
                all_endings.append(Ending(host, int(status), program, words))
    return all_endings
