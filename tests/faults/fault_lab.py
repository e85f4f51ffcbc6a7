"""Four namespace nodes, a campaign that runs on them, and the things that can go wrong there."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import yaml
from real_labs import namespaces, start_lab
from rich.console import Console

from cbt_crypto.errors import RunError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import access, image, lifecycle, namespace, run
from cbt_crypto.lab.run import LabCampaign
from cbt_crypto.lab.shape import Node, Steps

HOME, ARCHIVE, TMP_DIR = "/root/campaign", "/root/archive", "/var/lib/cbt-crypto"
#: Commands and clients on node0 and node1, OSDs on node2 and node3.
CLUSTER: dict[str, Any] = {
    "head": "node0",
    "clients": ["node0", "node1"],
    "osds": ["node2", "node3"],
    "mons": {"node0": {"a": "node0"}},
    "mgrs": {"node0": {"x": None}},
    "osd_file_size": "2G",
    "tmp_dir": TMP_DIR,
    "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
    "settings": {"osd_memory_target": "900M"},
    # So that a fault is noticed in two minutes here, also on a busy machine; the default is 300 s.
    "deploy_timeout": 120,
    "rebuild": "needed",
}
LOAD = {
    "volumes_per_client": 1,
    "vol_size": 32,
    "iodepth": 4,
    "time": 6,
    "ramp": 0,
    "op_size": 4096,
}
#: A `date` that is 5 s ahead: what a node's kernel shares with the others here is its clock.
DATE = r"""printf '#!/bin/sh\nexec /bin/date -d "+5 seconds" "$@"\n' > /usr/local/bin/date
chmod +x /usr/local/bin/date"""
#: As a machine that starts says where it is: each that hears it looks up its card anew.
_ANNOUNCE = """
import contextlib, socket, sys
for name in sys.argv[1:]:
    with contextlib.suppress(OSError):
        socket.create_connection((name, 22), 5).close()
"""
_LIMIT_S = 420
_LISTENING = "Server listening"


def document(cluster: Any = None, load: Any = None) -> dict[str, Any]:
    """A campaign of two cells."""
    cells = {**LOAD, "mode": ["randread", "randwrite"], **(load or {})}
    return {"cluster": {**CLUSTER, **(cluster or {})}, "benchmarks": {"rbd_multi_client": cells}}


@dataclass
class Running:
    """A `cbt.py` on a node, with its output as it comes, each line with its time."""

    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def wait_for(self, text: str, limit: float = 180) -> None:
        ends = time.monotonic() + limit
        while not any(text in line for _, line in list(self.lines)):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < ends, f"waited in vain for {text!r}:\n{self.said()}"
            time.sleep(0.02)

    def finish(self) -> int:
        """The exit status."""
        status = self.process.wait(_LIMIT_S)
        self._reader.join(10)
        return status

    def said(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def noticed(self, since: float) -> tuple[float, str]:
        """Seconds until the first word on a failure after `since`, and that word."""
        # Phases begin with the time in brackets.
        words = [(at, line) for at, line in self.lines if at > since and not line.startswith("[")]
        assert words, self.said()
        return words[0][0] - since, words[0][1]


class Laboratory:
    """The lab, its processes and its files."""

    def __init__(self, name: str, nodes: int = 4) -> None:
        self.lab = start_lab(name, namespaces(nodes))
        with Steps(Console(file=io.StringIO())) as steps:
            self.image = image.provide("trixie", steps)
        self.name = name
        self.archive = ARCHIVE

    def down(self) -> None:
        lifecycle.down(self.name)

    def node(self, index: int) -> Node:
        return self.lab.nodes[index]

    def on(self, index: int, script: str) -> str:
        return access.run(self.lab, self.node(index), script)

    # -- campaigns --------------------------------------------------------------------------

    def carry_in(self, content: dict[str, Any], where: Path, index: int = 0) -> None:
        """Put the program and a campaign's file on a node."""
        config = where / "faults.yaml"
        config.write_text(yaml.safe_dump(content, sort_keys=False))
        run.put(self.lab, self.node(index), HOME, LabCampaign(config, where).files())

    def start(self, *options: str, index: int = 0) -> Running:
        command = f"python3 cbt.py --no-report -a {self.archive} {' '.join(options)} faults.yaml"
        script = f"cd {HOME} && echo $$ > pid && exec {command} 2>&1"
        return Running(
            subprocess.Popen(
                access.command(self.lab, self.node(index), script),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, start_new_session=True,
            )
        )  # fmt: skip

    def signal(self, name: str, index: int = 0) -> None:
        self.on(index, f"kill -{name} $(cat {HOME}/pid)")

    def cells(self, index: int = 0) -> list[dict[str, Any]]:
        """Every cell.json of the archive that is on a node."""
        text = self.on(
            index, f"cat {self.archive}/results/0*/id-*/cell.json 2>/dev/null | tr -d '\\n' || :"
        )
        found, decoder, at = [], json.JSONDecoder(), 0
        while at < len(text):
            cell, at = decoder.raw_decode(text, at)
            found.append(cell)
        return found

    def finished(self, index: int = 0) -> dict[str, float]:
        """Id of each finished cell -> when it was measured."""
        cells = self.cells(index)
        return {cell["id"]: cell["started"] for cell in cells if cell["state"] == "finished"}

    def leftovers(self) -> list[str]:
        """Processes of campaigns, what holds the nodes, and their directories."""
        look = (
            "for e in /proc/[0-9]*/environ; do p=${e%/environ}; "
            "grep -qz ^CBT_CRYPTO_MARK= $e 2>/dev/null && tr '\\0' ' ' < $p/cmdline && echo; done;"
            " grep -o '@cbt-crypto-.*' /proc/net/unix || :;"
            f" ls -d {TMP_DIR} 2>/dev/null || :"
        )
        return [
            f"{node.name}: {line.strip()}"
            for index, node in enumerate(self.lab.nodes)
            for line in self.on(index, look).splitlines()
            if line.strip()
        ]

    def clear(self) -> None:
        """Forget the campaign before: a new archive, nothing on any node."""
        self.archive = ARCHIVE
        # A test that failed may have left its campaign at work, and what holds the nodes.
        end = (
            "for e in /proc/[0-9]*/environ; do p=${e%/environ}; "
            "if grep -qz -e ^CBT_CRYPTO_MARK= -e ^CBT_CRYPTO_RUN= $e 2>/dev/null || "
            "grep -qza -e 'faults.yaml' -e 'action.*hold' $p/cmdline 2>/dev/null; "
            "then kill -9 ${p#/proc/} 2>/dev/null || :; fi; done; "
        )
        for index in range(len(self.lab.nodes)):
            self.on(index, f"{end} rm -rf {ARCHIVE} {TMP_DIR} /root/.local/state/cbt-crypto")

    # -- what goes wrong --------------------------------------------------------------------

    def power_off(self, index: int) -> None:
        """End every process of a node at once; its network ends with them."""
        marked_processes.end_lab(self.lab.node_dir(self.node(index)))

    def power_on(self, index: int) -> None:
        """Start the node again on its disk."""
        node = self.node(index)
        nodes = namespace.Nodes(self.lab, self.image)
        process = nodes._start_node(node)
        nodes._wait_for_network_namespace(node, process)
        namespace.attach(self.lab.directory, index, process.pid)
        ends = time.monotonic() + 60
        while _LISTENING not in self.lab.console(node).read_text(errors="replace"):
            assert time.monotonic() < ends
            time.sleep(0.1)
        # The others may still have the address of its network card from before.
        names = " ".join(other.name for other in self.lab.nodes)
        self.on(index, f"python3 -c '{_ANNOUNCE}' {names}")

    def pids(self, index: int, *names: str) -> list[int]:
        """Processes of a node by the name of their program, as this machine counts them."""
        namespaces = {
            os.readlink(f"/proc/{pid}/ns/pid_for_children")
            for pid in marked_processes.of_lab(self.lab.node_dir(self.node(index)))
        } - {os.readlink("/proc/self/ns/pid")}
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "ns/pid") not in namespaces:
                    continue
                if (entry / "comm").read_text().strip() in names:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill(self, index: int, number: int, *names: str) -> int:
        """Send a signal to programs of a node, from outside; return to how many."""
        pids = self.pids(index, *names)
        for pid in pids:
            os.kill(pid, number)
        return len(pids)


def until(what: str, condition: Callable[[], Any], limit: float = 60) -> Any:
    ends = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited {limit} s in vain for {what}"
        time.sleep(0.05)
    return found


SSHD = ("sshd", "sshd-session", "sshd-auth")
STOP, GO_ON, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
__all__ = ["Laboratory", "Optional", "RunError", "Running", "document", "until"]
