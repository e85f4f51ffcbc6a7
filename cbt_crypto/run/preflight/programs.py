"""Requirements that a host has a program, which say what package to install where it has not."""

from __future__ import annotations

import shlex

from cbt_crypto.hosts.requirement import Requirement

#: Program -> the package that has it, for apt and, where it is another, for dnf.
PACKAGES = {
    "ceph": "ceph-common",
    "rbd": "ceph-common",
    "rados": "ceph-common",
    "ceph-mon": "ceph-mon",
    "ceph-mgr": "ceph-mgr",
    "ceph-osd": "ceph-osd",
    "ceph-authtool": "ceph-common",
    "ceph-conf": "ceph-common",
    "monmaptool": "ceph-base",
    "osdmaptool": "ceph-base",
    "python3": "python3",
    "collectl": "collectl (dnf: from EPEL), or write `sampler:` in monitoring_profiles",
    "etcd": "etcd-server (dnf: etcd)",
    "fio": "fio (dnf: and fio-engine-rbd)",
    "scp": "openssh-client (dnf: openssh-clients)",
    "pdsh": "pdsh (dnf: pdsh-rcmd-ssh, from EPEL)",
    "pdcp": "pdsh (dnf: pdsh-rcmd-ssh, from EPEL)",
    "perf": "linux-perf (dnf: perf)",
    "stress-ng": "stress-ng",
}
#: Program -> its column in the table of `check`: its own, that of its package, or Ceph's.
_COLUMNS = {
    **dict.fromkeys(PACKAGES, "ceph"),
    **{name: name for name in ("collectl", "perf", "python3")},
    "pdcp": "pdsh",
    "scp": "pdsh",
}


def program_needed(program: str, hosts: tuple[str, ...]) -> Requirement:
    """The requirement that these hosts have a program."""
    package = PACKAGES.get(program)
    cure = f"install {package}" if package else "name it in the file by its whole path"
    sentence = f"{program} is missing; {cure}"
    script = (
        f"command -v {shlex.quote(program)} >/dev/null && echo ok || echo {shlex.quote(sentence)}"
    )
    return Requirement(program, hosts, script, _COLUMNS.get(program, "tools"))


def librados(ceph_cmd: str, head: str) -> Requirement:
    """The requirement that the Python which runs `ceph` on the head can import librados."""
    script = f"""\
ceph=$(command -v {shlex.quote(ceph_cmd)}) || {{ echo ok; exit 0; }}
python=$(sed -n '1s/^#! *//p' "$ceph")
${{python:-python3}} -c 'import rados' 2>/dev/null && echo ok ||
    echo "Python's rados module is missing; install python3-rados\""""
    return Requirement("librados", (head,), script, "ceph")


def rbd_engine(fio: str, hosts: tuple[str, ...]) -> Requirement:
    """The requirement that fio was built with its rbd engine."""
    script = f"""\
command -v {shlex.quote(fio)} >/dev/null || {{ echo ok; exit 0; }}
if {shlex.quote(fio)} --enghelp 2>&1 | grep -qw rbd; then echo ok
else echo 'fio has no rbd engine; install one that has (dnf: fio-engine-rbd)'; fi"""
    return Requirement(f"{fio} with rbd", hosts, script)
