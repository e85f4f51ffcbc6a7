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
import yaml

from cbt_crypto.engine.choice import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

_PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
#: All that belongs to a cluster and does not change by itself, and what lies on its hosts.
_STATE = """
for what in 'config dump' 'auth ls' 'osd tree' 'osd pool ls detail' 'osd crush dump' 'mon dump' \
    'mgr module ls'; do
    echo "## $what"; ceph $what 2>/dev/null
done | grep -v removed_snaps_queue  # the pool's own, which it empties in time
ceph osd dump | grep -v '^epoch\\|^modified\\|removed_snaps_queue'
rbd ls
find /etc/ceph /var/lib/ceph -name store.db -prune -o -name 'external_log_to*' -o \\
    -printf '%p %M %u %l\\n' | sort  # the monitor writes that log's place anew all the time
cat /etc/ceph/*
"""
_RUN = """
cd {directory}
if {cbt} --no-report -a {name} {name}.yaml > {name}.log 2>&1
then echo {name}: proved; else echo {name}: refused; cat {name}.log; fi
grep -h '"reason".*\\(crypt\\|byte\\|mode\\)' {name}/results/*/id-*/proof.json || :
"""
#: What a cluster is said to be, truly or not.
CLAIMS = {
    "plain": {"As it is": {}},
    "secure": {"As it is": {"secure_messenger": {}}},
    "luks": {"As it is": {"luks": {}}},
}


@dataclass(frozen=True)
class Node:
    """Where the cluster is made. `run` is of shell text, and gives what it prints."""

    directory: Path
    run: Callable[[str], str]


def campaigns(host: str, directory: str) -> dict[str, str]:
    """A file for each claim: a campaign of one short cell of writes."""
    load = {"vol_size": 64, "iodepth": 8, "time": 4, "op_size": 4096, "mode": "randwrite"}
    files = {}
    for name, configurations in CLAIMS.items():
        cluster = {
            "head": host, "clients": [host], "use_existing": True, "tmp_dir": f"{directory}/mine",
            "configurations": configurations,
        }  # fmt: skip
        sections = {"cluster": cluster, "benchmarks": {"rbd_single_client": load}}
        files[f"{name}.yaml"] = yaml.safe_dump(sections)
    return files


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Namespaces of this machine with the campaigns, and no cluster; they end with the test."""
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    for name, text in campaigns("localhost", str(tmp_path)).items():
        (tmp_path / name).write_text(text)
    lib = tmp_path / "lib"
    lib.mkdir()
    # tmpfs has no direct IO, which OSDs want.
    inside = f"mount --bind {lib} /var/lib/ceph; echo ready; exec sleep infinity"
    with subprocess.Popen(
        [_PROGRAMS / "isolated.sh", tmp_path, "sh", "-ec", inside],
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


def make(node: Node, *options: str) -> None:
    node.run(shlex.join(["sh", str(_PROGRAMS / "stock_cluster.sh"), *options]))


def run(node: Node, name: str) -> str:
    cbt = shlex.join([sys.executable, str(PROJECT / "cbt.py")])
    return node.run(_RUN.format(directory=node.directory, cbt=cbt, name=name))


def test_a_stock_cluster_is_recognised_and_left_as_it_was(node: Node) -> None:
    make(node)
    before = node.run(_STATE)
    plain, secure, luks = (run(node, name) for name in ("plain", "secure", "luks"))
    assert plain.startswith("plain: proved"), plain
    assert "2 of 2 OSDs did not encrypt what they exchanged" in plain
    assert "by their modes (this Ceph counts no encrypted bytes)" in plain
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain: clients crc, OSDs crc" in secure
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks
    assert node.run(_STATE) == before
    assert node.run(f"ls -A {node.directory}/mine 2>/dev/null || :") == ""


def test_a_mixture_is_called_one(node: Node) -> None:
    make(node, "ms_cluster_mode = secure")
    said = {name: run(node, name) for name in ("plain", "secure")}
    for name, text in said.items():
        assert text.startswith(f"{name}: refused"), text
        assert "its traffic is mixed: clients crc, OSDs secure" in text


def test_what_is_encrypted_is_proved(node: Node) -> None:
    make(node, *(f"ms_{who}_mode = secure" for who in ("client", "cluster", "service")))
    assert run(node, "secure").startswith("secure: proved")
    assert run(node, "plain").startswith("plain: refused")
