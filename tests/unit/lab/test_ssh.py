"""The configuration is judged by the ssh that reads it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from cbt_crypto.errors import RunError
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab

pytestmark = pytest.mark.unit


def resolved(lab: Lab, host: str) -> dict[str, str]:
    """What ssh would do for `host`: the effective options, by lower-case name."""
    command = ["ssh", "-G", "-F", str(access.config_path(lab)), host]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in output.splitlines() if " " in line)


def test_a_vm_node_is_reached_through_its_port(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    access.write_config(lab)
    options = resolved(lab, "node1")
    assert (options["hostname"], options["port"]) == ("127.0.0.1", "20002")
    assert options["hostkeyalias"] == "node1"


def test_a_namespace_node_is_reached_by_its_address(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(Kind.NAMESPACE)
    access.write_config(lab)
    options = resolved(lab, "node2")
    assert (options["hostname"], options["port"]) == ("10.231.7.12", "22")


def test_only_the_lab_s_own_keys_count(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    access.write_config(lab)
    options = resolved(lab, "node0")
    assert options["user"] == "root"
    assert options["identityfile"] == str(lab.directory / "ssh" / "id_ed25519")
    assert options["userknownhostsfile"] == str(lab.directory / "ssh" / "known_hosts")
    assert options["stricthostkeychecking"] == "true"
    assert (options["identitiesonly"], options["batchmode"]) == ("yes", "yes")


def test_a_node_that_ended_is_reported_at_once(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    for node in lab.nodes:
        lab.console(node).write_text("Kernel panic\n")
    with pytest.raises(RunError, match=r"node0 is gone; its log is .*node0/console\.log"):
        access.wait(lab, 60, lambda node: f"{node.name} is gone", lambda text: None)


def test_a_node_that_never_listens_is_reported_in_the_end(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    for node in lab.nodes:
        lab.console(node).write_text("still booting\n")
    told: list[str] = []
    with pytest.raises(RunError, match="node0 does not answer by ssh within 0 s"):
        access.wait(lab, 0.1, lambda node: None, told.append)
    assert told == ["waiting for node0"]
