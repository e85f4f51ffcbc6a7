"""The commands that mend what `check` found, to be read and run by a person.

What hosts print is judged, and never becomes a command: a sentence is only looked up here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from cbt_crypto.archive.problem import printable
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.run.preflight.survey import Finding

#: What a sentence calls missing -> the packages that have it, by apt and by dnf.
PACKAGES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ceph", "rbd", "rados", "ceph-authtool", "ceph-conf"), ("ceph-common",) * 2),
    **dict.fromkeys(("monmaptool", "osdmaptool"), ("ceph-base",) * 2),
    **dict.fromkeys(("pdsh", "pdcp"), ("pdsh", "epel-release pdsh pdsh-rcmd-ssh")),
    **dict.fromkeys(("blkid", "wipefs", "unshare"), ("util-linux",) * 2),
    **dict.fromkeys(("ip", "bridge"), ("iproute2", "iproute")),
    "ceph-mon": ("ceph-mon",) * 2,
    "ceph-mgr": ("ceph-mgr",) * 2,
    "ceph-osd": ("ceph-osd",) * 2,
    "Python's rados module": ("python3-rados",) * 2,
    "python3": ("python3",) * 2,
    "scp": ("openssh-client", "openssh-clients"),
    "collectl": ("collectl", "epel-release collectl"),
    "etcd": ("etcd-server", "etcd"),
    "fio": ("fio", "fio fio-engine-rbd"),
    "perf": ("linux-perf", "perf"),
    "stress-ng": ("stress-ng",) * 2,
    "cryptsetup": ("cryptsetup-bin", "cryptsetup"),
    "dmsetup": ("dmsetup", "device-mapper"),
    "tuned-adm": ("tuned",) * 2,
    "wg": ("wireguard-tools",) * 2,
    "mdadm": ("mdadm",) * 2,
    "mkfs.ext4": ("e2fsprogs",) * 2,
    "mkfs.xfs": ("xfsprogs",) * 2,
}
#: Beginnings of other sentences -> the same.
_OTHERS: Sequence[tuple[str, tuple[str, str]]] = (
    ("LVM's commands are missing", ("lvm2",) * 2),
    ("fio has no rbd engine", ("fio", "fio-engine-rbd")),
)
_MISSING = re.compile(r"(.+?) is missing; install ")
_TUNED = "TuneD is not running"
_MANAGER = "command -v apt-get || command -v dnf || :"
_TIMEOUT_S = 60
_INSTALL = {
    "apt-get": "sudo apt-get update && sudo apt-get install -y --no-install-recommends",
    "dnf": "sudo dnf install -y",
}


def managers(remote: Remote, findings: Iterable[Finding]) -> dict[str, str]:
    """Host -> apt-get or dnf, of those that need mending and have one."""
    hosts = dict.fromkeys(one.host for one in findings if one.error or one.warning)
    answers = remote.attempt(dict.fromkeys(hosts, _MANAGER), _TIMEOUT_S)
    found = {host: answer.stdout.strip().rpartition("/")[2] for host, answer in answers.items()}
    return {host: name for host, name in found.items() if name in _INSTALL}


def script(
    findings: Sequence[Finding], manager: Mapping[str, str], user: Optional[str]
) -> Iterator[str]:
    """Lines of a shell script: for each host its commands, and in comments what has none."""
    yield "# Made by `cbt-crypto check --fix-commands`. Read it before you run any of it."
    for host in dict.fromkeys(one.host for one in findings if one.error or one.warning):
        own = [one for one in findings if one.host == host]
        yield ""
        yield f"# {host}"
        commands, by_hand = _mended(own, manager.get(host), user)
        login = shlex.quote(f"{user}@{host}" if user else host)
        yield from (f"ssh -t {login} {shlex.quote(line)}" for line in commands)
        yield from (f"# by hand: {line}" for line in by_hand)


def _mended(
    own: Sequence[Finding], manager: Optional[str], user: Optional[str]
) -> tuple[list[str], list[str]]:
    packages: dict[str, None] = {}
    commands: dict[str, None] = {}
    by_hand: dict[str, None] = {}
    for one in own:
        for sentence in filter(None, (one.error, one.warning)):
            needed, then = _packages(one, sentence, manager), _commands(one, sentence, user)
            packages.update(dict.fromkeys(needed))
            commands.update(dict.fromkeys(then))
            if not needed and not then:
                by_hand[printable(" ".join(sentence.split()))] = None
    # The repository that has others comes by itself, and first.
    first = [name for name in packages if name == "epel-release"]
    rest = [name for name in packages if name not in first]
    install = [
        f"{_INSTALL[manager]} {' '.join(part)}" for part in (first, rest) if part and manager
    ]
    return [*install, *commands], list(by_hand)


def _packages(one: Finding, sentence: str, manager: Optional[str]) -> list[str]:
    found: Optional[tuple[str, str]] = None
    missing = _MISSING.match(sentence)
    if missing:
        found = PACKAGES.get(missing[1])
    for begin, packages in _OTHERS:
        found = packages if sentence.startswith(begin) else found
    if one.column == "clock" and "start chrony" in sentence:
        found = ("chrony", "chrony")
    if one.column == "governor":
        found = ("linux-cpupower", "kernel-tools")
    if found is None or manager is None:
        return []
    return found[manager == "dnf"].split()


def _commands(one: Finding, sentence: str, user: Optional[str]) -> list[str]:
    """What is to be done once all is installed."""
    if one.column == "clock" and "start chrony" in sentence:
        return ["sudo systemctl enable --now chrony || sudo systemctl enable --now chronyd"]
    if one.column == "governor":
        return ["sudo cpupower frequency-set -g performance"]
    if sentence.startswith((_TUNED, "tuned-adm is missing")):
        return ["sudo systemctl enable --now tuned"]
    if one.column == "sudo" and sentence.startswith("needs root"):
        rule = f"{user or '$(id -un)'} ALL=(ALL) NOPASSWD: ALL"
        place = "/etc/sudoers.d/cbt-crypto"
        return [f'echo "{rule}" | sudo tee {place} && sudo chmod 440 {place} && sudo visudo -c']
    return []
