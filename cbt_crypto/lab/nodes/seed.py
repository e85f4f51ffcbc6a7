"""What makes a node itself: its name, addresses and keys, as a tar laid over the shared root."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

from cbt_crypto.errors import UsageError
from cbt_crypto.lab.shape import Kind, Lab, Node

#: An emulated CPU takes seconds to agree on keys: pdsh between vm nodes does so once a node.
_SHARE_CONNECTIONS = """\
Host node*
    ControlMaster auto
    ControlPath /run/ssh-%C
    ControlPersist 600
"""


def make_keys(lab: Lab) -> None:
    """Make the two key pairs of a lab, one for its users and one for its hosts, and known_hosts."""
    keys = lab.directory / "ssh"
    keys.mkdir(mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "host_key"):
        command = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            f"cbt-crypto lab {lab.name}",
        ]
        try:
            subprocess.run([*command, "-f", str(keys / name)], check=True)
        except FileNotFoundError:
            raise UsageError("ssh-keygen is missing; install the package openssh-client") from None
    names = [*(node.name for node in lab.nodes), *(node.address for node in lab.nodes)]
    host_key = (keys / "host_key.pub").read_text(encoding="ascii").strip()
    line = f"{','.join([*names, 'localhost', '127.0.0.1'])} {host_key}\n"
    (keys / "known_hosts").write_text(line, encoding="ascii")


def write_seed(lab: Lab, node: Node) -> Path:
    """Write the node's seed.tar and return its path."""
    target = lab.node_dir(node) / "seed.tar"
    target.touch(mode=0o600)
    with tarfile.open(target, "w") as archive:
        for directory in ("root", "root/.ssh"):
            _add(archive, directory, b"", 0o700, tarfile.DIRTYPE)
        for path, (data, mode) in _files(lab, node).items():
            _add(archive, path, data, mode)
    return target


def _files(lab: Lab, node: Node) -> dict[str, tuple[bytes, int]]:
    keys = lab.directory / "ssh"
    index = lab.nodes.index(node)
    machine_id = hashlib.sha256(f"{lab.directory} {node.name}".encode()).hexdigest()[:32]
    files = {
        "etc/hostname": (f"{node.name}\n".encode(), 0o644),
        "etc/hosts": (_hosts(lab).encode(), 0o644),
        "etc/machine-id": (f"{machine_id}\n".encode(), 0o444),
        "etc/ssh/lab_host_key": ((keys / "host_key").read_bytes(), 0o600),
        "root/.ssh/authorized_keys": ((keys / "id_ed25519.pub").read_bytes(), 0o600),
        "root/.ssh/id_ed25519": ((keys / "id_ed25519").read_bytes(), 0o600),
        "root/.ssh/known_hosts": ((keys / "known_hosts").read_bytes(), 0o600),
    }
    if lab.shape.kind is Kind.VM:
        files["etc/ssh/ssh_config.d/share.conf"] = (_SHARE_CONNECTIONS.encode(), 0o644)
        files["etc/chrony/chrony.conf"] = (_chrony(lab, index).encode(), 0o644)
    return files


def _hosts(lab: Lab) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    return "\n".join([*lines, *(f"{node.address} {node.name}" for node in lab.nodes)]) + "\n"


def _chrony(lab: Lab, index: int) -> str:
    """node0's clock is the lab's; the others keep to it."""
    if index == 0:
        return f"local stratum 8\nallow {lab.network}\ndriftfile /var/lib/chrony/drift\n"
    return (
        f"server {lab.head.address} iburst minpoll 0 maxpoll 3 xleave\n"
        "makestep 0.01 -1\ndriftfile /var/lib/chrony/drift\n"
    )


def _add(
    archive: tarfile.TarFile, path: str, data: bytes, mode: int, kind: bytes = tarfile.REGTYPE
) -> None:
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.size = kind, mode, len(data)
    archive.addfile(member, io.BytesIO(data) if data else None)
