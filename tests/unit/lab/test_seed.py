from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab

pytestmark = pytest.mark.unit


def contents(path: Path) -> dict[str, tuple[str, int]]:
    """Text and mode of every file of a seed, by its path."""
    with tarfile.open(path) as archive:
        return {
            member.name: (file.read().decode(), member.mode)
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab()
    access.make_keys(lab)
    return lab


def test_every_node_resolves_every_other(lab: Lab) -> None:
    for node in lab.nodes:
        files = contents(access.write_seed(lab, node))
        assert files["etc/hostname"][0] == f"{node.name}\n"
        assert "10.231.7.12 node2" in files["etc/hosts"][0].splitlines()


def test_nodes_share_keys_and_nothing_else_that_identifies_them(lab: Lab) -> None:
    first, second = (contents(access.write_seed(lab, node)) for node in lab.nodes[:2])
    assert first["root/.ssh/id_ed25519"] == second["root/.ssh/id_ed25519"]
    assert first["etc/machine-id"] != second["etc/machine-id"]


def test_private_keys_are_for_root_alone_here_and_there(lab: Lab) -> None:
    path = access.write_seed(lab, lab.head)
    files = contents(path)
    private = {name for name, (text, _) in files.items() if "PRIVATE KEY" in text}
    assert private == {"etc/ssh/lab_host_key", "root/.ssh/id_ed25519"}
    assert all(files[name][1] == 0o600 for name in private)
    assert path.stat().st_mode & 0o077 == 0
    assert (lab.directory / "ssh").stat().st_mode & 0o077 == 0


def test_the_known_host_key_is_the_one_that_nodes_have(lab: Lab) -> None:
    files = contents(access.write_seed(lab, lab.head))
    host_key = lab.directory / "their_key"
    host_key.write_text(files["etc/ssh/lab_host_key"][0])
    host_key.chmod(0o600)
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(host_key)], capture_output=True, text=True, check=True
    )
    names, _, key = files["root/.ssh/known_hosts"][0].partition(" ")
    assert key.split()[:2] == shown.stdout.split()[:2]
    assert {"node0", "node2", "10.231.7.11", "localhost"} <= set(names.split(","))


def test_the_clock_of_the_head_is_the_clock_of_all(lab: Lab) -> None:
    head, other = (contents(access.write_seed(lab, node)) for node in lab.nodes[:2])
    assert "local stratum" in head["etc/chrony/chrony.conf"][0]
    assert f"server {lab.head.address} " in other["etc/chrony/chrony.conf"][0]


def test_namespaces_have_this_machine_s_clock(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(Kind.NAMESPACE)
    access.make_keys(lab)
    assert not any("chrony" in name for name in contents(access.write_seed(lab, lab.head)))
