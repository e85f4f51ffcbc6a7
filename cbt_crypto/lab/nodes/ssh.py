"""ssh into the nodes of a lab: the configuration file, the command lines, and the wait for sshd."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import RunError
from cbt_crypto.lab.shape import Lab, Node

#: What sshd, the last thing that starts on a node, writes to the node's log.
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
        f"Host {node.name}\n"
        f"    HostName {node.ssh_host}\n"
        f"    Port {node.ssh_port}\n"
        f"    HostKeyAlias {node.name}\n"
        for node in lab.nodes
    ]
    common = (
        "Host *\n"
        "    User root\n"
        f'    IdentityFile "{keys / "id_ed25519"}"\n'
        "    IdentitiesOnly yes\n"
        "    BatchMode yes\n"
        f'    UserKnownHostsFile "{keys / "known_hosts"}"\n'
        "    GlobalKnownHostsFile /dev/null\n"
        "    StrictHostKeyChecking yes\n"
        "    GSSAPIAuthentication no\n"
        "    LogLevel ERROR\n"
    )
    return "\n".join([*blocks, common])


def command(lab: Lab, node: Node, *remote: str, tty: bool = False) -> list[str]:
    """The command line that runs `remote` (shell text) on `node`, or a login shell without it."""
    terminal = ["-t"] if tty else ["-T"] if remote else []
    return ["ssh", "-F", str(config_path(lab)), *terminal, node.name, *remote]


def run(lab: Lab, node: Node, script: str) -> str:
    """Run shell text on `node` and return its standard output.

    Raises RunError with the end of its errors when it fails.
    """
    result = subprocess.run(
        command(lab, node, "sh -eus"),
        input=script.encode(),
        capture_output=True,
        check=False,
    )
    if result.returncode != 0:
        errors = result.stderr.decode(errors="replace").strip()[-600:]
        raise RunError(f"{node.name}: exit status {result.returncode}: {errors}")
    return result.stdout.decode(errors="replace")


def wait(
    lab: Lab,
    timeout: float,
    check: Callable[[Node], Optional[str]],
    tell: Callable[[str], None],
) -> None:
    """Wait until every node answers.

    `check` is asked between attempts and returns a sentence when a node cannot answer any more;
    `tell` gets what is waited for. Raises RunError for the first node that cannot, or that did
    not within `timeout` seconds.
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
    listens = console.exists() and _LISTENS in console.read_bytes()
    return listens and _logs_in(lab, node)


def _logs_in(lab: Lab, node: Node) -> bool:
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
