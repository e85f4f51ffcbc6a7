"""Nodes as namespaces of this machine: native speed, one kernel, no device-mapper of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab.image.image import Image
from cbt_crypto.lab.nodes import bridge, seed
from cbt_crypto.lab.nodes.disks import make_disks
from cbt_crypto.lab.paths import lab_dir
from cbt_crypto.lab.shape import Lab, Node, Shape, make_nodes

_NODE_SCRIPT = Path(__file__).parent / "node.sh"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SSH_PORT = 22
_PATIENCE_S = 60.0


def check_machine() -> None:
    """Raise UsageError when this machine or user cannot have namespace nodes."""
    if os.geteuid() != 0:
        raise UsageError(
            "--kind namespace needs root: it mounts file systems and makes network links; "
            "use sudo, or --kind vm"
        )
    for tool, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if not shutil.which(tool):
            raise UsageError(f"{tool} is missing; install the package {package}")


def plan(name: str, shape: Shape, image: Image) -> Lab:
    """The lab that `name` would be now. Raises UsageError when the image cannot serve it."""
    if not image.root.is_dir():
        raise UsageError(
            f"the image in {image.directory} was not built by root and has no tree for "
            "namespaces; remove that directory and run lab up again"
        )
    network = bridge.free_network()
    return Lab(
        name=name,
        directory=lab_dir(name),
        shape=shape,
        image=image.key,
        network=network,
        nodes=make_nodes(network, [(None, _SSH_PORT)] * shape.nodes),
        accelerator="none",
    )


class Nodes:
    """The nodes of one lab, as their starter sees them."""

    #: How long nodes may take until their sshd answers; a machine under load is slow.
    patience_s = _PATIENCE_S

    def __init__(self, lab: Lab, image: Image, builds: Optional[Mapping[str, Path]] = None) -> None:
        """Nothing is started yet. `builds` are roots of other releases, for /opt/ceph-RELEASE."""
        self._builds = builds
        self.lab = lab
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every node; they answer by ssh a moment later."""
        bridge.make(self.lab.directory, self.lab.network)
        for index, node in enumerate(self.lab.nodes):
            make_disks(self.lab, node)
            seed.write_seed(self.lab, node)
            process = self._start_node(node)
            self._processes[node.name] = process
            self._wait_for_network_namespace(node, process)
            bridge.attach(self.lab.directory, index, process.pid)

    def finish(self) -> None:
        """Nothing is left to do on nodes that answer."""

    def problem(self, node: Node) -> Optional[str]:
        """One sentence when the node has ended, else None."""
        status = self._processes[node.name].poll()
        return None if status is None else f"{node.name} ended while it started, status {status}"

    def _start_node(self, node: Node) -> subprocess.Popen[bytes]:
        mark = marked_processes.lab_environment(self.lab.node_dir(node))
        with self.lab.console(node).open("wb") as console:
            return subprocess.Popen(
                command(self.lab, node, self._image, self._builds),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**mark, "PATH": _PATH},
            )

    def _wait_for_network_namespace(self, node: Node, process: subprocess.Popen[bytes]) -> None:
        of_this_process = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if os.readlink(f"/proc/{process.pid}/ns/net") != of_this_process:
                return
            time.sleep(0.01)
        raise RunError(
            f"{node.name} did not start in a network namespace of its own; its log is "
            f"{self.lab.console(node)}"
        )


def command(
    lab: Lab, node: Node, image: Image, builds: Optional[Mapping[str, Path]] = None
) -> list[str]:
    """The command line that becomes the node. `builds` are roots of other releases."""
    return [
        *("unshare", "--mount", "--propagation", "private", "--pid", "--net", "--uts", "--ipc"),
        *("--fork", "--kill-child", "--", "sh", str(_NODE_SCRIPT)),
        str(image.root),
        str(lab.node_dir(node)),
        node.name,
        f"{node.address}/{lab.network.prefixlen}",
        *(f"{release}={root}" for release, root in (builds or {}).items()),
    ]
