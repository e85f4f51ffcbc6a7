"""A cluster of this machine's own Ceph, 16.2 on Debian 12, made by its own tools and isolated.

What is there is recognised, a false claim fails, and nothing of the cluster is changed. This
release counts no encrypted bytes, so the modes decide. tests/e2e has the same of the lab's.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import pytest
from stock_clusters import (
    MAKE_NAMED,
    NAMED,
    SCRIPT,
    STATE,
    campaigns,
    cleanup_script,
    kill_script,
    run_script,
)

from cbt_crypto.engine.choice import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ISOLATED = SCRIPT.with_name("isolated.sh")


@dataclass(frozen=True)
class Node:
    """Where the cluster is made. `run` is of shell text, and gives what it prints."""

    directory: Path
    run: Callable[[str], str]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Namespaces of this machine with the campaigns, and no cluster; they end with the test."""
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    for name, text in campaigns("localhost", f"{tmp_path}/mine").items():
        (tmp_path / name).write_text(text)
    for name, text in campaigns("localhost", f"{tmp_path}/mine", keys=NAMED).items():
        (tmp_path / f"named-{name}").write_text(text)
    lib = tmp_path / "lib"
    lib.mkdir()
    # tmpfs has no direct IO, which OSDs want.
    inside = f"mount --bind {lib} /var/lib/ceph; echo ready; exec sleep infinity"
    with subprocess.Popen(
        [ISOLATED, tmp_path, "sh", "-ec", inside],
        stdout=subprocess.PIPE, text=True,
    ) as isolated:  # fmt: skip
        try:
            assert isolated.stdout is not None
            assert isolated.stdout.readline() == "ready\n"
            children = Path(f"/proc/{isolated.pid}/task/{isolated.pid}/children")
            enter = ["nsenter", "--all", "--target", children.read_text().strip()]

            def run(script: str) -> str:
                # What daemons inherit must be no pipe that is read to its end here.
                printed = tmp_path / "printed"
                with printed.open("w") as file:
                    subprocess.run(
                        [*enter, "sh", "-ec", script], stdout=file, stdin=subprocess.DEVNULL,
                        check=True, timeout=600,
                    )  # fmt: skip
                return printed.read_text()

            yield Node(tmp_path, run)
        finally:
            isolated.kill()  # unshare is deaf to SIGTERM while its child runs


def make(node: Node, *options: str, how: str = "sh ") -> None:
    node.run(how + shlex.join([str(SCRIPT), *options]))


CBT = shlex.join([sys.executable, str(PROJECT / "cbt.py")])
CLEANUP = shlex.join([sys.executable, "-m", "cbt_crypto", "cleanup", "--yes"])


def run(node: Node, name: str) -> str:
    return node.run(run_script(name, str(node.directory), CBT))


def test_a_stock_cluster_is_recognised_and_left_as_it_was(node: Node) -> None:
    make(node)
    before = node.run(STATE)
    plain, secure, luks = (run(node, name) for name in ("plain", "secure", "luks"))
    assert plain.startswith("plain: proved"), plain
    assert "2 of 2 OSDs did not encrypt what they exchanged" in plain
    assert "by their modes (this Ceph counts no encrypted bytes)" in plain
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain: clients crc, OSDs crc" in secure
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks
    assert node.run(STATE) == before
    assert node.run(f"ls -A {node.directory}/mine 2>/dev/null || :") == ""


def test_a_mixture_is_called_one(node: Node) -> None:
    make(node, "ms_cluster_mode = secure")
    said = {name: run(node, name) for name in ("plain", "secure")}
    for name, text in said.items():
        assert text.startswith(f"{name}: refused"), text
        assert "its traffic is mixed: clients crc, OSDs secure" in text


def test_what_is_encrypted_is_proved_whatever_cluster_and_client_are_called(node: Node) -> None:
    modes = (f"ms_{who}_mode = secure" for who in ("client", "cluster", "service"))
    make(node, *modes, how=MAKE_NAMED)
    said = {name: run(node, name) for name in ("named-secure", "named-plain")}
    assert said["named-secure"].startswith("named-secure: proved"), said
    assert said["named-plain"].startswith("named-plain: refused"), said


def test_a_killed_run_leaves_nothing_that_its_cleanup_does_not_remove(node: Node) -> None:
    make(node)
    node.run("rbd create --size 8 theirs; rbd image-meta set theirs cbt-crypto.run somebody")
    before = node.run(STATE)
    (own,) = set(node.run(kill_script(str(node.directory), CBT)).split()) - {"theirs"}
    assert own.startswith("cbt-localhost-0-64")
    # Another archive's campaign is refused before it touches anything.
    said = run(node, "plain")
    assert f"localhost: image rbd/{own} is on the cluster already" in said
    node.run(cleanup_script(str(node.directory), CLEANUP))
    assert node.run(STATE) == before
    assert node.run(f"ls -A {node.directory}/mine 2>/dev/null || :") == ""
    assert run(node, "plain").startswith("plain: proved")
    # Somebody else's by that name stays.
    node.run(f"rbd create --size 8 {own}")
    before = node.run(STATE)
    assert "remove or rename it" in run(node, "secure")
    assert node.run(STATE) == before
