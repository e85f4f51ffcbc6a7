"""The commands that mend what `check` found, to be read and run by a person.

What hosts print is judged, and never becomes a command: a sentence is only looked up here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from cbt_crypto.archive.files import printable
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.run.preflight.survey import HostFinding

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


def managers(remote: Remote, findings: Iterable[HostFinding]) -> dict[str, str]:
    """Host -> apt-get or dnf, of those that need mending and have one."""
    hosts = dict.fromkeys(finding.host for finding in findings if finding.error or finding.warning)
    answers = remote.attempt(dict.fromkeys(hosts, _MANAGER), _TIMEOUT_S)
    programs = {host: answer.stdout.strip().rpartition("/")[2] for host, answer in answers.items()}
    return {host: name for host, name in programs.items() if name in _INSTALL}


def script(
    findings: Sequence[HostFinding], manager: Mapping[str, str], user: Optional[str]
) -> Iterator[str]:
    """Lines of a shell script: for each host its commands, and in comments what has none."""
    yield "# Made by `cbt-crypto check --fix-commands`. Read it before you run any of it."
    for host in dict.fromkeys(
        finding.host for finding in findings if finding.error or finding.warning
    ):
        of_host = [finding for finding in findings if finding.host == host]
        yield ""
        yield f"# {host}"
        commands, by_hand = _mended(of_host, manager.get(host), user)
        login = shlex.quote(f"{user}@{host}" if user else host)
        yield from (f"ssh -t {login} {shlex.quote(line)}" for line in commands)
        yield from (f"# by hand: {line}" for line in by_hand)


def _mended(
    findings: Sequence[HostFinding], manager: Optional[str], user: Optional[str]
) -> tuple[list[str], list[str]]:
    packages: dict[str, None] = {}
    commands: dict[str, None] = {}
    by_hand: dict[str, None] = {}
    for finding in findings:
        for sentence in filter(None, (finding.error, finding.warning)):
            needed, then = _packages(finding, sentence, manager), _commands(finding, sentence, user)
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


def _packages(finding: HostFinding, sentence: str, manager: Optional[str]) -> list[str]:
    package_names: Optional[tuple[str, str]] = None
    missing = _MISSING.match(sentence)
    if missing:
        package_names = PACKAGES.get(missing[1])
    for begin, packages in _OTHERS:
        package_names = packages if sentence.startswith(begin) else package_names
    if finding.column == "clock" and "start chrony" in sentence:
        package_names = ("chrony", "chrony")
    if finding.column == "governor":
        package_names = ("linux-cpupower", "kernel-tools")
    if package_names is None or manager is None:
        return []
    return package_names[manager == "dnf"].split()


def _commands(finding: HostFinding, sentence: str, user: Optional[str]) -> list[str]:
    """What is to be done once all is installed."""
    if finding.column == "clock" and "start chrony" in sentence:
        return ["sudo systemctl enable --now chrony || sudo systemctl enable --now chronyd"]
    if finding.column == "governor":
        return ["sudo cpupower frequency-set -g performance"]
    if sentence.startswith((_TUNED, "tuned-adm is missing")):
        return ["sudo systemctl enable --now tuned"]
    if finding.column == "sudo" and sentence.startswith("needs root"):
        rule = f"{user or '$(id -un)'} ALL=(ALL) NOPASSWD: ALL"
        sudoers = "/etc/sudoers.d/cbt-crypto"
        return [f'echo "{rule}" | sudo tee {sudoers} && sudo chmod 440 {sudoers} && sudo visudo -c']
    return []
