"""What makes a node itself: its name, addresses, keys and data disks, and ssh into it."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab.shape import Kind, Lab, Node

#: Exit status of ssh that is not the command's.
SSH_FAILED = 255
_LISTENS = b"Server listening on"
#: How long one login may take before another is tried; an emulated CPU needs seconds.
_LOGIN_S = 60


def config_path(lab: Lab) -> Path:
    """The file for `ssh -F`; scp, rsync and pdsh can use it too."""
    return lab.directory / "ssh_config"


def write_config(lab: Lab) -> None:
    """Write the file that `config_path` names."""
    config_path(lab).write_text(config(lab), encoding="utf-8")


def config(lab: Lab) -> str:
    """An ssh configuration that knows the nodes by name and nothing else."""
    keys = lab.directory / "ssh"
    blocks = [
        f"Host {node.name}\n    HostName {node.ssh_host}\n"
        f"    Port {node.ssh_port}\n    HostKeyAlias {node.name}\n"
        for node in lab.nodes
    ]
    common = Path(__file__).with_name("ssh.conf").read_text(encoding="utf-8")
    if lab.shape.kind is Kind.VM and len(os.fsencode(keys)) < _LONGEST_FOLDER:
        blocks.append(_SHARE_CONNECTIONS.format(path=f'"{keys}/%r@%n"'))
    return "\n".join([*blocks, common.format(keys=keys)])


def command(lab: Lab, node: Node, *remote: str, tty: bool = False) -> list[str]:
    """The command line that runs `remote` (shell text) on `node`, or a login shell without it."""
    terminal = ["-t"] if tty else ["-T"] if remote else []
    return ["ssh", "-F", str(config_path(lab)), *terminal, node.name, *remote]


def run(lab: Lab, node: Node, script: str) -> str:
    """Run shell text on `node` and return its output; RunError with the end of its errors."""
    result = subprocess.run(
        command(lab, node, "sh -eus"), input=script.encode(), capture_output=True, check=False
    )
    if result.returncode != 0:
        errors = result.stderr.decode(errors="replace").strip()[-600:]
        said = (gone(lab, node) if result.returncode == SSH_FAILED else "") or errors
        raise RunError(f"{node.name}: exit status {result.returncode}: {said}")
    return result.stdout.decode(errors="replace")


def gone(lab: Lab, node: Node) -> str:
    """That its machine has ended, and why; empty while it runs."""
    if marked_processes.of_lab(lab.node_dir(node)):
        return ""
    return f"its machine has ended: {ending(lab, node) or 'nothing says why'}"


def ending(lab: Lab, node: Node) -> Optional[str]:
    """Why its machine ended: the last that QEMU said, or its kernel's panic; None if neither."""
    logs = [lab.console(node), lab.qemu_log(node)]
    guest, qemu = (log.read_text(errors="replace") if log.exists() else "" for log in logs)
    panics = [line for line in guest.splitlines() if "Kernel panic" in line]
    lines = [*panics[:1], *qemu.strip().splitlines()]
    return lines[-1].strip() if lines else None


def wait(
    lab: Lab, timeout: float, check: Callable[[Node], Optional[str]], tell: Callable[[str], None]
) -> None:
    """Wait until every node answers, or raise RunError for one that did not in `timeout` seconds.

    `check` returns a sentence when a node cannot answer any more; `tell` gets what is waited for.
    """
    deadline = time.monotonic() + timeout
    for node in lab.nodes:
        tell(f"waiting for {node.name}")
        while not _answers(lab, node):
            problem = check(node)
            if problem is None and time.monotonic() > deadline:
                problem = f"{node.name} does not answer by ssh within {timeout:.0f} s"
            if problem is not None:
                raise RunError(f"{problem}; its log is {lab.console(node)}")
            time.sleep(0.2)


def _answers(lab: Lab, node: Node) -> bool:
    # A node that is still starting is not asked: what it could not answer yet would wait in line.
    console = lab.console(node)
    if not console.exists() or _LISTENS not in console.read_bytes():
        return False
    try:
        result = subprocess.run(
            command(lab, node, "true"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOGIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


#: An emulated CPU takes seconds to agree on keys: into and between vm nodes, once for many logins.
_SHARE_CONNECTIONS = (
    "Host node*\n    ControlMaster auto\n    ControlPath {path}\n    ControlPersist 600\n"
)
#: Bytes of a directory for sockets: a socket's path has at most 107, of which ssh adds 17.
_LONGEST_FOLDER = 70


def make_keys(lab: Lab) -> None:
    """Make the two key pairs of a lab, one for its users and one for its hosts, and known_hosts."""
    keys = lab.directory / "ssh"
    keys.mkdir(mode=0o700, exist_ok=True)
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"cbt-crypto lab {lab.name}"]
    for name in ("id_ed25519", "host_key"):
        try:
            subprocess.run([*make, "-f", str(keys / name)], check=True)
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
        share = _SHARE_CONNECTIONS.format(path="/run/ssh-%C")
        files["etc/ssh/ssh_config.d/share.conf"] = (share.encode(), 0o644)
        files["etc/chrony/chrony.conf"] = (_chrony(lab, index).encode(), 0o644)
    return files


def _hosts(lab: Lab) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    return "\n".join([*lines, *(f"{node.address} {node.name}" for node in lab.nodes)]) + "\n"


def _chrony(lab: Lab, index: int) -> str:
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


def make_disks(lab: Lab, node: Node) -> list[Path]:
    """Make the node's data disks, and return their paths."""
    directory = lab.node_dir(node) / "disks"
    directory.mkdir(parents=True, exist_ok=True)
    disks = [directory / f"osd-device-{number}" for number in range(lab.shape.disks)]
    for disk in disks:
        try:
            with disk.open("ab") as file:
                file.truncate(lab.shape.disk_size)
        except (OSError, OverflowError) as error:
            raise RunError(f"{disk}: --disk-size is too large here: {error}") from None
    return disks
