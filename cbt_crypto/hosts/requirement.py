"""What a host must offer, or has to tell, before anything is touched."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from typing_extensions import override

from cbt_crypto.hosts import shell

#: The column of the cluster that hosts are let into, which must be the same one.
CLUSTER = "cluster"


@dataclass(frozen=True)
class Requirement:
    """Something a host must offer: a script that prints a fact, and the judge of that fact.

    `judge` takes the stripped output of each of `hosts`; it returns None, or a sentence what is
    missing and what to do. `column` is that of `check`'s table; `takes_s` how long it may take.
    """

    name: str
    hosts: tuple[str, ...]
    script: str
    column: str = "tools"
    takes_s: int = 0

    def judge(self, output: str) -> Optional[str]:
        """Return None when `output` is satisfactory. The default wants the script to print ok."""
        return None if output.strip() == "ok" else output.strip() or f"{self.name} is missing"


@dataclass(frozen=True)
class Fact(Requirement):
    """A requirement that shows what it found, and may warn of what is no error."""

    def shown(self, output: str) -> str:
        """What stands in the table."""
        return output.strip().partition("\n")[0] or "?"

    def judge(self, output: str) -> Optional[str]:
        """None: most facts are for information."""
        return None

    def advice(self, output: str) -> Optional[str]:
        """One sentence on what is not as it should be and how to fix it, or None."""
        return None


@dataclass(frozen=True)
class Judged(Fact):
    """A fact of which the table says whether it will do."""

    @override
    def shown(self, output: str) -> str:
        return "no" if self.judge(output) else "ok"


# zram is memory itself.
SWAP = "sed '1d; /^\\/dev\\/zram/d; s/ .*//; s/^/swap /' /proc/swaps"


def swap_advice(output: str) -> Optional[str]:
    """One sentence when what `SWAP` printed shows that keys in a tmpfs may reach a disk."""
    swaps = [line[len("swap ") :] for line in output.splitlines() if line.startswith("swap ")]
    if not swaps:
        return None
    where = ", ".join(swaps)
    return f"keys in memory may be written to swap ({where}); swapoff -a for the campaign"


@dataclass(frozen=True)
class KeysInMemory(Fact):
    """For hosts with keys in a tmpfs."""

    script: str = f"echo ok\n{SWAP}"

    @override
    def advice(self, output: str) -> Optional[str]:
        return swap_advice(output)


#: What a sentence calls missing -> the packages that have it, by apt and by dnf.
PACKAGES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ceph", "rbd", "rados", "ceph-authtool", "ceph-conf"), ("ceph-common",) * 2),
    **dict.fromkeys(("monmaptool", "osdmaptool"), ("ceph-base",) * 2),
    **dict.fromkeys(("pdsh", "pdcp"), ("pdsh", "epel-release pdsh pdsh-rcmd-ssh")),
    **dict.fromkeys(("blkid", "wipefs", "unshare"), ("util-linux",) * 2),
    **dict.fromkeys(("ip", "bridge"), ("iproute2", "iproute")),
    **{f"ceph-{kind}": (f"ceph-{kind}",) * 2 for kind in ("mon", "mgr", "osd", "mds", "fuse")},
    **{f"rbd-{kind}": (f"rbd-{kind}",) * 2 for kind in ("nbd", "fuse")},
    "mount.ceph": ("ceph-common",) * 2,
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
#: Program -> its column in the table of `check`: its own, that of its package, or Ceph's.
_COLUMNS = {
    **dict.fromkeys(PACKAGES, "ceph"),
    **{name: name for name in ("collectl", "perf", "python3")},
    "pdcp": "pdsh",
    "scp": "pdsh",
}


def program_needed(program: str, hosts: tuple[str, ...]) -> Requirement:
    """The requirement that these hosts have a program."""
    cure = "name it in the file by its whole path"
    if program in PACKAGES:
        by_apt, by_dnf = PACKAGES[program]
        cure = f"install {by_apt}" if by_apt == by_dnf else f"install {by_apt} (dnf: {by_dnf})"
    cure += ", or write `sampler:` in monitoring_profiles" if program == "collectl" else ""
    sentence = f"{program} is missing; {cure}"
    # As root finds it, who starts some of them.
    script = (
        f"PATH=$PATH:/usr/sbin:/sbin; command -v {shlex.quote(program)} >/dev/null && echo ok || "
        f"echo {shlex.quote(sentence)}"
    )
    return Requirement(program, hosts, script, _COLUMNS.get(program, "tools"))


def librados(ceph_cmd: str, head: str) -> Requirement:
    """The requirement that the Python which runs `ceph` on the head can import librados."""
    script = shell.call(__file__, "imports_rados", ceph_cmd)
    return Requirement("librados", (head,), script, "ceph")


def engine_of_fio(fio: str, engine: str, hosts: tuple[str, ...], remedy: str = "") -> Requirement:
    """The requirement that fio was built with an engine, and that the kernel lets it work."""
    script = shell.call(__file__, "has_engine", fio, engine, remedy)
    return Requirement(f"{fio} with {engine}", hosts, script)


def rbd_engine(fio: str, hosts: tuple[str, ...]) -> Requirement:
    """That, of its rbd engine."""
    return engine_of_fio(fio, "rbd", hosts, "; install one that has (dnf: fio-engine-rbd)")
